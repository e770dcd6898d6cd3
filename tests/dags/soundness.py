"""What must hold of a DAG run's rows at any moment, and of a run that has ended: each a sentence if it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.core.graph import Graph
from holdfast.core.rows import (
    BLOCKED,
    CANCELLED,
    COMPLETED,
    FAILED,
    GAVE_UP,
    LEASED,
    OPEN_WORK,
    READY,
    SATISFIED,
    Run,
    Work,
)

Attempts = dict[str, list[Work]]


def by_node(rows: Iterable[Work]) -> Attempts:
    """Every attempt, oldest first, by node."""
    attempts: Attempts = {}
    for row in sorted(rows, key=lambda row: (row.node, row.attempt)):
        attempts.setdefault(row.node, []).append(row)
    return attempts


def contradictions(run: Run, rows: list[Work], graph: Graph) -> list[str]:
    """Whatever no operation may leave behind, whether the run has ended or not."""
    attempts = by_node(rows)
    return [
        f"run {run.id} ({run.status}, on_failure {run.on_failure}): {line}"
        for line in (
            *_miscounted(run, attempts, graph),
            *_overfull(attempts, graph),
            *_settled_twice(attempts),
            *_out_of_order(attempts, graph),
            *_open_after_the_end(run, attempts),
        )
    ]


def _miscounted(run: Run, attempts: Attempts, graph: Graph) -> Iterator[str]:
    latest = {node: mine[-1].status for node, mine in attempts.items()}
    counted = {
        "active": (run.active, sum(row.status in (READY, LEASED) for mine in attempts.values() for row in mine)),
        "gave_up": (run.gave_up, sum(status in GAVE_UP for status in latest.values())),
        "remaining": (run.remaining, sum(latest.get(node) not in SATISFIED for node in graph.by_id)),
    }
    for name, (said, found) in counted.items():
        if said != found:
            yield f"{name} is {said} and should be {found}"


def _overfull(attempts: Attempts, graph: Graph) -> Iterator[str]:
    """I17: readiness never overflows, and what has begun was ready."""
    for node, mine in attempts.items():
        done = sum(
            any(row.status in SATISFIED for row in attempts.get(parent, ())) for parent in graph.by_id[node].depends_on
        )
        first = mine[0]
        if first.required != graph.required(node):
            yield f"{node} requires {first.required} and has {graph.required(node)} parents"
        if first.completed > first.required:
            yield f"{node} was counted {first.completed} times and has {first.required} parents"
        if graph.by_id[node].depends_on and first.completed != done:
            yield f"{node} counts {first.completed} parents that are done, and {done} are"
        if first.status == BLOCKED and first.completed == first.required:
            yield f"{node} is blocked, and all its parents are done"


def _settled_twice(attempts: Attempts) -> Iterator[str]:
    for node, mine in attempts.items():
        if [row.attempt for row in mine] != list(range(1, len(mine) + 1)):
            yield f"{node} has the attempts {[row.attempt for row in mine]}"
        if Counter(row.status in SATISFIED for row in mine)[True] > 1:
            yield f"{node} was settled more than once: {[row.status for row in mine]}"
        if any(row.status in SATISFIED or row.status in OPEN_WORK for row in mine[:-1]):
            yield f"{node} has an attempt after one that was done or open: {[row.status for row in mine]}"
        tokens = [row.token for row in mine]
        if tokens != sorted(tokens):
            yield f"{node} has the tokens {tokens}, and they must not shrink (I3)"


def _out_of_order(attempts: Attempts, graph: Graph) -> Iterator[str]:
    """G4: nothing begins before all that it depends on is done."""
    done = {node: row.finished for node, mine in attempts.items() for row in mine if row.status in SATISFIED}
    for node, mine in attempts.items():
        for row in mine:
            if row.started is None:
                continue
            for parent in graph.by_id[node].depends_on:
                finished = done.get(parent)
                if finished is None or finished > row.started:
                    yield f"attempt {row.attempt} of {node} began at {row.started}, {parent} was done at {finished}"


def _open_after_the_end(run: Run, attempts: Attempts) -> Iterator[str]:
    startable = (READY, LEASED) if run.status == FAILED else tuple(OPEN_WORK)
    if run.status in (COMPLETED, CANCELLED, FAILED):
        for node, mine in attempts.items():
            if any(row.status in startable for row in mine):
                yield f"{node} is {mine[-1].status} although the run has ended"


def undone(run: Run, rows: list[Work], graph: Graph) -> list[str]:
    """What should have been done before a run ended by itself: all that depends on nothing that gave up (I30)."""
    latest = {node: mine[-1].status for node, mine in by_node(rows).items()}
    held_up: set[str] = set()
    for node, status in latest.items():
        if status in GAVE_UP:
            held_up |= {node, *graph.descendants(node)}
    return [node for node in graph.by_id if node not in held_up and latest.get(node) not in SATISFIED]
