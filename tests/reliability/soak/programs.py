"""What clients do, and what they were told: a program drives its runs, and compares in the end what it finds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol, TypeVar

import holdfast as hf
from holdfast.core.rows import COMPLETED
from tests.reliability.simulation.ledger import must
from tests.reliability.soak import app
from tests.reliability.soak.journal import Deed

T = TypeVar("T")


class Asks(Protocol):
    """A client that asks again until it is answered."""

    async def ask(self, call: Callable[[hf.Engine], Awaitable[T]]) -> T: ...


class Books:
    """What happened outside: deeds by label and by nonce."""

    def __init__(self, deeds: list[Deed]) -> None:
        self.by_nonce = {deed.nonce: deed for deed in deeds}
        self.labels = {deed.label for deed in deeds}

    def returned(self, label: str, nonce: object) -> None:
        """G2: a result that counts is what one execution of just this label returned."""
        deed = self.by_nonce.get(str(nonce))
        must(deed is not None, "G2", f"the result {nonce} of {label} was returned by nobody")
        assert deed is not None
        must(deed.label == label, "G2", f"{label} has the result of {deed.label}")

    def done(self, label: str) -> None:
        must(label in self.labels, "G3", f"{label} is recorded as done, and was never executed")


class Program:
    """One client's business. It is called by its number, so that the same seed does the same."""

    def __init__(self, number: int, dice: random.Random) -> None:
        self.name = f"{type(self).__name__.lower()}{number}"
        self.dice = dice
        self.runs: dict[str, str] = {}  # by key, as they were acknowledged
        self.told: dict[str, Any] = {}  # results, by key

    async def drive(self, client: Asks) -> None:
        raise NotImplementedError

    def check(self, results: dict[str, Any], books: Books) -> None:
        raise NotImplementedError

    async def start(self, client: Asks, workflow: Any, *args: Any, key: str = "") -> str:
        key = key or self.name

        async def call(engine: hf.Engine) -> str:
            return (await engine.start(workflow, *args, key=key)).id

        for _ in range(self.dice.choice((1, 1, 2))):  # who is not sure asks again
            run = await client.ask(call)
            must(self.runs.setdefault(key, run) == run, "I12", f"{key} is {self.runs[key]}, and was {run} this time")
        return self.runs[key]

    async def finish(self, client: Asks) -> None:
        """Wait for every result, and remember it: from now on it may not change."""
        for key, run in self.runs.items():
            self.told[key] = await client.ask(lambda engine, run=run: engine.get(run).result(2.0))  # type: ignore[misc]

    async def results(self, engine: hf.Engine) -> dict[str, Any]:
        """The results of all runs, as they are stored now."""
        rows = {row.id: row for row in await engine.store.runs(list(self.runs.values()))}
        found: dict[str, Any] = {}
        for key, run in self.runs.items():
            must(run in rows, "G1", f"the start of {key} was acknowledged as {run}, and there is no such run")
            row = rows[run]
            must(row.status == COMPLETED, "G9", f"{key} {run} is {row.status}: {row.reason}")
            found[key] = await engine.get(run).result(1.0)
            if key in self.told:
                must(found[key] == self.told[key], "G7", f"{key} returned {self.told[key]} once, and now {found[key]}")
        return found


class Singles(Program):
    """Some runs of one action each."""

    async def drive(self, client: Asks) -> None:
        keys = [f"{self.name}.{place}" for place in range(self.dice.randint(10, 30))]
        action = self.dice.choice((app.act, app.act, app.enter))
        await asyncio.gather(*[self.start(client, action, key, key=key) for key in keys])
        await self.finish(client)

    def check(self, results: dict[str, Any], books: Books) -> None:
        for key, nonce in results.items():
            books.returned(key, nonce)


class Dags(Program):
    async def drive(self, client: Asks) -> None:
        await self.start(client, app.Diamond(label=self.name))
        await self.finish(client)

    def check(self, results: dict[str, Any], books: Books) -> None:
        for node in ("top", "left", "right", "bottom"):
            books.done(f"{self.name}.{node}")


class Talks(Program):
    """A function that waits for a word, which is sent twice under one id."""

    async def drive(self, client: Asks) -> None:
        run = await self.start(client, app.talk, self.name)
        await asyncio.sleep(self.dice.random() * 0.5)
        self.word = self.dice.randrange(1000)
        for _ in range(2):
            await client.ask(lambda engine: engine.send(app.word, self.word, to=run, id=f"{self.name}.word"))
        await self.finish(client)

    def check(self, results: dict[str, Any], books: Books) -> None:
        first, left, right, heard, below = results[self.name]
        for label, nonce in (("first", first), ("left", left), ("right", right), ("child", below)):
            books.returned(f"{self.name}.{label}", nonce)
        must(heard == self.word, "G5", f"{self.name} was sent {self.word}, and heard {heard}")


class Flows(Program):
    async def drive(self, client: Asks) -> None:
        self.items = self.dice.sample(range(10), self.dice.randint(0, 4))
        await self.start(client, app.sums, self.name, self.items)
        await self.finish(client)

    def check(self, results: dict[str, Any], books: Books) -> None:
        expected = app.sums_means(self.items)
        must(results[self.name] == expected, "G8", f"{self.name} of {self.items} is {results[self.name]}")
        for label in (f"{self.name}.sum", *(f"{self.name}.{item}" for item in self.items)):
            books.done(label)


class Graphs(Program):
    """A state graph that asks a person once."""

    async def drive(self, client: Asks) -> None:
        state = {"label": self.name, "turn": 0, "sum": 0, "seen": [], "answer": ""}
        run = await self.start(client, app.rounds, state)
        while not await client.ask(lambda engine: engine.get(run).interrupts()):
            if await client.ask(lambda engine: engine.get(run).status()) not in ("pending", "running", "suspended"):
                break
            await asyncio.sleep(0.1)
        else:
            await client.ask(lambda engine: _answered(engine, run))
        await self.finish(client)

    def check(self, results: dict[str, Any], books: Books) -> None:
        state = results[self.name]
        must(state["sum"] == app.TURNS * sum(range(app.WIDTH)), "G2", f"{self.name} merged to {state}")
        must(state["answer"] == "yes", "G5", f"{self.name} was answered {state['answer']!r}")
        must(len(state["seen"]) == app.TURNS * app.WIDTH, "G2", f"{self.name} merged {state['seen']}")
        for seen in state["seen"]:
            books.returned(*seen.split(" "))


async def _answered(engine: hf.Engine, run: str) -> None:
    """An answer that was given and whose acknowledgement was lost may have been asked for again in vain."""
    if await engine.get(run).interrupts():
        await engine.get(run).resume_with("yes")


class Tills(Program):
    """An instance that is given commands directly and through its inbox, some of them twice."""

    BY_KIND: ClassVar = (app.WasPut, app.WasEchoed, app.HasRung)

    async def drive(self, client: Asks) -> None:
        self.commands: list[str] = []
        for place in range(self.dice.randint(1, 4)):
            put = app.Put(self.name, f"{self.name}.{place}")
            inbox = self.dice.random() < 0.4
            for _ in range(self.dice.choice((1, 2))):
                await client.ask(lambda engine, put=put, inbox=inbox: _give(engine, put, inbox))  # type: ignore[misc]
            self.commands.append(put.command)

    async def results(self, engine: hf.Engine) -> dict[str, Any]:
        return {self.name: await engine.stream(app.Till, self.name)}

    def check(self, results: dict[str, Any], books: Books) -> None:
        events = [each for each in results[self.name] if not each.system]
        for kind in self.BY_KIND:
            found = [each.event.command for each in events if isinstance(each.event, kind)]
            promise = "G6" if kind is app.HasRung else "G1"
            told = f"{self.name}: {kind.__name__} of {found}, and {self.commands} were acknowledged"
            must(sorted(found) == sorted(self.commands), promise, told)
        at = {(type(each.event), each.event.command): each.at for each in events}
        for each in events:
            if isinstance(each.event, app.WasEchoed):
                books.returned(each.event.command, each.event.nonce)
            elif isinstance(each.event, app.HasRung):
                passed = (each.at - at[app.WasPut, each.event.command]).total_seconds()
                must(passed >= app.RING_SECONDS, "G6", f"the timer of {each.event.command} rang after {passed} s")


async def _give(engine: hf.Engine, put: app.Put, inbox: bool) -> None:
    if inbox:
        await engine.enqueue_input(app.Till, put, command_id=put.command)
    else:
        await engine.execute(app.Till, put, command_id=put.command)


KINDS: tuple[type[Program], ...] = (Singles, Singles, Singles, Dags, Talks, Flows, Graphs, Tills)
