"""Making a run agree with a graph that is not the one it followed (I31).

Used after a deploy that changed a class, by `import_dag`, and to give a fork its first work. All nodes are
gone through, once, and only then: an ordinary completion never does this.

What has happened stays. A completed node that the graph no longer has is told in the history; one that has
not begun is skipped, and told, and is taken up again should the graph have it again: a deploy that is rolled back
must not have cost a step. One that is running now finishes and counts for nothing. A new node is picked up, and
waits only for parents that are not done. A node that has begun keeps going, whatever it depends on now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from holdfast.core.graph import Graph, Node
from holdfast.core.ids import ancestry_hash, parents_hash
from holdfast.core.queries import AllWork
from holdfast.core.rows import (
    BLOCKED,
    COMPLETED,
    GAVE_UP,
    LEASED,
    READY,
    SATISFIED,
    SKIPPED,
    WORK,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.models.dag_items import item_of, redefined
from holdfast.models.machine import Handing, make_ready

NOT_IN_GRAPH = b'{"notes":["skipped: the graph had no such node any more"]}'


@dataclass(slots=True)
class Reshaped:
    """What another graph changed for a run. Names, not ids, except in `rewired`, which verification reads."""

    run: Run
    not_begun: list[str] = field(default_factory=list)  # new, or not yet reached
    gone: list[str] = field(default_factory=list)  # completed, and not in the graph any more
    skipped: list[str] = field(default_factory=list)  # not begun, and not in the graph any more
    rewired: list[str] = field(default_factory=list)  # begun under other parents than it has now

    @property
    def left_out(self) -> bool:
        """Whether something of the run does not fit the graph."""
        return bool(self.gone or self.skipped or self.rewired)

    def told(self, limit: int) -> dict[str, Any]:
        """For the history: enough to recognise what happened by."""
        told: dict[str, Any] = {"before": self.run.signature}
        for kind in ("not_begun", "gone", "skipped"):
            names: list[str] = getattr(self, kind)
            if names:
                told[kind] = names if len(names) <= limit else [*names[:limit], f"and {len(names) - limit} more"]
        if self.rewired:
            told["rewired"] = self.rewired
        if self.gone:
            told["warning"] = "completed nodes are no longer in the graph"
        elif self.skipped:
            told["warning"] = "nodes that had not begun are no longer in the graph, and were skipped"
        return told


def reshape(view: View, run: Run, graph: Graph, handing: Handing) -> Reshaped:
    """Change the run's work to what this graph asks for; the run's counts are in the answer, not yet written."""
    first: dict[str, Work] = {}
    latest: dict[str, Work] = {}
    followed: dict[str, set[str | None]] = {}  # the parents' attempts that attempts of a node claim to follow
    for work in view.find(AllWork(run.id)):
        first.setdefault(work.node, work)
        latest[work.node] = work
        if work.ancestry is not None:
            followed.setdefault(work.node, set()).add(work.parents)
    latest |= {node: replace(work, status=BLOCKED, outcome=None) for node, work in latest.items() if _withdrawn(work)}
    done = {node: work.ancestry or "" for node, work in latest.items() if work.status in SATISFIED}
    changed = Reshaped(run)
    active = _drop_missing(view, graph, latest, changed)
    gave_up = remaining = 0
    for node in graph.nodes:
        remaining += node.id not in done
        met = sum(parent in done for parent in node.depends_on) if node.depends_on else 1
        work = latest.get(node.id)
        if work is None:
            changed.not_begun.append(node.name)
            active += _begin(view, run, node, graph.required(node.id), met, done, handing)
            continue
        if work.status == BLOCKED or (work.status == READY and work.attempt == 1):
            active += _rewait(view, run, node, work, graph.required(node.id), met, done, handing)
            continue
        gave_up += work.status in GAVE_UP
        waits = work.status == READY and met < graph.required(node.id)  # a retry, and there is something new before it
        active += work.status in (READY, LEASED) and not waits
        begun = first[node.id]
        if work.status == READY or work.status in GAVE_UP:
            # Its next attempt is made from this row, and runs what the node is now: an import may have changed its job.
            again = redefined(work, run, node, work.required)
            if waits:
                again = replace(again, status=BLOCKED)
            if again != work:
                view.put(WORK, again)
            begun = again if begun.attempt == again.attempt else begun
        if (begun.required, begun.completed) != (graph.required(node.id), met):
            # It has begun and stays so; what still completes above it is counted, and must fit.
            view.put(WORK, replace(begun, required=graph.required(node.id), completed=met))
        if node.id in followed and (met < graph.required(node.id) or followed[node.id] != {_parents(node, done)}):
            changed.rewired.append(node.id)
    changed.run = replace(run, active=active, gave_up=gave_up, remaining=remaining)
    return changed


def _drop_missing(view: View, graph: Graph, latest: dict[str, Work], changed: Reshaped) -> int:
    """Settle what the graph does not have any more; how many of these are running now."""
    running = 0
    for node, work in latest.items():
        if node in graph.by_id:
            continue
        if work.status == LEASED:
            running += 1
        elif work.status == COMPLETED:
            changed.gone.append(node)
        elif work.status in (BLOCKED, READY) or work.status in GAVE_UP:
            gone = replace(work, status=SKIPPED, token=work.token + 1, outcome=NOT_IN_GRAPH, finished=view.now)
            view.put(WORK, gone)
            changed.skipped.append(node)
    return running


def _withdrawn(work: Work) -> bool:
    return work.status == SKIPPED and work.outcome == NOT_IN_GRAPH


def _begin(view: View, run: Run, node: Node, required: int, met: int, done: dict[str, str], handing: Handing) -> int:
    """The first row of a node, if any parent is done; 1 if it can start."""
    if met == 0:
        return 0  # its first parent to finish inserts it
    work = replace(item_of(run, node, required=required, now=view.now), completed=met)
    if met == required:
        work = make_ready(view, run, _stamped(view, node, work, done), handing)
    view.insert(WORK, work)
    return int(met == required)


def _rewait(
    view: View,
    run: Run,
    node: Node,
    work: Work,
    required: int,
    met: int,
    done: dict[str, str],
    handing: Handing,
) -> int:
    """A node that has not begun waits for what it depends on now; 1 if it can start."""
    work = replace(redefined(work, run, node, required), completed=met, finished=None)
    if met < required and work.attempt == 1:
        view.put(WORK, replace(work, status=BLOCKED, parents=None, ancestry=None))
        return 0
    if work.status == BLOCKED:
        work = replace(work, due=view.now)
    view.put(WORK, make_ready(view, run, _stamped(view, node, work, done), handing))
    return 1


def _stamped(view: View, node: Node, work: Work, done: dict[str, str]) -> Work:
    parents = _parents(node, done)
    return replace(work, parents=parents, ancestry=ancestry_hash(node.id, work.attempt, parents))


def _parents(node: Node, done: dict[str, str]) -> str:
    return parents_hash([done[parent] for parent in node.depends_on if parent in done])
