"""Deciders: commands, inputs in the inbox, effects that answer, timers that ring or are cancelled; and a projection."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

import holdfast as hf
from tests.reliability.simulation.actions import Job, here, perform, registry
from tests.reliability.simulation.ledger import must
from tests.reliability.simulation.programs import Basis

RING_SECONDS = 1.5


class Put(msgspec.Struct, frozen=True):
    till: str
    command: str
    effect: bool = False
    timer: bool = False


class Quiet(msgspec.Struct, frozen=True):
    """Cancel the timer of a command."""

    till: str
    command: str


class Echoed(msgspec.Struct, frozen=True):
    till: str
    command: str
    nonce: int


class Rang(msgspec.Struct, frozen=True):
    till: str
    command: str


class WasPut(msgspec.Struct, frozen=True):
    command: str


class WasQuieted(msgspec.Struct, frozen=True):
    command: str


class WasEchoed(msgspec.Struct, frozen=True):
    command: str
    nonce: int


class HasRung(msgspec.Struct, frozen=True):
    command: str


class Echo(msgspec.Struct, frozen=True):
    command: str


Input = Put | Quiet | Echoed | Rang
Event = WasPut | WasQuieted | WasEchoed | HasRung


class Till(hf.Decider[int, Input, Event, Echo], name="till", registry=registry, retry=hf.Retry(attempts=5, base=0.2)):
    def workflow_id(self, input: Input) -> str:
        return input.till

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Event) -> int:
        return state + 1

    def decide(self, now: datetime, state: int, input: Input) -> hf.Decision[Event, Echo, Input]:
        match input:
            case Put(till=till, command=command, effect=effect, timer=timer):
                decision: Any = hf.Decision.event(WasPut(command))
                if effect:
                    decision = decision.with_effect(Echo(command))
                if timer:
                    ring = Rang(till, command)
                    decision = decision.with_timer_after(timedelta(seconds=RING_SECONDS), ring, key=command)
                return decision  # type: ignore[no-any-return]
            case Quiet(command=command):
                return hf.Decision.event(WasQuieted(command)).cancel_timer(command)
            case Echoed(command=command, nonce=nonce):
                return hf.Decision.event(WasEchoed(command, nonce))
            case Rang(command=command):
                return hf.Decision.event(HasRung(command))

    def is_terminal(self, state: int) -> bool:
        return False

    async def handle(self, effect: Echo, ctx: hf.EffectContext) -> Input | None:
        job = Job(label=effect.command, takes=0.2, fails=len(effect.command) % 3 % 2)
        done = await perform(job, ctx.workflow_id, effect.command, ctx.attempt)
        return Echoed(ctx.workflow_id, effect.command, done["nonce"])


@hf.projection(Till, name="tills", registry=registry)
async def tills(event: hf.Recorded[Event], tx: hf.Tx) -> None:
    """On SQLite a row for each event, in the database; in memory, which has no tables, a note for each call."""
    world = here()
    world.ledger.note("projected", (event.position, event.workflow_id, event.sequence))
    if world.kind == "sqlite":
        await tx.execute("INSERT INTO projected (till, sequence) VALUES (?, ?)", event.workflow_id, event.sequence)


class Tills(Basis):
    """One instance that is given commands from two sides."""

    def __init__(self, world: Any, number: int) -> None:
        super().__init__(world, number)
        self.puts: dict[str, Put] = {}
        self.quieted: set[str] = set()
        self.acknowledged: set[str] = set()

    async def drive(self) -> None:
        for _ in range(self.dice.randint(1, 6)):
            command = self.label()
            put = Put(self.name, command, effect=self.dice.random() < 0.5, timer=self.dice.random() < 0.4)
            self.puts[command] = put
            inbox = self.dice.random() < 0.4
            for _ in range(self.dice.choice((1, 1, 2))):  # a client that is not sure asks again
                await self.world.ask(lambda engine, p=put, i=inbox: _give(engine, p, p.command, i))  # type: ignore[misc]
            self.acknowledged.add(command)
            if put.timer and self.dice.random() < 0.4:
                await self.pause_a_while(RING_SECONDS)
                self.quieted.add(command)
                quiet = Quiet(self.name, command)
                await self.world.ask(lambda engine, q=quiet: _give(engine, q, f"quiet {q.command}", False))  # type: ignore[misc]
            if self.dice.random() < 0.3:
                await self.pause_a_while(1.0)

    async def open_runs(self, engine: hf.Engine) -> list[str]:
        """An instance does not end; it is where it must be when nothing of it is pending."""
        if not self.acknowledged:
            return []
        snapshot = await engine.snapshot(Till, self.name)
        still = bool(snapshot.effects or snapshot.timers or snapshot.inbox)
        return [snapshot.run_id] if still else []

    async def check(self, engine: hf.Engine) -> None:
        stream = await engine.stream(Till, self.name)
        events = [each for each in stream if not each.system]
        by_kind: dict[type, list[str]] = {}
        times: dict[tuple[str, str], datetime] = {}
        for each in events:
            by_kind.setdefault(type(each.event), []).append(each.event.command)
            times[type(each.event).__name__, each.event.command] = each.at
        for kind, commands in by_kind.items():
            must(len(commands) == len(set(commands)), "G2", f"{self.name}: {kind.__name__} twice among {commands}")
        put = set(by_kind.get(WasPut, ()))
        must(
            self.acknowledged <= put, "G1", f"{self.name}: {sorted(self.acknowledged - put)} were acknowledged and lost"
        )
        echoed = set(by_kind.get(WasEchoed, ()))
        wanted = {command for command, each in self.puts.items() if each.effect}
        must(echoed == wanted, "G3", f"{self.name}: effects of {sorted(wanted)}, answers of {sorted(echoed)}")
        for each in events:
            if isinstance(each.event, WasEchoed):
                self.world.ledger.check_result(each.event.command, each.event.nonce)
        rung = set(by_kind.get(HasRung, ()))
        timed = {command for command, each in self.puts.items() if each.timer}
        must(
            timed - self.quieted <= rung <= timed, "G6", f"{self.name}: timers of {sorted(timed)}, rang {sorted(rung)}"
        )
        for command in rung:
            passed = (times["HasRung", command] - times["WasPut", command]).total_seconds()
            must(passed >= RING_SECONDS - 1e-6, "G6", f"{self.name}: the timer of {command} rang after {passed} s")
        await self._check_projection(engine, len(events))

    async def _check_projection(self, engine: hf.Engine, events: int) -> None:
        """I36: each event in order; in a database just once."""
        given = [each for each in self.world.ledger.notes.get("projected", ()) if each[1] == self.name]
        if self.world.kind == "sqlite":
            async with engine.store.transaction(user=True) as tx:
                rows = await tx.user.fetch("SELECT sequence FROM projected WHERE till = ? ORDER BY rowid", self.name)
            seen = [row[0] for row in rows]
            must(sorted(set(seen)) == seen, "I36", f"{self.name} was projected as {seen}")
            must(len(seen) == events, "I36", f"{events} events of {self.name}, and {len(seen)} were projected")
        else:
            sequences = {each[2] for each in given}
            must(
                len(sequences) == events, "I36", f"{events} events of {self.name}, and {len(sequences)} were projected"
            )


async def _give(engine: hf.Engine, input: Input, command: str, inbox: bool) -> None:
    if inbox:
        await engine.enqueue_input(Till, input, command_id=command)
    else:
        await engine.execute(Till, input, command_id=command)
