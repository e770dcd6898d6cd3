"""Actions under the type checker: what must pass, and lines that must fail.

Never run, only checked. A line that must fail has an ignore with its code; unused ignores are errors,
so a line that stops failing is noticed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple, assert_type

from holdfast.authoring.actions import Action, Bound, action
from holdfast.authoring.context import Context, Tx, current
from holdfast.core.retry import Retry

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@dataclass
class Receipt:
    cents: int


@action
async def greet(name: str) -> str:
    return name


@action(retry=Retry(attempts=5), timeout=30.0, queue="payments")
async def charge(order_id: str, cents: int) -> Receipt:
    return Receipt(cents)


@action
def count(upto: int = 3) -> int:
    return upto


@action(isolation="process")
def crunch(numbers: list[int]) -> float:
    return float(sum(numbers))


@action(transactional=True)
async def debit(account: int) -> None:
    assert_type(current().tx, Tx)


async def results_keep_their_types() -> None:
    assert_type(await greet("Ada"), str)
    assert_type(await charge("o1", cents=5), Receipt)
    assert_type(await count(), int)
    assert_type(await crunch([1]), float)
    assert_type(await debit(1), None)
    assert_type(await charge.options(timeout=5)("o1", 5), Receipt)


def calls_are_coroutines() -> None:
    call: Coroutine[Any, Any, int] = count(2)
    call.close()
    wrong: int = count(2)  # type: ignore[assignment]
    print(wrong)


def actions_keep_their_parameters() -> None:
    def same_parameters(given: Action[[list[int]], float]) -> None: ...

    same_parameters(crunch)
    same_parameters(count)  # type: ignore[arg-type]


def bound_actions_keep_their_result() -> None:
    assert_type(charge.bind("o1", 5), Bound[Receipt])
    assert_type(charge.bind(order_id="o1", cents=5), Bound[Receipt])
    assert_type(count.bind(), Bound[int])


class Handle(tuple[R]):
    """Stands for the engine's handle."""


def start(workflow: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> Handle[R]:
    """Has the shape of `Engine.start`."""
    raise NotImplementedError


def an_action_can_be_started_with_its_own_arguments() -> None:
    assert_type(start(greet, "Ada"), Handle[str])
    assert_type(start(charge, "o1", 5), Handle[Receipt])
    start(greet, 7)  # type: ignore[arg-type]
    start(charge, "o1")  # type: ignore[arg-type]


async def wrong_calls_are_found() -> None:
    await greet(7)  # type: ignore[arg-type]
    await greet(nme="Ada")  # type: ignore[call-arg]
    await charge("o1")  # type: ignore[call-arg]
    charge.bind("o1", "5")  # type: ignore[arg-type]
    greet("Ada").upper()  # type: ignore[attr-defined]
    charge.options(timout=5)  # type: ignore[arg-type]
    charge.options(retry=3)  # type: ignore[arg-type]
    action(timeout="30")  # type: ignore[call-overload]
    action(isolation="fibre")  # type: ignore[call-overload]


def the_context_is_typed() -> None:
    context = current()
    assert_type(context, Context)
    assert_type(context.attempt, int)
    assert_type(context.idempotency_key, str)
    assert_type(context.cancelled, bool)
    assert_type(str(context.node), str)
    context.note(3)  # type: ignore[arg-type]
