"""Signals from running code: raised by the context, not caught as errors, carried out of threads and processes."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.context import Context, current, stand_in_context
from holdfast.authoring.flow_control import SIGNALS, WaitForPerson, signal_in
from holdfast.authoring.registry import Registry
from holdfast.core.codec import JSON
from holdfast.runtime.processes import ProcessSlots

registry = Registry()

CALLS: dict[str, tuple[Callable[[Context], Any], hf.FlowControl]] = {
    "skip": (lambda me: me.skip("dull"), hf.SkipThisNode("dull")),
    "pause": (lambda me: me.pause("lunch"), hf.PauseThisRun("lunch")),
    "cancel": (lambda me: me.cancel("moot"), hf.CancelThisRun("moot")),
    "finish": (lambda me: me.finish("enough"), hf.FinishThisRun("enough")),
    "reattempt": (lambda me: me.reattempt(2, "early"), hf.ReattemptThisNode(2.0, "early")),
    "reattempt at once": (lambda me: me.reattempt(), hf.ReattemptThisNode(0.0, "")),
    "reattempt after a timedelta": (lambda me: me.reattempt(timedelta(minutes=1)), hf.ReattemptThisNode(60.0, "")),
}


@pytest.mark.parametrize("case", CALLS)
def test_each_call_raises_its_signal_with_its_data(case: str) -> None:
    call, expected = CALLS[case]
    with pytest.raises(hf.FlowControl) as raised:
        call(stand_in_context())
    assert type(raised.value) is type(expected)
    assert raised.value.args == expected.args
    assert raised.value.reason == expected.reason
    assert getattr(raised.value, "after_seconds", None) == getattr(expected, "after_seconds", None)


@hf.action(registry=registry)
async def polite() -> None:
    try:
        current().skip("nothing to do")
    except Exception:
        raise AssertionError("a signal is no error") from None
    raise AssertionError("code after a signal must not run")


@hf.action(registry=registry)
def in_a_thread() -> None:
    current().pause("from a thread")


async def test_an_except_for_errors_lets_a_signal_pass() -> None:
    with pytest.raises(hf.SkipThisNode, match="nothing to do"):
        await polite()


async def test_a_signal_comes_out_of_a_thread() -> None:
    with pytest.raises(hf.PauseThisRun, match="from a thread"):
        await in_a_thread()


class Order(hf.Dag, registry=registry):
    @hf.step
    async def validate(self) -> None:
        current().cancel("no such order")


async def test_a_step_called_in_a_users_test_raises_its_signal() -> None:
    with pytest.raises(hf.CancelThisRun, match="no such order"):
        await Order().validate()


@pytest.mark.parametrize("signal", [expected for _, expected in CALLS.values()])
def test_signals_survive_pickling(signal: hf.FlowControl) -> None:
    copy = pickle.loads(pickle.dumps(signal))  # noqa: S301 - our own bytes
    assert (type(copy), copy.args, vars(copy)) == (type(signal), signal.args, vars(signal))


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("soon", "after is a str"),
        (True, "after is a bool"),
        (-1, "no number between 0 and a century"),
        (float("nan"), "no number between"),
        (float("inf"), "no number between"),
        pytest.param(10**400, "no number between", id="huge"),
        (timedelta(seconds=-1), "no number between"),
    ],
)
def test_a_delay_that_cannot_elapse_is_refused(after: Any, message: str) -> None:
    with pytest.raises(hf.UsageError, match=message):
        stand_in_context("charge").reattempt(after)
    with pytest.raises(hf.UsageError, match=message):
        hf.ReattemptThisNode(after)


def test_a_reason_is_a_text_that_every_store_can_hold() -> None:
    with pytest.raises(hf.UsageError, match="the reason given in charge is a int"):
        stand_in_context("charge").skip(7)  # type: ignore[arg-type]
    assert hf.SkipThisNode("a\0b\ud800").reason == "a\\x00b\\ud800"
    long = hf.SkipThisNode("x" * 5_000).reason
    assert (len(long), long[-1]) == (1_000, "…")


def test_only_signals_that_mean_something_can_be_raised() -> None:
    class Vague(hf.FlowControl):
        pass

    for kind in (hf.FlowControl, Vague):
        with pytest.raises(hf.UsageError, match="raise one of CancelThisRun"):
            kind()


# --- groups ------------------------------------------------------------------------------------------------------


async def test_a_signal_inside_a_task_group_is_found() -> None:
    async def member() -> None:
        stand_in_context().skip("inside")

    with pytest.raises(BaseExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(member())
    found = signal_in(raised.value)
    assert isinstance(found, hf.SkipThisNode)


def test_of_several_signals_the_one_that_says_most_counts() -> None:
    signals = [hf.SkipThisNode(), hf.CancelThisRun("b"), hf.PauseThisRun()]
    nested = BaseExceptionGroup("outer", [BaseExceptionGroup("inner", signals), hf.ReattemptThisNode(1)])
    assert signal_in(nested) is signals[1]
    assert signal_in(signals[0]) is signals[0]


def test_a_signal_beside_an_error_is_an_error() -> None:
    assert signal_in(BaseExceptionGroup("both", [hf.SkipThisNode(), ValueError()])) is None
    assert signal_in(ValueError()) is None


# --- processes ---------------------------------------------------------------------------------------------------

JOBS = """
import asyncio
import holdfast as hf

class Dull(hf.SkipThisNode):
    pass

@hf.action(isolation="process")
def signal(call: str) -> None:
    me = hf.current()
    try:
        {"skip": lambda: me.skip("dull"), "pause": lambda: me.pause("lunch"), "cancel": lambda: me.cancel("moot"),
         "finish": lambda: me.finish("enough"), "reattempt": lambda: me.reattempt(2, "early")}[call]()
    except Exception:
        pass

@hf.action(isolation="process")
def own_class() -> None:
    raise Dull("mine")

@hf.action(isolation="process")
def in_a_group() -> None:
    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(member())
    async def member() -> None:
        hf.current().skip("grouped")
    asyncio.run(both())
"""


async def test_a_signal_comes_out_of_a_process_as_it_was_raised(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs_of_test_flow_control.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    context = {"run_id": "r", "workflow_name": "w", "node": "n", "attempt": 1, "idempotency_key": "w:r:n"}
    slots = ProcessSlots(1)

    async def outcome(name: str, *args: object) -> BaseException:
        data = JSON.encode([args, {}]) if args else b""
        with pytest.raises(hf.FlowControl) as raised:
            await slots.run(f"jobs_of_test_flow_control:{name}", data, "json", context)
        return raised.value

    try:
        for name in ("skip", "pause", "cancel", "finish", "reattempt"):
            found, expected = await outcome("signal", name), CALLS[name][1]
            assert (type(found), found.args, vars(found)) == (type(expected), expected.args, vars(expected))
        # What the parent may not be able to import arrives as the signal that it is.
        assert repr(await outcome("own_class")) == repr(hf.SkipThisNode("mine"))
        assert repr(await outcome("in_a_group")) == repr(hf.SkipThisNode("grouped"))
        assert len(slots.pids) == 1, "a signal ends the call and not the process"
    finally:
        slots.close()


def test_every_signal_has_a_public_name() -> None:
    by_hand = [kind for kind in SIGNALS if kind is not WaitForPerson]  # which ctx.interrupt(…) raises
    assert all(getattr(hf, kind.__name__) is kind for kind in by_hand)
