"""Dag classes under the type checker: what must pass, and lines that must fail. Never run, only checked."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import assert_type

import holdfast as hf
from holdfast.authoring.actions import action
from holdfast.authoring.dag_nodes import PREVIOUS, step, task
from holdfast.authoring.dags import Dag, NodeCall
from holdfast.core.graph import Graph
from holdfast.core.retry import Retry


@action
async def notify_customer(level: int) -> str:
    return str(level)


class Order(Dag, on_failure="pause", name="order", aliases=("old-order",)):
    order_id: int
    express: bool = False
    tags: list[str] = dataclasses.field(default_factory=list)

    @step
    async def validate(self) -> str:
        return str(self.order_id)

    @step(after_step="validate", retry=Retry(attempts=3), timeout=5)
    def audit(self) -> int:
        return len(self.tags)

    def is_small(self) -> bool:
        return self.order_id < 10

    async def is_known(self) -> bool:
        return True

    @task(depends_on=["validate", audit], skip_if=[is_small, "express"], cancel_if=lambda order: order.express)
    async def check_fraud(self) -> None: ...

    @task(skip_if=is_known, cancel_if=True)
    async def greet(self) -> None: ...

    notify = task(job=notify_customer, args={"level": 2}, depends_on="audit")

    @step(depends_on=[PREVIOUS, "check_fraud"], name="charge-card")
    async def charge(self) -> None: ...

    @step(also_depends_on="check_fraud", transactional=True)
    async def ship(self) -> None:
        self.order_id = 8  # type: ignore[misc]


class Special(Order, cancel_if=["is_small", lambda order: True]):
    level: int = 1

    async def validate(self) -> str:
        return await super().validate()


async def methods_keep_their_types() -> None:
    order = Order(order_id=1, express=True)
    assert_type(order, Order)
    assert_type(order.order_id, int)
    assert_type(await order.validate(), str)
    assert_type(order.audit(), int)
    assert_type(await order.notify(), str)
    assert_type(await Special(order_id=1, level=2).charge(), None)


def class_methods_are_typed() -> None:
    assert_type(Order.bind(order_id=1), Order)
    assert_type(Special.decode_fields(b""), Special)
    assert_type(Order.compiled_dag(), Graph)
    assert_type(Order.dag_signature(), str)
    assert_type(Order(order_id=1).encode_fields(), bytes)
    assert_type(Order(order_id=1).node_callable("ship"), NodeCall)


def wrong_fields_are_found() -> None:
    Order(order_id="7")  # type: ignore[arg-type]
    Order()  # type: ignore[call-arg]
    Order(order_id=7, orderid=7)  # type: ignore[call-arg]
    Order(7)  # type: ignore[call-arg]
    Order(order_id=7).order_id = 8  # type: ignore[misc]
    Order(order_id=7).total = 8  # type: ignore[attr-defined]


def wrong_declarations_are_found() -> None:
    task(depends_on=7)  # type: ignore[call-overload]
    step(retry=3)  # type: ignore[call-overload]
    task(job=notify_customer.fn)  # type: ignore[call-overload]
    task(skip_if=7)  # type: ignore[call-overload]

    class Wrong(Dag, on_failure="stop"):  # type: ignore[arg-type]
        @step  # type: ignore[arg-type]
        def with_parameter(self, level: int) -> None: ...


def builders_are_typed() -> None:
    w = hf.DagBuilder("batch", on_failure="skip")
    first = w.node("first", job=notify_customer, args={"level": 1}, depends_on=None)
    assert_type(first, hf.BuiltNode)
    assert_type((first.id, first.name), tuple[str, str])
    nodes = w.fan_out([1, 2], name=lambda i: f"m{i + 1}", job="notify_customer", args=lambda i: {"level": i + 1})
    assert_type(nodes, list[hf.BuiltNode])
    w.node("last", job=notify_customer, depends_on=[first, "m2", PREVIOUS, *nodes], retry=Retry(), timeout=1)
    built = w.build()
    assert_type(built, hf.BuiltDag)
    assert_type(built.graph, Graph)
    assert_type(built.to_json(), str)
    built.name = "other"  # type: ignore[misc]
    hf.DagBuilder("batch", on_failure="stop")  # type: ignore[arg-type]
    w.node("x", job=notify_customer.fn)  # type: ignore[arg-type]
    w.node("x", job=notify_customer, depends_on=7)  # type: ignore[arg-type]
    w.fan_out([1], name="one", job=notify_customer)  # type: ignore[arg-type]


@hf.dag_template
def plain(level: int) -> hf.DagBuilder:
    return hf.DagBuilder(str(level))


@hf.dag_template(name="other", aliases=("old",))
def with_options(level: int, *, name: str = "x") -> hf.BuiltDag:
    return plain(level)


def templates_keep_their_parameters() -> None:
    assert_type(plain(1), hf.BuiltDag)
    assert_type(with_options(1, name="y"), hf.BuiltDag)
    plain("1")  # type: ignore[arg-type]
    plain.bind()  # type: ignore[call-arg]
    with_options.bind(1, nam="y")  # type: ignore[call-arg]

    @hf.dag_template  # type: ignore[arg-type]
    def returns_nothing() -> None: ...


def signals_end_the_code_after_them(context: hf.Context, which: int) -> str:
    match which:
        case 1:
            context.skip("reason")
        case 2:
            context.pause()
        case 3:
            context.cancel()
        case 4:
            context.finish()
        case _:
            context.reattempt(timedelta(minutes=1), "later")


def wrong_signals_are_found(context: hf.Context) -> None:
    if context.attempt:
        context.reattempt("soon")  # type: ignore[arg-type]
    context.skip(7)  # type: ignore[arg-type]
