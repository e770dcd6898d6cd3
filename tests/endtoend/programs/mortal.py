"""Processes that die on order, one after another and quickly: `python -m tests.endtoend.programs.mortal`.

Reads one JSON order a line. For each it forks a process that starts the five-step run under the order's key and works
on it until it is done or the failpoint kills it; then it prints the exit code. Forking spares the start of Python, so
that a crash at every hit of every failpoint takes seconds instead of minutes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec

import holdfast as hf
from holdfast.runtime import killswitch
from tests.endtoend.programs import app


class Errand(msgspec.Struct, kw_only=True):
    """One life."""

    url: str
    key: str
    journal: str
    failpoint: str = ""
    settings: dict[str, Any] = {}


async def walk(errand: Errand) -> None:
    engine = hf.Engine(errand.url, registry=app.registry, **errand.settings)
    async with engine, engine.worker(concurrency=1):
        handle = await engine.start(app.Walk(journal=errand.journal), key=errand.key)
        await handle.result(timeout=30)


def live(errand: Errand) -> int:
    killswitch.install_from_environment({killswitch.VARIABLE: errand.failpoint})
    asyncio.run(walk(errand))
    return 0


def main() -> None:
    for line in sys.stdin.buffer:
        errand = msgspec.json.decode(line, type=Errand)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = live(errand)
            finally:
                # No atexit, no flush of what the parent had buffered: this process ends here whatever happened.
                os._exit(code)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
