"""The application of every version of the schema: what was defined then is defined in the same words now.

It is imported by the code of each version when its database is written, and by the code of today when that database
is opened. So it may only use what is public, asks which models there are, and never changes: new versions add to it.

While a database is written, what is called *held* never ends, so that a run is left in the middle of it.
"""

from __future__ import annotations

import asyncio
import operator
import os
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import msgspec

import holdfast as hf

WRITING = os.environ.get("UPGRADE_WRITES") == "1"
calls: list[str] = []
"""What was called since this process began."""

registry = hf.Registry()


async def held(name: str) -> None:
    """Go on only when the database is not being written."""
    calls.append(name)
    if WRITING:
        await asyncio.Event().wait()


# --- 0001: actions and DAGs ----------------------------------------------------------------------------------------


@hf.action(registry=registry)
async def greet(name: str) -> str:
    calls.append(f"greet {name}")
    return f"hello {name}"


@hf.action(registry=registry)
async def linger(name: str) -> str:
    await held(f"linger {name}")
    return f"{name} at last"


@hf.action(registry=registry, retry=hf.Retry(attempts=2, base=60.0, cap=60.0))
async def stumble(name: str) -> str:
    calls.append(f"stumble {name}")
    if WRITING:
        raise ConnectionError(f"{name} stumbles")
    return f"{name} stands"


@hf.action(registry=registry)
async def break_down(name: str) -> str:
    calls.append(f"break_down {name}")
    if WRITING:
        raise ValueError(f"{name} is broken")
    return f"{name} is mended"


class Errand(hf.Dag, registry=registry):
    """A diamond: `pack` is done, `wrap` is under way, `send` waits for both."""

    name: str

    @hf.step
    async def fetch(self) -> None:
        calls.append(f"fetch {self.name}")

    @hf.task(depends_on="fetch")
    async def pack(self) -> None:
        calls.append(f"pack {self.name}")

    @hf.task(depends_on="fetch")
    async def wrap(self) -> None:
        await held(f"wrap {self.name}")

    @hf.task(depends_on=["pack", "wrap"])
    async def send(self) -> None:
        calls.append(f"send {self.name}")


# --- 0003: functions, events, built DAGs ---------------------------------------------------------------------------

if hasattr(hf, "workflow"):
    approved = hf.event("approved", int, registry=registry)

    @hf.workflow(registry=registry)
    async def wait_for_approval(name: str) -> str:
        greeting = await greet(name)
        got = await hf.wait_for(approved)
        return f"{greeting}, {got.value}"

    @hf.workflow(registry=registry)
    async def work_and_sleep(name: str) -> str:
        first = await greet(name)
        await hf.sleep(60.0)
        second = await linger(name)
        return f"{first}; {second}; {hf.rng().randint(1, 1000)}"

    @hf.workflow(registry=registry)
    async def ask_twice(name: str) -> list[int]:
        """The second event is in the mailbox while the code is between its waits."""
        one = await hf.wait_for(approved)
        await linger(name)
        two = await hf.wait_for(approved)
        return [one.value, two.value]

    @hf.workflow(registry=registry)
    async def parent(name: str) -> str:
        return f"child says: {await wait_for_approval(name)}"

    def built(name: str) -> hf.BuiltDag:
        dag = hf.DagBuilder("built", registry=registry)
        dag.node("first", job=greet, args={"name": f"{name}-1"}, depends_on=None)
        dag.node("second", job=linger, args={"name": f"{name}-2"})
        dag.node("third", job=greet, args={"name": f"{name}-3"})
        return dag.build()


# --- 0004: deciders and projections --------------------------------------------------------------------------------

if hasattr(hf, "Decider"):

    class Open(msgspec.Struct, frozen=True):
        till: str

    class Take(msgspec.Struct, frozen=True):
        till: str
        cents: int

    class Counted(msgspec.Struct, frozen=True):
        till: str

    class TimeUp(msgspec.Struct, frozen=True):
        till: str

    class Opened(msgspec.Struct, frozen=True):
        pass

    class Took(msgspec.Struct, frozen=True):
        cents: int

    class CountedAgain(msgspec.Struct, frozen=True):
        pass

    class Closed(msgspec.Struct, frozen=True):
        pass

    class Print(msgspec.Struct, frozen=True):
        cents: int

    class Count(msgspec.Struct, frozen=True):
        pass

    class Till(msgspec.Struct, frozen=True):
        cents: int = 0
        counted: int = 0
        closed: bool = False

    class Tills(
        hf.Decider[Till, Open | Take | Counted | TimeUp, Opened | Took | CountedAgain | Closed, Print | Count],
        name="till",
        snapshot_every=2,
        registry=registry,
    ):
        def workflow_id(self, input: Any) -> str:
            return str(input.till)

        def initial(self) -> Till:
            return Till()

        def evolve(self, state: Till, event: Any) -> Till:
            match event:
                case Took(cents=cents):
                    return msgspec.structs.replace(state, cents=state.cents + cents)
                case CountedAgain():
                    return msgspec.structs.replace(state, counted=state.counted + 1)
                case Closed():
                    return msgspec.structs.replace(state, closed=True)
                case _:
                    return state

        def decide(self, now: Any, state: Till, input: Any) -> Any:
            match input:
                case Open(till=till):
                    opened = hf.Decision.event(Opened())
                    return opened.with_timer_after(timedelta(seconds=60), TimeUp(till), key="closing")
                case Take(cents=cents):
                    return hf.Decision.event(Took(cents)).with_effect(Print(cents)).with_effect(Count())
                case Counted():
                    return hf.Decision.event(CountedAgain())
                case _:
                    return hf.Decision.event(Closed())

        def is_terminal(self, state: Till) -> bool:
            return state.closed and state.counted == 2

        async def handle(self, effect: Any, ctx: Any) -> Any:
            match effect:
                case Print():
                    await held(f"print {ctx.workflow_id}")
                    return None
                case _:
                    calls.append(f"count {ctx.workflow_id}")
                    return Counted(ctx.workflow_id)

    @hf.projection(Tills, name="takings", registry=registry)
    async def takings(recorded: Any, tx: Any) -> None:
        if isinstance(recorded.event, Took):
            # In words that both databases take; the values are this module's own.
            row = f"('{recorded.workflow_id}', {recorded.event.cents:d})"
            await tx.execute(f"INSERT INTO takings (till, cents) VALUES {row}")


# --- 0005: flows ---------------------------------------------------------------------------------------------------

if hasattr(hf, "flow"):

    @hf.action(registry=registry)
    async def add_up(item: int, more: int) -> int:
        if (item, more) == (2, 10):
            await held(f"add_up {item} {more}")
        else:
            calls.append(f"add_up {item} {more}")
        return item + more

    @hf.flow(registry=registry)
    async def rounds(name: str, items: list[int]) -> str:
        """The first pass is over, the gather of the second is half done."""
        log = await greet(name)
        total = 0
        for item in items:
            parts = await asyncio.gather(add_up(item, 1), add_up(item, 10))
            total += sum(parts)
            log = log + f" {item}"
        try:
            await break_down(name)
        except ValueError as error:
            log = str(error)
        return f"{log}: {total}"

    @hf.flow(registry=registry)
    async def nap(name: str) -> str:
        first = await greet(name)
        await asyncio.sleep(60.0)
        return await linger(first)


# --- 0006: state graphs --------------------------------------------------------------------------------------------

if hasattr(hf, "StateGraph"):

    class Notes(TypedDict):
        topic: str
        notes: Annotated[list[str], operator.add]

    research = hf.StateGraph(Notes, name="research", registry=registry)

    @research.node
    async def plan(state: Notes) -> dict[str, Any]:
        calls.append("plan")
        return {"notes": [f"plan for {state['topic']}"]}

    @research.node
    async def look(state: Notes) -> dict[str, Any]:
        calls.append("look")
        return {"notes": ["looked"]}

    @research.node(recordable=True)
    async def dig(state: Notes, ctx: Any) -> dict[str, Any]:
        found = await ctx.record("search", {"topic": state["topic"]}, lambda: calls.append("search") or "gold")
        await held("dig")
        return {"notes": [f"dug {found}"]}

    @research.node
    async def ask(state: Notes, ctx: Any) -> dict[str, Any]:
        answer = await ctx.interrupt({"go on?": sorted(state["notes"])})
        return {"notes": [f"told {answer}"]}

    research.start_at("plan")
    research.edge("plan", "look")
    research.edge("plan", "dig")
    research.edge("look", "ask")
    research.edge("dig", "ask")
    research.finish("ask")

    quiz = hf.StateGraph(Notes, name="quiz", registry=registry)
    quiz.node(ask)
    quiz.start_at("ask")
    quiz.finish("ask")
