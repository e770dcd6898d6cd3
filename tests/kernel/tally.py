"""A decider for the kernel's own tests, without the authoring layer: it counts, and does what an input says."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.decider_operations import EnqueueInput, ExecuteInput
from holdfast.core.ids import instance_id
from holdfast.core.retry import Retry
from holdfast.core.rows import Fact
from holdfast.models.decider_code import Decided, NewEffect, NewEvent, NewTimer, Window

TALLY = "tally"


class Tally:
    """Its state is the number of its events. An input is a JSON object: effects, timers and cancels to ask for."""

    name = TALLY
    queue = "default"
    snapshot_every = 3
    command_retention = 3_600_000_000
    window: Window | None = None
    code = "1"
    retry = Retry(attempts=3)
    state_is_immutable = True

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, fact: Fact) -> int:
        return state + 1

    def decide(self, now: int, state: int, data: bytes, codec: str) -> Decided:
        wish = msgspec.json.decode(data)
        if wish.get("raises"):
            raise ValueError("it was told to")
        events = tuple(NewEvent(type="Counted", data=b"{}", codec="json") for _ in range(wish.get("events", 1)))
        return Decided(
            events=events,
            state=state + len(events),
            effects=tuple(NewEffect(type="Ring", data=b"{}", codec="json") for _ in range(wish.get("effects", 0))),
            cancels=tuple(wish.get("cancels", ())),
            timers=tuple(
                NewTimer(type="Later", data=b"{}", codec="json", due=now + after, key=key)
                for key, after in wish.get("timers", {}).items()
            ),
        )

    def is_terminal(self, state: int) -> bool:
        return state >= 100

    def status(self, state: int) -> str:
        return "low" if state < 10 else "high"

    def decode_input(self, data: bytes, codec: str) -> Any:
        return msgspec.json.decode(data)

    def input_type(self, data: bytes, codec: str) -> str:
        return "Wish"

    def command_of(self, data: bytes, codec: str) -> str | None:
        return None

    def content(self, data: bytes, codec: str) -> str:
        return data.hex()

    def store_state(self, state: int) -> tuple[bytes, str]:
        return msgspec.json.encode(state), "json"

    def load_state(self, data: bytes, codec: str) -> int:
        return msgspec.json.decode(data, type=int)


INSTANCE = instance_id(TALLY, "17")
_WHERE: dict[str, Any] = {"run": INSTANCE, "workflow": TALLY, "key": "17"}


def execute(id: str, command: str | None = None, *, observe: str = "off", **wish: Any) -> ExecuteInput:
    return ExecuteInput(**_WHERE, id=id, command=command, observe=observe, data=msgspec.json.encode(wish))


def enqueue(id: str, command: str | None = None, **wish: Any) -> EnqueueInput:
    return EnqueueInput(**_WHERE, id=id, command=command, data=msgspec.json.encode(wish))
