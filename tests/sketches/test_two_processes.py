"""Two coordinators on one store, as two processes are: what one remembers must not outlive what the other wrote."""

from __future__ import annotations

from holdfast.coordinator import Coordinator
from holdfast.core import failpoints
from holdfast.core.graph import Graph, Node
from holdfast.core.operations import CompleteWork, StartRun
from holdfast.core.rows import READY, SUSPENDED, TABLES, WAITS, WORK, Run
from holdfast.core.view import View
from holdfast.models.decisions import decisions as kernel_decisions
from holdfast.store.memory import MemoryStore
from tests.kernel.kernels import Workflows
from tests.sketches.function import TURN, Broadcast, FireTimer, Start, Suspend, decisions
from tests.sketches.kernel import INPUTS, NOW, TIMERS, StillClock, claims


class JoinOfThree(Workflows):
    """Definitions that know one workflow: three entry points and a node that needs them all."""

    def graph(self, view: View, run: Run) -> Graph:
        entries = tuple(Node(id=name, name=name, job=name) for name in "abc")
        return Graph((*entries, Node(id="join", name="join", job="join", depends_on=("a", "b", "c"))))


def complete(node: str) -> CompleteWork:
    return CompleteWork(run="r", node=node, attempt=1, token=1)


async def test_k4_a_run_that_is_met_again_by_its_key_does_not_make_old_rows_current() -> None:
    """K4: a run's row that is newer than the remembered one condemns all rows remembered with the older."""
    store = MemoryStore(StillClock())
    known = kernel_decisions(JoinOfThree())
    ours, theirs = (Coordinator(store, known, StillClock()) for _ in range(2))
    start = StartRun(run="r", workflow="joins", model="dag", key="k", input_digest="same")
    await ours.submit_batch([start, *(claims("r", node) for node in "abc"), complete("a")])
    await theirs.submit(complete("b"))
    again = await ours.submit(StartRun(run="other", workflow="joins", model="dag", key="k", input_digest="same"))
    assert again.run == "r"
    await ours.submit(complete("c"))
    join = store.tables[WORK][("r", "join", 1)]
    assert (join.completed, join.status) == (3, READY)


async def test_k5_a_waiter_that_leaves_while_its_lock_is_waited_for_is_not_remembered() -> None:
    """K5: what was read to find the runs to lock is read again once they are locked, and nothing old is kept."""
    store = MemoryStore(StillClock(), tables=(*TABLES, TIMERS, INPUTS))
    ours, theirs = (Coordinator(store, decisions(), StillClock()) for _ in range(2))
    wait = Suspend(run="r", node=TURN, attempt=1, token=1, events=("a", "b"), deadline=NOW)
    await ours.submit_batch([Start(run="r"), claims("r", TURN), wait])
    seen = []

    async def deadline_passes_elsewhere() -> None:
        failpoints.disarm()
        seen.append(await theirs.submit(FireTimer(run="r", generation=0)))

    failpoints.arm(lambda name: deadline_passes_elsewhere() if name == "load.after_topics" else None)
    try:
        answer = await ours.submit(Broadcast(run="e", name="b"))
    finally:
        failpoints.disarm()
    assert (seen, answer) == (["delivered"], "queued")
    remembered = ours.cache.runs.get("r")
    assert remembered is None or not remembered.rows.get(WAITS)
    assert store.tables[WAITS] == {}
    assert SUSPENDED not in {row.status for row in await store.runs(["r"])}
