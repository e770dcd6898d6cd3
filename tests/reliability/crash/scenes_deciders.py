"""Deciders: effects that come back as inputs, an inbox, timers that ring or are cancelled, and a projection."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

import holdfast as hf
from tests.reliability.crash.ledger import Doing, Line, current
from tests.reliability.crash.oracle import Rows, must
from tests.reliability.crash.scenario import Scenario, Scene, placeholders

deciders, projected = hf.Registry(), hf.Registry()
RING_SECONDS = 0.02


class Order(msgspec.Struct, frozen=True):
    shop: str
    number: int


class Charged(msgspec.Struct, frozen=True):
    shop: str
    number: int


class Remind(msgspec.Struct, frozen=True):
    shop: str
    number: int


class Rang(msgspec.Struct, frozen=True):
    shop: str
    number: int


class Forget(msgspec.Struct, frozen=True):
    shop: str
    number: int


class Ordered(msgspec.Struct, frozen=True):
    number: int


class Paid(msgspec.Struct, frozen=True):
    number: int


class Set(msgspec.Struct, frozen=True):
    number: int


class Reminded(msgspec.Struct, frozen=True):
    number: int


class Forgotten(msgspec.Struct, frozen=True):
    number: int


class Charge(msgspec.Struct, frozen=True):
    number: int


Input = Order | Charged | Remind | Rang | Forget
Event = Ordered | Paid | Set | Reminded | Forgotten


class Shop(
    hf.Decider[int, Input, Event, Charge], name="shop", registry=deciders, retry=hf.Retry(attempts=5, base=0.01)
):
    def workflow_id(self, input: Input) -> str:
        return input.shop

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Event) -> int:
        return state + 1

    def decide(self, now: datetime, state: int, input: Input) -> hf.Decision[Event, Charge, Input]:
        match input:
            case Order(number=number):
                return hf.Decision.event(Ordered(number)).with_effect(Charge(number))
            case Charged(number=number):
                return hf.Decision.event(Paid(number))
            case Remind(shop=shop, number=number):
                span = timedelta(seconds=RING_SECONDS if number < 9 else 3600)
                return hf.Decision.event(Set(number)).with_timer_after(span, Rang(shop, number), key=str(number))
            case Rang(number=number):
                return hf.Decision.event(Reminded(number))
            case Forget(number=number):
                return hf.Decision.event(Forgotten(number)).cancel_timer(str(number))

    def is_terminal(self, state: int) -> bool:
        return False

    async def handle(self, effect: Charge, ctx: hf.EffectContext) -> Input | None:
        label = f"charge {effect.number}"
        with Doing(label):
            if effect.number == 2 and not current().has("raised", label):
                raise RuntimeError("once")
        return Charged(ctx.workflow_id, effect.number)


class Till(Shop, name="till", registry=projected):
    """The same, where a projection looks on."""


@hf.projection(Till, name="sums", registry=projected)
async def sums(event: hf.Recorded[Event], tx: hf.Tx) -> None:
    kind = "sqlite" if hasattr(tx.raw, "in_transaction") else "postgresql"
    await tx.execute(
        f"INSERT INTO projected (shop, sequence) VALUES ({placeholders(kind, 2)})",
        event.workflow_id,
        event.sequence,
    )


async def _until_stream_has(scene: Scene, decider: Any, key: str, count: int) -> None:
    """Until all events are decided; what is open then, also elsewhere, settles by itself."""

    async def has_all() -> bool:
        return sum(1 for each in await scene.engine.stream(decider, key) if not each.system) >= count

    await scene.until(has_all)
    await scene.patiently(lambda: scene.engine.settle(timeout=30))


async def _effects(scene: Scene) -> None:
    for number in (1, 2):
        await scene.engine.execute(Shop, Order("effects", number), command_id=f"order {number}")
        scene.ack("execute", "Ordered", number)
    await _until_stream_has(scene, Shop, "effects", 4)


async def _inbox(scene: Scene) -> None:
    for number in (1, 2, 3):
        await scene.engine.enqueue_input(Shop, Order("inbox", number), command_id=f"order {number}")
        scene.ack("execute", "Ordered", number)
    await _until_stream_has(scene, Shop, "inbox", 6)


async def _timers(scene: Scene) -> None:
    for number in (1, 9):
        await scene.engine.execute(Shop, Remind("timers", number), command_id=f"remind {number}")
        scene.ack("execute", "Set", number)
    await scene.engine.execute(Shop, Forget("timers", 9), command_id="forget 9")
    scene.ack("execute", "Forgotten", 9)

    await _until_stream_has(scene, Shop, "timers", 4)


async def _projection(scene: Scene) -> None:
    for number in (1, 2):
        await scene.engine.execute(Till, Order("projection", number), command_id=f"order {number}")
        scene.ack("execute", "Ordered", number)
    await _until_stream_has(scene, Till, "projection", 4)


def _stream(wanted: dict[str, set[int]]) -> Any:
    def check(rows: Rows, lines: list[Line]) -> None:
        found: dict[str, list[int]] = {}
        at: dict[tuple[str, int], int] = {}
        for row in sorted(rows["stream"], key=lambda row: row["sequence"]):
            if not row["system"]:
                data = rows.decoded(row["data"])
                found.setdefault(row["type"], []).append(data["number"])
                at[row["type"], data["number"]] = row["at"]
        for kind, numbers in found.items():
            must(len(set(numbers)) == len(numbers), "G2", f"{kind} was decided twice: {numbers}")
        must(
            {kind: set(numbers) for kind, numbers in found.items()} == wanted,
            "G3",
            f"{found} was decided, not {wanted}",
        )
        for line in lines:
            if line.kind == "ack" and line.facts[0] == "execute":
                _, kind, number = line.facts
                must(number in found.get(kind, ()), "G1", f"{kind} {number} was acknowledged and is not in the stream")
        for number in found.get("Reminded", ()):
            passed = at["Reminded", number] - at["Set", number]
            must(passed >= RING_SECONDS * 1e6, "G6", f"timer {number} rang {passed} us after it was set")

    return check


def _projected_once(rows: Rows, lines: list[Line]) -> None:
    _stream({"Ordered": {1, 2}, "Paid": {1, 2}})(rows, lines)
    seen = [row["sequence"] for row in sorted(rows["projected"], key=lambda row: row["place"])]
    facts = [row["sequence"] for row in sorted(rows["stream"], key=lambda row: row["position"]) if not row["system"]]
    must(seen == facts, "I36", f"the stream is {facts}, and the projection was given {seen}")


def scenarios() -> list[Scenario]:
    def made(name: str, play: Any, **fields: Any) -> Scenario:
        return Scenario(name=name, registry=deciders, play=play, **fields)

    return [
        made(
            "effect routing",
            _effects,
            does={"charge 1": 1, "charge 2": 2},
            check=_stream({"Ordered": {1, 2}, "Paid": {1, 2}}),
        ),
        made(
            "inbox",
            _inbox,
            does={"charge 1": 1, "charge 2": 2, "charge 3": 1},
            check=_stream({"Ordered": {1, 2, 3}, "Paid": {1, 2, 3}}),
        ),
        made("decider timers", _timers, check=_stream({"Set": {1, 9}, "Reminded": {1}, "Forgotten": {9}})),
        Scenario(name="projection", registry=projected, play=_projection, check=_projected_once),
    ]
