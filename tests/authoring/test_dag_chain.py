"""Chains and dependencies of class DAGs: I25 and I26, sentence by sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.authoring.actions import Action, action
from holdfast.authoring.dag_chain import chain_of
from holdfast.authoring.dag_nodes import PREVIOUS, DeclaredNode, MethodNode, step, task
from holdfast.authoring.dags import Dag
from holdfast.authoring.registry import Registry
from holdfast.core.errors import DagError


def edges(dag: type[Dag]) -> dict[str, tuple[str, ...]]:
    return {node.name: node.depends_on for node in dag.compiled_dag().nodes}


def test_i25_steps_follow_each_other_in_definition_order() -> None:
    class Order(Dag, registry=Registry()):
        @step
        async def validate(self) -> None: ...
        @step
        async def process(self) -> None: ...
        @step
        async def complete(self) -> None: ...

    assert edges(Order) == {"validate": (), "process": ("validate",), "complete": ("process",)}


def test_i25_an_inserted_step_is_before_what_followed_its_target() -> None:
    class Order(Dag, registry=Registry()):
        @step
        async def validate(self) -> None: ...
        @step
        async def complete(self) -> None: ...
        @step(after_step="validate")
        async def audit(self) -> None: ...

    assert edges(Order) == {"validate": (), "complete": ("audit",), "audit": ("validate",)}


def test_i25_of_two_steps_after_one_target_the_later_is_nearer() -> None:
    class Order(Dag, registry=Registry()):
        @step
        def a(self) -> None: ...
        @step
        def z(self) -> None: ...
        @step(after_step="a")
        def first(self) -> None: ...
        @step(after_step="a")
        def second(self) -> None: ...
        @step(before_step="z")
        def third(self) -> None: ...
        @step(before_step="z")
        def fourth(self) -> None: ...

    assert chain(Order) == ["a", "second", "first", "third", "fourth", "z"]


def test_i25_the_rule_of_the_nearer_one_holds_for_targets_that_are_positioned_themselves() -> None:
    class Order(Dag, registry=Registry()):
        @step
        def a(self) -> None: ...
        @step(after_step="t")
        def x(self) -> None: ...
        @step(after_step="a")
        def t(self) -> None: ...
        @step(after_step="t")
        def y(self) -> None: ...

    assert chain(Order) == ["a", "t", "y", "x"]


def test_i25_a_step_inserted_before_the_first_one_is_the_entry_point() -> None:
    class Order(Dag, registry=Registry()):
        @step
        def validate(self) -> None: ...
        @step(before_step="validate")
        def receive(self) -> None: ...

    assert Order.compiled_dag().entries == ("receive",)
    assert edges(Order)["validate"] == ("receive",)


def test_i25_a_subclass_inserts_into_its_parents_chain() -> None:
    class Base(Dag, registry=Registry()):
        @step
        def validate(self) -> None: ...
        @step
        def ship(self) -> None: ...

    class Special(Base):
        @step(after_step="validate")
        def audit(self) -> None: ...
        @step
        def thank(self) -> None: ...

    assert chain(Special) == ["validate", "audit", "ship", "thank"]
    assert chain(Base) == ["validate", "ship"]


def test_i25_a_positioned_step_of_the_parent_is_inserted_before_those_of_the_subclass() -> None:
    class Base(Dag, registry=Registry()):
        @step
        def a(self) -> None: ...
        @step(after_step="a")
        def parents(self) -> None: ...

    class Special(Base):
        @step
        def end(self) -> None: ...
        @step(after_step="a")
        def own(self) -> None: ...

    assert chain(Special) == ["a", "own", "parents", "end"]


def test_i26_a_step_with_its_own_dependencies_stays_in_the_chain() -> None:
    class Order(Dag, registry=Registry()):
        @step
        def validate(self) -> None: ...
        @step
        def enrich(self) -> None: ...
        @task(depends_on="validate")
        def check_stock(self) -> None: ...
        @task(depends_on="validate")
        def check_fraud(self) -> None: ...
        @step(depends_on=["check_stock", "check_fraud"])
        def ready(self) -> None: ...
        @step
        def charge(self) -> None: ...

    assert edges(Order)["ready"] == ("check_stock", "check_fraud")
    assert edges(Order)["charge"] == ("ready",)
    assert edges(Order)["enrich"] == ("validate",)


def test_i26_also_depends_on_adds_to_previous_or_to_depends_on() -> None:
    class Order(Dag, registry=Registry()):
        @step
        def a(self) -> None: ...
        @task
        def t(self) -> None: ...
        @step(also_depends_on="t")
        def b(self) -> None: ...
        @step(depends_on="a", also_depends_on=["t", "a"])
        def c(self) -> None: ...
        @step(depends_on=[PREVIOUS, "t"])
        def d(self) -> None: ...
        @step(depends_on=None, also_depends_on="t")
        def e(self) -> None: ...

    assert edges(Order) == {
        "a": (),
        "t": (),
        "b": ("a", "t"),
        "c": ("a", "t"),
        "d": ("c", "t"),
        "e": ("t",),
    }


def test_i26_a_position_with_depends_on_moves_only_previous_of_its_neighbours() -> None:
    class Order(Dag, registry=Registry()):
        @step
        def a(self) -> None: ...
        @step
        def b(self) -> None: ...
        @task
        def t(self) -> None: ...
        @step(after_step="a", depends_on="t")
        def between(self) -> None: ...

    assert edges(Order) == {"a": (), "b": ("between",), "t": (), "between": ("t",)}


def test_i26_tasks_without_dependencies_and_steps_with_none_are_entry_points() -> None:
    class Order(Dag, registry=Registry()):
        @step
        def a(self) -> None: ...
        @task
        def t(self) -> None: ...
        @step(depends_on=None)
        def b(self) -> None: ...
        @step(depends_on=[])
        def c(self) -> None: ...
        @task(depends_on=[])
        def u(self) -> None: ...

    assert Order.compiled_dag().entries == ("a", "t", "b", "c", "u")


def test_i26_tasks_never_change_previous() -> None:
    class Order(Dag, registry=Registry()):
        @step
        def a(self) -> None: ...
        @task(depends_on="a")
        def t(self) -> None: ...
        @step
        def b(self) -> None: ...

    assert edges(Order)["b"] == ("a",)


def test_previous_of_the_first_step_is_nothing() -> None:
    class Order(Dag, registry=Registry()):
        @task
        def t(self) -> None: ...
        @step(also_depends_on="t")
        def a(self) -> None: ...

    assert edges(Order)["a"] == ("t",)


def test_a_node_defined_above_can_be_named_by_itself() -> None:
    class Order(Dag, registry=Registry()):
        @step(name="validate-order")
        def validate(self) -> None: ...
        @step
        def z(self) -> None: ...
        @task(depends_on=[validate])
        def t(self) -> None: ...
        @step(after_step=validate)
        def audit(self) -> None: ...

    assert edges(Order) == {
        "validate-order": (),
        "z": ("audit",),
        "t": ("validate-order",),
        "audit": ("validate-order",),
    }


def test_the_example_of_the_documentation_compiles_as_drawn() -> None:
    registry = Registry()

    @action(registry=registry)
    async def notify_customer(level: int) -> None: ...

    class OrderWorkflow(Dag, on_failure="pause", registry=registry):
        order_id: int

        @step
        async def validate(self) -> None: ...
        @step
        async def enrich(self) -> None: ...
        @step(after_step="validate")
        async def audit(self) -> None: ...
        @task(depends_on="validate")
        async def check_fraud(self) -> None: ...

        notify = task(job=notify_customer, args={"level": 2}, depends_on="audit")

        @step(depends_on=["enrich", "check_fraud"], name="charge-card")
        async def charge(self) -> None: ...
        @step(also_depends_on="check_fraud")
        async def ship(self) -> None: ...

    assert edges(OrderWorkflow) == {
        "validate": (),
        "enrich": ("audit",),
        "audit": ("validate",),
        "check_fraud": ("validate",),
        "notify": ("audit",),
        "charge-card": ("enrich", "check_fraud"),
        "ship": ("charge-card", "check_fraud"),
    }
    nodes = OrderWorkflow.compiled_dag().by_name
    assert all(node.id == node.name for node in nodes.values())
    assert (nodes["notify"].job, nodes["notify"].method) == ("notify_customer", None)
    assert (nodes["charge-card"].job, nodes["charge-card"].method) == (None, "charge")


def chain(dag: type[Dag]) -> list[str]:
    return chain_of({each.name: each.node for each in dag.__dag__.nodes})


@given(st.data())
def test_i25_every_step_is_in_the_chain_once_and_on_the_asked_side_of_its_target(data: st.DataObject) -> None:
    """Any mix of positions without a cycle gives a chain of all steps that respects each position."""
    size = data.draw(st.integers(1, 8))
    order = data.draw(st.permutations(range(size)))
    nodes: dict[str, DeclaredNode] = {}
    for rank in range(size):
        name = f"s{order[rank]}"
        # A target of lower number than its own, wherever that one is defined: no cycles, any nesting.
        below = [f"s{number}" for number in range(order[rank])]
        target = data.draw(st.sampled_from([None, *below]))
        side = data.draw(st.sampled_from(["after_step", "before_step"]))
        nodes[name] = declared(name, **({side: target} if target else {}))
    found = chain_of(nodes)
    assert sorted(found) == sorted(nodes)
    for name, node in nodes.items():
        declaration = node.declaration
        if declaration.after_step is not None:
            assert found.index(str(declaration.after_step)) < found.index(name)
        if declaration.before_step is not None:
            assert found.index(str(declaration.before_step)) > found.index(name)
    for target in nodes:
        after = [name for name, node in nodes.items() if node.declaration.after_step == target]
        assert sorted(after, key=found.index) == after[::-1]


def declared(name: str, **positions: str) -> DeclaredNode:
    def method(self: Dag) -> None: ...

    method.__name__ = name
    node = step(**positions)(method)  # type: ignore[call-overload]
    assert isinstance(node, MethodNode)
    return node


def test_i25_a_step_with_both_positions_is_refused_when_the_class_is_created() -> None:
    with pytest.raises(DagError, match=r"class .*Order: step 'c' has both after_step='a' and before_step='b'"):

        class Order(Dag, registry=Registry()):
            @step
            def a(self) -> None: ...
            @step
            def b(self) -> None: ...
            @step(after_step="a", before_step="b")
            def c(self) -> None: ...


def test_i25_an_unknown_target_names_the_step_and_the_choices() -> None:
    with pytest.raises(DagError, match="'audit' has after_step='validte'") as refused:

        class Order(Dag, registry=Registry()):
            @step
            def validate(self) -> None: ...
            @step(after_step="validte")
            def audit(self) -> None: ...

    assert "did you mean 'validate'?" in refused.value.hint


def test_i25_a_task_is_no_target_of_a_position() -> None:
    with pytest.raises(DagError, match="which is a task and not in the chain"):

        class Order(Dag, registry=Registry()):
            @task
            def t(self) -> None: ...
            @step(after_step="t")
            def a(self) -> None: ...


def test_i25_positions_that_form_a_cycle_are_shown() -> None:
    with pytest.raises(DagError, match="a -> b -> a"):

        class Order(Dag, registry=Registry()):
            @step(after_step="b")
            def a(self) -> None: ...
            @step(after_step="a")
            def b(self) -> None: ...


def test_a_position_at_itself_or_at_previous_is_refused() -> None:
    with pytest.raises(DagError, match="which is itself"):

        class AtItself(Dag, registry=Registry()):
            @step(after_step="a")
            def a(self) -> None: ...

    with pytest.raises(DagError, match="after_step=PREVIOUS"):

        class AtPrevious(Dag, registry=Registry()):
            @step(after_step=PREVIOUS)
            def a(self) -> None: ...


def test_i25_dependencies_that_form_a_cycle_are_shown() -> None:
    with pytest.raises(DagError, match=r"class .*Order: the graph has a cycle: t -> u -> t"):

        class Order(Dag, registry=Registry()):
            @task(depends_on="u")
            def t(self) -> None: ...
            @task(depends_on="t")
            def u(self) -> None: ...


def test_i25_a_name_used_twice_names_both_attributes() -> None:
    with pytest.raises(DagError, match="'pay' is used twice, by charge and by refund"):

        class Order(Dag, registry=Registry()):
            @step(name="pay")
            def charge(self) -> None: ...
            @task(name="pay")
            def refund(self) -> None: ...


def test_i25_two_nodes_under_one_attribute_are_refused_with_both_lines() -> None:
    """Python keeps the second and forgets the first, which would be a step that silently never runs."""

    def audited(fn: Callable[[Any], None]) -> MethodNode[Any, None]:
        return step(name="audit")(fn)

    with pytest.raises(
        DagError, match=r"class .*Order: 'pay' is a step in line (\d+) and a task in line (\d+)"
    ) as refused:

        class Order(Dag, registry=Registry()):
            @step
            def pay(self) -> None: ...
            @step
            def ship(self) -> None: ...
            @task(depends_on="ship")  # type: ignore[no-redef]
            def pay(self) -> None: ...  # noqa: F811

    lines = [int(number) for number in re.findall(r"line (\d+)", refused.value.message)]
    assert lines[1] - lines[0] == 4

    with pytest.raises(DagError, match="'pay' is a step in line"):

        class Renamed(Dag, registry=Registry()):
            @step(name="first")
            def pay(self) -> None: ...
            @audited  # type: ignore[no-redef]
            def pay(self) -> None: ...  # noqa: F811

    registry = Registry()

    @action(registry=registry)
    def charge() -> None: ...

    with pytest.raises(DagError, match="'pay' is a task in line"):

        class Jobs(Dag, registry=registry):
            pay = task(job=charge)
            other = step(job=charge)
            pay = step(job=charge)

    class Mixin:
        @step
        def pay(self) -> None: ...
        @step  # type: ignore[no-redef]
        def pay(self) -> None: ...  # noqa: F811

    with pytest.raises(DagError, match="'pay' is a step in line"):

        class Mixed(Mixin, Dag, registry=Registry()): ...


def test_i25_a_node_may_have_the_name_of_one_outside_its_class() -> None:
    registry = Registry()

    @action(registry=registry)
    def charge() -> None: ...

    def made() -> type:
        def pay(self: Any) -> None: ...

        return type("Made", (Dag,), {"pay": step(pay)}, registry=Registry())

    class Base(Dag, registry=registry):
        @step
        def pay(self) -> None: ...

        class Inner:
            @step
            def pay(self) -> None: ...

        other = made()
        ship = step(job=charge)

    class Child(Base, name="Child"):
        @step
        def pay(self) -> None: ...

        ship = step(job=charge)

    assert edges(Child) == {"pay": (), "ship": ("pay",)}


def test_i25_an_unknown_dependency_names_the_node_and_the_choices() -> None:
    with pytest.raises(DagError, match="'ship' depends on 'chagre'") as refused:

        class Order(Dag, registry=Registry()):
            @step
            def charge(self) -> None: ...
            @task(depends_on="chagre")
            def ship(self) -> None: ...

    assert "did you mean 'charge'?" in refused.value.hint


def test_the_attribute_of_a_node_with_another_name_is_pointed_out() -> None:
    with pytest.raises(DagError, match="depends on 'charge'") as refused:

        class Order(Dag, registry=Registry()):
            @step(name="charge-card")
            def charge(self) -> None: ...
            @task(depends_on="charge")
            def ship(self) -> None: ...

    assert "write 'charge-card'" in refused.value.hint


def test_previous_of_a_task_is_refused() -> None:
    with pytest.raises(DagError, match="task 't' depends on PREVIOUS"):

        class Order(Dag, registry=Registry()):
            @step
            def a(self) -> None: ...
            @task(depends_on=PREVIOUS)
            def t(self) -> None: ...


def test_a_dependency_that_is_no_name_is_refused_with_the_value() -> None:
    with pytest.raises(DagError, match="depends_on holds 7, a int"):
        task(depends_on=7)  # type: ignore[call-overload]
    with pytest.raises(DagError, match="also_depends_on holds 7"):
        step(also_depends_on=["a", 7])  # type: ignore[list-item]


def test_a_job_is_checked_when_it_is_declared() -> None:
    @action(registry=Registry())
    async def notify_someone(level: int) -> None: ...

    with pytest.raises(DagError, match="not an action"):
        task(job=notify_someone.fn, args={"level": 1})  # type: ignore[call-overload]
    with pytest.raises(DagError, match="without a job"):
        task(args={"level": 1})  # type: ignore[call-overload]
    assert isinstance(notify_someone, Action)
