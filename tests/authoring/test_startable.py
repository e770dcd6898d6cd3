"""What engine.start accepts, and what it says about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.authoring.actions import action
from holdfast.authoring.dag_nodes import step
from holdfast.authoring.dags import Dag
from holdfast.authoring.registry import Registry
from holdfast.authoring.startable import resolve_start
from holdfast.core.errors import DagError, PayloadRefused, UnknownWorkflow, UsageError

registry = Registry()


@action(registry=registry, timeout=9)
async def greet(name: str, extra: dict[str, int] | None = None) -> str:
    return name


class Order(Dag, registry=registry, on_failure="skip", name="order"):
    order_id: int = 1

    @step
    def go(self) -> None: ...


def test_an_instance_starts_as_its_class_with_its_fields_as_input() -> None:
    spec = resolve_start(Order(order_id=3), (), registry)
    assert (spec.workflow, spec.model, spec.source, spec.on_failure) == ("order", "dag", "class", "skip")
    assert Order.decode_fields(spec.input, spec.codec) == Order(order_id=3)
    assert spec.graph is Order.compiled_dag()


def test_i4_an_action_starts_as_a_run_of_one_node_that_fails_on_failure() -> None:
    spec = resolve_start(greet, ("Ada",), registry)
    assert (spec.workflow, spec.model, spec.source, spec.on_failure) == ("greet", "dag", "action", "fail")
    assert [(node.name, node.job) for node in spec.graph.nodes] == [("greet", "greet")]
    assert spec.graph.nodes[0].policy.timeout_seconds == 9.0
    assert greet.call.decode_call(spec.input, spec.codec) == (("Ada",), {})
    assert spec.override is None


def test_i12_a_bound_action_and_a_call_with_the_same_arguments_are_the_same_input() -> None:
    bound = resolve_start(greet.bind(name="Ada", extra={"a": 1, "b": 2}), (), registry)
    called = resolve_start(greet, ("Ada", {"b": 2, "a": 1}), registry)
    other = resolve_start(greet, ("Bob",), registry)
    assert bound.input_digest == called.input_digest
    assert bound.input_digest != other.input_digest
    assert (
        resolve_start(Order(order_id=1), (), registry).input_digest == resolve_start(Order(), (), registry).input_digest
    )


def test_options_of_a_start_are_in_the_graph_and_told_apart_from_the_code() -> None:
    spec = resolve_start(greet.options(timeout=2), ("Ada",), registry)
    assert spec.override is not None
    assert spec.override.timeout_seconds == spec.graph.nodes[0].policy.timeout_seconds == 2.0


def test_a_name_starts_what_is_registered_under_it() -> None:
    assert resolve_start("greet", ("Ada",), registry) == resolve_start(greet, ("Ada",), registry)
    assert resolve_start("order", (), registry) == resolve_start(Order(), (), registry)
    assert resolve_start("order", ({"order_id": 4},), registry) == resolve_start(Order(order_id=4), (), registry)
    with pytest.raises(UnknownWorkflow, match="did you mean 'greet'"):
        resolve_start("gret", (), registry)
    with pytest.raises(UsageError, match="its fields have names"):
        resolve_start("order", (4,), registry)


def test_what_another_registry_holds_is_unknown_here() -> None:
    for thing in (greet.bind("Ada"), Order()):
        with pytest.raises(UnknownWorkflow, match="not in this engine's registry"):
            resolve_start(thing, (), Registry())


def test_wrong_arguments_are_refused_before_anything_is_written() -> None:
    with pytest.raises(UsageError, match="cannot be called like this"):
        resolve_start(greet, (), registry)
    with pytest.raises(PayloadRefused, match="argument 'name' of action greet"):
        resolve_start(greet, (3,), registry)
    with pytest.raises(UsageError, match="1 more arguments"):
        resolve_start(Order(), (3,), registry)
    with pytest.raises(UsageError, match="started with 1 more"):
        resolve_start(greet.bind("Ada"), (3,), registry)


def plain() -> None: ...


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (Order, r"the class Order was started, not an instance of it.*engine.start\(Order\(order_id=…\)\)"),
        (Dag, "hf.Dag itself"),
        (plain, "plain is a plain function.*decorate it with @hf.action"),
        (len, "plain function"),
        (7, "a int cannot be started: 7.*an instance of an hf.Dag class"),
        (None, "a NoneType cannot be started"),
    ],
)
def test_anything_else_is_refused_with_what_can_be_started(thing: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        resolve_start(thing, (), registry)


def test_a_coroutine_is_refused_and_closed() -> None:
    """Warnings are errors here: a coroutine left open would fail this test."""
    with pytest.raises(UsageError, match="was called already"):
        resolve_start(greet("Ada"), (), registry)


def test_a_class_without_nodes_is_refused_when_it_is_started() -> None:
    class Empty(Dag, registry=registry): ...

    with pytest.raises(DagError, match="Empty has no nodes"):
        resolve_start(Empty(), (), registry)
