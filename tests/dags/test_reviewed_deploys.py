"""Any run of a class DAG, through deploys, imports and operators' verbs in any order: it stays sound, and it ends.

One seed again: `DEPLOY_SEED=17 python -m pytest tests/dags/test_reviewed_deploys.py`; more: `DEPLOY_SEEDS=5000`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError, ReadinessOverflow
from holdfast.core.graph import Graph, Node
from holdfast.core.operations import (
    RECORDED,
    BuryUnknown,
    CancelRun,
    CompleteWork,
    DiscardDead,
    FailWork,
    ForkRun,
    KillWork,
    Offer,
    Operation,
    PauseRun,
    ReattemptNode,
    ReleaseWork,
    ReshapeRun,
    ResumeRun,
    RetryRun,
    Settled,
    SkipNode,
    Started,
    SteerWork,
)
from holdfast.core.rows import CANCELLED, COMPLETED, PAUSED, READY, Work
from holdfast.dag_reading import check_ancestry
from tests.dags.deploy_kernel import ERROR, RUN, Deploys, Program, at, graph, lapse
from tests.support.stores import KINDS, Site, VirtualClock, empty, site_for

SEEDS = {"memory": 250, "sqlite": 15, "postgresql": 15}
NAMES = "abcdefgh"
ROUNDS_TO_THE_END = 100

STEPS = [
    *["claim"] * 6,
    *["complete"] * 6,
    *["fail", "retry it", "retry it", "lapse", "release", "kill", "skip itself", "again", "pause itself", "finish"],
    *["wait for a run", "end a run", "end a run", "deploy", "deploy", "reshape", "import", "fork", "bury"],
    *["skip", "reattempt", "discard", "pause", "resume", "resume", "retry"],
]


def seeds(kind: str) -> range:
    if one := os.environ.get("DEPLOY_SEED"):
        return range(int(one), int(one) + 1)
    return range(int(os.environ.get("DEPLOY_SEEDS", SEEDS[kind])))


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


async def test_i31_a_run_stays_sound_through_any_deploys_imports_and_wishes(site: Site) -> None:
    """I31, I17, I30, G4, G9: whatever runs, fails, waits or is given back while the graph changes under it."""
    for seed in seeds(site.kind):
        clock = VirtualClock()
        async with site.opened(clock) as store:
            chance = random.Random(f"deploys {seed}")
            deploys = Deploys(store, clock, grown(chance, graph(a=""), 4))
            life = Life(deploys, chance)
            try:
                await life.live()
                await life.end()
            except AssertionError as error:
                error.add_note(f"seed {seed}: DEPLOY_SEED={seed}; said so far:\n" + "\n".join(life.said[-25:]))
                raise
            finally:
                await deploys.close()
            if site.kind != "memory":
                await empty(store)
        if site.kind == "memory":
            site._memory.clear()


class Life:
    """One seed: what is said to the run, by whom, and that nothing is wrong after it."""

    def __init__(self, deploys: Deploys, chance: random.Random) -> None:
        self.deploys = deploys
        self.chance = chance
        self.before = deploys.newest  # the workers of the deploy before the last one are still there
        self.held: dict[tuple[str, int], Work] = {}
        self.others: list[str] = []
        self.number = 0
        self.finished_early = False
        self.said: list[str] = []

    async def live(self) -> None:
        await self.deploys.start(self.chance.choice(["pause", "fail", "skip", "cancel"]))
        for _ in range(self.chance.randint(10, 60)):
            self.deploys.clock.advance(self.chance.choice([0, 0.001, 2]))
            await self._step(self.chance.choice(STEPS))

    async def _step(self, what: str) -> None:
        chance, deploys = self.chance, self.deploys
        program = chance.choice([deploys.newest, self.before])
        anybody = chance.choice([deploys.newest, self.before, deploys.codeless])
        self.number += 1
        if what == "claim":
            claimed = await deploys.claim(program, limit=chance.choice([1, 5]), remember=chance.random() < 0.7)
            self._hold(claimed)
        elif what == "deploy":
            assert deploys.newest.code is not None
            self.before = deploys.newest
            newest = deploys.deploy(changed(chance, deploys.newest.code))
            if chance.random() < 0.6:
                await self.say(newest, ReshapeRun(run=RUN))
        elif what == "reshape":
            await self.say(program, ReshapeRun(run=RUN))
        elif what == "import":
            await self._import(chance.choice([deploys.newest, deploys.codeless]))
        elif what == "fork":
            answer = await self.say(
                program, ForkRun(run=f"fork-{self.number}", source=RUN, from_node=chance.choice(NAMES))
            )
            if isinstance(answer, Started):
                await self.say(program, CancelRun(run=answer.run))
        elif what == "end a run":
            if self.others:
                await self.say(anybody, CancelRun(run=self.others.pop()))
        elif what == "bury":
            ready = [work for work in await deploys.work() if work.status == READY]
            for work in ready[:1]:
                await self.say(anybody, BuryUnknown(run=RUN, node=work.node, attempt=work.attempt, error=ERROR))
        elif wish := _wish(what, chance.choice(NAMES)):
            await self.say(anybody, wish)
        elif self.held:
            work = self.held.pop(chance.choice(sorted(self.held)))
            await self._report(what, work, anybody if what == "lapse" else program)

    async def _import(self, program: Program) -> None:
        run = await self.deploys.run()
        follows = self.deploys.graphs.get(run.signature or "") or self.deploys.newest.code
        assert follows is not None
        edited = changed(self.chance, follows)
        await self.say(program, self.deploys.import_of(edited, run.signature))

    async def _report(self, what: str, work: Work, program: Program) -> None:
        after_runs: tuple[str, ...] = ()
        if what == "wait for a run":
            after_runs = (f"other-{self.number}",)
            await self.deploys.start_other(after_runs[0])
            self.others += after_runs
        steered = {"skip itself": "skip", "pause itself": "pause", "finish": "finish"}.get(what, "reattempt")
        room = Offer(worker="w", room=2, queues=("default",)) if self.chance.random() < 0.5 else None
        reports: dict[str, Operation] = {
            "complete": CompleteWork(**at(work), result=b"1", offer=room),
            "fail": FailWork(**at(work), error=ERROR),
            "retry it": FailWork(**at(work), error=ERROR, retryable=True, attempts=3),
            "kill": KillWork(**at(work), error=ERROR),
            "lapse": lapse(work),
            "release": ReleaseWork(**at(work)),
        }
        operation = reports.get(what) or SteerWork(**at(work), wish=steered, after_runs=after_runs)
        answer = await self.say(program, operation)
        if isinstance(answer, Settled) and answer.verdict == RECORDED:
            self.finished_early |= what == "finish"
            again = await self.say(self.chance.choice([self.deploys.newest, self.before]), operation)
            assert isinstance(again, Settled), again
            assert again.verdict != RECORDED, f"counted twice: {operation}"

    async def say(self, program: Program, operation: Operation) -> object:
        answer = await self.deploys.say(program, operation)
        version = "no code" if program.code is None else program.code.signature[:4]
        self.said.append(f"  {version}: {operation!r:.150} -> {answer!r:.90}")
        # K7: an operation is done or refused; nothing else is an answer.
        assert isinstance(answer, HoldfastError) or not isinstance(answer, BaseException), answer
        assert not isinstance(answer, ReadinessOverflow), answer
        if isinstance(answer, Settled):
            self._hold([item.work for item in answer.handed])
        if not self.finished_early:
            assert not (wrong := await self.deploys.wrong()), "\n".join(wrong)
        return answer

    def _hold(self, works: list[Work]) -> None:
        self.held |= {(work.node, work.attempt): work for work in works}

    # -- the end: everybody else is gone, the newest code is left, and all goes well

    async def end(self) -> None:
        deploys, newest = self.deploys, self.deploys.newest
        for work in self.held.values():
            await self.say(self.chance.choice([newest, deploys.codeless]), lapse(work))
        for other in self.others:
            await self.say(newest, CancelRun(run=other))
        for _ in range(ROUNDS_TO_THE_END):
            deploys.clock.advance(100)
            await self.say(newest, ReshapeRun(run=RUN))
            await self._help(newest)
            claimed = await deploys.claim(newest)
            for work in claimed:
                await self.say(newest, CompleteWork(**at(work), result=b"1"))
            run = await deploys.run()
            if run.ended:
                break
            waits = [work.name for work in await deploys.work() if work.status == READY]
            if not claimed and run.status != PAUSED:  # an import may name what the newest code lacks: that is its right
                assert run.definition is not None, f"nobody knows {waits}"
                assert not set(newest.names()).intersection(waits), waits
                return
        else:
            raise AssertionError("the run never ends")
        if run.status == COMPLETED and run.signature is not None and not self.finished_early:
            history = await deploys.store.history(RUN)
            report = check_ancestry(deploys.graphs[run.signature], await deploys.work(), history, completed=True)
            assert report.ok, report.first_break

    async def _help(self, program: Program) -> None:
        """A person looks at a run that is paused, and does what it says."""
        if (await self.deploys.run()).status != PAUSED:
            return
        await self.say(program, ResumeRun(run=RUN))
        if (await self.deploys.run()).status == PAUSED:
            discarded = [node for node, status in (await self.deploys.states()).items() if status == CANCELLED]
            assert discarded, "it is paused again at once, and nothing holds it up"
            for node in discarded:
                if isinstance(await self.say(program, ReattemptNode(run=RUN, node=node)), HoldfastError):
                    await self.say(program, SkipNode(run=RUN, node=node))


def _wish(what: str, node: str) -> Operation | None:
    wishes: dict[str, Operation] = {
        "skip": SkipNode(run=RUN, node=node),
        "reattempt": ReattemptNode(run=RUN, node=node),
        "discard": DiscardDead(run=RUN, node=node),
        "pause": PauseRun(run=RUN),
        "resume": ResumeRun(run=RUN),
        "retry": RetryRun(run=RUN),
    }
    return wishes.get(what)


# --- graphs, and what a deploy does to them --------------------------------------------------------------------------


def grown(chance: random.Random, before: Graph, times: int) -> Graph:
    for _ in range(times):
        before = changed(chance, before)
    return before


def changed(chance: random.Random, before: Graph) -> Graph:
    """The graph with a few nodes more or less, and other edges."""
    order = list(before.topological_order)
    above = {node.id: list(node.depends_on) for node in before.nodes}
    for _ in range(chance.choice([1, 1, 2, 3])):
        what = chance.choice(["add", "add", "remove", "rewire"])
        free = [name for name in NAMES if name not in above]
        if what == "add" and free:
            new, place = chance.choice(free), chance.randint(0, len(order))
            above[new] = _some(chance, order[:place])
            for later in order[place:]:
                if chance.random() < 0.4:
                    above[later].append(new)
            order.insert(place, new)
        elif what == "remove" and len(order) > 1:
            gone = chance.choice(order)
            order.remove(gone)
            inherited = above.pop(gone)
            for node, parents in above.items():
                if gone in parents:
                    above[node] = [parent for parent in dict.fromkeys([*parents, *inherited]) if parent != gone]
        elif what == "rewire":
            node = chance.choice(order)
            above[node] = _some(chance, order[: order.index(node)])
    return Graph(tuple(Node(id=node, name=node, method=node, depends_on=tuple(above[node])) for node in order))


def _some(chance: random.Random, names: list[str]) -> list[str]:
    return chance.sample(names, min(len(names), chance.choice([0, 1, 1, 2])))
