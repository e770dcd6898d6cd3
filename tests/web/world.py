"""One application with every model, and runs of it in every situation that the HTTP interface shows."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

import holdfast as hf
from holdfast.web import create_app
from tests.web.client import Client

registry = hf.Registry()
broken: set[str] = set()
"""Names that `fragile` fails for."""
approved = hf.event("approved", int, registry=registry)


@hf.action(registry=registry)
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@hf.action(registry=registry, retry=hf.Retry(attempts=1))
async def fragile(name: str) -> str:
    if name in broken:
        raise ValueError(f"{name} is broken <script>alert(1)</script>")
    return f"{name} holds"


@hf.action(registry=registry)
async def year_of(day: datetime) -> int:
    return day.year


@hf.action(registry=registry)
async def sign_in(user: dict[str, Any]) -> dict[str, Any]:
    return {"session": {"api_key": "canary-9", "name": user["name"]}}


class Errand(hf.Dag, registry=registry):
    """A diamond whose one side may break."""

    name: str
    day: datetime | None = None

    @hf.step
    async def fetch(self) -> None: ...

    @hf.task(depends_on="fetch", retry=hf.Retry(attempts=1))
    async def pack(self) -> None:
        if self.name in broken:
            raise ValueError(f"{self.name} is broken")

    @hf.task(depends_on="fetch")
    async def wrap(self) -> None: ...

    @hf.task(depends_on=["pack", "wrap"])
    async def send(self) -> None: ...


@hf.workflow(registry=registry)
async def approval(n: int) -> int:
    """Waits for a person."""
    total = await add(n)
    got = await hf.wait_for(approved)
    return int(got.value) + total


@hf.workflow(registry=registry)
async def napping(n: int) -> int:
    await hf.sleep(3600.0)
    return n


@hf.flow(registry=registry)
async def rounds(items: list[int]) -> int:
    total = 0
    for item in items:
        parts = await asyncio.gather(add(item, 1), add(item, 10))
        total += sum(parts)
    spread = await asyncio.gather(*[add(item, 5) for item in items])
    total += sum(spread)
    if total > 100:
        total = await add(total, 1000)
    return total


class Open(msgspec.Struct, frozen=True):
    till: str


class Take(msgspec.Struct, frozen=True):
    till: str
    cents: int


class TimeUp(msgspec.Struct, frozen=True):
    till: str


class Opened(msgspec.Struct, frozen=True):
    pass


class Took(msgspec.Struct, frozen=True):
    cents: int


class Print(msgspec.Struct, frozen=True):
    cents: int


class Till(msgspec.Struct, frozen=True):
    cents: int = 0
    is_open: bool = False


class Tills(hf.Decider[Till, Open | Take | TimeUp, Opened | Took, Print], name="till", registry=registry):
    def workflow_id(self, input: Any) -> str:
        return str(input.till)

    def initial(self) -> Till:
        return Till()

    def evolve(self, state: Till, event: Any) -> Till:
        if isinstance(event, Took):
            return Till(state.cents + event.cents, True)
        return Till(state.cents, True)

    def decide(self, now: Any, state: Till, input: Any) -> Any:
        match input:
            case Open(till=till):
                return hf.Decision.event(Opened()).with_timer_after(timedelta(hours=1), TimeUp(till), key="closing")
            case Take(cents=cents):
                return hf.Decision.event(Took(cents)).with_effect(Print(cents))
            case _:
                return hf.Decision.none()

    async def handle(self, effect: Any, ctx: Any) -> Any:
        return None


@hf.projection(Tills, name="takings", registry=registry)
async def takings(recorded: Any, tx: Any) -> None:
    if "takings" in broken:
        raise ValueError("the table is full")


class Notes(TypedDict):
    topic: str
    since: NotRequired[datetime]
    notes: Annotated[list[str], operator.add]


research = hf.StateGraph(Notes, name="research", registry=registry)


@research.node(label="planned")
async def plan(state: Notes) -> dict[str, Any]:
    return {"notes": [f"plan for {state['topic']}"]}


@research.node
async def ask(state: Notes, ctx: Any) -> dict[str, Any]:
    answer = await ctx.interrupt({"go on?": state["notes"], "password": "canary-8"})
    return {"notes": [f"told {answer}"]}


research.start_at("plan")
research.edge("plan", "ask")
research.finish("ask")

TOKENS = {"read-token": "read", "operate-token": "operate", "admin-token": "admin"}


@dataclass(slots=True)
class World:
    """A running application, with the ids of runs that stand in it."""

    engine: hf.Engine
    client: Client
    runs: dict[str, str]

    @property
    def app(self) -> Any:
        return self.client.app


@asynccontextmanager
async def world(url: str, **options: Any) -> AsyncIterator[World]:
    """An engine with a worker, and a client of its application who may do everything."""
    broken.clear()
    async with hf.Engine(url, registry=registry) as engine, engine.worker():
        app = create_app(engine, **options)
        client = Client(app)
        if "tokens" in options:
            client = client.with_token("admin-token")
        yield World(engine, client, {})
        await app.state.holdfast.close()


@asynccontextmanager
async def populated(url: str, **options: Any) -> AsyncIterator[World]:
    """The same with a run of every model: done, failed, waiting, asking, asleep, dead."""
    async with world(url, **options) as here:
        engine, runs = here.engine, here.runs
        broken.update({"vase", "parcel"})

        async def start(name: str, thing: Any, *args: Any, **given: Any) -> None:
            runs[name] = (await engine.start(thing, *args, **given)).id

        await start("done", add, 1, 2, tags={"colour": "red", "size": "1"})
        await start("signed", sign_in, {"name": "ada", "password": "canary-7"})
        await start("failed", fragile, "vase", key="vase/1")
        await start("errand", Errand(name="parcel"))
        await start("approval", approval, 4, tags={"colour": "red"})
        await start("napping", napping, 1)
        await start("rounds", rounds, [1, 2, 3])
        await start("research", research, {"topic": "gold"})
        await start("later", add, 5, at=datetime.now(UTC) + timedelta(days=1))
        await start("paused", add, 6, paused=True)
        await engine.execute(Tills, Open("north"))
        await engine.execute(Tills, Take("north", 250))
        await engine.settle(timeout=20)
        found = await engine.find(workflow="till")
        runs["till"] = found[0].id
        projection = await engine.find(workflow="projection:takings")
        runs["takings"] = projection[0].id
        yield here
