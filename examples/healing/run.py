"""A class healed by a deploy in the middle of a run.

    python examples/healing/run.py

A worker with `before.py` gets stuck in the second step and is killed. A worker with `after.py` takes over: what was
recorded stays, the mended step runs again, a step that is new is picked up, one that is gone is not run. Nobody had to
touch the run. State goes to healing.db in the current directory, which is made anew each time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast as hf

DATABASE = Path("healing.db").absolute()
CODE = Path(__file__).resolve().parent


@contextmanager
def worker(module: str) -> Iterator[Iterator[str]]:
    """A worker as a deploy starts it: another process, with one version of the code. Yields what it prints."""
    command = [sys.executable, "-m", "holdfast", "--url", f"sqlite:///{DATABASE}", "worker", module]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=CODE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout)
        finally:
            process.kill()  # SIGKILL: it has no chance to say goodbye


def show_until(said: str, lines: Iterator[str]) -> None:
    for line in lines:
        print(line, end="", flush=True)
        if said in line:
            return


async def main() -> None:
    for file in DATABASE.parent.glob(f"{DATABASE.name}*"):
        file.unlink()
    from before import Invoice  # as whoever starts runs had it: the class of before the deploy

    async with hf.Engine(f"sqlite:///{DATABASE}") as engine:
        handle = await engine.start(Invoice(number=17))
        print("A worker with the code of before:")
        with worker("before") as lines:
            show_until("asking for the rate", lines)
        print("It is killed, and a worker with the code of after is started:")
        with worker("after") as lines:
            show_until("mail sent", lines)
            await handle.result(timeout=60)
        print(f"The run is {await handle.status()}. What its history says of the deploy:")
        for entry in await handle.history():
            if entry.kind == "graph changed":
                print(f"  not begun {entry.data.get('not_begun', [])}, skipped {entry.data.get('skipped', [])}")


if __name__ == "__main__":
    asyncio.run(main())
