"""What the engine counts and measures, and the default place where the numbers go.

The engine knows only `Metrics`, so an application can pass its own bridge to whatever it uses. `Recorder` keeps the
numbers in memory; commands, pages and a Prometheus endpoint read them from there.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

CLAIMS: Final = "claims"
CLAIMED_ITEMS: Final = "claimed_items"
COMPLETIONS: Final = "completions"
STALE_COMPLETIONS: Final = "stale_completions"
FAILURES: Final = "failures"
RETRIES: Final = "retries"
TIMEOUTS: Final = "timeouts"
LEASE_LOSSES: Final = "lease_losses"
TAKEOVERS: Final = "takeovers"
DEAD_LETTERS: Final = "dead_letters"
HANDED_OVER: Final = "handed_over"
BATCHES: Final = "batches"
RECONNECTS: Final = "reconnects"
REFUSED_OPERATIONS: Final = "refused_operations"
PROCESS_DEATHS: Final = "process_deaths"
BATCH_SIZE: Final = "batch_size"
CLAIM_SECONDS: Final = "claim_seconds"
COMMIT_SECONDS: Final = "commit_seconds"
DECIDE_SECONDS: Final = "decide_seconds"
LOAD_SECONDS: Final = "load_seconds"
ACTION_SECONDS: Final = "action_seconds"
SCHEDULE_TO_START_SECONDS: Final = "schedule_to_start_seconds"
RUNNING_ACTIONS: Final = "running_actions"
ABANDONED_THREADS: Final = "abandoned_threads"
GRAPH_NODES_RUNNING: Final = "graph_nodes_running"
GRAPH_QUEUE_DEPTH: Final = "graph_queue_depth"
GRAPH_STEP_SECONDS: Final = "graph_step_seconds"
GRAPH_RETRIES: Final = "graph_retries"
GRAPH_MERGE_CONFLICTS: Final = "graph_merge_conflicts"
GRAPH_BACKPRESSURE_BLOCKS: Final = "graph_backpressure_blocks"

MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        CLAIMS: "claims sent to the store",
        CLAIMED_ITEMS: "work items that claims returned",
        COMPLETIONS: "work items recorded as completed",
        STALE_COMPLETIONS: "outcomes refused because their lease was no longer held",
        FAILURES: "attempts recorded as failed",
        RETRIES: "attempts scheduled after a failure",
        TIMEOUTS: "attempts that passed their deadline",
        LEASE_LOSSES: "leases that lapsed and were recorded as lost",
        TAKEOVERS: "workers found dead whose leases were taken over",
        DEAD_LETTERS: "work items, timers and events that became dead",
        HANDED_OVER: "work items leased to this worker by the commit that made them ready",
        BATCHES: "batches committed",
        RECONNECTS: "connections to the store made anew after a loss",
        REFUSED_OPERATIONS: "operations refused without effect on the rest of their batch",
        PROCESS_DEATHS: "processes of isolated actions that died by themselves",
        BATCH_SIZE: "operations in a batch",
        CLAIM_SECONDS: "time of a claim",
        COMMIT_SECONDS: "time of a batch's writes and commit",
        DECIDE_SECONDS: "time of a batch's decisions",
        LOAD_SECONDS: "time of a batch's locks and reads",
        ACTION_SECONDS: "time that one attempt of user code ran",
        SCHEDULE_TO_START_SECONDS: "time from the moment work was due to the moment its code started",
        RUNNING_ACTIONS: "attempts of user code that run now",
        ABANDONED_THREADS: "functions that still run although their attempt is over",
        GRAPH_NODES_RUNNING: "nodes of state graphs that run now",
        GRAPH_QUEUE_DEPTH: "items that wait when a step of a state graph begins",
        GRAPH_STEP_SECONDS: "time of a step of a state graph, from one checkpoint to the next",
        GRAPH_RETRIES: "attempts scheduled after a failed one of a state graph's node",
        GRAPH_MERGE_CONFLICTS: "runs of state graphs that failed because two nodes wrote one field",
        GRAPH_BACKPRESSURE_BLOCKS: "items of state graphs that found the frontier full",
    }
)

# What every log record about user code carries, under these names.
LOG_KEYS: Final = ("run", "workflow", "node", "attempt", "worker")

# Six steps a decade, from 10 µs to 10,000: fine enough for a useful p99, few enough to publish all of them.
BOUNDS: Final = (*(float(f"{step}e{power}") for power in range(-5, 4) for step in (1, 1.5, 2, 3, 5, 7)), 10_000.0)


class Metrics(Protocol):
    """Where numbers go. Called on the engine's hot path: an implementation must be quick and must not raise."""

    def count(self, name: str, n: int = 1) -> None:
        """Add n to a counter."""

    def observe(self, name: str, seconds: float) -> None:
        """Add one measurement to a distribution; seconds, unless the name says otherwise."""

    def gauge(self, name: str, value: float) -> None:
        """Set a value that goes up and down."""


class Levels:
    """Gauges that several parts of a process raise and lower together, such as its workers. For one event loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._gauge = metrics.gauge
        self._values: defaultdict[str, int] = defaultdict(int)

    def change(self, name: str, by: int) -> None:
        """Raise a gauge, or lower it with a negative number."""
        self._values[name] = value = self._values[name] + by
        self._gauge(name, value)


MOST_UNSORTED = 512


class _Distribution:
    """Measurements as counts per bucket: constant memory, however many there are."""

    __slots__ = ("buckets", "count", "highest", "lowest", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.count = 0
        self.total = 0.0
        self.lowest = float("inf")
        self.highest = float("-inf")

    def quantile(self, share: float) -> float:
        """An estimate by interpolation inside the bucket, never outside of what was measured."""
        wanted = share * self.count
        below = 0
        for index, inside in enumerate(self.buckets):
            if inside and below + inside >= wanted:
                start = BOUNDS[index - 1] if index > 0 else 0.0
                end = BOUNDS[index] if index < len(BOUNDS) else self.highest
                estimate = start + (end - start) * (wanted - below) / inside
                return min(max(estimate, self.lowest), self.highest)
            below += inside
        return 0.0


class Recorder:
    """Keeps counters, gauges and distributions in memory. Safe from any thread, a fraction of a microsecond a call.

    Numbers are put down as they come, each name's in a list of its own, and summed up many at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uncounted: defaultdict[str, list[int]] = defaultdict(list)
        self._unsorted: defaultdict[str, list[float]] = defaultdict(list)
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, float] = {}
        self._distributions: dict[str, _Distribution] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Add n to a counter."""
        new = self._uncounted[name]
        new.append(n)
        if len(new) >= MOST_UNSORTED:
            self._sum_up()

    def observe(self, name: str, seconds: float) -> None:
        """Add one measurement to a distribution."""
        new = self._unsorted[name]
        new.append(seconds)
        if len(new) >= MOST_UNSORTED:
            self._sum_up()

    def _sum_up(self) -> None:
        with self._lock:
            self._sort()

    def _sort(self) -> None:
        """The lock is held; others may put more down meanwhile."""
        for name, counted in _taken(self._uncounted):
            self._counters[name] = self._counters.get(name, 0) + sum(counted)
        for name, measured in _taken(self._unsorted):
            kept = self._distributions.get(name)
            if kept is None:
                kept = self._distributions[name] = _Distribution()
            for seconds in measured:
                kept.buckets[bisect_left(BOUNDS, seconds)] += 1
            kept.count += len(measured)
            kept.total += sum(measured)
            kept.lowest = min(kept.lowest, *measured)
            kept.highest = max(kept.highest, *measured)

    def gauge(self, name: str, value: float) -> None:
        """Set a value that goes up and down."""
        self._gauges[name] = value

    def snapshot(self) -> dict[str, Any]:
        """All numbers of one moment by name, ready for JSON: `counters`, `gauges`, `distributions`."""
        with self._lock:
            self._sort()
            return {
                "counters": dict(self._counters),
                "gauges": dict(self._gauges),
                "distributions": {
                    name: {
                        "count": kept.count,
                        "sum": kept.total,
                        "min": kept.lowest,
                        "max": kept.highest,
                        "p50": kept.quantile(0.50),
                        "p99": kept.quantile(0.99),
                    }
                    for name, kept in self._distributions.items()
                },
            }

    def prometheus(self) -> str:
        """All numbers of one moment in Prometheus' text format."""
        lines: list[str] = []
        with self._lock:
            self._sort()
            for name, counter in sorted(self._counters.items()):
                shown = _head(lines, f"{name}_total", name, "counter")
                lines.append(f"{shown} {counter}")
            for name, value in sorted(self._gauges.items()):
                shown = _head(lines, name, name, "gauge")
                lines.append(f"{shown} {value:g}")
            for name, kept in sorted(self._distributions.items()):
                shown = _head(lines, name, name, "histogram")
                reached = 0
                for bound, inside in zip(BOUNDS, kept.buckets, strict=False):
                    reached += inside
                    lines.append(f'{shown}_bucket{{le="{bound:g}"}} {reached}')
                lines.append(f'{shown}_bucket{{le="+Inf"}} {kept.count}')
                lines.append(f"{shown}_sum {kept.total!r}")
                lines.append(f"{shown}_count {kept.count}")
        return "".join(f"{line}\n" for line in lines)


def _taken(new: dict[str, list[T]]) -> Iterator[tuple[str, list[T]]]:
    """What was put down so far, taken out of its lists: another thread may be adding to their ends."""
    for name, numbers in list(new.items()):
        if taken := numbers[:]:
            del numbers[: len(taken)]
            yield name, taken


def _head(lines: list[str], name: str, meaning_of: str, kind: str) -> str:
    shown = "holdfast_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
    if meaning_of in MEANINGS:
        lines.append(f"# HELP {shown} {MEANINGS[meaning_of]}")
    lines.append(f"# TYPE {shown} {kind}")
    return shown
