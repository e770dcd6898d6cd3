"""Numbers for Prometheus, in its text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from holdfast.core.rows import RUN_STATUSES
from holdfast.documents.backlog import queues_of

if TYPE_CHECKING:
    from holdfast.engine import Engine

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
Sample = tuple[dict[str, str], float]


class Requests:
    """How many requests there were, by route and status.

    Addresses are not counted apart, and neither are methods that somebody made up: there would be too many.
    """

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, str, int]] = Counter()

    def count(self, method: str, route: str, status: int) -> None:
        self.counted[method if method in METHODS else "OTHER", route, status] += 1


async def metrics_text(engine: Engine, requests: Requests, live_clients: int) -> str:
    """Everything that is worth an alarm: runs, queues, workers, dead letters, and this server's requests."""
    store_stats = await engine.store.stats()
    queues = (await queues_of(engine, store_stats)).queues
    now = engine.store.now()
    alive = sum(worker.lease_until >= now for worker in await engine.store.workers())
    served = sorted(requests.counted.items())
    families: list[tuple[str, str, str, Iterable[Sample]]] = [
        (
            "runs",
            "gauge",
            "Runs in the database by status.",
            [({"status": status}, store_stats.runs.get(status, 0)) for status in RUN_STATUSES],
        ),
        ("queue_ready", "gauge", "Work that could run now.", [({"queue": q.name}, q.ready) for q in queues]),
        ("queue_delayed", "gauge", "Work that waits for its time.", [({"queue": q.name}, q.delayed) for q in queues]),
        ("queue_leased", "gauge", "Work that runs.", [({"queue": q.name}, q.leased) for q in queues]),
        (
            "queue_oldest_ready_seconds",
            "gauge",
            "For how long the oldest work that could run has been waiting.",
            [({"queue": q.name}, q.oldest_ready_seconds) for q in queues],
        ),
        ("queue_workers", "gauge", "Live workers of a queue.", [({"queue": q.name}, q.workers) for q in queues]),
        ("workers", "gauge", "Live workers.", [({}, alive)]),
        (
            "dead_work",
            "gauge",
            "Work that could not be run, and waits for a person.",
            [({}, store_stats.work.get("dead", 0))],
        ),
        (
            "dead_events",
            "gauge",
            "Events and inputs that nobody could take, and that wait for a person.",
            [({}, store_stats.dead_events)],
        ),
        ("inbox_inputs", "gauge", "Inputs that wait to be applied.", [({}, store_stats.inbox)]),
        (
            "http_requests_total",
            "counter",
            "Requests to this server.",
            [({"method": m, "route": route, "status": str(s)}, count) for (m, route, s), count in served],
        ),
        ("live_clients", "gauge", "Open live streams of this server.", [({}, live_clients)]),
    ]
    lines: list[str] = []
    for name, kind, told, samples in families:
        lines += [f"# HELP holdfast_{name} {told}", f"# TYPE holdfast_{name} {kind}"]
        lines += [f"holdfast_{name}{_labels(labels)} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
