"""A second look at every commit, in the order in which they happened: what no commit may ever do.

The shadow learns of a commit from what was handed to the store, at the moment at which it took effect. At the end the
store must hold what the shadow holds: what was committed and is gone was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core import ahead
from holdfast.core.operations import Handed, WorkOperation
from holdfast.core.rows import (
    CANCELLED,
    COMPLETED,
    EVENTS,
    FAILED,
    HISTORY,
    LEASED,
    PAUSED,
    READY,
    RUNS,
    SET_IN_PLACE,
    SETTLES_AFTER_END,
    STREAM,
    WORK,
    Key,
    Run,
    Work,
)
from holdfast.core.view import Changes
from holdfast.store.contract import Store, brought_by_time
from tests.reliability.simulation.ledger import must

FINAL = (COMPLETED, CANCELLED)


class Shadow:
    """The rows that matter, as the commits made them."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.work: dict[Key, Work] = {}
        self.events: dict[str, Any] = {}
        self.taken: set[str] = set()
        self.history: dict[str, int] = {}
        self.told: dict[str, int] = {}  # the time of a run's last entry
        self.facts: dict[str, int] = {}
        self.touched: dict[str, int] = {}  # when a run was last written, or something of it claimed
        self.commits = 0
        self._before: dict[str, str] = {}  # of the runs of this commit, the status that they had

    def on_commit(self, changes: Changes, now: int) -> None:
        self.commits += 1
        for run in changes.inserts.get(RUNS, ()):
            must(run.id not in self.runs, "K8", f"run {run.id} was created twice")
            self.runs[run.id] = run
            self.touched[run.id] = now
        self._before = {
            run.id: self.runs[run.id].status for _, run in changes.updates.get(RUNS, ()) if run.id in self.runs
        }
        for _, run in changes.updates.get(RUNS, ()):
            self._on_run(run)
            self.touched[run.id] = now
        removed = {WORK.key(row) for row in changes.deletes.get(WORK, ())}
        for key in removed:
            self.work.pop(key, None)
        for work in changes.inserts.get(WORK, ()):
            key = WORK.key(work)
            must(key not in self.work, "G4", f"work {key} was enqueued twice")
            self._on_work(key, work, now)
        for _, work in changes.updates.get(WORK, ()):
            self._on_work(WORK.key(work), work, now)
        self._on_events(changes)
        for row in changes.inserts.get(HISTORY, ()):
            self.told[row.run] = max(row.at, self.told.get(row.run, 0))
        self._in_order("history", self.history, changes.inserts.get(HISTORY, ()))
        self._in_order("the stream", self.facts, changes.inserts.get(STREAM, ()))

    def _on_run(self, run: Run) -> None:
        before = self.runs.get(run.id)
        must(before is not None, "G1", f"run {run.id} was changed and had never been created")
        assert before is not None
        must(run.version > before.version, "K4", f"run {run.id} went from version {before.version} to {run.version}")
        if before.status in FINAL and before.model != "decider":
            must(run.status == before.status, "G7", f"run {run.id} was {before.status} and became {run.status}")
            must(run.result == before.result, "G7", f"run {run.id} had ended and got another result")
        self.runs[run.id] = run

    def _on_work(self, key: Key, work: Work, now: int) -> None:
        before = self.work.get(key)
        run = self.runs[work.run]
        if before is not None:
            must(work.token >= before.token, "K3", f"the token of {key} fell from {before.token} to {work.token}")
            if before.kind not in SET_IN_PLACE and before.status == COMPLETED:
                must(work.status == COMPLETED, "G2", f"{key} was completed and became {work.status}")
                must(work.result == before.result, "G2", f"the result of {key} was replaced")
        if work.status == LEASED and (before is None or before.status != LEASED or before.token != work.token):
            self._on_lease(key, work, run, now)
        if work.status in (READY, LEASED) and run.status in FINAL and work.kind not in SETTLES_AFTER_END:
            must(False, "G7", f"{key} is {work.status} in a run that is {run.status}")
        self.work[key] = work

    def on_execution(self, run: str, node: str, attempt: int, now: int) -> None:
        """User code began: of the item, or of a function, which has been told all that is recorded."""
        item = self.work.get((run, node, attempt))
        due = self.told.get(run, 0) if item is None else item.due
        must(due <= now, "G6", f"{node} of {run} began {(due - now) / 1e6:.6f} s early")

    def _on_lease(self, key: Key, work: Work, run: Run, now: int) -> None:
        must(
            work.due <= now + ahead.MOST_AHEAD_US,
            "G6",
            f"{key} was leased {(work.due - now) / 1e6:.6f} s ahead of its time",
        )
        if work.kind not in SETTLES_AFTER_END:
            must(run.status not in (*FINAL, FAILED), "G7", f"{key} was leased in a run that is {run.status}")
            # What one batch leased and then paused was leased before the pause: only rows at its end are known here.
            paused = run.status == PAUSED == self._before.get(run.id, PAUSED)
            must(not paused, "I11", f"{key} was leased in a run that is paused")

    def on_claim(self, handed: Iterable[Handed], now: int) -> None:
        self._before = {}
        for item in handed:
            key = WORK.key(item.work)
            before = self.work.get(key)
            must(before is not None, "G1", f"{key} was claimed and had never been enqueued")
            assert before is not None
            must(before.status == READY, "G2", f"{key} was {before.status} and was claimed")
            fits = item.work.token == before.token + 1
            if brought_by_time(before, self.runs[item.work.run]):
                fits = before.token < item.work.token <= max(before.token + 1, item.work.started or 0)
            must(fits, "K3", f"{key} was claimed with the token {item.work.token}")
            self._on_lease(key, item.work, self.runs[item.work.run], now)
            self.work[key] = item.work
            self.touched[item.run.id] = now
            self.runs[item.run.id] = item.run  # a claim shows that the run has begun

    def _on_events(self, changes: Changes) -> None:
        for event in changes.deletes.get(EVENTS, ()):
            must(event.id in self.events, "G5", f"event {event.id} was taken and is not there")
            del self.events[event.id]
        for event in changes.inserts.get(EVENTS, ()):
            must(event.id not in self.events, "G5", f"event {event.id} was kept twice")
            self.events[event.id] = event

    def _in_order(self, what: str, lengths: dict[str, int], rows: Iterable[Any]) -> None:
        for row in rows:
            expected = lengths.get(row.run, 0) + 1
            must(row.sequence == expected, "G2", f"{what} of {row.run} goes on with {row.sequence}, not {expected}")
            lengths[row.run] = row.sequence

    def is_stale(self, report: WorkOperation) -> bool:
        """Whether somebody else has been given the item since."""
        work = self.work.get((report.run, report.node, report.attempt))
        return work is not None and work.token > report.token

    def open_runs(self) -> list[str]:
        """Runs that have not ended, children among them. A projection is owned for as long as its owner lives."""
        return [run.id for run in self.runs.values() if not run.ended and run.model != "projection"]

    async def check_store(self, store: Store) -> None:
        """G1: everything that was committed is there, as it was committed."""
        stored = {run.id: run for run in await store.runs(sorted(self.runs))}
        for id, run in self.runs.items():
            found = stored.get(id)
            must(found is not None, "G1", f"run {id} was committed and is gone")
            assert found is not None
            same = (found.status, found.version, found.result) == (run.status, run.version, run.result)
            must(
                same,
                "G1",
                f"run {id} was committed as {run.status} v{run.version}, and is {found.status} v{found.version}",
            )
