"""Worker processes, a server and a network, and what is done to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.errors import StoreUnavailable
from holdfast.runtime.postgres_server import PostgresServer
from tests.reliability.soak import journal
from tests.reliability.soak.plan import LEASE_SECONDS, Plan
from tests.reliability.soak.surroundings import Disk, faketime_environment
from tests.worker.support import ROOT, child_environment

SETTINGS: dict[str, Any] = {
    "lease_seconds": LEASE_SECONDS,
    "sweep_seconds": 0.3,
    "poll_seconds": 0.2,
    "store_timeout_seconds": 10.0,
    "lost_limit": 1000,  # so many leases are taken away here that an innocent item may lose ten in a row
    "resident_seconds": 1.0,
}
CONCURRENCY = 10
SKEWS = (0.0, 3600.0, -3600.0)
FULL_SECONDS = 1.5


def cuts_of(did: Mapping[str, int]) -> int:
    """Connections that were cut, in whatever way."""
    return sum(did.get(kind, 0) for kind in ("cut", "unsent", "unknown", "untold"))


class Network:
    """The proxy, in a process of its own, so that it is as fast as it can be."""

    def __init__(self, server: PostgresServer, plan: Plan) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hf-net-")
        order = {"server": str(server.socket_directory), "own": self._folder.name, "seed": plan.seed}
        argument = json.dumps({**order, "cuts_a_second": plan.cuts / plan.seconds, "hole_seconds": LEASE_SECONDS})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.soak.proxy", argument],
            cwd=ROOT,
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._read()

    def url(self, database: str) -> str:
        return f"postgresql:///{database}?host={self._folder.name}&user=postgres"

    def rage(self) -> None:
        self._tell()

    def cuts(self) -> int:
        """How many there were so far."""
        self._tell(b"how many")
        return cuts_of(json.loads(self._read()))

    def calm(self) -> dict[str, int]:
        """End the storm; what was done in it."""
        self._tell()
        done: dict[str, int] = json.loads(self._read())
        return done

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _tell(self, what: bytes = b"") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(what + b"\n")
        self._process.stdin.flush()

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


class Storm:
    """Does to processes and server what the plan says."""

    def __init__(self, plan: Plan, server: PostgresServer, disk: Disk, url: str, folder: Path) -> None:
        self.plan = plan
        self.did: Counter[str] = Counter()
        self._server, self._disk, self._url, self._folder = server, disk, url, folder
        self._dice = random.Random(f"storm {plan.seed}")
        self._workers: list[subprocess.Popen[bytes]] = []
        self._standing_still: set[int] = set()
        self._hired = 0

    # -- workers

    def hire(self) -> None:
        while len(self._workers) < self.plan.workers:
            self._workers.append(self._new_worker())

    def _new_worker(self) -> subprocess.Popen[bytes]:
        skew = SKEWS[self._hired % len(SKEWS)]
        faked = faketime_environment(skew) if skew else {}
        order = {
            "url": self._url,
            "settings": SETTINGS,
            "concurrency": CONCURRENCY,
            "skew_seconds": 0.0 if faked else skew,
        }
        self._hired += 1
        with (self._folder / f"worker-{self._hired}.err").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.reliability.soak.serve", msgspec.json.encode(order).decode()],
                cwd=ROOT,
                env=child_environment() | faked | {journal.VARIABLE: str(self._folder / "journal")},
                stderr=errors,
                stdout=errors,
            )

    def replace_the_dead(self) -> None:
        """What a supervisor does: a worker that could not reach the database when it began is started again."""
        for worker in [worker for worker in self._workers if worker.poll() is not None]:
            self._workers.remove(worker)
            if worker.returncode != -signal.SIGKILL:
                self.did["ended by themselves"] += 1
        self.hire()

    def let_go(self) -> None:
        """Ask all to stop, and end those who do not."""
        for worker in self._workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        deadline = time.monotonic() + 10
        for worker in self._workers:
            try:
                worker.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    # -- the storm

    async def rage(self, cuts_so_far: Callable[[], int]) -> None:
        began = time.monotonic()
        for at, what in self.plan.schedule():
            while (left := began + at - time.monotonic()) > 0:
                self.replace_the_dead()
                await asyncio.sleep(min(left, 0.5))
            await getattr(self, f"_{what}")()
        await asyncio.sleep(max(0.0, began + self.plan.seconds - time.monotonic()))
        self.replace_the_dead()
        while time.monotonic() < began + self.plan.limit_seconds:
            if self.did["kills"] < self.plan.enough_kills:
                await self._kill()
            elif self.did["server restarts"] < self.plan.enough_restarts:
                await self._restart()
            elif await asyncio.to_thread(cuts_so_far) >= self.plan.enough_cuts:
                return
            await asyncio.sleep(1.0)
            self.replace_the_dead()

    async def _kill(self) -> None:
        up = [worker for worker in self._workers if worker.poll() is None and worker.pid not in self._standing_still]
        if up:
            victim = self._dice.choice(up)
            victim.kill()
            await asyncio.to_thread(victim.wait)
            self.did["kills"] += 1
        self.replace_the_dead()

    async def _stop(self) -> None:
        """A worker stands still for longer than its lease, and then goes on as if nothing had happened."""
        up = [worker for worker in self._workers if worker.poll() is None and worker.pid not in self._standing_still]
        if up:
            victim = self._dice.choice(up)
            victim.send_signal(signal.SIGSTOP)
            self._standing_still.add(victim.pid)
            self.did["stops beyond the lease"] += 1
            seconds = LEASE_SECONDS * self._dice.uniform(1.2, 2.5)
            asyncio.get_running_loop().call_later(seconds, self._go_on, victim)

    def _go_on(self, worker: subprocess.Popen[bytes]) -> None:
        self._standing_still.discard(worker.pid)
        if worker.poll() is None:
            worker.send_signal(signal.SIGCONT)

    async def _restart(self) -> None:
        await asyncio.to_thread(self._server.restart, "immediate")
        self.did["server restarts"] += 1

    async def _fill(self) -> None:
        """The disk is full for a moment. The server may give up over that: then somebody starts it again."""
        if self._disk.why_not:
            return
        await asyncio.to_thread(self._disk.fill)
        await asyncio.sleep(FULL_SECONDS)
        self._disk.free()
        self.did["full disks"] += 1
        await asyncio.to_thread(self._bring_up)

    def _bring_up(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(StoreUnavailable):
                self._server.start()
                return
            if time.monotonic() > deadline:
                raise AssertionError("the server does not come back after its disk was full")
            time.sleep(0.2)

    def what_was_left_out(self) -> list[str]:
        """Troubles that this machine does not allow, and why."""
        left_out = [f"full disks: {self._disk.why_not}"] if self._disk.why_not else []
        if not faketime_environment(1.0):
            left_out.append("faketime: the library is not installed; clocks are skewed inside Holdfast instead")
        return left_out


def journal_of(folder: Path) -> Path:
    path = folder / "journal"
    os.environ[journal.VARIABLE] = str(path)
    return path
