"""Flows of the corpus, and workers for them that die on order: `python -m tests.flows.mortal_flows URL ORDER...`.

One life after another, each a forked process, so that Python starts once. A life dies where its order says, such as
`flush.after_commit:2`, and the program prints how each has ended. The last one has no order, and finishes what is left.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import holdfast as hf
from holdfast.authoring.flows import Flow, flow
from holdfast.runtime.killswitch import VARIABLE, install_from_environment
from holdfast.store.contract import FindRuns
from tests.flows.actions import registry as actions
from tests.flows.corpus import Case, all_cases
from tests.worker.support import PATIENT

NAMES = ("best_of", "partial_failures", "calls_a_child")
CASES: list[Case] = [case for case in all_cases() if case.function.__name__ in NAMES]
# A life ends at its first commits: what it had claimed besides is lost without any fault of its own.
SETTINGS: dict[str, Any] = {**PATIENT, "lost_limit": 1000}


def registered() -> tuple[hf.Registry, dict[str, Flow[..., Any]]]:
    """The actions of the corpus, and its flows that are run here, by their names."""
    registry = hf.Registry()
    for found in {id(each): each for each in (*actions.actions.values(), *actions.workflows.values())}.values():
        registry.add(found)
    return registry, {case.function.__name__: flow(registry=registry)(case.function) for case in CASES}


async def _live(url: str, registry: hf.Registry) -> None:
    """Work until every run has ended."""
    async with hf.Engine(url, registry=registry, **SETTINGS) as engine, engine.worker(concurrency=10):
        for run in await engine.store.find(FindRuns(limit=100)):
            await engine.watch.wait(run.id, lambda row: row.ended, 30)


def main(url: str, *orders: str) -> None:
    registry, _ = registered()
    for order in (*orders, ""):
        pid = os.fork()
        if pid == 0:
            install_from_environment({VARIABLE: order})
            asyncio.run(_live(url, registry))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(order or "nowhere", code, flush=True)
        if code == 0:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
