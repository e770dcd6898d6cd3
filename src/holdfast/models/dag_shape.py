"""Making a run agree with a graph that is not the one it followed (I31).

Used after a deploy that changed a class, by `import_dag`, and to give a fork its first work. All nodes are
gone through, once, and only then: an ordinary completion never does this.

What has happened stays. A completed node that the graph no longer has is told in the history; one that has
not begun is skipped, and told, and is taken up again should the graph have it again: a deploy that is rolled back
must not have cost a step. One that is running now finishes and counts for nothing. A new node is picked up, and
waits only for parents that are not done. A node that has begun keeps going, whatever it depends on now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.graph import Graph, Node
from holdfast.core.ids import ancestry_hash, parents_hash
from holdfast.core.queries import AllWork, WaitsOf
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
from holdfast.models.dag_items import NOT_IN_GRAPH, first_due, item_of, redefined
from holdfast.models.delivery import wait_no_more
from holdfast.models.machine import Handing, make_ready

SIGNATURE_BYTES = 8  # so that it fits an integer of the database


class Reshaped(msgspec.Struct):
    """What another graph changed for a run. Names, not ids, except in `rewired`, which verification reads."""

    run: Run
    not_begun: list[str] = msgspec.field(default_factory=list)  # new, or not yet reached
    gone: list[str] = msgspec.field(default_factory=list)  # completed, and not in the graph any more
    skipped: list[str] = msgspec.field(default_factory=list)  # not completed, and not in the graph any more
    rewired: list[str] = msgspec.field(default_factory=list)  # begun under other parents than it has now

    @property
    def left_out(self) -> bool:
        """Whether something of the run does not fit the graph."""
        return bool(self.gone or self.skipped or self.rewired)

    def told(self, limit: int) -> dict[str, Any]:
        """For the history: enough to recognise what happened by."""
        told: dict[str, Any] = {"before": followed(self.run)}
        for kind in ("not_begun", "gone", "skipped"):
            names: list[str] = getattr(self, kind)
            if names:
                told[kind] = names if len(names) <= limit else [*names[:limit], f"and {len(names) - limit} more"]
        if self.rewired:
            told["rewired"] = self.rewired
        if self.gone:
            told["warning"] = "completed nodes are no longer in the graph"
        elif self.skipped:
            told["warning"] = "nodes that had not completed are no longer in the graph, and were skipped"
        return told


def without_signature(run: Run) -> Run:
    """The run, for whoever has its code to shape anew; what it followed until now is remembered (I31)."""
    if run.signature is None or run.definition is not None:
        return replace(run, signature=None)
    return replace(run, signature=None, token=int.from_bytes(bytes.fromhex(run.signature), signed=True))


def followed(run: Run) -> str | None:
    """The signature of the graph that the run followed last, as far as that is known."""
    if run.signature is None and run.definition is None and run.token:
        return run.token.to_bytes(SIGNATURE_BYTES, signed=True).hex()
    return run.signature


def reshape(view: View, run: Run, graph: Graph, handing: Handing, before: Mapping[str, str]) -> Reshaped:
    """Change the run's work to what this graph asks for; the run's counts are in the answer, not yet written.

    `before` has the nodes of the graph that it followed, by id, as far as they are known.
    """
    first: dict[str, Work] = {}
    latest: dict[str, Work] = {}
    followed: dict[str, set[str | None]] = {}  # the parents' attempts that attempts of a node claim to follow
    for work in view.find(AllWork(run.id)):
        first.setdefault(work.node, work)
        latest[work.node] = work
        if work.ancestry is not None:
            followed.setdefault(work.node, set()).add(work.parents)
    withdrawn = {node for node, work in latest.items() if node in graph.by_id and _withdrawn(work)}
    latest |= {node: replace(latest[node], status=BLOCKED, outcome=None, finished=None) for node in withdrawn}
    done = {node: work.ancestry or "" for node, work in latest.items() if work.status in SATISFIED}
    waiting = {wait.address for wait in view.find(WaitsOf(run.id))}  # for other runs
    changed = Reshaped(run)
    active = _drop_missing(view, graph, latest, changed, before)
    changed.skipped += [name for node, name in before.items() if node not in graph.by_id and node not in latest]
    gave_up = remaining = 0
    for node in graph.nodes:
        remaining += node.id not in done
        met = sum(parent in done for parent in node.depends_on) if node.depends_on else 1
        required = graph.required(node.id)
        work = latest.get(node.id)
        if work is None:
            changed.not_begun.append(node.name)
            active += _begin(view, run, node, required, met, done, handing)
            continue
        if work.status in (BLOCKED, READY) and work.attempt == 1:
            active += _rewait(view, run, node, work, required, met, done, handing)
            continue
        begun = first[node.id]
        if work.status in (BLOCKED, READY) or work.status in GAVE_UP:
            # Its next attempt is this row, or is made from it, and runs what the node is now: a job may have changed.
            again = redefined(work, run, node, work.required)
            if work.status in (BLOCKED, READY) and (met < required or node.id in waiting):
                again = replace(again, status=BLOCKED)  # a retry, and there is something before it
            elif work.status == BLOCKED:
                again = make_ready(view, run, _stamped(view, node, replace(again, due=view.now), done), handing)
            if again != work or node.id in withdrawn:
                view.put(WORK, again)
            work = again
            begun = again if begun.attempt == again.attempt else begun
        gave_up += work.status in GAVE_UP
        active += work.status in (READY, LEASED)
        if (begun.required, begun.completed) != (required, met):
            # It has begun and stays so; what still completes above it is counted, and must fit.
            view.put(WORK, replace(begun, required=required, completed=met))
        if node.id in followed and (met < required or followed[node.id] != {_parents(node, done)}):
            changed.rewired.append(node.id)
    changed.run = replace(run, active=active, gave_up=gave_up, remaining=remaining)
    return changed


def _drop_missing(
    view: View, graph: Graph, latest: dict[str, Work], changed: Reshaped, before: Mapping[str, str]
) -> int:
    """Settle what the graph does not have any more; how many of these are running now."""
    running = 0
    for node, work in latest.items():
        if node in graph.by_id:
            continue
        if work.status == LEASED:
            running += 1
        elif work.status == COMPLETED:
            changed.gone.append(before.get(node, node))
        elif work.status in (BLOCKED, READY) or work.status in GAVE_UP:
            gone = replace(work, status=SKIPPED, token=work.token + 1, outcome=NOT_IN_GRAPH, finished=view.now)
            view.put(WORK, gone)
            wait_no_more(view, work.run, node)
            changed.skipped.append(before.get(node, node))
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
    """A node whose first attempt has not begun waits for what it depends on now; 1 if it can start."""
    work = replace(redefined(work, run, node, required), completed=met, finished=None)
    if met < required:
        view.put(WORK, replace(work, status=BLOCKED, parents=None, ancestry=None))
        return 0
    if work.status == BLOCKED:
        work = replace(work, due=first_due(run, view.now))
    view.put(WORK, make_ready(view, run, _stamped(view, node, work, done), handing))
    return 1


def _stamped(view: View, node: Node, work: Work, done: dict[str, str]) -> Work:
    parents = _parents(node, done)
    return replace(work, parents=parents, ancestry=ancestry_hash(node.id, work.attempt, parents))


def _parents(node: Node, done: dict[str, str]) -> str:
    return parents_hash([done[parent] for parent in node.depends_on if parent in done])
