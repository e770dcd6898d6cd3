"""Dag classes: typed frozen fields, inheritance, node calls, and what is refused when."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from holdfast.authoring.actions import action
from holdfast.authoring.context import Context, NodeInfo, current, entered
from holdfast.authoring.dag_nodes import step, task
from holdfast.authoring.dags import Dag, callable_of
from holdfast.authoring.registry import Registry, default_registry
from holdfast.core.errors import DagError, MissingJob, UnknownNode, UsageError
from holdfast.core.graph import Node
from holdfast.core.retry import Retry

registry = Registry()
T = TypeVar("T")
U = TypeVar("U")


@action(registry=registry, timeout=9)
async def notify(level: int, tags: list[str] | None = None) -> Any:
    return level, tags, current().workflow


@action(registry=registry)
def count(upto: int = 3) -> int:
    return upto


class Order(Dag, registry=registry):
    order_id: int
    placed: datetime | None = None
    items: list[str] = []  # noqa: RUF012 - every instance gets its own copy
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    limit: ClassVar[int] = 3

    @step(retry=Retry(attempts=3), timeout=5, queue="slow")
    async def validate(self) -> int:
        """Check it."""
        return self.order_id

    @step(name="charge-card")
    def charge(self) -> Context:
        return current()

    told = task(job=notify, args={"level": 2, "tags": ["a"]}, depends_on="validate", queue="mail")
    counted = step(job=count)


def test_fields_are_given_by_name_and_have_defaults() -> None:
    order = Order(order_id=7)
    assert (order.order_id, order.placed, order.items, order.notes) == (7, None, [], {})
    assert repr(order) == "Order(order_id=7, placed=None, items=[], notes={})"
    assert Order.bind(order_id=7) == order


def test_i14_fields_survive_storing_exactly() -> None:
    order = Order(order_id=7, placed=datetime(2026, 11, 15, 8, 5, tzinfo=UTC), items=["a\0b", "ü"], notes={"x": 1})
    again = Order.decode_fields(order.encode_fields())
    assert again == order
    assert hash(again) == hash(order)
    assert pickle.loads(pickle.dumps(order)) == copy.deepcopy(order) == order  # noqa: S301 - our own bytes


def test_equal_instances_have_equal_hashes_whatever_the_order_of_their_dicts() -> None:
    one, other = Order(order_id=1, notes={"a": 1, "b": 2}), Order(order_id=1, notes={"b": 2, "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one != Order(order_id=2)


def test_a_mutable_default_is_not_shared() -> None:
    Order(order_id=1).items.append("x")
    assert Order(order_id=2).items == []


def test_an_instance_holds_copies_of_what_it_was_given() -> None:
    """What a node sees is the stored form: a change made after the start would reach no other process."""
    mine = ["a"]
    order = Order(order_id=1, items=mine)
    mine.append("b")
    assert order.items == ["a"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"order_id": "7"}, r"field 'order_id' of Order is annotated int and was given a str"),
        ({"order_id": 7, "items": [1]}, r"field 'items' of Order is annotated list\[str\] and was given a list"),
        ({}, "Order needs 'order_id'"),
        ({"order_id": 7, "itms": []}, "did you mean 'items'"),
    ],
)
def test_wrong_fields_name_the_field_what_was_expected_and_what_was_found(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Order(**fields)


def test_positional_fields_are_refused() -> None:
    with pytest.raises(UsageError, match="1 positional values"):
        Order(7)  # type: ignore[call-arg]


def test_assigning_to_self_is_an_error_that_says_why() -> None:
    order = Order(order_id=7)
    with pytest.raises(UsageError, match=r"Order\.order_id cannot be assigned"):
        order.order_id = 8  # type: ignore[misc]
    with pytest.raises(UsageError, match=r"Order\.total cannot be assigned"):
        order.total = 8  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="cannot be deleted"):
        del order.order_id
    assert order.order_id == 7


def test_assigning_to_self_raises_what_python_raises_for_that() -> None:
    """As a frozen dataclass does: `try: … except AttributeError` is what libraries write."""
    order = Order(order_id=7)
    with pytest.raises(AttributeError, match="cannot be assigned"):
        order.total = 8  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del order.order_id
    with pytest.raises(UsageError) as refused:
        order.total = 8  # type: ignore[attr-defined]
    copied = pickle.loads(pickle.dumps(refused.value))  # noqa: S301 - our own bytes
    assert (type(copied), str(copied)) == (type(refused.value), str(refused.value))


def test_a_generic_class_can_be_called_with_its_parameters() -> None:
    """`typing` notes them on the instance where it can: it cannot here, and does without."""

    class Box(Dag, Generic[T], registry=Registry()):
        size: int

        @step
        async def fill(self) -> None: ...

    assert Box[int](size=3) == Box(size=3)


def test_a_cached_property_is_no_field() -> None:
    class Cached(Dag, registry=registry):
        size: int

        @functools.cached_property
        def doubled(self) -> int:
            return self.size * 2

        @step
        def go(self) -> None: ...

    one, other = Cached(size=2), Cached(size=2)
    assert one.doubled == 4
    assert one == other
    assert one.encode_fields() == other.encode_fields()


def test_i31_a_field_added_by_a_deploy_has_its_default_in_old_runs() -> None:
    class Before(Dag, registry=registry):
        order_id: int

        @step
        def go(self) -> None: ...

    class After(Dag, registry=registry):
        order_id: int
        express: bool = False

        @step
        def go(self) -> None: ...

    assert After.decode_fields(Before(order_id=3).encode_fields()).express is False


async def test_methods_stay_callable_on_an_instance() -> None:
    order = Order(order_id=7)
    assert await order.validate() == 7
    context = order.charge()
    assert (context.node.name, context.workflow, context.workflow_name) == ("charge-card", order, "Order")
    assert await order.told() == (2, ["a"], order)
    assert await Order.validate(order) == 7
    assert Order.validate.__doc__ == "Check it."


async def test_a_method_called_by_another_node_runs_as_part_of_it() -> None:
    mine = Context(run_id="r", workflow_name="w", node=NodeInfo("n", "n", 1), idempotency_key="k")
    with entered(mine):
        assert Order(order_id=7).charge() is mine


async def test_the_worker_gets_a_call_without_arguments_for_every_kind_of_node() -> None:
    order = Order(order_id=7)
    validate = order.node_callable("validate")
    assert (validate.is_async, validate.transactional, validate.isolation) == (True, False, None)
    assert await validate() == 7
    mine = Context(run_id="r", workflow_name="w", node=NodeInfo("n", "n", 1), idempotency_key="k", workflow=order)
    with entered(mine):
        assert order.node_callable("charge-card")() is mine
        assert await order.node_callable("told")() == (2, ["a"], order)
    assert order.node_callable("counted")() == 3
    with pytest.raises(UnknownNode, match="did you mean 'charge-card'"):
        order.node_callable("charge-cards")


def test_i27_a_renamed_node_of_a_stored_graph_still_finds_its_method() -> None:
    order = Order(order_id=7)
    assert not callable_of(order, Node(id="x", name="renamed", method="charge")).is_async
    with pytest.raises(UnknownNode, match="runs the method 'gone'"):
        callable_of(order, Node(id="x", name="x", method="gone"))
    with pytest.raises(MissingJob, match="'gone'"):
        callable_of(order, Node(id="x", name="x", job="gone"))


def test_i4_policies_of_nodes_come_from_the_declaration_then_the_job_then_the_defaults() -> None:
    nodes = Order.compiled_dag().by_name
    validate, charge, told = nodes["validate"].policy, nodes["charge-card"].policy, nodes["told"].policy
    assert (validate.retry.attempts, validate.timeout_seconds, validate.queue) == (3, 5.0, "slow")
    assert (charge.retry.attempts, charge.timeout_seconds, charge.queue) == (1, None, None)
    assert (told.retry.attempts, told.timeout_seconds, told.queue) == (1, 9.0, "mail")


def test_i4_on_failure_is_pause_unless_said_otherwise_and_inherited() -> None:
    class Skipping(Order, on_failure="skip", name="tests-skipping"): ...

    class Below(Skipping): ...

    assert Order.__dag__.on_failure == "pause"
    assert Skipping.__dag__.on_failure == Below.__dag__.on_failure == "skip"
    assert registry.workflow("tests-skipping") is Skipping
    assert registry.workflow("Below") is Below


def test_signature_and_mermaid_come_from_the_graph() -> None:
    assert Order.dag_signature() == Order.compiled_dag().signature
    assert "charge-card" in Order.mermaid()
    assert Order.compiled_dag() is Order.compiled_dag()


class Base(Dag, registry=registry):
    order_id: int

    @step
    async def validate(self) -> str:
        return "base"

    @step(after_step="validate", name="audit-it", retry=Retry(attempts=4))
    async def audit(self) -> str:
        return "base"

    @step
    async def ship(self) -> str:
        return "base"


async def test_i25_an_overridden_method_keeps_its_place_and_policy() -> None:
    class Plain(Base):
        async def audit(self) -> str:
            return "plain over " + await super().audit()

    class Decorated(Base):
        @step(timeout=3)
        async def audit(self) -> str:
            return "decorated"

    for cls, result in ((Plain, "plain over base"), (Decorated, "decorated")):
        graph = cls.compiled_dag()
        assert [(node.name, node.depends_on) for node in graph.nodes] == [
            ("validate", ()),
            ("audit-it", ("validate",)),
            ("ship", ("audit-it",)),
        ]
        assert graph.by_name["audit-it"].policy.retry.attempts == 4
        assert await cls(order_id=1).node_callable("audit-it")() == result
        assert await cls(order_id=1).audit() == result
    assert Decorated.compiled_dag().by_name["audit-it"].policy.timeout_seconds == 3.0
    assert await Base(order_id=1).audit() == "base"


def test_an_overriding_declaration_may_move_and_rewire_its_node() -> None:
    class Moved(Base):
        @step(after_step="ship", depends_on=None)
        async def audit(self) -> str:
            return ""

    assert Moved.compiled_dag().by_name["audit-it"].depends_on == ()
    assert Moved.compiled_dag().by_name["ship"].depends_on == ("validate",)


def test_nodes_of_a_mixin_join_the_class() -> None:
    class Audited:
        @task(depends_on="validate")
        def log(self) -> None: ...

    class Mixed(Audited, Base): ...

    assert Mixed.compiled_dag().by_name["log"].depends_on == ("validate",)


def test_fields_are_inherited_and_added_to() -> None:
    class More(Base):
        express: bool = True

    more = More(order_id=1)
    assert (more.order_id, more.express) == (1, True)
    assert More.__dag__.fields.names == ("order_id", "express")


class Table(Dag, Generic[T], registry=Registry()):
    row: T
    others: list[T] = []  # noqa: RUF012 - every instance gets its own copy

    @step
    def go(self) -> None: ...


class Tables(Table[dict[str, U]], Generic[U], registry=Registry()):
    best: U | None = None


@dataclasses.dataclass
class Price:
    cents: int


class Prices(Table[Price], registry=Registry()): ...


class Counts(Tables[int], registry=Registry()):
    note: str = ""


def test_i14_a_field_of_a_generic_base_has_the_type_that_the_class_gives_it() -> None:
    """Else anything would be taken for it, and a class of one's own refused."""
    prices = Prices(row=Price(1), others=[Price(2)])
    assert Prices.decode_fields(prices.encode_fields()) == prices
    with pytest.raises(UsageError, match="'row' of Prices is annotated Price and was given a int"):
        Prices(row=1)
    assert Counts(row={"a": 1}, best=2).best == 2
    for wrong in ({"row": {"a": "b"}}, {"row": {}, "best": "b"}, {"row": {}, "others": [1]}):
        with pytest.raises(UsageError, match="of Counts is annotated"):
            Counts(**wrong)


def test_an_abstract_base_is_allowed_and_refused_only_when_it_is_compiled() -> None:
    class Abstract(Dag, registry=registry):
        order_id: int

    assert "Abstract" not in registry.known_workflows()
    assert Abstract(order_id=1).order_id == 1
    with pytest.raises(DagError, match="Abstract has no nodes"):
        Abstract.compiled_dag()
    with pytest.raises(UsageError, match="Dag itself"):
        Dag()
    with pytest.raises(UsageError, match="Dag itself"):
        Dag.compiled_dag()


def test_a_class_that_is_defined_without_a_registry_is_known_process_wide() -> None:
    class TestsDefinedByDefault(Dag):
        @step
        def go(self) -> None: ...

    assert default_registry.workflow("TestsDefinedByDefault") is TestsDefinedByDefault


def test_i25_a_field_and_a_node_of_one_name_are_refused_also_across_classes() -> None:
    with pytest.raises(DagError, match="'validate' is both a field and a step"):

        class Clash(Base):
            validate: int  # type: ignore[assignment]

    with pytest.raises(DagError, match="'order_id' is both a field and a step"):

        class ClashBelow(Base):
            @step  # type: ignore[misc]
            def order_id(self) -> None: ...  # type: ignore[override]


def test_names_that_dag_itself_uses_are_refused() -> None:
    with pytest.raises(DagError, match=r"'mermaid' is a step and also a method of hf\.Dag"):

        class Mermaid(Dag, registry=registry):
            @step
            def mermaid(self) -> None: ...  # type: ignore[override]

    with pytest.raises(DagError, match="'bind' is a field"):

        class Binding(Dag, registry=registry):
            bind: int  # type: ignore[assignment]


def test_class_options_are_checked() -> None:
    with pytest.raises(DagError, match="on_failure='stop'"):

        class Stopping(Dag, registry=registry, on_failure="stop"): ...  # type: ignore[arg-type]

    with pytest.raises(DagError, match="no class option 'on_failur'"):

        class Misspelt(Dag, registry=registry, on_failur="fail"): ...

    with pytest.raises(DagError, match="defines __init__"):

        class WithInit(Dag, registry=registry):
            def __init__(self) -> None: ...


def test_nodes_that_cannot_be_called_with_self_alone_are_refused() -> None:
    def with_parameter(self: Base, level: int) -> None: ...
    def without_self() -> None: ...
    def generator(self: Base) -> Any:
        yield 1

    def passes_on(self: Base, *given: Any) -> None: ...

    passes_on.__signature__ = inspect.signature(with_parameter)  # type: ignore[attr-defined]  # as some decorators do
    for wrong in (with_parameter, without_self, passes_on):
        with pytest.raises(DagError, match="called with self alone"):
            step(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is a generator"):
        task(generator)
    with pytest.raises(UsageError, match="timeout=0"):
        step(timeout=0)(lambda self: None)


def test_a_node_is_overridden_only_by_the_like() -> None:
    with pytest.raises(DagError, match="is a step in a base class and a task here"):

        class Changed(Base):
            @task
            async def validate(self) -> str:
                return ""

    with pytest.raises(DagError, match="is a step in a base class and a NoneType here"):

        class Removed(Base):
            validate = None  # type: ignore[assignment]

    with pytest.raises(DagError, match="called with self alone"):

        class WithParameter(Base):
            async def validate(self, more: int) -> str:  # type: ignore[override]
                return ""


def test_one_declaration_is_one_node() -> None:
    with pytest.raises(DagError, match="assigned to both"):

        class Twice(Dag, registry=registry):
            @step
            def a(self) -> None: ...

            b = a


def test_a_job_of_another_registry_is_refused_when_the_class_is_created() -> None:
    with pytest.raises(DagError, match="which is in another registry"):

        class Elsewhere(Dag, registry=Registry()):
            told = task(job=notify, args={"level": 1})


def test_the_arguments_of_a_job_are_checked_when_it_is_declared() -> None:
    with pytest.raises(UsageError, match="action notify cannot be called like this"):
        task(job=notify)


async def test_g3_a_transactional_step_never_runs_without_its_transaction() -> None:
    class Debit(Dag, registry=registry):
        @step(transactional=True)
        async def debit(self) -> None: ...

    assert Debit().node_callable("debit").transactional
    with pytest.raises(UsageError, match="outside a run"):
        await Debit().debit()
    with pytest.raises(UsageError, match="make it an async def"):
        step(transactional=True)(lambda self: None)


def test_an_annotation_that_cannot_be_found_is_an_error_with_the_fix() -> None:
    class Unknown(Dag, registry=registry):
        thing: DoesNotExist  # type: ignore[name-defined]  # noqa: F821

        @step
        def go(self) -> None: ...

    with pytest.raises(UsageError, match="DoesNotExist"):
        Unknown(thing=1)


def test_i27_a_job_in_a_class_keeps_its_arguments_by_name() -> None:
    assert Order.compiled_dag().by_name["told"].args == b'[[],{"level":2,"tags":["a"]}]'
