"""The application that worker processes of the tests serve.

Each definition journals what it does. `registry` holds all of it; `registry_without_second` is the same application as
somebody deployed it yesterday, before `second` existed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from pathlib import Path

import holdfast as hf
from tests.endtoend.programs.journal import BEGUN, DONE, RAISED, write

registry = hf.Registry()
registry_without_second = hf.Registry()

LOOK_AGAIN_SECONDS = 0.005


async def wait_for_file(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110 - the file is another process's to make
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


# --- single actions ------------------------------------------------------------------------------------------------


@hf.action(registry=registry)
async def square(number: int, journal: str) -> int:
    write(journal, BEGUN)
    return number * number


@hf.action(registry=registry)
async def hold(journal: str) -> int:
    """Run until the file `<journal>.go` exists."""
    write(journal, BEGUN)
    await wait_for_file(Path(f"{journal}.go"))
    write(journal, DONE)
    return hf.current().attempt


@hf.action(registry=registry)
def hold_in_thread(journal: str) -> int:
    write(journal, BEGUN)
    while not Path(f"{journal}.go").exists():
        time.sleep(LOOK_AGAIN_SECONDS)
    write(journal, DONE)
    return hf.current().attempt


@hf.action(registry=registry, isolation="process")
def hold_in_process(journal: str) -> int:
    write(journal, BEGUN)
    while not Path(f"{journal}.go").exists():
        time.sleep(LOOK_AGAIN_SECONDS)
    write(journal, DONE)
    return hf.current().attempt


@hf.action(registry=registry, isolation="process", retry=hf.Retry(attempts=3, base=0.01, cap=0.01))
def fail_in_process(journal: str) -> int:
    write(journal, BEGUN)
    hf.current().note("about to fail")
    raise ValueError(f"attempt {hf.current().attempt}")


@hf.action(registry=registry, isolation="process", timeout=1.0, retry=hf.Retry(attempts=2, base=0.01, cap=0.01))
def hang_in_process(journal: str) -> None:
    write(journal, BEGUN)
    while True:
        time.sleep(60)


@hf.action(registry=registry)
async def give_up_when_stopped(journal: str) -> None:
    """Ignores nothing: runs until it is asked to stop, and says so."""
    write(journal, BEGUN)
    try:
        await wait_for_file(Path(f"{journal}.go"))
    except asyncio.CancelledError:
        write(journal, "stopped")
        raise
    write(journal, DONE)


@hf.action(registry=registry)
async def kill_own_worker(journal: str) -> None:
    write(journal, BEGUN)
    os.kill(os.getpid(), signal.SIGKILL)


@hf.action(registry=registry, transactional=True)
async def insert_row(number: int, journal: str) -> int:
    """Writes a row through its transaction; the table is the test's."""
    write(journal, BEGUN)
    await hf.current().tx.execute(f"INSERT INTO ledger (number) VALUES ({int(number)})")
    return number


# --- a chain of five, for the crash at every place -----------------------------------------------------------------


class Walk(hf.Dag, registry=registry):
    """Five steps, each journalled."""

    journal: str

    @hf.step
    async def one(self) -> None:
        write(self.journal, BEGUN)

    @hf.step
    async def two(self) -> None:
        write(self.journal, BEGUN)

    @hf.step
    def three(self) -> None:
        write(self.journal, BEGUN)

    @hf.step
    async def four(self) -> None:
        write(self.journal, BEGUN)

    @hf.step
    async def five(self) -> None:
        write(self.journal, BEGUN)


# --- chains of three to six that sometimes fail, for the long kill test --------------------------------------------

RETRY = hf.Retry(attempts=4, base=0.02, cap=0.1)


def chance(number: int, node: str, what: str) -> float:
    """A number in [0, 1) that depends on nothing else: the same plan in every process and attempt."""
    return int.from_bytes(hashlib.sha256(f"{number}/{node}/{what}".encode()).digest()[:4], "big") / 2**32


class Chain(hf.Dag, registry=registry):
    """A step lasts up to 0.2 s, and every fifth step raises in its first one or two attempts."""

    number: int
    journal: str

    async def work(self) -> None:
        context = hf.current()
        write(self.journal, BEGUN)
        node = context.node.name
        await asyncio.sleep(0.02 + 0.18 * chance(self.number, node, "length"))
        failing = 0 if chance(self.number, node, "fails") > 0.2 else 1 + round(chance(self.number, node, "times"))
        if context.attempt <= failing:
            write(self.journal, RAISED)
            raise RuntimeError(f"planned failure {context.attempt} of {failing}")
        write(self.journal, DONE)

    @hf.step(retry=RETRY)
    async def s1(self) -> None:
        await self.work()

    @hf.step(retry=RETRY)
    async def s2(self) -> None:
        await self.work()

    @hf.step(retry=RETRY)
    async def s3(self) -> None:
        await self.work()


class Chain4(Chain, registry=registry):
    @hf.step(retry=RETRY)
    async def s4(self) -> None:
        await self.work()


class Chain5(Chain4, registry=registry):
    @hf.step(retry=RETRY)
    async def s5(self) -> None:
        await self.work()


class Chain6(Chain5, registry=registry):
    @hf.step(retry=RETRY)
    async def s6(self) -> None:
        await self.work()


CHAINS: tuple[type[Chain], ...] = (Chain, Chain4, Chain5, Chain6)


# --- two versions of one application -------------------------------------------------------------------------------


class Deployed(hf.Dag, registry=registry, name="Deployed"):
    """As it is today."""

    journal: str

    @hf.step(depends_on=None)
    async def first(self) -> None:
        write(self.journal, BEGUN)

    @hf.step(depends_on=None)
    async def second(self) -> None:
        write(self.journal, BEGUN)


class DeployedYesterday(hf.Dag, registry=registry_without_second, name="Deployed"):
    """As it was before `second` was written."""

    journal: str

    @hf.step(depends_on=None)
    async def first(self) -> None:
        write(self.journal, BEGUN)
