"""Calls of actions in processes of their own: arguments in, results and failures out."""

from __future__ import annotations

import asyncio
import os

import pytest

from holdfast.core.codec import MSGPACK, decode_error, encode_error
from holdfast.core.errors import NonRetryable, UsageError
from holdfast.runtime.processes import RemoteFailure
from tests.runtime.process_support import CONTEXT, call, opened

pytestmark = pytest.mark.usefixtures("process_jobs")


# --- calls and results -------------------------------------------------------------------------------------------


async def test_a_call_is_decoded_run_and_its_result_encoded_in_another_process() -> None:
    async with opened(1) as slots:
        assert await call(slots, "add", 1, 2) == 3
        assert await call(slots, "add", 1) == 11
        assert await call(slots, "tomorrow", "2024-02-28") == "2024-02-29"
        assert await call(slots, "pid") != os.getpid()
        assert slots.busy == 0


async def test_i14_a_call_is_read_with_the_codec_that_wrote_it() -> None:
    """I14: every row carries its codec's tag, and the process reads it by that tag."""
    async with opened(1) as slots:
        data = MSGPACK.encode([[20], {"b": 3}])
        assert await slots.run("jobs_of_test_processes:add", data, "msgpack", CONTEXT) == b"23"


async def test_an_idle_process_serves_the_next_call_and_no_more_are_started_than_needed() -> None:
    async with opened(3) as slots:
        assert slots.pids == frozenset()
        first = await call(slots, "pid")
        assert await call(slots, "pid") == first
        assert slots.pids == {first}


async def test_no_more_processes_run_than_the_limit() -> None:
    async with opened(2) as slots:
        pids = await asyncio.gather(*(call(slots, "pid") for _ in range(8)))
        assert len(set(pids)) <= 2
        assert slots.pids == set(pids)


async def test_an_action_knows_its_run_and_its_notes_and_heartbeats_arrive() -> None:
    async with opened(1) as slots:
        notes: list[str] = []
        beats: list[int] = []
        told = await call(slots, "who", on_note=notes.append, on_heartbeat=lambda: beats.append(1))
        assert slots.pids == {told.pop("pid")}
        assert told == {
            "run": "run-1",
            "workflow": "orders",
            "node": "charge",
            "attempt": 2,
            "key": "orders:run-1:charge",
            "worker": "worker-a",
        }
        assert notes == ["first", "second"]
        assert beats == [1]


async def test_what_an_action_prints_does_not_disturb_its_result(capfd: pytest.CaptureFixture[str]) -> None:
    async with opened(1) as slots:
        assert await call(slots, "noisy") == "quiet"
    out = capfd.readouterr().out
    assert "a print of the user's" in out
    assert "raw bytes on standard output" in out
    assert "a program of the user" in out


async def test_a_large_value_passes_both_ways() -> None:
    async with opened(1) as slots:
        data = MSGPACK.encode([[bytes(1_500_000)], {}])
        with_msgpack = await slots.run("jobs_of_test_processes:echo", data, "msgpack", CONTEXT)
        assert len(with_msgpack) > 1_500_000


async def test_actions_are_found_by_their_place_whatever_their_name_and_registry() -> None:
    async with opened(1) as slots:
        assert await call(slots, "plain") == "an action under another name"
        assert await call(slots, "Group.inside") == "inside a class"


async def test_the_users_environment_is_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    async with opened(1) as slots:
        assert await call(slots, "environment") == {"path": None, "cwd": os.getcwd()}
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    async with opened(1) as slots:
        assert (await call(slots, "environment"))["path"] == "somewhere"


async def test_a_note_of_a_thread_that_outlived_its_call_reaches_no_other_call() -> None:
    async with opened(1) as slots:
        await call(slots, "chatter_after_the_end")
        notes: list[str] = []
        await call(slots, "let_it_chatter", on_note=notes.append)
        await call(slots, "who", on_note=notes.append)
        assert notes == ["first", "second"]


# --- failures ----------------------------------------------------------------------------------------------------


async def test_an_exception_comes_back_as_a_record_with_its_cause_and_traceback() -> None:
    async with opened(1) as slots:
        with pytest.raises(RemoteFailure, match="Refused: card 42") as caught:
            await call(slots, "refuse")
        assert caught.value.repeatable
        record = caught.value.record
        assert record == decode_error(caught.value.error)
        assert record.qualified == "jobs_of_test_processes.Refused"
        assert record.cause is not None
        assert record.cause.type == "KeyError"
        assert "raise Refused" in record.traceback
        assert await call(slots, "add", 1) == 11, "the process is still good"


async def test_i3_the_record_continues_the_chain_of_earlier_attempts() -> None:
    """I3: the final error keeps the chain of attempts, also across processes."""
    earlier = encode_error(TimeoutError("first attempt"))
    async with opened(1) as slots:
        with pytest.raises(RemoteFailure) as caught:
            await call(slots, "refuse", earlier=earlier)
    assert [link.message for link in caught.value.record.earlier] == ["first attempt"]


async def test_i3_an_exception_that_cannot_be_rebuilt_still_decides_about_retries_by_its_class() -> None:
    """I3: NonRetryable always stops, also one whose class is not loaded here and whose arguments are no JSON."""
    async with opened(1) as slots:
        with pytest.raises(RemoteFailure) as caught:
            await call(slots, "be_picky")
    rebuilt = caught.value.to_exception()
    assert isinstance(rebuilt, NonRetryable)
    assert "this and <object" in str(rebuilt)


def test_a_failure_of_a_known_class_is_rebuilt_as_itself() -> None:
    rebuilt = RemoteFailure(encode_error(ConnectionResetError(104, "reset by peer"))).to_exception()
    assert type(rebuilt) is ConnectionResetError
    assert rebuilt.errno == 104


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("leave", "SystemExit", "3"),
        ("odd", "PayloadRefused", "the result of action odd"),
        ("missing", "UsageError", "jobs_of_test_processes:missing is no action"),
        ("nothing", "UsageError", "jobs_of_test_processes:nothing is no action"),
        ("Group.not_this", "UsageError", "is no action"),
    ],
)
async def test_whatever_goes_wrong_around_an_action_is_its_failure_and_not_the_slots(
    name: str, kind: str, text: str
) -> None:
    """I8: nothing poisonous stops a worker."""
    async with opened(1) as slots:
        with pytest.raises(RemoteFailure) as caught:
            await call(slots, name)
        assert caught.value.record.type == kind
        assert text in caught.value.record.message
        assert caught.value.repeatable == (name != "odd"), "I3: that one has returned"
        pids = slots.pids
        assert await call(slots, "add", 1) == 11
        assert slots.pids == pids


async def test_a_module_that_cannot_be_imported_is_a_failure_that_says_why() -> None:
    async with opened(1) as slots:
        for _ in range(2):
            with pytest.raises(RemoteFailure, match="ImportError: the database driver is not installed"):
                await call(slots, "anything", module="broken_of_test_processes")
        with pytest.raises(RemoteFailure, match="ModuleNotFoundError"):
            await call(slots, "anything", module="no_such_module_of_test_processes")


@pytest.mark.parametrize("target", ["", "jobs", "jobs:", ":add"])
async def test_a_target_that_is_no_address_is_refused_before_a_process_starts(target: str) -> None:
    async with opened(1) as slots:
        with pytest.raises(UsageError, match="names no action"):
            await slots.run(target, b"", "json", CONTEXT)
        assert slots.busy == 0
        assert slots.pids == frozenset()


async def test_a_context_with_a_missing_or_wrong_field_is_refused_by_its_name() -> None:
    async with opened(1) as slots:
        for wrong in ({"run_id": "r"}, {**CONTEXT, "attempt": "two"}, {**CONTEXT, "surprise": 1}):
            with pytest.raises(UsageError, match=r"workflow_name|attempt|surprise"):
                await slots.run("jobs_of_test_processes:add", b"", "json", wrong)
