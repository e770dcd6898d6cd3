"""Lives as real processes that die of SIGKILL, forked from one that has imported everything, so that a death is cheap.

`python -m tests.reliability.crash.killed` is that process: it reads an order a line, forks, waits, and answers with the
exit code. `Nursery` starts it and gives orders.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import holdfast as hf
from holdfast.runtime.killswitch import VARIABLE, install_from_environment
from holdfast.store.sqlite import SqliteStore
from tests.reliability.crash import ledger as ledgers
from tests.reliability.crash.in_process import Hit, Stage
from tests.reliability.crash.ledger import Ledger
from tests.reliability.crash.lives import Lived, perform
from tests.reliability.crash.oracle import Broken
from tests.reliability.crash.places import Place
from tests.reliability.crash.scenario import SETTINGS, Scenario
from tests.reliability.crash.table import SCENARIOS
from tests.worker.support import ROOT, child_environment

KILLED_LIFE_SECONDS = 45.0  # of real time


class Nursery:
    """Processes that live one life each."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                cwd=ROOT,
                env=child_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )

    def live(self, scenario: Scenario, place: Place, ledger: Path, number: int, order: Hit | None) -> bool:
        """One life; whether it was killed. A life that ends in another way than it should is a failure."""
        asked = {
            "scenario": scenario.name,
            "url": place.url,
            "ledger": str(ledger),
            "life": number,
            "order": str(order or ""),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        code = int(answer) if answer else 1
        if code not in (0, -signal.SIGKILL):
            raise Broken(f"G9: life {number} ended with {code}:\n{self._errors.read_text(errors='replace')[-3000:]}")
        return code != 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closing its standard input ends it
        assert self._process.returncode == 0, self._errors.read_text(errors="replace")[-3000:]


class KilledStage(Stage):
    """The same points, as deaths of processes."""

    def __init__(self, scenario: Scenario, place: Place, folder: Path, nursery: Nursery) -> None:
        super().__init__(scenario, place, folder)
        self._nursery = nursery

    def _live(self, number: int, order: tuple[Hit, ...], seconds: float = 0.0) -> Lived:
        killed = self._nursery.live(self.scenario, self.place, self._ledger, number, order[0] if order else None)
        return Lived(killed, Counter())


async def _live(scenario: Scenario, url: str) -> None:
    engine = hf.Engine(url, registry=scenario.registry, **{**SETTINGS, **scenario.settings})
    async with asyncio.timeout(KILLED_LIFE_SECONDS), engine:
        if isinstance(engine.store, SqliteStore):
            engine.store.db.execute("PRAGMA synchronous = OFF")  # a process that dies loses nothing that it wrote
        await perform(scenario, engine)


def _forked(asked: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            install_from_environment({VARIABLE: asked["order"]})
            ledgers.use(Ledger(Path(asked["ledger"]), asked["life"]))
            asyncio.run(_live(SCENARIOS[asked["scenario"]], asked["url"]))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    import holdfast.store.postgres  # noqa: F401 - before the first fork, as all the rest

    for line in sys.stdin:
        print(_forked(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
