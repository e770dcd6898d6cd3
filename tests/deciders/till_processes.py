"""Real processes that work on tills, and die on order.

`python -m tests.deciders.till_processes` reads orders, a line of JSON each. It forks a process for each, which spares
the start of Python, and tells of its birth and its end. What the processes did is in a journal, a file that no crash
can take anything back from: one line a deed, each appended with a single write. Its times are of the monotonic clock,
which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

import holdfast as hf
from holdfast.runtime import killswitch
from tests.deciders import oracle, tills
from tests.deciders.tills import Book, Deposit, Till, TillInput, Withdraw
from tests.worker.support import PATIENT, ROOT, child_environment, until

BEGUN, ACKNOWLEDGED, HANDLED = "begun", "acknowledged", "handled"


class Deed(msgspec.Struct, frozen=True):
    """A line of the journal: an input was given or acknowledged, or an effect was handled."""

    what: str
    till: str
    id: str
    pid: int
    at: float


class Order(msgspec.Struct, kw_only=True):
    """What a process is to do.

    play: finish the till `left`, if there is one, then play `till` from the beginning, with the failpoint armed.
    serve: be a worker until SIGTERM.
    trade: be a worker with some clients beside it, who give inputs to any of the tills, and serve on.
    """

    role: Literal["play", "serve", "trade"]
    url: str
    journal: str
    log: str
    failpoint: str = ""
    settings: dict[str, Any] = {}
    till: str = ""
    left: str = ""
    clients: int = 0
    inputs: int = 0  # of each client
    tills: int = 0
    seed: int = 0


def read_journal(path: Path | str) -> list[Deed]:
    """Everything that was done so far, oldest first."""
    try:
        written = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    lines = written.rpartition(b"\n")[0].splitlines()  # whoever reads may meet a line that is just being written
    return [msgspec.json.decode(line, type=Deed) for line in lines]


def book_of(path: Path | str, till: str) -> Book:
    """What the clients of a till knew when their processes died."""
    book = Book(till)
    for deed in read_journal(path):
        if deed.till == till and deed.what != HANDLED:
            (book.begun if deed.what == BEGUN else book.acknowledged).append(deed.id)
    return book


class Mother:
    """The program that forks, as a test talks to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.children: list[int] = []
        self._exits: dict[int, int] = {}
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.deciders.till_processes"],
            cwd=ROOT,
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what is buffered here `select` would not see
        )

    def bear(self, role: Literal["play", "serve", "trade"], url: str, journal: Path, **fields: Any) -> int:
        """A new process; its pid."""
        log = str(self._folder / f"process-{len(self.children)}.log")
        settings = {**PATIENT, **fields.pop("settings", {})}
        order = Order(role=role, url=url, journal=str(journal), log=log, settings=settings, **fields)
        assert self._program.stdin is not None
        self._program.stdin.write(msgspec.json.encode(order) + b"\n")
        while "code" in (told := self._hear()):
            pass
        self.children.append(told["pid"])
        return told["pid"]

    def exit_of(self, pid: int) -> int | None:
        """The exit code of a process that is over."""
        assert self._program.stdout is not None
        while pid not in self._exits and select.select([self._program.stdout], [], [], 0)[0]:
            self._hear()
        return self._exits.get(pid)

    async def ended(self, pid: int) -> int:
        """The exit code of a process, once it is over."""
        await until(lambda: self.exit_of(pid) is not None, f"process {pid} ends")
        return self._exits[pid]

    async def stop(self, *pids: int) -> None:
        """Ask these to stop, and see that they do so in peace."""
        for pid in pids:
            os.kill(pid, signal.SIGTERM)  # the program reaps only what it reports, so the pid is still its process
        for pid in pids:
            assert await self.ended(pid) == 0, self.log_of(pid)

    async def end_all(self) -> None:
        """End whoever still lives."""
        for pid in self.children:
            if self.exit_of(pid) is None:
                os.kill(pid, signal.SIGKILL)
                await self.ended(pid)

    def log_of(self, pid: int) -> str:
        """The end of what a process has logged."""
        return (self._folder / f"process-{self.children.index(pid)}.log").read_text(encoding="utf-8")[-3000:]

    def close(self) -> None:
        for pipe in (self._program.stdin, self._program.stdout):
            assert pipe is not None
            pipe.close()
        self._program.wait(10)

    def _hear(self) -> dict[str, int]:
        assert self._program.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            byte = self._program.stdout.read(1)
            assert byte, "the program that forks is gone"
            line += byte
        told: dict[str, int] = msgspec.json.decode(line)
        if "code" in told:
            self._exits[told["pid"]] = told["code"]
        return told


# --- in the other processes ----------------------------------------------------------------------------------------


class Person:
    """Somebody who gives inputs and writes down which of them were acknowledged."""

    def __init__(self, engine: hf.Engine, journal: str) -> None:
        self._engine = engine
        self._journal = journal

    async def play(self, key: str) -> None:
        """The life of a till, from wherever it was left."""
        book = book_of(self._journal, key)
        for input in tills.first_act(key):
            if book.may_give(input):
                await self.give(input, queued=input.id in tills.QUEUED)
        await self._quiet(key)
        for input in tills.last_act(key):
            if book.may_give(input):
                await self.give(input)
        await self._quiet(key)

    async def give(self, input: TillInput, *, queued: bool = False) -> None:
        self.note(BEGUN, input.till, input.id)
        give = self._engine.enqueue_input if queued else self._engine.execute
        await give(Till, input, command_id=tills.command_of(input))
        self.note(ACKNOWLEDGED, input.till, input.id)

    async def _quiet(self, key: str) -> None:
        """Until nothing more happens to this till by itself."""

        async def quiet() -> bool:
            now = await self._engine.snapshot(Till, key)
            return not (now.effects or now.timers or now.inbox)

        await until(quiet, f"all is done that {key} asks for")

    async def trade(self, order: Order, number: int) -> None:
        """Give inputs to tills at random."""
        chance = random.Random(f"{order.seed} {os.getpid()} {number}")
        for each in range(order.inputs):
            id = f"{chance.choice(('', oracle.NO_COMMAND))}{os.getpid()}-{number}-{each}"
            till = f"till-{chance.randrange(order.tills)}"
            given: TillInput = Deposit(till, id, chance.randint(1, 100))
            if chance.random() < 0.5:
                given = Withdraw(till, id, chance.randint(1, 100))
            await self.give(given, queued=chance.random() < 0.25)

    def note(self, what: str, till: str, id: str) -> None:
        deed = Deed(what, till, id, os.getpid(), time.monotonic())
        # One write to a file opened for appending is never torn by another process, nor by a SIGKILL.
        file = os.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(file, msgspec.json.encode(deed) + b"\n")
        finally:
            os.close(file)


def _arm(failpoint: str) -> None:
    killswitch.install_from_environment({killswitch.VARIABLE: failpoint})


async def _live(order: Order) -> None:
    engine = hf.Engine(order.url, registry=tills.registry, observe_inputs="payload", **order.settings)
    person = Person(engine, order.journal)

    async def handled(effect: tills.TillEffect, ctx: hf.EffectContext) -> None:
        person.note(HANDLED, ctx.workflow_id, effect.id)

    tills.on_effect.append(handled)
    async with engine:
        if order.role == "play":
            async with engine.worker(concurrency=4):
                if order.left:
                    await person.play(order.left)
                _arm(order.failpoint)
                await person.play(order.till)
            return
        _arm(order.failpoint)
        serving = asyncio.ensure_future(engine.run_worker(concurrency=10, handle_signals=True))
        await asyncio.gather(*(person.trade(order, number) for number in range(order.clients)))
        await serving


def _born(order: Order) -> int:
    with open(order.log, "w", encoding="utf-8") as file:
        logging.basicConfig(level=logging.INFO, stream=file, format="%(relativeCreated)d %(name)s %(message)s")
        asyncio.run(_live(order))
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
                        code = _born(msgspec.json.decode(line, type=Order))
                    finally:
                        # No atexit, no flush of what the parent had buffered: it ends here whatever happened.
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
