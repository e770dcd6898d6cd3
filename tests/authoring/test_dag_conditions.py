"""skip_if and cancel_if: what can be asked, of whom it is asked, and what is refused when the class is created."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.authoring.actions import action
from holdfast.authoring.dag_nodes import step, task
from holdfast.authoring.dags import Dag, NodeCall, callable_of
from holdfast.authoring.registry import Registry
from holdfast.core.dag_document import frozen
from holdfast.core.errors import DagError
from holdfast.core.graph import Graph
from holdfast.core.retry import Retry

registry = Registry()


@action(registry=registry, retry=Retry(retry_on=(KeyError,)))
async def tell(level: int = 1) -> None: ...


def expired(dag: Any) -> bool:
    return bool(dag.age > 10)


class Order(Dag, registry=registry, cancel_if=expired):
    age: int = 0
    free: bool = False

    def is_small(self) -> bool:
        return self.age < 5

    async def is_odd(self) -> bool:
        return self.age % 2 == 1

    @property
    def old(self) -> bool:
        return self.age > 5

    @classmethod
    def closed(cls) -> bool:
        return True

    @step(skip_if=is_small, retry=Retry(attempts=2, retry_on=(OSError,)))
    def by_function(self) -> None: ...

    @step(skip_if="is_odd", cancel_if="old")
    def by_name(self) -> None: ...

    @task(skip_if=["free", "closed", False], name="by-field")
    def by_field(self) -> None: ...

    @task(skip_if=True)
    def never(self) -> None: ...

    @task(skip_if=False)
    def always(self) -> None: ...

    told = task(job=tell, args={"level": 2}, skip_if=lambda dag: dag.age == 7)


async def answers(conditions: tuple[Callable[[], Any], ...]) -> list[Any]:
    found = []
    for condition in conditions:
        answer = condition()
        found.append(await answer if inspect.isawaitable(answer) else answer)
    return found


async def asked(dag: Dag, node: str) -> tuple[list[Any], list[Any]]:
    ready: NodeCall = dag.node_callable(node)
    return await answers(ready.skip_if), await answers(ready.cancel_if)


async def test_a_condition_is_a_function_a_name_or_a_truth_and_is_asked_of_the_instance() -> None:
    young, old = Order(age=1, free=True), Order(age=12)
    assert await asked(young, "by_function") == ([True], [False])
    assert await asked(old, "by_function") == ([False], [True])
    assert await asked(young, "by_name") == ([True], [False, False])
    assert await asked(old, "by_name") == ([False], [True, True])
    assert await asked(young, "by-field") == ([True, True], [False])
    assert await asked(young, "never") == ([True], [False])
    assert await asked(young, "always") == ([], [False])


async def test_a_job_in_a_class_has_conditions_too() -> None:
    assert await asked(Order(age=7), "told") == ([True], [False])
    assert await asked(Order(age=8), "told") == ([False], [False])


async def test_a_subclass_adds_to_what_cancels_its_parents_runs() -> None:
    class Special(Order, cancel_if=[lambda dag: dag.age == 3, "free"]): ...

    assert await answers(Special(age=3).node_callable("never").cancel_if) == [False, True, False]


def test_what_a_mixin_of_two_dags_cancels_is_asked_once_each() -> None:
    apart = Registry()

    class Left(Dag, registry=apart, cancel_if="a"):
        a: bool = False

    class Right(Dag, registry=apart, cancel_if="b"):
        b: bool = True

    class Both(Left, Right, registry=apart):
        @step
        def go(self) -> None: ...

    assert [condition() for condition in Both().node_callable("go").cancel_if] == [True, False]


async def test_an_override_keeps_the_conditions_it_does_not_change() -> None:
    apart = Registry()

    class Parent(Dag, registry=apart):
        ready: bool = False

        @step(skip_if="ready", cancel_if=True)
        def kept(self) -> None: ...

        @step(skip_if="ready", cancel_if="ready")
        def decorated(self) -> None: ...

        @step(skip_if="ready")
        def changed(self) -> None: ...

        @step(skip_if="ready")
        def cleared(self) -> None: ...

    class Child(Parent, registry=apart):
        def kept(self) -> None: ...

        @step(timeout=3)
        def decorated(self) -> None: ...

        @step(skip_if=lambda dag: "new")
        def changed(self) -> None: ...

        @step(skip_if=[])
        def cleared(self) -> None: ...

    child = Child(ready=True)
    assert await asked(child, "kept") == ([True], [True])
    assert await asked(child, "decorated") == ([True], [True])
    assert await asked(child, "changed") == (["new"], [])
    assert await asked(child, "cleared") == ([], [])


def test_i31_conditions_are_code_and_leave_the_graph_alone() -> None:
    def made(**conditions: Any) -> type[Dag]:
        class Same(Dag, registry=Registry()):
            @step(**conditions)
            def go(self) -> None: ...

        return Same

    assert made().dag_signature() == made(skip_if=True, cancel_if=lambda dag: False).dag_signature()


def test_i31_a_stored_graph_asks_the_conditions_of_the_class_also_for_renamed_nodes() -> None:
    stored = frozen(Order.compiled_dag())
    renamed = Graph(tuple(replace(node, name=f"renamed-{node.name}") for node in stored.nodes))
    order = Order(age=7)
    assert [ask() for ask in callable_of(order, renamed.by_id["told"]).skip_if] == [True]
    assert len(callable_of(order, renamed.by_id["by_function"]).skip_if) == 1
    moved = replace(renamed.by_id["told"], id="n_other")
    assert callable_of(order, moved).skip_if == ()
    assert len(callable_of(order, moved).cancel_if) == 1


def test_i3_what_is_worth_a_retry_comes_from_the_code_and_not_from_the_stored_graph() -> None:
    stored = frozen(Order.compiled_dag())
    assert stored.by_id["by_function"].policy.retry.retry_on == (Exception,)
    assert callable_of(Order(), stored.by_id["by_function"]).retry_on == (OSError,)
    assert callable_of(Order(), stored.by_id["told"]).retry_on == (KeyError,)
    assert callable_of(Order(), stored.by_id["never"]).retry_on == (Exception,)


# --- what is refused ---------------------------------------------------------------------------------------------


def generating(dag: Any) -> Iterator[bool]:
    yield True


WRONG: dict[str, tuple[Any, str]] = {
    "a name that is unknown": ("is_smal", "skip_if='is_smal' of step 'go': there is no such .*'is_small'"),
    "a node": ("other", "skip_if='other' of step 'go' names a node"),
    "a method with a parameter": ("with_parameter", r"'with_parameter' of step 'go' takes \(self, level: 'int'\)"),
    "a function without a parameter": (lambda: True, r"takes \(\), but a condition is called with the instance"),
    "a function with two": (lambda dag, level: True, r"takes \(dag, level\)"),
    "a generator": (generating, "skip_if=generating is a generator, which would always count as true"),
    "a method that is a generator": ("generated", "is a generator"),
    "a number": (7, "skip_if holds 7, a int"),
    "nothing": (None, "skip_if holds None"),
    "a class": (bool, "skip_if holds <class 'bool'>"),
    "something odd in a list": ([True, 7], "skip_if holds 7"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_asked_is_refused_when_the_class_is_created(case: str) -> None:
    condition, message = WRONG[case]
    with pytest.raises(DagError, match=message):

        class Wrong(Dag, registry=Registry()):
            def is_small(self) -> bool:
                return True

            def with_parameter(self, level: int) -> bool:
                return True

            def generated(self) -> Iterator[bool]:
                yield True

            @step
            def other(self) -> None: ...

            @step(skip_if=condition)
            def go(self) -> None: ...


def test_a_step_given_as_a_condition_is_refused() -> None:
    with pytest.raises(DagError, match="cancel_if=other is a step, which is run and not asked"):

        class Wrong(Dag, registry=Registry()):
            @step
            def other(self) -> None: ...

            @step(cancel_if=other)
            def go(self) -> None: ...


def test_a_class_option_is_checked_too() -> None:
    with pytest.raises(DagError, match=r"class .*Wrong: cancel_if='gone' of the class: there is no such"):

        class Wrong(Dag, registry=Registry(), cancel_if="gone"):
            @step
            def go(self) -> None: ...

    with pytest.raises(DagError, match="cancel_if of the class holds 3"):

        class Odd(Dag, registry=Registry(), cancel_if=3):
            @step
            def go(self) -> None: ...
