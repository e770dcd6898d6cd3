"""What engine.start accepts, and what it says about the rest."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from holdfast.authoring.actions import action
from holdfast.authoring.dag_builder import BuiltDag, DagBuilder
from holdfast.authoring.dag_nodes import step
from holdfast.authoring.dag_template import dag_template
from holdfast.authoring.dags import Dag
from holdfast.authoring.registry import Registry
from holdfast.authoring.startable import resolve_start
from holdfast.core.dag_document import frozen, graph_of_nodes
from holdfast.core.errors import DagError, PayloadRefused, PayloadTooLarge, UnknownWorkflow, UsageError

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


# --- built DAGs and templates ------------------------------------------------------------------------------------


def built_with(name: str = "batch", user: int = 7, on_failure: Any = "pause") -> BuiltDag:
    w = DagBuilder(name, on_failure=on_failure, registry=registry)
    w.node("hello", job=greet, args={"name": f"user {user}"})
    w.node("again", job="greet", args={"name": "Ada", "extra": {"a": user}})
    return w.build()


received: list[list[str]] = []


@dag_template(registry=registry)
def greetings(names: list[str], when: date | None = None) -> DagBuilder:
    received.append(names)
    w = DagBuilder("built by greetings", on_failure="skip", registry=registry)
    w.fan_out(names, name=str, job=greet, args=lambda name: {"name": name})
    return w


def test_i27_a_built_dag_starts_under_its_name_with_its_frozen_graph() -> None:
    built = built_with(on_failure="cancel")
    spec = resolve_start(built, (), registry)
    assert (spec.workflow, spec.model, spec.source, spec.on_failure) == ("batch", "dag", "built", "cancel")
    assert (spec.input, spec.override) == (b"", None)
    assert spec.graph is built.graph is frozen(spec.graph)
    assert graph_of_nodes(spec.document) == built.graph


def test_classes_and_actions_store_no_document() -> None:
    assert resolve_start(greet, ("Ada",), registry).document == b""
    assert resolve_start(Order(), (), registry).document == b""


def test_i12_the_same_dag_built_again_is_the_same_input_and_another_is_not() -> None:
    digest = resolve_start(built_with(), (), registry).input_digest
    assert resolve_start(built_with(), (), registry).input_digest == digest
    assert resolve_start(built_with(user=8), (), registry).input_digest != digest


def test_a_builder_that_is_not_built_says_so() -> None:
    with pytest.raises(DagError, match=r"<DagBuilder w of 0 nodes> was started, and is not built.*\.build\(\)"):
        resolve_start(DagBuilder("w"), (), registry)


def test_a_built_dag_takes_no_arguments() -> None:
    with pytest.raises(UsageError, match="<BuiltDag batch of 2 nodes> was started with 1 arguments"):
        resolve_start(built_with(), (1,), registry)


@pytest.mark.parametrize("name", ["greet", "order", "greetings"])
def test_i15_a_built_dag_must_not_have_the_name_of_something_registered(name: str) -> None:
    with pytest.raises(DagError, match=f"the built DAG '{name}' has the name of something that is registered"):
        resolve_start(built_with(name), (), registry)


def test_i8_every_job_of_a_built_dag_must_be_known_to_the_engine() -> None:
    with pytest.raises(DagError, match="node 'hello' runs the action 'greet', which is not in this engine's registry"):
        resolve_start(built_with(), (), Registry())


def test_i14_the_engines_payload_limit_holds_for_the_arguments_of_nodes() -> None:
    with pytest.raises(PayloadTooLarge, match="the arguments of node 'hello' are 22 bytes, over the limit of 20"):
        resolve_start(built_with(), (), registry, limit=20)


def test_a_template_is_expanded_at_its_start_and_stored_under_its_own_name() -> None:
    spec = resolve_start(greetings, (["Ada", "Bob"],), registry)
    assert (spec.workflow, spec.source, spec.on_failure) == ("greetings", "built", "skip")
    assert [node.name for node in spec.graph.nodes] == ["Ada", "Bob"]
    assert graph_of_nodes(spec.document) == spec.graph
    assert greetings.call.decode_call(spec.input, spec.codec) == ((["Ada", "Bob"],), {})


def test_i12_a_template_is_compared_by_its_arguments_however_they_are_given() -> None:
    one = resolve_start(greetings, (["Ada"],), registry)
    for same in (
        resolve_start("greetings", (["Ada"],), registry),
        resolve_start(greetings.bind(names=["Ada"]), (), registry),
    ):
        assert (same.workflow, same.input_digest) == (one.workflow, one.input_digest)
    assert resolve_start(greetings, (["Bob"],), registry).input_digest != one.input_digest


def test_i14_a_template_receives_the_decoded_form_of_its_arguments() -> None:
    names = ["Ada"]
    resolve_start(greetings, (names, date(2031, 5, 4)), registry)
    assert received[-1] == names
    assert received[-1] is not names
    with pytest.raises(PayloadRefused, match="argument 'names' of template greetings"):
        resolve_start(greetings, ([1],), registry)


def test_a_template_is_refused_where_it_or_its_jobs_are_unknown() -> None:
    with pytest.raises(UnknownWorkflow, match="'greetings' is not in this engine's registry"):
        resolve_start(greetings, (["Ada"],), Registry())
    with pytest.raises(UsageError, match="template greetings was bound to its arguments and started with 1 more"):
        resolve_start(greetings.bind(["Ada"]), (1,), registry)
    with pytest.raises(UsageError, match="template greetings cannot be called like this"):
        resolve_start(greetings, (), registry)
    with pytest.raises(DagError, match="DAG 'built by greetings' has no nodes"):
        resolve_start(greetings, ([],), registry)
