"""A till: the decider whose every event tells what it came from, for tests that crash. Its judge is `oracle.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

import holdfast as hf
from tests.deciders.oracle import IDLE_US, NO_COMMAND, Tally

IDLE = timedelta(microseconds=IDLE_US)
registry = hf.Registry()


class Deposit(msgspec.Struct, frozen=True):
    till: str
    id: str
    amount: int


class Withdraw(msgspec.Struct, frozen=True):
    till: str
    id: str
    amount: int


class Close(msgspec.Struct, frozen=True):
    till: str
    id: str


class Printed(msgspec.Struct, frozen=True):
    """The answer of an effect."""

    till: str
    id: str


class Idle(msgspec.Struct, frozen=True):
    """The timer that every deposit sets anew, and that sets itself anew once."""

    till: str
    id: str
    round: int


class Check(msgspec.Struct, frozen=True):
    """A timer without a key, due at once."""

    till: str
    id: str


class Deposited(msgspec.Struct, frozen=True):
    id: str
    amount: int
    balance: int


class Withdrawn(msgspec.Struct, frozen=True):
    id: str
    amount: int
    balance: int


class Refused(msgspec.Struct, frozen=True):
    id: str
    amount: int
    balance: int


class Receipted(msgspec.Struct, frozen=True):
    id: str


class Rested(msgspec.Struct, frozen=True):
    id: str
    round: int


class Checked(msgspec.Struct, frozen=True):
    id: str


class Closed(msgspec.Struct, frozen=True):
    id: str


class Audited(msgspec.Struct, frozen=True):
    balance: int


class Print(msgspec.Struct, frozen=True):
    id: str


class Ring(msgspec.Struct, frozen=True):
    id: str


class TillState(msgspec.Struct, frozen=True):
    balance: int = 0
    status: str = "open"
    rests: int = 0
    waiting: int = 0


TillInput = Deposit | Withdraw | Close | Printed | Idle | Check
TillEvent = Deposited | Withdrawn | Refused | Receipted | Rested | Checked | Closed | Audited
TillEffect = Print | Ring
TillDecision = hf.Decision[TillEvent, TillEffect, TillInput]

on_effect: list[Callable[[TillEffect, hf.EffectContext], Awaitable[None]]] = []
"""Called by the handler before it answers."""


class Till(hf.Decider[TillState, TillInput, TillEvent, TillEffect], name="till", registry=registry, snapshot_every=4):
    def workflow_id(self, input: TillInput) -> str:
        return input.till

    def initial(self) -> TillState:
        return TillState()

    def evolve(self, state: TillState, event: TillEvent) -> TillState:
        change = msgspec.structs.replace
        match event:
            case Deposited(balance=balance):
                return change(state, balance=balance, rests=2, waiting=state.waiting + 1)
            case Withdrawn(balance=balance):
                return change(state, balance=balance, waiting=state.waiting + 2)
            case Receipted() | Checked():
                return change(state, waiting=state.waiting - 1)
            case Rested():
                return change(state, rests=state.rests - 1)
            case Closed():
                return change(state, status="closed")
        return state

    def decide(self, now: datetime, state: TillState, input: TillInput) -> TillDecision:
        match input:
            case Deposit(till, id, amount):
                decided: TillDecision = hf.Decision.event(Deposited(id, amount, state.balance + amount))
                return decided.with_effect(Print(id)).with_timer_after(IDLE, Idle(till, id, 0), key="idle")
            case Withdraw(till, id, amount) if amount <= state.balance:
                decided = hf.Decision.event(Withdrawn(id, amount, state.balance - amount))
                return decided.with_effect(Print(id)).with_timer_after(timedelta(0), Check(till, id))
            case Withdraw(_, id, amount):
                return hf.Decision.event(Refused(id, amount, state.balance))
            case Printed(_, id):
                return hf.Decision.event(Receipted(id))
            case Check(_, id):
                return hf.Decision.event(Checked(id))
            case Idle(till, id, round):
                decided = hf.Decision.event(Rested(id, round))
                return decided.with_timer_after(IDLE, Idle(till, id, 1), key="idle") if round == 0 else decided
        decided = hf.Decision(events=(Closed(input.id), Audited(state.balance)))
        return decided.with_effect(Ring(input.id)).with_effect(Print(input.id)).cancel_timer("idle")

    def is_terminal(self, state: TillState) -> bool:
        return state.status == "closed"

    async def handle(self, effect: TillEffect, ctx: hf.EffectContext) -> TillInput | None:
        for call in on_effect:
            await call(effect, ctx)
        return Printed(ctx.workflow_id, effect.id) if isinstance(effect, Print) else None


# --- the life of one till -------------------------------------------------------------------------------------------

FREE = (f"{NO_COMMAND}b", f"{NO_COMMAND}d")
"""The inputs of the script without a command id: who never heard what became of them cannot ask again."""
QUEUED = ("c", FREE[1])
"""The inputs of the script that go through the inbox."""


def first_act(till: str) -> list[TillInput]:
    """After this everything is waited for: receipts, checks and both rests."""
    queued = [Withdraw(till, QUEUED[0], 1_000), Withdraw(till, QUEUED[1], 30)]
    return [Deposit(till, "a", 100), Deposit(till, FREE[0], 50), *queued]


def last_act(till: str) -> list[TillInput]:
    """A timer is set and cancelled, and there is an effect whose answer comes after the end."""
    return [Deposit(till, "e", 5), Close(till, "z")]


class Book:
    """What the clients of one till know: which inputs they gave, and which of those were acknowledged."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.begun: list[str] = []
        self.acknowledged: list[str] = []

    def may_give(self, input: TillInput) -> bool:
        """Whether to give it, or to give it again, as a client does who has a command id."""
        return input.id not in self.acknowledged and (input.id not in self.begun or input.id not in FREE)

    def judge(self, tally: Tally) -> None:
        """G1, I12: what was acknowledged is there, nothing is there twice, nothing came from nowhere."""
        accepted = tally.client_ids() + tally.queued
        assert set(self.acknowledged) <= set(accepted), f"{self.key}: acknowledged and lost"
        assert set(accepted) <= set(self.begun), f"{self.key}: accepted, and nobody gave it"
        assert len(accepted) == len(set(accepted)), f"{self.key}: twice: {accepted}"
        queued = [id for id in accepted if id in QUEUED]
        arrived = [id for id in QUEUED if id in queued]
        assert queued == arrived, f"{self.key}: not in the order of arrival: {queued}"

    def judge_finished(self, tally: Tally) -> None:
        """All of the script was accepted, but for what nobody could ask for again."""
        self.judge(tally)
        every = {input.id for input in first_act("") + last_act("")}
        assert every - set(FREE) <= set(tally.client_ids()) <= every


def command_of(input: Any) -> str | None:
    """The command id that goes with an input: its own id, unless that says that there is none."""
    return None if input.id.startswith(NO_COMMAND) else str(input.id)
