"""The kernel and the model of leases, driven by the same hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.errors import HoldfastError
from holdfast.core.operations import (
    CancelRun,
    CompleteWork,
    FailWork,
    LapseWork,
    PauseRun,
    ReleaseWork,
    ResumeRun,
    RetryRun,
    SkipNode,
    WorkOperation,
)
from holdfast.core.rows import WORK, Work
from tests.kernel.kernels import GRAPHS, claim_request, opened_kernel, start
from tests.reliability.models.lease_model import LOST_LIMIT, OPEN, RECORDED, RETRY_SECONDS, ModelRun
from tests.support.stores import Site, VirtualClock, empty, every_row

T = TypeVar("T")
SHOWN = {"pending": OPEN, "running": OPEN, "suspended": OPEN}


class Leases(RuleBasedStateMachine):
    """Runs of small graphs; two workers; leases that are used, repeated, lost, given back and reported too late."""

    site: Callable[[], Site]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.clock = VirtualClock()
        self.seconds = 0.0
        self.runs: dict[str, ModelRun] = {}
        self.leases: list[tuple[str, str, int, Work]] = []  # run, node, place among its attempts, as it was handed over

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def open(self) -> None:
        opened = opened_kernel(type(self).site(), self.clock)
        self.coordinator, self.store = self.run(self.stack.enter_async_context(opened))
        self.run(empty(self.store))
        self.coordinator.cache.clear()

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.runner.close()

    # -- runs and claims

    @rule(graph=st.sampled_from(["solo", "chain", "diamond", "join"]))
    @precondition(lambda self: len(self.runs) < 4)
    def start(self, graph: str) -> None:
        run = f"r{len(self.runs)}"
        self.run(_submitted(self.coordinator, start(run, graph)))
        self.runs[run] = ModelRun({node.id: node.depends_on for node in GRAPHS[graph].nodes})

    @rule(worker=st.sampled_from(["w1", "w2"]), limit=st.sampled_from([1, 2, 1000]), remembers=st.booleans())
    def claim(self, worker: str, limit: int, remembers: bool) -> None:
        self.run(self.store.promote(["default"]))
        handed = self.run(self.store.claim(claim_request(worker, limit=limit)))
        if remembers:
            self.coordinator.remember(handed)
        possible = {(run, node) for run, model in self.runs.items() for node in model.claimable(self.seconds)}
        taken = {(item.work.run, item.work.node) for item in handed}
        assert taken <= possible, f"claimed {taken}, and only {possible} may be"
        assert len(taken) == min(limit, len(possible)), f"claimed {len(taken)} of {possible}"
        for item in handed:
            model = self.runs[item.work.run]
            self.leases.append((item.work.run, item.work.node, item.work.attempt - 1, item.work))
            model.claim(item.work.node, len(self.leases))
            assert item.work.attempt == len(model.nodes[item.work.node])

    # -- what workers report, at once, again, or far too late

    def _lease(self, place: int) -> tuple[int, ModelRun, str, int, dict[str, Any]]:
        number = place % len(self.leases)
        run, node, attempt, work = self.leases[number]
        given = {"run": run, "node": node, "attempt": work.attempt, "token": work.token}
        return number + 1, self.runs[run], node, attempt, given

    def _report(self, operation: WorkOperation, expected: str) -> None:
        settled = self.run(_submitted(self.coordinator, operation))
        # G2: whether a report that writes nothing is called a repetition or stale is a courtesy to its sender.
        counts = settled.verdict == RECORDED
        assert counts == (expected == RECORDED), f"{operation} is {settled.verdict}, and should be {expected}"

    @rule(place=st.integers(0, 50))
    @precondition(lambda self: self.leases)
    def complete(self, place: int) -> None:
        lease, model, node, attempt, given = self._lease(place)
        self._report(CompleteWork(**given, result=b"1"), model.complete(node, attempt, lease))

    @rule(place=st.integers(0, 50), attempts=st.sampled_from([1, 2, 3]))
    @precondition(lambda self: self.leases)
    def fail(self, place: int, attempts: int) -> None:
        lease, model, node, attempt, given = self._lease(place)
        operation = FailWork(
            **given,
            error=b"{}",
            retryable=True,
            attempts=attempts,
            base_seconds=RETRY_SECONDS,
            cap_seconds=RETRY_SECONDS,
        )
        self._report(operation, model.fail(node, attempt, lease, self.seconds, attempts=attempts))

    @rule(place=st.integers(0, 50))
    @precondition(lambda self: self.leases)
    def lapse(self, place: int) -> None:
        lease, model, node, attempt, given = self._lease(place)
        self._report(LapseWork(**given, lost_limit=LOST_LIMIT), model.lapse(node, attempt, lease))

    @rule(place=st.integers(0, 50))
    @precondition(lambda self: self.leases)
    def release(self, place: int) -> None:
        lease, model, node, attempt, given = self._lease(place)
        self._report(ReleaseWork(**given), model.release(node, attempt, lease))

    # -- what operators and the clock do

    @rule(number=st.integers(0, 3), verb=st.sampled_from(["cancel", "pause", "resume", "resume", "retry"]))
    @precondition(lambda self: self.runs)
    def operate(self, number: int, verb: str) -> None:
        run = f"r{number % len(self.runs)}"
        kinds = {"cancel": CancelRun, "pause": PauseRun, "resume": ResumeRun, "retry": RetryRun}
        model = self.runs[run]
        if verb == "resume" and model.given_up() and model.status == "paused":
            return  # resuming after a failure retries, which is asked for by its own name here
        changed = self.run(_submitted(self.coordinator, kinds[verb](run=run)))
        expected = getattr(model, verb)()
        if verb == "retry":
            assert sorted(changed.nodes) == sorted(expected), f"retry of {run}"
        else:
            assert changed.changed == expected, f"{verb} of {run} in {model.status}"

    @rule(number=st.integers(0, 3), place=st.integers(0, 4))
    @precondition(lambda self: self.runs)
    def skip(self, number: int, place: int) -> None:
        run = f"r{number % len(self.runs)}"
        model = self.runs[run]
        node = list(model.parents)[place % len(model.parents)]
        try:
            done = self.run(_submitted(self.coordinator, SkipNode(run=run, node=node))).changed
        except HoldfastError:
            done = False
        assert done == model.skip(node), f"skip of {node} of {run}"

    @rule(seconds=st.sampled_from([0.4, 1.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.seconds += seconds

    # -- and all the time

    @invariant()
    def stored_is_what_the_model_says(self) -> None:
        rows = self.run(every_row(self.store)) if self.runs else {"runs": [], "work": []}
        found: dict[str, dict[str, list[str]]] = {run: {} for run in self.runs}
        tokens: dict[tuple[str, str], int] = {}
        for work in sorted(rows["work"], key=WORK.key):
            if work.status == "blocked" or (work.status == "cancelled" and work.started is None):
                continue  # counts its parents; the model does not know of it yet
            found[work.run].setdefault(work.node, []).append(work.status)
            assert work.token >= tokens.get((work.run, work.node), 0), f"K3: the token of {work.node} fell"
            tokens[work.run, work.node] = work.token
        for run in rows["runs"]:
            model = self.runs[run.id]
            assert SHOWN.get(run.status, run.status) == model.status, f"{run.id} is {run.status}: {model}"
            wanted = {node: [each for each in seen if each != "cancelled"] for node, seen in model.seen().items()}
            shown = {node: [each for each in seen if each != "cancelled"] for node, seen in found[run.id].items()}
            assert {k: v for k, v in shown.items() if v} == {k: v for k, v in wanted.items() if v}, (
                f"{run.id}: {shown}, and should be {wanted}"
            )


async def _submitted(coordinator: Any, operation: Any) -> Any:
    return await coordinator.submit(operation)
