"""The dag model in one page: readiness by counting.

Left out, because `holdfast.models.dag` has it: attempts, failures, ancestry, hand-over, pause and cancel.
A test plays the same diamond through that machine and compares.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.core.errors import ReadinessOverflow
from holdfast.core.operations import RECORDED, REPEATED, ClaimWork, RunOperation, WorkOperation
from holdfast.core.rows import BLOCKED, COMPLETED, READY, RUNNING, RUNS, WORK, Run
from holdfast.core.view import View
from tests.sketches.kernel import Decisions, claim, held, ready_item


class Start(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """Create a run with its entry points ready. Identity: the run's id."""


class Finish(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A node's action returned. Identity: the token of its lease."""

    result: bytes = b"null"


class DagSketch:
    """Decisions for one graph, given as the parents of each node."""

    def __init__(self, parents: Mapping[str, tuple[str, ...]]) -> None:
        self.parents = parents
        self.children = {node: [c for c, above in parents.items() if node in above] for node in parents}

    def decisions(self) -> Decisions:
        return {Start: self.start, ClaimWork: claim, Finish: self.finish}

    def start(self, view: View, op: Start) -> str:
        if view.probe(RUNS, (op.run,)) is not None:
            return REPEATED
        view.insert(RUNS, Run(op.run, "sketch", "dag", status=RUNNING, remaining=len(self.parents)))
        for node, parents in self.parents.items():
            if not parents:
                view.insert(WORK, ready_item(op.run, node))
        return RECORDED

    def finish(self, view: View, op: Finish) -> str:
        lease = held(view, op)
        if isinstance(lease, str):
            return lease
        run, work = lease
        view.put(WORK, replace(work, status=COMPLETED, result=op.result, finished=view.now))
        run = replace(run, remaining=run.remaining - 1)
        view.put(RUNS, run if run.remaining else replace(run, status=COMPLETED, finished=view.now))
        for child in self.children[op.node]:
            self._count(view, op.run, child)
        return RECORDED

    def _count(self, view: View, run: str, node: str) -> None:
        """I17: one way to become ready, whether a node has one parent or a thousand."""
        required = len(self.parents[node])
        item = view.probe(WORK, (run, node, 1))
        counted = (item.completed if item else 0) + 1
        if counted > required:
            raise ReadinessOverflow(f"node {node} of run {run} was counted {counted} times, not {required}")
        status = READY if counted == required else BLOCKED
        if item is None:
            view.insert(WORK, replace(ready_item(run, node), required=required, completed=1, status=status))
        else:
            view.put(WORK, replace(item, completed=counted, status=status))
