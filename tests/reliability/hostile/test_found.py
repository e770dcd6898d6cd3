"""What hostile input and the soak found, each in its smallest form. What damaged rows did: test_corrupt_rows.py."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import holdfast as hf
from holdfast.cli import program
from holdfast.core.dag_document_reading import parse_document
from holdfast.core.errors import DagError
from holdfast.core.rows import RUNS, WORK
from holdfast.core.stored import moment
from holdfast.runtime.system import RealClock
from holdfast.runtime.unserved import UnservedQueues
from holdfast.store.memory import MemoryStore
from tests.reliability.hostile.victims import DEADLINE_SECONDS, engine_on, greet, listen


async def test_i8_work_of_a_run_that_nobody_understands_is_buried_and_not_tried_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its model is unknown, so that neither its result nor its failure can be decided; it must not spin."""
    caplog.set_level(logging.ERROR)
    async with engine_on("memory://") as engine:
        victim = await engine.start(greet, "Ada")
        _change(engine, victim.id, model="nonsense")
        async with engine.worker():
            with pytest.raises(hf.RunFailed, match="greet"):
                await victim.result(DEADLINE_SECONDS)
            assert [work.run for work in await engine.dead()] == [victim.id]
            assert await engine.run(greet, "Bob", timeout=DEADLINE_SECONDS) == "Hello, Bob!"
    assert len(caplog.records) < 20


async def test_a_worker_that_holds_something_nobody_understands_still_stops() -> None:
    """Giving it back cannot be decided; that must not be what a clean shutdown ends with."""
    async with engine_on("memory://") as engine:
        async with engine.worker() as worker:
            victim = await engine.start(greet, "Ada", paused=True)
            await victim.resume()
            await victim.result(DEADLINE_SECONDS)
            store: Any = engine.store
            ((key, work),) = [(key, work) for key, work in store.tables[WORK].items() if work.run == victim.id]
            store.tables[WORK][key] = replace(work, status="leased", worker=worker.id)
            _change(engine, victim.id, model="nonsense", status="running", finished=None)
        assert not engine.local_workers


async def test_i8_a_function_that_says_it_has_more_entries_than_there_can_be_holds_nobody_up() -> None:
    """They were counted up to inside a decision, and nothing else was decided meanwhile."""
    async with engine_on("memory://") as engine:
        victim = await engine.start(listen, "Ada")
        _change(engine, victim.id, entries=2**62)
        async with engine.worker():
            with pytest.raises(hf.HoldfastError):
                await victim.result(DEADLINE_SECONDS)
            assert await engine.run(greet, "Bob", timeout=DEADLINE_SECONDS) == "Hello, Bob!"


def test_a_repeated_key_in_a_value_that_is_itself_repeated_is_named() -> None:
    with pytest.raises(DagError, match="twice"):
        parse_document('{"a": {"b": 1, "b": 2}, "a": 3}')


def test_a_time_that_no_calendar_has_is_shown_as_the_last_one() -> None:
    assert moment(2**62).year == 9999
    assert moment(-(2**62)).year == 1


async def test_a_hint_that_cannot_be_looked_up_is_no_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the soak: the database was away when somebody wanted to know whether a queue is served."""
    monkeypatch.setattr("holdfast.runtime.unserved.NO_WORKER_SECONDS", 0.0)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))

    class Away(MemoryStore):
        async def workers(self) -> list[Any]:
            raise hf.StoreUnavailable("away")

    unserved = UnservedQueues(lambda: Away(RealClock()))
    unserved.expect("default", [])
    while unserved._checks or unserved._looking:  # noqa: ASYNC110 - it tells nobody that it is done
        await asyncio.sleep(0)
    gc.collect()
    assert not complaints


@pytest.mark.parametrize("line", [["resume", "\ud800"], ["verify", "[]", "--json", "\ud800"], ["\ud800"]])
def test_bytes_that_are_no_text_are_refused_by_the_command_line(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(program, line)
    assert result.exit_code == 2
    assert "not valid UTF-8" in result.output


async def test_what_is_no_run_cannot_be_sent_to() -> None:
    async with engine_on("memory://") as engine:
        for target in (7, None, ["x"], object()):
            with pytest.raises(hf.UsageError, match="to"):
                await engine.send("word", 7, to=target)  # type: ignore[arg-type]


def _change(engine: hf.Engine, run: str, **fields: Any) -> None:
    """Overwrite a run's row behind the engine's back."""
    store: Any = engine.store
    store.tables[RUNS][(run,)] = replace(store.tables[RUNS][(run,)], **fields)
    engine.coordinator.cache.clear()
