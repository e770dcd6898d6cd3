"""What people do wrong when they meet deciders for the first time, and what they are told then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Never, Protocol, TypedDict

import pytest

import holdfast as hf
from holdfast.core.codec import decode_error
from holdfast.core.rows import EFFECT
from holdfast.explain.situation import executions
from holdfast.testing import given
from tests.deciders.conftest import Stage

D = hf.Decision


@dataclass(frozen=True)
class In:
    id: str
    text: str = ""


@dataclass(frozen=True)
class Said:
    text: str = ""


@dataclass(frozen=True)
class Print:
    text: str = ""


def made(
    state: Any = int,
    effects: Any = Print,
    *,
    decide: Callable[[In], Any] = lambda given: D.event(Said(given.text)),
    evolve: Callable[[Any], Any] = lambda state: state + 1,
    workflow_id: Callable[[In], Any] = lambda given: given.id,
    handle: Callable[[Any], Any] = lambda effect: None,
    attempts: int = 1,
) -> Any:
    """A decider "shop" that does what it is told, in a registry of its own."""

    class Shop(
        hf.Decider[state, In, Said, effects],  # type: ignore[misc, valid-type]
        name="shop",
        registry=hf.Registry(),
        retry=hf.Retry(attempts=attempts, base=60.0),
    ):
        def workflow_id(self, input: In) -> str:
            return str(workflow_id(input))

        def initial(self) -> Any:
            return 0

        def evolve(self, state: Any, event: Said) -> Any:
            return evolve(state)

        def decide(self, now: datetime, state: Any, input: In) -> Any:
            return decide(input)

        async def handle(self, effect: Any, ctx: hf.EffectContext) -> Any:
            return handle(effect)

    return Shop


async def executed(shop: Any, given: Any = In("a")) -> None:  # noqa: B008 - frozen
    async with Stage.memory().engine(shop.__decider__.registry, work=False) as engine:
        await engine.execute(shop, given)


# -- what decide does wrong is DecideFailed


@pytest.mark.parametrize(
    ("decide", "said", "cause"),
    [
        (lambda given: D.event(Said(5)), "Expected `str`, got `int`", hf.PayloadRefused),
        (
            lambda given: D.event(Said()).with_timer_at(datetime(2030, 1, 1), given),
            r"which has no time zone \(test_first_mistakes.py:\d+, in <lambda>\)",
            hf.UsageError,
        ),
        (lambda given: D.event(Said()).cancel_timer(None), "cancel_timer was given None", hf.UsageError),
        (lambda given: D.event(Said(given.txt)), r"no attribute 'txt' \(test_first_mistakes.py:\d+,", AttributeError),
        (lambda given: D.event([Said()]), r"one by one: hf.Decision.event\(a, b\)", None),
        (
            lambda given: D.event(Said),
            r"the class Said as the event, where an instance is due. Fix: make one: Said",
            None,
        ),
    ],
    ids=["payload", "naive", "no_key", "attribute", "list", "class"],
)
async def test_i35_whatever_decide_does_wrong_comes_out_as_one_error(
    decide: Any, said: str, cause: type[BaseException] | None
) -> None:
    """With what was wrong as its cause, so that a caller has one error to catch."""
    with pytest.raises(hf.DecideFailed, match=said) as raised:
        await executed(made(decide=decide))
    assert isinstance(raised.value.__cause__, cause) if cause else raised.value.__cause__ is None


async def test_i35_an_input_that_cannot_be_stored_is_not_the_decisions_fault() -> None:
    with pytest.raises(hf.PayloadRefused, match="input In of"):
        await executed(made(), In("a", text=5))  # type: ignore[arg-type]


async def test_i16_a_workflow_id_that_raises_is_told_with_the_decider_and_the_line() -> None:
    broken = made(workflow_id=lambda given: given.order)
    with pytest.raises(
        hf.DecideFailed, match=r"workflow_id of shop raised, for input In, AttributeError: .*test_first_mistakes.py:"
    ) as raised:
        await executed(broken)
    assert isinstance(raised.value.__cause__, AttributeError)


async def test_i14_a_state_of_another_type_than_the_class_says_is_refused_before_it_is_written() -> None:
    with pytest.raises(hf.DecideFailed, match="evolve of shop returned 'x', a str for event Said, where a int is due"):
        await executed(made(evolve=lambda state: "x"))


class Shape(Protocol):
    x: int


class Fields(TypedDict, total=False):
    x: int


@pytest.mark.parametrize("state", [int | str, float, Any, object, Shape | int, Fields | int, list[int] | int])
async def test_i14_only_a_type_that_can_be_told_by_looking_is_checked(state: Any) -> None:
    await executed(made(state))


# -- what is wrong with a class


def test_a_method_with_the_wrong_parameters_is_refused_with_the_class() -> None:
    """The first input would fail, in production."""
    with pytest.raises(
        hf.UsageError, match=r"decide of .*will be given: now, state, input. Fix: write def decide\(self"
    ):

        class Two(hf.Decider[int, In, Said, Never], registry=hf.Registry()):
            def workflow_id(self, input: In) -> str: ...

            def initial(self) -> int: ...

            def evolve(self, state: int, event: Said) -> int: ...

            def decide(self, state: int, input: In) -> Any: ...


def test_a_method_that_is_static_or_takes_anything_is_fine() -> None:
    class Odd(hf.Decider[int, In, Said, Never], registry=hf.Registry()):
        @staticmethod
        def workflow_id(input: In) -> str:  # type: ignore[override]
            return input.id

        @classmethod
        def initial(cls) -> int:  # type: ignore[override]
            return 0

        def evolve(self, *given: Any) -> int:
            return 1

        def decide(self, now: Any, state: int, input: In, more: int = 0) -> Any:
            return D.event(Said())

    given(Odd).when(In("a")).then_events(Said()).then_state(1)


def test_a_decider_with_three_types_is_told_about_never() -> None:
    with pytest.raises(
        hf.UsageError, match=r"given 3 types, and takes 4: state, inputs, events, effects.*Never for no eff"
    ):
        hf.Decider[int, In, Said]  # type: ignore[misc]


# -- what is wrong with a call


async def test_an_instance_instead_of_the_class_is_told_apart_everywhere() -> None:
    shop = made()
    async with Stage.memory().engine(shop.__decider__.registry, work=False) as engine:
        for call in (
            engine.execute(shop(), In("a")),
            engine.enqueue_input(shop(), In("a")),
            engine.state(shop(), "a"),
            engine.stream(shop(), "a"),
        ):
            with pytest.raises(hf.UsageError, match=r"give the class itself: made.<locals>.Shop, not made.*Shop\(\)"):
                await call
        with pytest.raises(
            hf.UsageError, match=r"begin with their first input. Fix: write engine.execute\(made.*Shop,"
        ):
            await engine.start(shop, In("a"))
    with pytest.raises(hf.UsageError, match="give the class itself"):
        given(shop())


def test_events_of_given_that_are_in_no_list_are_refused() -> None:
    with pytest.raises(hf.UsageError, match=r"given\(Shop, \[Said\(…\)\]\)"):
        given(made(), Said())


def test_timers_that_a_decision_cancelled_are_exactly_those_that_are_named() -> None:
    shop = made(decide=lambda given: D.event(Said()).cancel_timer("a").cancel_timer("b"))
    given(shop).when(In("a")).then_timer_cancelled("b", "a")
    with pytest.raises(AssertionError, match="'b'") as chained:
        given(shop).when(In("a")).then_timer_cancelled("a")
    assert chained.value.__notes__ == ["name all of them in one call: then_timer_cancelled('a', 'b')"]


async def test_a_point_beyond_the_stream_is_refused() -> None:
    shop = made()
    async with Stage.memory().engine(shop.__decider__.registry, work=False) as engine:
        await engine.execute(shop, In("a"))
        assert await engine.state(shop, "a", at=1) == 1
        with pytest.raises(hf.UsageError, match="shop 'a' has no event 99: it has 1 so far"):
            await engine.state(shop, "a", at=99)
        with pytest.raises(hf.UsageError, match="shop 'b' has no event 1: it has none so far"):
            await engine.state(shop, "b", at=1)
        assert await engine.state(shop, "b", at=0) == 0


async def test_i12_a_command_id_that_was_used_for_another_input_is_warned_of(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A repetition is what ids are for; an id that hides another input is a mistake."""
    shop = made()
    async with stage.engine(shop.__decider__.registry, work=False) as engine:
        with caplog.at_level(logging.WARNING, "holdfast.deciders"):
            await engine.execute(shop, In("a", "one"), command_id="c")
            await engine.execute(shop, In("a", "one"), command_id="c")
            await engine.enqueue_input(shop, In("a", "one"), command_id="c")
            assert caplog.messages == []
            await engine.execute(shop, In("a", "two"), command_id="c")
            await engine.enqueue_input(shop, In("a", "three"), command_id="c")
        assert len(caplog.messages) == 2
        assert "command id 'c' of shop/a was used before, for an input with other data" in caplog.messages[0]
        assert len(await engine.stream(shop, "a")) == 1


# -- what workers tell


async def test_i3_the_log_of_a_failed_effect_says_whose_it_is_and_what_becomes_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All that is told of a dead effect counts its executions in the same way, replayed ones too."""

    def refuse(effect: Any) -> None:
        raise ConnectionError("no paper")

    shop = made(decide=lambda given: D.event(Said()).with_effect(Print()), handle=refuse, attempts=2)
    stage = Stage.memory()
    async with stage.virtual(shop.__decider__.registry) as (engine, clock):
        with caplog.at_level(logging.WARNING, "holdfast.worker"):
            await engine.execute(shop, In("a"))
            await clock.advance(minutes=5)
        first, second = (message for message in caplog.messages if "no paper" in message)
        begin = "effect Print of shop/a (effect/1.0, attempt {}) failed: ConnectionError: no paper; "
        assert first.startswith(begin.format(1) + "tried again in ")
        assert first.endswith(" s")
        assert second == begin.format(2) + "given up: a dead letter"
        (dead,) = (await engine.snapshot(shop, "a")).effects
        await engine.replay_dead((await engine.instances(shop))[0].run_id, dead.id)
        await clock.advance(minutes=5)
        (letter,) = await engine.dead()
        assert (letter.kind, executions(letter), letter.failures) == (EFFECT, 4, 2)
        lines = decode_error(letter.error or b"").traceback.splitlines()
        assert "test_first_mistakes.py" in lines[1]  # nothing above the handler is the author's to mend
        told = await engine.get(letter.run).explain()
        assert "after 4 attempts: ConnectionError" in str(told)
        assert "tried again (up to 2 times)" in str(told)


async def test_i36_a_projection_that_uses_tx_on_memory_is_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    """The same would come of every further attempt."""
    shop = made()

    @hf.projection(
        shop, name="table", registry=shop.__decider__.registry, retry=hf.Retry(attempts=5, base=0.0, cap=0.0)
    )
    async def table(event: Any, tx: hf.Tx) -> None:
        await tx.execute("INSERT")

    async with Stage.memory().engine(shop.__decider__.registry) as engine:
        with caplog.at_level(logging.WARNING, "holdfast.projections"):
            await engine.execute(shop, In("a"))
            await engine.settle(timeout=20.0)
        (info,) = await engine.projections()
        assert (info.status, info.attempts) == ("failed", 1)
        assert len([message for message in caplog.messages if "used tx" in message]) == 1


async def test_i8_one_item_that_nobody_can_run_is_told_as_one() -> None:
    shop = made(decide=lambda given: D.event(Said()).with_timer_after(timedelta(0), given))
    async with Stage.memory().engine(shop.__decider__.registry, work=False) as engine:
        await engine.execute(shop, In("a"))
        with pytest.raises(hf.UsageError, match=r"^1 item is due that no live worker can run: shop:In of run"):
            await engine.settle()
