"""PostgreSQL that is stopped with `-m immediate` around commits, and started again: the same processes go on."""

from __future__ import annotations

from pathlib import Path

from holdfast.runtime.postgres_server import PostgresServer
from tests.reliability.crash.in_process import Hit, Stage
from tests.reliability.crash.ledger import Ledger
from tests.reliability.crash.lives import Life, Lived, buried
from tests.reliability.crash.places import PostgresPlace
from tests.reliability.crash.scenario import Scenario

COMMITS = ("flush.before", "flush.before_commit", "flush.after_commit", "action.tx.before_commit", "claim.after")
"""Where a commit begins or has just ended, and a claim, which is a commit of its own."""


class StoppedStage(Stage):
    """The same points, but it is the server that dies there, and nobody else."""

    def __init__(self, scenario: Scenario, place: PostgresPlace, folder: Path, server: PostgresServer) -> None:
        super().__init__(scenario, place, folder)
        self._server = server

    def stop_at(self, hit: Hit) -> bool:
        """Stop the server there and start it again; whether the place was reached."""
        self._begin()
        stopped = False

        def reached(name: str, number: int) -> bool:
            nonlocal stopped
            if Hit(name, number) == hit and not stopped:
                stopped = True
                self._server.restart("immediate")
            return False

        ledger = Ledger(self._ledger, 1)
        with buried():
            lived: Lived = Life(self.scenario, self.place, ledger, self.scenario.name, 0.0, reached).live()
        assert not lived.crashed
        self._judge_the_end(deaths=int(stopped))
        return stopped
