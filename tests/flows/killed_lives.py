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
import sys
from itertools import count
from typing import Any

import holdfast as hf
from holdfast.runtime.killswitch import VARIABLE, install_from_environment
from holdfast.store.contract import FindRuns
from tests.flows import ten_flows
from tests.flows.random_flows import compiled
from tests.worker.support import PATIENT

PROGRAMS = 12
# A life ends at its first commits: what it had claimed besides is lost without any fault of its own.
SETTINGS: dict[str, Any] = {**PATIENT, "lost_limit": 10_000}
WAITS_SECONDS = 30.0


def registry_of(what: str) -> hf.Registry:
    """What the runs need that are worked on here."""
    return ten_flows.registered()[0] if what == "ten" else compiled(int(what), PROGRAMS)[0]


async def _live(url: str, registry: hf.Registry) -> None:
    """Work until every run has ended."""
    async with hf.Engine(url, registry=registry, **SETTINGS) as engine, engine.worker(concurrency=20):
        for run in await engine.store.find(FindRuns(limit=1000)):
            await engine.watch.wait(run.id, lambda row: row.ended, WAITS_SECONDS)


def main(url: str, seed: str, share: str, what: str) -> None:
    registry, chance = registry_of(what), random.Random(seed)
    for number in count():
        hit = 1
        while chance.random() > float(share):
            hit += 1
        # Before a commit nothing is gained, after it something is: in turns, so that there is an end.
        order = f"{'flush.after_commit' if number % 2 else 'flush.before'}:{hit}"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                install_from_environment({VARIABLE: order})
                asyncio.run(_live(url, registry))
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(order, code, flush=True)
        if code >= 0:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
