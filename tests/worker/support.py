"""What the tests of real workers share: waiting with a deadline, engines in a hurry, and worker processes."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

import holdfast as hf
from holdfast.core.queries import AllWork
from holdfast.core.rows import Work
from holdfast.store.contract import WorkerRow

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 20.0
_LOOK_AGAIN_SECONDS = 0.01

HURRY: dict[str, Any] = {"lease_seconds": 2.0, "sweep_seconds": 0.1, "poll_seconds": 0.05}
"""Settings for tests in which somebody has to be noticed."""

PATIENT: dict[str, Any] = {"lease_seconds": 30.0, "sweep_seconds": 0.1, "poll_seconds": 0.05}
"""The lease of real life: whatever goes on sooner than that did not wait for it."""


async def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """What the condition gives once it gives something true; TimeoutError with `what` when the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain: {what}")
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def engine_on(url: str, registry: hf.Registry, **settings: Any) -> hf.Engine:
    """An engine that notices things quickly."""
    return hf.Engine(url, registry=registry, **{**HURRY, **settings})


async def work_of(engine: hf.Engine, run_id: str, node: str | None = None) -> list[Work]:
    """Every attempt of a run's nodes, as stored."""
    rows: list[Work] = await engine.store.rows(AllWork(run_id))
    return [row for row in rows if node is None or row.node == node]


async def statuses(engine: hf.Engine, run_id: str, node: str | None = None) -> list[str]:
    return [row.status for row in await work_of(engine, run_id, node)]


async def assert_sound(engine: hf.Engine) -> None:
    """G10: `doctor` has nothing against what is stored; that the tests' own server never calls fsync is not meant."""
    findings = [finding for finding in await engine.doctor() if finding.severity == "error"]
    assert not [finding for finding in findings if finding.subject not in ("fsync", "full_page_writes")], findings


def counted(engine: hf.Engine, name: str) -> int:
    """A counter of this process."""
    snapshot = engine.metrics.snapshot()  # type: ignore[attr-defined]
    return int(snapshot["counters"].get(name, 0))


class Processes:
    """Worker processes that do not outlive the test. What they wrote to standard error is shown when it fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self._started:
            process.wait(10)
        if error is not None:
            for path in sorted(self._folder.glob("worker-*.err")):
                sys.stderr.write(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}\n")

    def serve(
        self,
        url: str,
        *,
        settings: dict[str, Any] | None = None,
        environ: dict[str, str] | None = None,
        **order: Any,
    ) -> subprocess.Popen[bytes]:
        """A worker process on this database; it is not enrolled yet when this returns."""
        argument = msgspec.json.encode({"url": url, "settings": {**PATIENT, **(settings or {})}, **order}).decode()
        with (self._folder / f"worker-{len(self._started)}.err").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.endtoend.programs.serve", argument],
                cwd=ROOT,
                env=child_environment() | (environ or {}),
                stderr=errors,
                stdout=errors,
            )
        self._started.append(process)
        return process

    async def serving(self, engine: hf.Engine, url: str, **order: Any) -> tuple[subprocess.Popen[bytes], WorkerRow]:
        """A worker process that is enrolled, with its row."""
        process = self.serve(url, **order)
        return process, await self.enrolled(engine, process)

    async def enrolled(self, engine: hf.Engine, process: subprocess.Popen[bytes]) -> WorkerRow:
        async def row() -> WorkerRow | None:
            assert process.poll() is None, f"the worker ended with {process.returncode} before it enrolled"
            return next((worker for worker in await engine.workers() if worker.pid == process.pid), None)

        found: WorkerRow = await until(row, f"process {process.pid} enrolls as a worker")
        return found


def child_environment() -> dict[str, str]:
    """The environment of a process that imports what this one imports, whichever copy of it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return environ | {"PYTHONPATH": os.pathsep.join([*(place for place in sys.path if place), str(ROOT)])}


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The process stands still inside the block: alive, holding its locks, and doing nothing."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
