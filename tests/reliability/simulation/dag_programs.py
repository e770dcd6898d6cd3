"""DAGs of random shape: built ones, with retries, nodes that give up, cancels and pauses; and a class."""

from __future__ import annotations

from typing import Any

import holdfast as hf
from holdfast.core.queries import AllWork
from holdfast.core.rows import CANCELLED, COMPLETED, FAILED, SATISFIED, Work
from tests.dags.random_shapes import random_shape
from tests.reliability.simulation.actions import ALWAYS, RETRY, Job, act, perform, registry
from tests.reliability.simulation.ledger import must
from tests.reliability.simulation.programs import Basis


class Built(Basis):
    """A DAG made at run time. Sometimes one node gives up, sometimes somebody cancels or pauses it."""

    def __init__(self, world: Any, number: int) -> None:
        super().__init__(world, number)
        self.shape = random_shape(self.dice, self.dice.randint(1, 7))
        self.jobs = {node: self.job() for node in self.shape}
        self.doomed = self.dice.choice(sorted(self.shape)) if self.dice.random() < 0.2 else None
        if self.doomed is not None:
            self.jobs[self.doomed]["fails"] = ALWAYS
        self.wish = self.dice.choice(("", "", "", "cancel", "pause"))
        builder = hf.DagBuilder(f"{self.name}-dag", on_failure="fail", registry=registry)
        self.names: dict[str, str] = {}  # of nodes by id
        for node, parents in self.shape.items():
            added = builder.node(node, job=act, args={"job": self.jobs[node]}, depends_on=parents)
            self.names[added.id] = node
        self.dag = builder.build()
        self.cancelled = False

    async def drive(self) -> None:
        run = await self.start(self.dag)
        if self.wish == "cancel":
            await self.pause_a_while(2.0)
            await self.world.ask(lambda engine: engine.get(run).cancel())
            self.cancelled = True
        elif self.wish == "pause":
            await self.pause_a_while(1.0)
            await self.world.ask(lambda engine: engine.get(run).pause())
            await self.pause_a_while(2.0)
            await self.world.ask(lambda engine: engine.get(run).resume())
        if self.dice.random() < 0.3:
            await self.start(self.dag)  # I12: the same run

    async def open_runs(self, engine: hf.Engine) -> list[str]:
        still = await super().open_runs(engine)
        if self.wish == "pause":  # a pause that nobody waited for any more may have come after the resume
            for run in still:
                await engine.get(run).resume()
        return still

    async def check(self, engine: hf.Engine) -> None:
        run = self.runs[self.name]
        row = (await engine.store.runs([run]))[0]
        work: list[Work] = await engine.store.rows(AllWork(run))
        if not (self.cancelled and row.status == CANCELLED):
            expected = FAILED if self.doomed else COMPLETED
            must(row.status == expected, "G9", f"{self.name} {run} is {row.status}, and should be {expected}")
            reached = set(self.shape) - self.below(self.doomed)
            done = {self.names[item.node] for item in work if item.status in SATISFIED}
            must(done == reached, "G3", f"{self.name} {run} completed {sorted(done)} of {sorted(reached)}")
        for id, items in by_node(work).items():
            node = self.names[id]
            finished = [item for item in items if item.status == COMPLETED]
            must(len(finished) <= 1, "G2", f"{node} of {run} was completed {len(finished)} times")
            must(bool(self.executions(node)) or not finished, "G3", f"{node} of {run} is completed, and never ran")
        self.check_order(work)

    def executions(self, node: str) -> list[Any]:
        return self.world.ledger.by_label.get(self.jobs[node]["label"], [])

    def check_order(self, work: list[Work]) -> None:
        """G4: nothing ran before what it depends on was recorded."""
        ended = {self.names[item.node]: item.finished for item in work if item.status == COMPLETED}
        for node, parents in self.shape.items():
            for execution in self.executions(node):
                began = self.world.start_us + int(execution.began * 1e6)
                for parent in parents:
                    recorded = ended.get(parent)
                    in_time = recorded is not None and recorded <= began
                    must(
                        in_time, "G4", f"{node} of {self.name} ran at {began}, its parent {parent} ended at {recorded}"
                    )

    def below(self, node: str | None) -> set[str]:
        """The node and what depends on it."""
        found = {node}
        for each, parents in self.shape.items():
            if found & set(parents):
                found.add(each)
        return {each for each in found if each is not None}


def by_node(work: list[Work]) -> dict[str, list[Work]]:
    found: dict[str, list[Work]] = {}
    for item in work:
        found.setdefault(item.node, []).append(item)
    return found


async def _perform(label: str, node: str, fails: int = 0) -> None:
    context = hf.current()
    job = Job(label=f"{label}.{node}", takes=0.1, fails=fails)
    await perform(job, context.run_id, context.node.id, context.node.attempt)


class Diamond(hf.Dag, registry=registry):
    """A class whose nodes are methods."""

    label: str

    @hf.step
    async def top(self) -> None:
        await _perform(self.label, "top")

    @hf.step(retry=RETRY)
    async def left(self) -> None:
        await _perform(self.label, "left", fails=1)

    @hf.step(depends_on=[top])
    async def right(self) -> None:
        await _perform(self.label, "right")

    @hf.step(depends_on=[left, right])
    async def bottom(self) -> None:
        await _perform(self.label, "bottom")


class Classes(Basis):
    """Runs of the class."""

    async def drive(self) -> None:
        await self.start(Diamond(label=self.name))

    async def check(self, engine: hf.Engine) -> None:
        run = self.runs[self.name]
        row = (await engine.store.runs([run]))[0]
        must(row.status == COMPLETED, "G9", f"{self.name} {run} is {row.status}: {row.reason}")
        work: list[Work] = await engine.store.rows(AllWork(run))
        ended = {item.node: item.finished or 0 for item in work if item.status == COMPLETED}
        must(len(ended) == 4, "G3", f"{self.name} {run} completed {sorted(ended)}")
        for node, parents in {"left": ["top"], "right": ["top"], "bottom": ["left", "right"]}.items():
            for execution in self.world.ledger.by_label.get(f"{self.name}.{node}", ()):
                began = self.world.start_us + int(execution.began * 1e6)
                must(
                    all(ended[p] <= began for p in parents), "G4", f"{node} of {self.name} ran before its parents ended"
                )
