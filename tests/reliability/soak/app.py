"""What the soak runs: a little of every model. All that it does to the world outside is in the journal."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Annotated, Any, TypedDict

import msgspec

import holdfast as hf
from tests.reliability.soak import journal

registry = hf.Registry()
RETRY = hf.Retry(attempts=30, base=0.05, cap=0.5)
RING_SECONDS = 0.5
TABLES = (
    "CREATE TABLE entered (label text, nonce text)",
    "CREATE TABLE projected (number bigserial, till text, sequence int)",
)
ENTER = "INSERT INTO entered (label, nonce) VALUES ($1, $2)"

word = hf.event("word", int, registry=registry)


def deed(label: str) -> str:
    context = hf.current()
    return journal.write(label, context.run_id, context.node.id, context.attempt)


# --- single actions ------------------------------------------------------------------------------------------------


@hf.action(registry=registry, retry=RETRY)
async def act(label: str, seconds: float = 0.0) -> str:
    """Returns what tells this execution from all others."""
    nonce = deed(label)
    await asyncio.sleep(seconds)
    return nonce


@hf.action(registry=registry, retry=RETRY, transactional=True)
async def enter(label: str) -> str:
    """Writes a row in the transaction that records its result."""
    nonce = deed(label)
    await hf.current().tx.execute(ENTER, label, nonce)
    return nonce


@hf.action(registry=registry, retry=RETRY)
async def number(label: str, value: int) -> int:
    deed(label)
    return value


# --- a DAG ---------------------------------------------------------------------------------------------------------


class Diamond(hf.Dag, registry=registry):
    label: str

    @hf.step(retry=RETRY)
    async def top(self) -> None:
        deed(f"{self.label}.top")

    @hf.step(retry=RETRY)
    async def left(self) -> None:
        deed(f"{self.label}.left")
        await asyncio.sleep(0.05)

    @hf.step(retry=RETRY, depends_on=[top], transactional=True)
    async def right(self) -> None:
        await hf.current().tx.execute(ENTER, f"{self.label}.right", deed(f"{self.label}.right"))

    @hf.step(retry=RETRY, depends_on=[left, right])
    async def bottom(self) -> None:
        deed(f"{self.label}.bottom")


# --- a function with branches, a timer, an event and a child -------------------------------------------------------


@hf.workflow(registry=registry)
async def child(label: str) -> str:
    await hf.sleep(0.05)
    return await act(label)


@hf.workflow(registry=registry)
async def talk(label: str) -> list[Any]:
    first = await act(f"{label}.first")
    left, right = await asyncio.gather(act(f"{label}.left", 0.05), enter(f"{label}.right"))
    await hf.sleep(0.1)
    heard = await hf.wait_for(word)
    assert isinstance(heard, hf.Received)
    return [first, left, right, heard.value, await child(f"{label}.child")]


# --- a flow --------------------------------------------------------------------------------------------------------


@hf.flow(registry=registry)
async def sums(label: str, items: list[int]) -> int:
    parts = await asyncio.gather(*[number(f"{label}.{item}", item) for item in items])
    total = 0
    for part in parts:
        if part % 2:
            total += await number(f"{label}.odd.{part}", part)
    await asyncio.sleep(0.05)
    return await number(f"{label}.sum", total + sum(parts))


def sums_means(items: list[int]) -> int:
    return sum(items) + sum(item for item in items if item % 2)


# --- a decider with effects, timers and a projection ---------------------------------------------------------------


class Put(msgspec.Struct, frozen=True):
    till: str
    command: str


class Echoed(msgspec.Struct, frozen=True):
    till: str
    command: str
    nonce: str


class Rang(msgspec.Struct, frozen=True):
    till: str
    command: str


class WasPut(msgspec.Struct, frozen=True):
    command: str


class WasEchoed(msgspec.Struct, frozen=True):
    command: str
    nonce: str


class HasRung(msgspec.Struct, frozen=True):
    command: str


class Echo(msgspec.Struct, frozen=True):
    command: str


Input = Put | Echoed | Rang
Event = WasPut | WasEchoed | HasRung


class Till(hf.Decider[int, Input, Event, Echo], name="till", registry=registry, retry=RETRY):
    def workflow_id(self, input: Input) -> str:
        return input.till

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Event) -> int:
        return state + 1

    def decide(self, now: datetime, state: int, input: Input) -> hf.Decision[Event, Echo, Input]:
        match input:
            case Put(till=till, command=command):
                ring = Rang(till, command)
                decision = hf.Decision.event(WasPut(command)).with_effect(Echo(command))
                return decision.with_timer_after(timedelta(seconds=RING_SECONDS), ring, key=command)  # type: ignore[return-value]
            case Echoed(command=command, nonce=nonce):
                return hf.Decision.event(WasEchoed(command, nonce))
            case Rang(command=command):
                return hf.Decision.event(HasRung(command))

    def is_terminal(self, state: int) -> bool:
        return False

    async def handle(self, effect: Echo, ctx: hf.EffectContext) -> Input | None:
        nonce = journal.write(effect.command, ctx.workflow_id, effect.command, ctx.attempt)
        return Echoed(ctx.workflow_id, effect.command, nonce)


@hf.projection(Till, name="tills", registry=registry)
async def tills(event: hf.Recorded[Event], tx: hf.Tx) -> None:
    await tx.execute("INSERT INTO projected (till, sequence) VALUES ($1, $2)", event.workflow_id, event.sequence)


# --- a state graph with records and a question ---------------------------------------------------------------------


class State(TypedDict):
    label: str
    turn: int
    sum: Annotated[int, hf.reducers.counter]
    seen: Annotated[list[str], hf.reducers.append]
    answer: str


WIDTH, TURNS = 3, 2
rounds = hf.StateGraph(State, name="rounds", registry=registry, max_concurrent=2)


@rounds.node(retry=RETRY, goes_to=("leaf",))
async def fan(state: State, ctx: hf.NodeContext) -> Any:
    return hf.Many([hf.Send("leaf", {**state, "turn": each}) for each in range(WIDTH)])


@rounds.node(retry=RETRY, recordable=True)
async def leaf(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    label = f"{state['label']}.{ctx.step}.{state['turn']}"
    nonce = await ctx.record("ask", {"label": label}, lambda: journal.write(label, ctx.run_id, ctx.node, ctx.attempt))
    await asyncio.sleep(0.02)
    return {"sum": state["turn"], "seen": [f"{label} {nonce}"]}


@rounds.node
async def gate(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    if state["turn"] == 0:
        return {"turn": 1, "answer": str(await ctx.interrupt({"question": state["label"]}))}
    return {"turn": state["turn"] + 1}


rounds.start_at("fan")
rounds.edge("leaf", "gate")
rounds.edge("gate", "fan", when=lambda state: state["turn"] < TURNS)
rounds.finish("gate")
