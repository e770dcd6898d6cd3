"""Processes that drive functions and die on order: `python -m tests.functions.lives`, one JSON order a line.

Each order is a life: a forked process with an engine and a worker, which lives until it is told to stop or kills
itself where the order says. Forking spares the start of Python, so that many real kills take seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

import holdfast as hf
from holdfast.coordinator import Commit
from holdfast.core import failpoints
from holdfast.core.function_operations import ENTRY_KINDS
from holdfast.core.rows import HISTORY
from tests.functions import journey
from tests.worker.support import PATIENT, ROOT, child_environment, until

Death = Literal["", "recorded", "called"]


class Life(msgspec.Struct, kw_only=True):
    """One life. `death` is when it kills itself: with its first record, or with the first call begun after that."""

    url: str
    journal: str
    settings: dict[str, Any] = {}
    death: Death = ""
    held_before_flush: str = ""  # once a call is done: stand still at the next flush until this file exists
    log: str = ""


class Lives:
    """The process that gives birth, as a test talks to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[int] = []
        self._exits: dict[int, int] = {}
        self._mother = subprocess.Popen(
            [sys.executable, "-m", "tests.functions.lives"],
            cwd=ROOT,
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what is buffered here `select` would not see
        )

    async def end_all(self) -> None:
        """End whoever still lives."""
        for pid in self._children:
            if self.exit_of(pid) is None:
                self.signal(pid, signal.SIGCONT)
                self.signal(pid, signal.SIGKILL)
                await self.ended(pid)

    def close(self) -> None:
        for pipe in (self._mother.stdin, self._mother.stdout):
            assert pipe is not None
            pipe.close()
        self._mother.wait(10)

    @staticmethod
    def signal(pid: int, number: signal.Signals) -> None:
        # The mother reaps only what it reports, so a pid that we know and that has no exit is still its process.
        os.kill(pid, number)

    def give(self, url: str, journal: str, **fields: Any) -> int:
        """A new process; its pid."""
        log = str(self._folder / f"life-{len(self._children)}.log")
        order = Life(url=url, journal=journal, log=log, **{"settings": PATIENT, **fields})
        assert self._mother.stdin is not None
        self._mother.stdin.write(msgspec.json.encode(order) + b"\n")
        self._mother.stdin.flush()
        pid = self._hear()["pid"]
        self._children.append(pid)
        return int(pid)

    def _hear(self) -> dict[str, int]:
        """The next birth; exits on the way are noted."""
        assert self._mother.stdout is not None
        while True:
            told: dict[str, int] = msgspec.json.decode(self._mother.stdout.readline())
            if "code" not in told:
                return told
            self._exits[told["pid"]] = told["code"]

    def said(self, pid: int, words: str) -> bool:
        """Whether a life has logged this."""
        log = self._folder / f"life-{self._children.index(pid)}.log"
        return log.exists() and words in log.read_text(encoding="utf-8")

    def exit_of(self, pid: int) -> int | None:
        """The exit code of a life that is over."""
        assert self._mother.stdout is not None
        pipe = self._mother.stdout
        while pid not in self._exits and select.select([pipe], [], [], 0)[0]:
            told = msgspec.json.decode(pipe.readline())
            self._exits[told["pid"]] = told["code"]
        return self._exits.get(pid)

    async def ended(self, pid: int, seconds: float = 20.0) -> int:
        """The exit code of a life, once it is over."""
        await until(lambda: self.exit_of(pid) is not None, f"process {pid} ends", seconds)
        return self._exits[pid]


# --- in the other processes ----------------------------------------------------------------------------------------


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(life: Life, engine: hf.Engine) -> None:
    """See to it that this process dies when it should."""
    recorded = False

    def on_commit(commit: Commit) -> None:
        nonlocal recorded
        if any(row.kind in ENTRY_KINDS for row in commit.changes.inserts.get(HISTORY, ())):
            recorded = True
            if life.death == "recorded":
                _kill_self()

    def on_call() -> None:
        if life.death == "called" and recorded:
            _kill_self()  # its effect is in the journal, and nothing says so in the store

    def on_failpoint(name: str) -> None:
        if life.held_before_flush and name == "flush.before" and Path(f"{life.journal}.go").exists():
            Path(f"{life.held_before_flush}.reached").touch()
            while not Path(life.held_before_flush).exists():
                time.sleep(0.005)

    engine.coordinator.observers.insert(0, on_commit)
    journey.done_something.append(on_call)
    if life.held_before_flush:
        failpoints.arm(on_failpoint)


async def _live(life: Life) -> None:
    engine = hf.Engine(life.url, registry=journey.registry, **life.settings)
    async with engine:
        _arm(life, engine)
        await engine.run_worker(concurrency=10, handle_signals=True)


def _born(life: Life) -> int:
    with open(life.log, "w", encoding="utf-8") as file:
        logging.basicConfig(level=logging.INFO, stream=file, format="%(relativeCreated)d %(name)s %(message)s")
        asyncio.run(_live(life))
    return 0


def _tell(**told: int) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    buffered = b""
    living: set[int] = set()
    while True:
        readable, _, _ = select.select([0], [], [], 0.005 if living else None)
        if readable:
            read = os.read(0, 65536)
            if not read:
                return
            *lines, buffered = (buffered + read).split(b"\n")
            for line in lines:
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        code = _born(msgspec.json.decode(line, type=Life))
                    finally:
                        os._exit(code)
                living.add(child)
                _tell(pid=child)
        for pid in sorted(living):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                living.discard(pid)
                _tell(pid=pid, code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
