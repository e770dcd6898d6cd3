"""Dag classes under the type checker: what must pass, and lines that must fail. Never run, only checked."""

from __future__ import annotations

import dataclasses
from typing import assert_type

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

    @task(depends_on=["validate", audit])
    async def check_fraud(self) -> None: ...

    notify = task(job=notify_customer, args={"level": 2}, depends_on="audit")

    @step(depends_on=[PREVIOUS, "check_fraud"], name="charge-card")
    async def charge(self) -> None: ...

    @step(also_depends_on="check_fraud", transactional=True)
    async def ship(self) -> None:
        self.order_id = 8  # type: ignore[misc]


class Special(Order):
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

    class Wrong(Dag, on_failure="stop"):  # type: ignore[arg-type]
        @step  # type: ignore[arg-type]
        def with_parameter(self, level: int) -> None: ...
