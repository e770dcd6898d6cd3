"""hf.current(): what running code sees of itself, on the loop and in threads."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from holdfast.authoring.context import Context, NodeInfo, current, entered, is_running, stand_in_context
from holdfast.core.errors import UsageError


def context(**more: Any) -> Context:
    return Context(
        run_id="r1",
        workflow_name="checkout",
        node=NodeInfo(id="n_1", name="charge", attempt=2),
        idempotency_key="checkout:r1:n_1",
        **more,
    )


def test_outside_of_everything_there_is_no_context() -> None:
    with pytest.raises(UsageError, match="no action or step is running"):
        current()
    assert not is_running()


def test_the_context_is_current_inside_its_block_only() -> None:
    with entered(context()) as outer:
        with entered(context()) as inner:
            assert current() is inner
        assert current() is outer
    assert not is_running()


async def test_the_context_follows_into_threads_and_tasks() -> None:
    async def seen_in_a_task() -> Context:
        return current()

    with entered(context()) as given:
        assert await asyncio.to_thread(current) is given
        assert await asyncio.create_task(seen_in_a_task()) is given


def test_it_says_who_is_running() -> None:
    given = context()
    assert (given.run_id, given.workflow_name, given.workflow) == ("r1", "checkout", None)
    assert (given.node.id, given.node.name, given.node.attempt, given.attempt) == ("n_1", "charge", 2, 2)
    assert str(given.node) == "charge"
    assert "charge" in repr(given)


def test_without_a_transaction_tx_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="charge has no transaction"):
        _ = context().tx
    tx: Any = object()
    assert context(tx=tx).tx is tx


async def test_heartbeats_notes_and_cancellation_go_to_the_runner() -> None:
    beats: list[str] = []
    notes: list[str] = []

    async def beat() -> None:
        beats.append("beat")

    given = context(on_heartbeat=beat, on_note=notes.append, is_cancelled=lambda: bool(beats))
    assert not given.cancelled
    await given.heartbeat()
    given.note("half done")
    assert (beats, notes, given.cancelled) == (["beat"], ["half done"], True)


async def test_without_a_runner_heartbeats_and_notes_go_nowhere() -> None:
    given = context()
    await given.heartbeat()
    given.note("unheard")
    assert not given.cancelled


def test_a_note_is_a_text() -> None:
    with pytest.raises(UsageError, match="a note of charge is a int"):
        context().note(3)  # type: ignore[arg-type]


def test_log_records_carry_the_identity_and_the_callers_own_extra(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="holdfast.actions"):
        context(worker="w1").logger.info("charging", extra={"cents": 5})
    record = caplog.records[0].__dict__
    identity = {key: record[key] for key in ("run", "workflow", "node", "attempt", "worker", "cents")}
    assert identity == {
        "run": "r1",
        "workflow": "checkout",
        "node": "charge",
        "attempt": 2,
        "worker": "w1",
        "cents": 5,
    }


def test_i13_two_stand_ins_have_different_idempotency_keys() -> None:
    """A real service must not take the second call outside a run for a repetition of the first."""
    first, second = stand_in_context("charge"), stand_in_context("charge")
    assert first.idempotency_key != second.idempotency_key
    assert (first.attempt, first.node.name, first.workflow) == (1, "charge", None)
