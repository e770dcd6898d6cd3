"""The blocking front: what an asynchronous program can do, a plain one can do with the same calls."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.blocking import BlockingEngine, BlockingHandle

DEADLINE_SECONDS = 20.0

registry = hf.Registry()


@hf.action(registry=registry)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@hf.action(registry=registry)
def in_a_thread(name: str) -> str:
    return threading.current_thread().name


@hf.action(registry=registry)
async def refuse() -> None:
    raise ZeroDivisionError("never by zero")


class Parcel(hf.Dag, registry=registry):
    weight: int

    @hf.step
    async def pack(self) -> None: ...

    @hf.step
    def ship(self) -> None: ...


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlockingEngine]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'app.db'}"
    with hf.Engine(url, registry=registry).blocking() as opened:
        yield opened


def test_a_run_is_started_and_its_result_awaited_without_any_await(engine: BlockingEngine) -> None:
    with engine.worker():
        handle = engine.start(greet, "Ada", key="ada")
        assert isinstance(handle, BlockingHandle)
        assert handle.result(timeout=DEADLINE_SECONDS) == "Hello, Ada!"
        assert (handle.key, handle.status()) == ("ada", "completed")
        assert engine.run(greet.bind(name="Bob"), timeout=DEADLINE_SECONDS) == "Hello, Bob!"
        assert engine.run("greet", "Eve", timeout=DEADLINE_SECONDS) == "Hello, Eve!"
        assert engine.run(Parcel(weight=3), timeout=DEADLINE_SECONDS) is None
        assert engine.run(in_a_thread, "x", timeout=DEADLINE_SECONDS).startswith("holdfast-action")
    assert engine.get(handle.id).result() == "Hello, Ada!"
    assert {run.workflow for run in engine.find(status="completed")} == {"greet", "Parcel", "in_a_thread"}
    assert [node.name for node in engine.start(Parcel(weight=1)).nodes_with_state()] == ["pack", "ship"]
    assert engine.stats().store.runs["completed"] == 5
    assert not [finding for finding in engine.doctor() if finding.severity == "error"]


def test_on_postgresql_too(postgres_url: str) -> None:
    with hf.Engine(postgres_url, registry=registry).blocking() as engine, engine.worker():
        assert engine.run(greet, "Ada", timeout=DEADLINE_SECONDS) == "Hello, Ada!"


def test_errors_keep_their_types(engine: BlockingEngine) -> None:
    with engine.worker():
        with pytest.raises(hf.RunFailed) as failed:
            engine.run(refuse, timeout=DEADLINE_SECONDS)
        assert isinstance(failed.value.__cause__, ZeroDivisionError)
    with pytest.raises(TimeoutError):
        engine.start(greet, "later").result(timeout=0.001)
    with pytest.raises(hf.UnknownWorkflow):
        engine.start("gret")
    with pytest.raises(hf.UsageError, match="concurrency is 0"):
        engine.worker(concurrency=0)


def test_closing_is_safe_twice_and_opening_again_works(sqlite_url: str) -> None:
    engine = hf.Engine(sqlite_url, registry=registry).blocking()
    with pytest.raises(hf.EngineClosed) as before:
        engine.start(greet, "Ada")
    assert "with engine" in before.value.hint
    engine.close()
    with engine:
        handle = engine.start(greet, "Ada")
        with pytest.raises(hf.UsageError, match="open already"):
            engine.open()
        assert handle.status() == "pending"
    engine.close()
    with pytest.raises(hf.EngineClosed):
        handle.status()
    with engine, engine.worker():
        assert engine.get(handle.id).result(timeout=DEADLINE_SECONDS) == "Hello, Ada!"
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-loop"]


def test_an_engine_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "app.db").write_text("this is no database, and it is long enough to be looked at" * 50)
    with pytest.raises(hf.NotOurDatabase):
        hf.Engine(f"sqlite:///{tmp_path / 'app.db'}").blocking().open()
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-loop"]


def test_who_waits_for_a_result_is_told_when_another_thread_closes_the_engine(engine: BlockingEngine) -> None:
    handle, errors = engine.start(greet, "Ada"), []

    def wait() -> None:
        try:
            handle.result()
        except hf.EngineClosed as error:
            errors.append(error)

    caller = threading.Thread(target=wait)
    caller.start()
    while not engine._thread._waiting:  # until the call is on its way
        threading.Event().wait(0)
    engine.close()
    caller.join(DEADLINE_SECONDS)
    assert not caller.is_alive()
    assert len(errors) == 1


async def test_it_works_inside_a_running_loop(sqlite_url: str) -> None:
    """In a notebook there is always one."""
    with hf.Engine(sqlite_url, registry=registry).blocking() as engine, engine.worker():
        assert engine.run(greet, "Ada", timeout=DEADLINE_SECONDS) == "Hello, Ada!"


def test_a_plain_action_may_use_the_engine_and_an_async_one_is_told_why_not() -> None:
    mine = hf.Registry()
    opened: list[BlockingEngine] = []

    @hf.action(registry=mine)
    async def inner() -> str:
        return "inner"

    @hf.action(registry=mine)
    def from_a_thread() -> str:
        return opened[0].run(inner, timeout=DEADLINE_SECONDS)

    @hf.action(registry=mine)
    async def from_the_loop() -> str:
        return opened[0].run(inner)

    with hf.Engine("memory://", registry=mine).blocking() as engine, engine.worker():
        opened.append(engine)
        assert engine.run(from_a_thread, timeout=DEADLINE_SECONDS) == "inner"
        with pytest.raises(hf.RunFailed) as failed:
            engine.run(from_the_loop, timeout=DEADLINE_SECONDS)
        assert "own event loop" in str(failed.value.__cause__)


def test_run_worker_works_until_it_is_told_to_stop(sqlite_url: str) -> None:
    stop = threading.Event()
    with hf.Engine(sqlite_url, registry=registry).blocking() as engine:
        handle = engine.start(greet, "Ada")
        serving = threading.Thread(target=engine.run_worker, kwargs={"stop": stop, "concurrency": 2})
        serving.start()
        assert handle.result(timeout=DEADLINE_SECONDS) == "Hello, Ada!"
        stop.set()
        serving.join(DEADLINE_SECONDS)
        assert not serving.is_alive()
        assert engine.workers() == []


def test_a_worker_context_may_end_after_its_engine() -> None:
    engine = hf.Engine("memory://", registry=registry).blocking()
    engine.open()
    with engine.worker():
        engine.close()


@pytest.mark.parametrize(("blocking", "original"), [(BlockingEngine, hf.Engine), (BlockingHandle, hf.Handle)])
def test_every_public_coroutine_has_its_blocking_twin(blocking: type, original: type) -> None:
    """With the same parameters, but for a connection, which only an event loop could use."""
    for name, method in inspect.getmembers(original, inspect.iscoroutinefunction):
        if name.startswith("_"):
            continue
        twin: Any = getattr(blocking, name)
        assert not inspect.iscoroutinefunction(twin), name
        if name != "run_worker":
            wanted = set(inspect.signature(method).parameters) - {"tx"}
            assert set(inspect.signature(twin).parameters) == wanted, name
