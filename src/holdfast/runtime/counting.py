"""What commits are counted as. Only what was recorded counts: a stale or repeated report changed nothing."""

from __future__ import annotations

from holdfast.coordinator import Commit
from holdfast.core.flow_waits import WakeAhead
from holdfast.core.operations import RECORDED, CompleteWork, FailWork, LapseWork, Settled
from holdfast.core.rows import DEAD, WORK
from holdfast.runtime import telemetry as t

_COMPLETIONS = (CompleteWork, WakeAhead)


class Counting:
    """Turns committed batches into counters."""

    def __init__(self, metrics: t.Metrics) -> None:
        self._metrics = metrics

    def on_commit(self, commit: Commit) -> None:
        metrics, changes = self._metrics, commit.changes
        metrics.count(t.BATCHES)
        metrics.observe(t.BATCH_SIZE, len(commit.pairs))
        metrics.observe(t.DECIDE_SECONDS, commit.spent.decide)
        metrics.observe(t.COMMIT_SECONDS, commit.spent.write)
        if commit.locked:  # the fast path reads nothing, and a zero each time would hide what reading costs
            metrics.observe(t.LOAD_SECONDS, commit.spent.load)
        completions = 0
        for operation, result in commit.pairs:
            if not isinstance(result, Settled):
                if isinstance(result, BaseException):
                    metrics.count(t.REFUSED_OPERATIONS)
            elif result.verdict != RECORDED:
                continue
            elif isinstance(operation, _COMPLETIONS):
                completions += 1
            elif isinstance(operation, FailWork):
                metrics.count(t.TIMEOUTS if operation.timed_out else t.FAILURES)
                again = (operation.run, operation.node, operation.attempt + 1)
                if any(WORK.key(work) == again for work in changes.inserts.get(WORK, ())):
                    metrics.count(t.RETRIES)
            elif isinstance(operation, LapseWork):
                metrics.count(t.LEASE_LOSSES)
        if completions:
            metrics.count(t.COMPLETIONS, completions)
        for work in commit.work:
            if work.status == DEAD:
                metrics.count(t.DEAD_LETTERS)
