"""Workers that are killed around their commits, one after another, until all runs have ended.

`python -m tests.flows.killed_lives URL SEED SHARE WHAT`: each life is a forked process, so that Python starts once. It
is killed with SIGKILL right before or right after a commit of its own: its first one if SHARE is 1, a later one with
a smaller share. The last one finds nothing left to do. One line for each: where it should die, and how it ended.

WHAT is `ten`, for the flows of `ten_flows.py`, or the seed from which on random programs are made.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import holdfast as hf
from holdfast.coordinator import Commit
from holdfast.runtime.killswitch import VARIABLE, install_from_environment
from holdfast.store.contract import FindRuns
from tests.flows import ten_flows
from tests.flows.random_flows import compiled
from tests.worker.support import PATIENT

PROGRAMS = 12
# A life ends at its first commits: what it had claimed besides is lost without any fault of its own.
SETTINGS: dict[str, Any] = {**PATIENT, "lost_limit": 10_000}
WAITS_SECONDS = 30.0
BEFORE = 0.3


def registry_of(what: str) -> hf.Registry:
    """What the runs need that are worked on here."""
    return ten_flows.registered()[0] if what == "ten" else compiled(int(what), PROGRAMS)[0]


async def _live(url: str, registry: hf.Registry, order: str) -> None:
    """Work until every run has ended, or until it is time to die."""
    place, _, hit = order.partition(":")
    async with hf.Engine(url, registry=registry, **SETTINGS) as engine:
        if place == "before":
            install_from_environment({VARIABLE: f"flush.before:{hit}"})
        else:
            engine.coordinator.observers.insert(0, _killed_after(int(hit)))
        async with engine.worker(concurrency=20):
            for run in await engine.store.find(FindRuns(limit=1000)):
                await engine.watch.wait(run.id, lambda row: row.ended, WAITS_SECONDS)


def _killed_after(hit: int) -> Callable[[Commit], None]:
    """Dies with a commit of the coordinator: those of enrolling and claiming are other people's."""
    commits = 0

    def on_commit(commit: Commit) -> None:
        nonlocal commits
        commits += bool(commit.changes)
        if commits == hit:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_commit


def main(url: str, seed: str, share: str, what: str) -> None:
    registry, chance = registry_of(what), random.Random(seed)
    while True:
        hit = 1
        while chance.random() > float(share):
            hit += 1
        # Before a commit nothing is gained, and the next life begins with a commit that only takes over.
        order = f"{'before' if chance.random() < BEFORE else 'after'}:{hit}"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(_live(url, registry, order))
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(order, code, flush=True)
        if code >= 0:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
