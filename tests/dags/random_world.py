"""Some random DAGs carried out at once, by workers that die and come back, on a clock that is turned by hand.

What nodes and operators do is decided here, by chance from one seed; everything else is the kernel and a real store.
A run is *calm* if only its nodes' failures, lost leases and repeated or late reports disturb it: then its end is known
beforehand, node by node. In a *wild* one operators and the nodes' own code interfere too, and only rules are checked.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from holdfast.coordinator import Coordinator
from holdfast.core.codec import encode_error
from holdfast.core.dag_document import graph_of_nodes, stored_nodes
from holdfast.core.errors import HoldfastError, ReadinessOverflow
from holdfast.core.graph import Graph
from holdfast.core.operations import (
    RECORDED,
    STALE,
    CancelRun,
    CompleteWork,
    FailWork,
    Handed,
    KillWork,
    LapseWork,
    Offer,
    Operation,
    PauseRun,
    ReattemptNode,
    RecordProgress,
    ReleaseWork,
    ResumeRun,
    RetryRun,
    Settled,
    SkipNode,
    StartRun,
    SteerWork,
    WorkOperation,
)
from holdfast.core.queries import AllWork
from holdfast.core.rows import (
    CANCELLED,
    COMPLETED,
    DEFINITIONS,
    FAILED,
    GAVE_UP,
    PAUSED,
    SKIPPED,
    Definition,
    Run,
    Work,
)
from holdfast.core.view import View
from holdfast.dag_reading import check_ancestry
from holdfast.models.dag_items import node_name
from holdfast.models.decisions import decisions
from holdfast.store.contract import ClaimRequest, Store
from tests.dags.random_shapes import as_graph, random_shape, random_size
from tests.dags.soundness import by_node, contradictions, undone
from tests.support.stores import SECOND, VirtualClock

JOB = "do it"
WORKERS = ("anna", "bela", "cleo")
PLANNED = encode_error(ValueError("as planned"))
ENDS_AS = {"fail": FAILED, "pause": PAUSED, "cancel": CANCELLED, "skip": COMPLETED}
STUCK_AFTER_ROUNDS = 60
INTERVENTIONS = 4


class Graphs:
    """Class DAGs by workflow, and stored graphs as they are read."""

    def __init__(self) -> None:
        self.of_code: dict[str, Graph] = {}
        self._stored: dict[str, Graph] = {}

    def seen(self, run: Run, graph: Graph) -> int:
        return 0

    def graph(self, view: View, run: Run) -> Graph | None:
        if run.definition is None:
            return self.of_code.get(run.workflow)
        stored = view.get(DEFINITIONS, (run.definition,))
        return None if stored is None else self.parsed(stored)

    def parsed(self, definition: Definition) -> Graph:
        if definition.id not in self._stored:
            self._stored[definition.id] = graph_of_nodes(definition.nodes)
        return self._stored[definition.id]

    def can_run(self, work: Work) -> bool:
        return True


def make_coordinator(store: Store, graphs: Graphs, clock: VirtualClock) -> Coordinator:
    return Coordinator(store, decisions(graphs), clock)


@dataclass(slots=True)
class Plan:
    """A run and what is to happen in it."""

    run: str
    graph: Graph
    built: bool
    on_failure: str
    calm: bool
    budget: dict[str, int]  # attempts that a node has, before it gives up
    failures: dict[str, int]  # how often it will fail
    interventions: int = 0
    finished_early: bool = False
    over: bool = False
    gives_up: set[str] = field(init=False)
    failed: Counter[str] = field(default_factory=Counter)
    completions: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        planned = {node for node, times in self.failures.items() if times >= self.budget[node]}
        # What depends on a node that gives up is never reached, unless that counts as skipped.
        self.gives_up = planned if self.on_failure == "skip" else planned - self.below(planned)

    def below(self, nodes: set[str]) -> set[str]:
        return {below for node in nodes for below in self.graph.descendants(node)}

    def is_as_planned(self, run: Run, latest: dict[str, str]) -> None:
        """A calm run stands exactly where it must."""
        if self.on_failure == "skip":
            assert run.status == COMPLETED
            assert {node for node, status in latest.items() if status == SKIPPED} == self.gives_up
            assert self.completions.keys() == self.graph.by_id.keys() - self.gives_up
            return
        assert run.status == (ENDS_AS[self.on_failure] if self.gives_up else COMPLETED)
        assert {node for node, status in latest.items() if status in GAVE_UP} == self.gives_up
        assert self.completions.keys() == self.graph.by_id.keys() - self.gives_up - self.below(self.gives_up)


class World:
    """One seed: its DAGs, its workers, and everything that was said so far."""

    def __init__(self, seed: int, dags: int, engines: list[tuple[Coordinator, Store]], clock: VirtualClock) -> None:
        self.chance = random.Random(f"random dags {seed}")
        self.clock = clock
        self.engines = engines
        self.plans = {plan.run: plan for plan in (self._planned(f"run-{seed}-{number}") for number in range(dags))}
        self.actions = (JOB, *(node_name(run, node) for run, graph in self.code().items() for node in graph.by_id))
        self.held: dict[tuple[str, str, int], Work] = {}
        self.recorded: list[Operation] = []  # reports that count: repeating one must change nothing
        self.late: list[Operation] = []  # reports of leases that were lost meanwhile
        self.seen: Counter[str] = Counter()

    # -- plans

    def _planned(self, run: str) -> Plan:
        chance = self.chance
        size = random_size(chance)
        built = chance.random() < 0.5
        graph = as_graph(random_shape(chance, size), job=JOB if built else None)
        budget = {node: chance.randint(1, 3) for node in graph.by_id}
        failures = {
            node: chance.randint(0, times - 1) if chance.random() < 0.2 else 0 for node, times in budget.items()
        }
        if chance.random() < 0.5:
            for node in chance.sample(list(graph.by_id), min(size, chance.randint(1, 3))):
                failures[node] = budget[node]
        return Plan(
            run=run,
            graph=graph,
            built=built,
            on_failure=chance.choice(list(ENDS_AS)),
            calm=chance.random() < 0.5,
            budget=budget,
            failures=failures,
        )

    def code(self) -> dict[str, Graph]:
        """The workflows whose graphs are code; each is named like its run."""
        return {plan.run: plan.graph for plan in self.plans.values() if not plan.built}

    def _start(self, plan: Plan) -> StartRun:
        chance = self.chance
        return StartRun(
            run=plan.run,
            workflow=plan.run,
            model="dag",
            on_failure=plan.on_failure,
            due=chance.choice([0, 0, 0, self.clock.now_us() + SECOND]),
            paused=not plan.calm and chance.random() < 0.1,
            nodes=stored_nodes(plan.graph) if plan.built else b"",
            signature=plan.graph.signature,
            offer=self._offer(),
        )

    # -- one round after another

    async def live(self) -> None:
        """Until every run has ended and nothing more is planned for it."""
        await self._submit([self._start(plan) for plan in self.plans.values()])
        idle = 0
        while not all(plan.over for plan in self.plans.values()):
            self.clock.advance(self.chance.choice([0.000_001, 0.001, 0.1]))
            self._forget()
            await self._claim()
            said = self._reports() + self._echoes() + self._wishes()
            if self.chance.random() < 0.08:
                said += await self._death()
            self.chance.shuffle(said)
            idle = 0 if said else idle + 1
            assert idle < STUCK_AFTER_ROUNDS, "nothing moves any more"
            await self._submit(said)
            if not self.held:
                await self._pass_time()
            if not said:
                await self._look_at_the_quiet()

    def _engine(self) -> tuple[Coordinator, Store]:
        return self.chance.choice(self.engines)

    def _forget(self) -> None:
        """K5: what a process remembers may vanish at any moment."""
        coordinator, _ = self._engine()
        if self.chance.random() < 0.05:
            coordinator.cache.clear()
        for run in list(coordinator.cache.runs):
            if self.chance.random() < 0.05:
                coordinator.cache.drop(run)

    async def _claim(self) -> None:
        coordinator, store = self._engine()
        request = ClaimRequest(
            worker=self.chance.choice(WORKERS),
            queue="default",
            limit=100_000,  # all of it: which of several equals comes first is the store's to say
            workflows=tuple(self.plans),
            actions=self.actions,
        )
        handed = sorted(await store.claim(request), key=lambda item: (item.work.run, item.work.node))
        if self.chance.random() < 0.7:
            coordinator.remember(handed)
        self._take(handed)

    def _take(self, handed: list[Handed] | tuple[Handed, ...]) -> None:
        for item in handed:
            work = item.work
            assert (work.run, work.node, work.attempt) not in self.held, f"given to two at once: {work}"
            self.held[(work.run, work.node, work.attempt)] = work

    async def _pass_time(self) -> None:
        """Nobody works: what waits for its time gets it."""
        _, store = self._engine()
        due = await store.promote(("default",))
        if due is not None and due > self.clock.now_us():
            self.clock.advance((due - self.clock.now_us()) / SECOND)
            await store.promote(("default",))

    # -- what workers say

    def _reports(self) -> list[Operation]:
        keys = list(self.held)
        chosen = self.chance.sample(keys, min(len(keys), self.chance.choice([1, 20, 100, 300])))
        return [self._report(self.held[key]) for key in chosen]

    def _at(self, work: Work) -> dict[str, Any]:
        return {"run": work.run, "node": work.node, "attempt": work.attempt, "token": work.token}

    def _report(self, work: Work) -> Operation:
        chance, plan, at = self.chance, self.plans[work.run], self._at(work)
        if chance.random() < 0.03:
            return ReleaseWork(**at)
        if chance.random() < 0.03:
            return RecordProgress(**at, note="half way")
        if not plan.calm and chance.random() < 0.05:
            wish = chance.choices(["skip", "pause", "reattempt", "cancel", "finish"], [6, 4, 6, 1, 1])[0]
            return SteerWork(**at, wish=wish, after=chance.choice([0, SECOND]), reason="as planned")
        if not plan.calm and chance.random() < 0.01:
            return KillWork(**at, error=PLANNED)
        if plan.failed[work.node] < plan.failures[work.node]:
            return FailWork(
                **at,
                error=PLANNED,
                retryable=True,
                timed_out=chance.random() < 0.3,
                attempts=plan.budget[work.node],
                base_seconds=0.1,
            )
        return CompleteWork(**at, result=b"1", offer=self._offer())

    def _offer(self) -> Offer | None:
        if self.chance.random() < 0.5:
            return None
        return Offer(worker=self.chance.choice(WORKERS), room=self.chance.choice([1, 3]), queues=("default",))

    def _echoes(self) -> list[Operation]:
        """Reports that come a second time, and reports of leases that others have taken over."""
        chance = self.chance
        repeated = [chance.choice(self.recorded[-200:]) for _ in range(2) if self.recorded and chance.random() < 0.5]
        late = self.late[: chance.choice([0, 1, 5])]
        del self.late[: len(late)]
        return repeated + late

    async def _death(self) -> list[Operation]:
        """A worker was killed: whatever it held lapses. Half of what it did was on its way, and arrives late."""
        _, store = self._engine()
        held = await store.leased_to(self.chance.choice(WORKERS))
        self.late += [self._report(work) for work in held if self.chance.random() < 0.5]
        return [
            LapseWork(**self._at(work), lost_limit=10_000 if self.plans[work.run].calm else 3)
            for work in sorted(held, key=lambda work: (work.run, work.node))
        ]

    # -- what operators say

    def _wishes(self) -> list[Operation]:
        wild = [plan for plan in self.plans.values() if not plan.calm and not plan.over]
        if not wild or self.chance.random() > 0.25:
            return []
        plan = self.chance.choice(wild)
        if plan.interventions >= INTERVENTIONS:
            return []
        plan.interventions += 1
        node = self.chance.choice(list(plan.graph.by_id))
        wishes: list[Operation] = [
            PauseRun(run=plan.run),
            ResumeRun(run=plan.run),
            RetryRun(run=plan.run),
            ReattemptNode(run=plan.run, node=node),
            SkipNode(run=plan.run, node=node),
        ]
        if self.chance.random() < 0.05:
            wishes = [CancelRun(run=plan.run)]
        return [self.chance.choice(wishes)]

    # -- answers

    async def _submit(self, operations: list[Operation]) -> None:
        if not operations:
            return
        coordinator, _ = self._engine()
        # One that is said twice in a batch is a repetition too, and the first of the two counts.
        before = {id(operation) for operation in self.recorded}
        for operation, answer in zip(operations, await coordinator.submit_batch(operations), strict=True):
            if isinstance(answer, ReadinessOverflow) or not isinstance(answer, HoldfastError | Settled):
                assert not isinstance(answer, BaseException), f"{operation}: {answer!r}"
            if isinstance(operation, WorkOperation):
                assert isinstance(answer, Settled), f"{operation}: {answer!r}"
                assert not (id(operation) in before and answer.verdict == RECORDED), f"counted twice: {operation}"
                self._settled(operation, answer)
            elif isinstance(operation, StartRun):
                self._take(answer.handed)

    def _settled(self, operation: WorkOperation, answer: Settled) -> None:
        plan = self.plans[operation.run]
        key = (operation.run, operation.node, operation.attempt)
        self.seen[f"{type(operation).__name__} {answer.verdict}"] += 1
        self._take(answer.handed)
        held = self.held.get(key)
        if held is None or held.token != operation.token:
            assert answer.verdict != RECORDED, f"a report of a lease that is over was recorded: {operation}"
            return
        if isinstance(operation, RecordProgress) and answer.verdict == RECORDED:
            return
        del self.held[key]
        if answer.verdict != RECORDED:
            assert not plan.calm, f"a good report was {answer.verdict}: {operation}"
            assert answer.verdict == STALE
            return
        self.recorded.append(operation)
        if isinstance(operation, CompleteWork):
            plan.completions[operation.node] += 1
            assert plan.completions[operation.node] == 1, f"{operation.node} of {plan.run} completed twice"
        elif isinstance(operation, FailWork):
            plan.failed[operation.node] += 1
        elif isinstance(operation, SteerWork) and operation.wish == "finish":
            plan.finished_early = True

    # -- what must be so when nothing moves

    async def _look_at_the_quiet(self) -> None:
        _, store = self._engine()
        open_plans = [plan for plan in self.plans.values() if not plan.over]
        rows = {run.id: run for run in await store.runs([plan.run for plan in open_plans])}
        for plan in open_plans:
            run = rows[plan.run]
            if run.status == PAUSED or run.ended:
                await self._check(plan, run, await store.rows(AllWork(plan.run)))
                await self._go_on(plan, run, store)

    async def _check(self, plan: Plan, run: Run, work: list[Work]) -> None:
        if not plan.finished_early:
            assert not (wrong := contradictions(run, work, plan.graph)), "\n".join(wrong)
        report = check_ancestry(plan.graph, work)
        assert report.ok, report.first_break
        if plan.calm:
            plan.is_as_planned(run, {node: mine[-1].status for node, mine in by_node(work).items()})
        elif run.status == FAILED:
            assert (plan.on_failure, bool(run.gave_up)) == ("fail", True)
            assert not undone(run, work, plan.graph)
        elif run.status == COMPLETED:
            assert plan.finished_early or not undone(run, work, plan.graph)

    async def _go_on(self, plan: Plan, run: Run, store: Store) -> None:
        """An operator takes up what stands still, and what failed before succeeds now; or the run is over."""
        plan.failures = dict.fromkeys(plan.failures, 0)
        if run.status == PAUSED:
            plan.gives_up = set()
            await self._submit([ResumeRun(run=plan.run)])
            return
        if run.status != FAILED or plan.interventions >= INTERVENTIONS or self.chance.random() < 0.3:
            plan.over = True
            return
        plan.interventions += 1
        attempts = by_node(await store.rows(AllWork(plan.run)))
        node = self.chance.choice(sorted(node for node, mine in attempts.items() if mine[-1].status in GAVE_UP))
        again = self.chance.choice(["retry", "reattempt"] if plan.calm else ["retry", "reattempt", "skip"])
        plan.gives_up = set() if again == "retry" else plan.gives_up - {node}
        operations: dict[str, Operation] = {
            "retry": RetryRun(run=plan.run),
            "reattempt": ReattemptNode(run=plan.run, node=node),
            "skip": SkipNode(run=plan.run, node=node),
        }
        await self._submit([operations[again]])
