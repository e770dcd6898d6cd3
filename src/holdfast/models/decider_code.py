"""What the decider machine needs of an author's code: pure functions over encoded events and inputs.

The machine works on rows; the code behind this protocol decodes them, calls the author's `evolve` and `decide`, and
encodes what they return. Nothing here touches a store, a clock or another run.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from holdfast.core.retry import Retry
from holdfast.core.rows import Fact


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that a decision appends."""

    type: str
    data: bytes
    codec: str
    version: int = 1


class NewEffect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A side effect that a decision asks for."""

    type: str
    data: bytes
    codec: str
    queue: str | None = None
    timeout: int | None = None  # microseconds


class NewTimer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An input that a decision wants to be given later; `due` in microseconds of the database's clock."""

    type: str
    data: bytes
    codec: str
    due: int
    key: str | None = None


class Decided(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An author's decision, encoded; there is at least one event (I35)."""

    events: tuple[NewEvent, ...]
    state: Any  # after those events, each as it reads when it is decoded again
    effects: tuple[NewEffect, ...] = ()
    cancels: tuple[str, ...] = ()  # keys of timers
    timers: tuple[NewTimer, ...] = ()


class Window(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Equal inputs within this window are taken for one: the last `last` inputs, or `seconds`, whichever is given."""

    last: int | None = None
    seconds: float | None = None


class DeciderCode(Protocol):
    """One decider, as the machine sees it."""

    name: str
    queue: str
    snapshot_every: int  # events between two snapshots; 0: none are made
    window: Window | None
    command_retention: int  # microseconds for which a command id is remembered
    retry: Retry  # of effects and timers
    state_is_immutable: bool  # if not, a remembered state is copied before anybody's code gets it

    @property
    def code(self) -> str:
        """Digest of what folds the state: a snapshot made by other code is not used (I38)."""

    def initial(self) -> Any: ...

    def evolve(self, state: Any, fact: Fact) -> Any:
        """The state after a stored event. Undecodable: an error that names type, key, sequence and field (I37)."""

    def decide(self, now: int, state: Any, data: bytes, codec: str) -> Decided:
        """What follows from an input; what the author's code raises comes through as it is."""

    def is_terminal(self, state: Any) -> bool: ...

    def status(self, state: Any) -> str:
        """The author's word for where the instance stands; for people and observed transitions."""

    def decode_input(self, data: bytes, codec: str) -> Any:
        """The input; PayloadRefused if this code cannot read it."""

    def input_type(self, data: bytes, codec: str) -> str:
        """The class name of an encoded input."""

    def command_of(self, data: bytes, codec: str) -> str | None:
        """The command id that an input carries itself (`@hf.idempotent`), if its type has one."""

    def content(self, data: bytes, codec: str) -> str:
        """A digest that is equal for equal inputs, whatever their bytes: a codec may write them anew every time."""

    def store_state(self, state: Any) -> tuple[bytes, str] | None:
        """The state as a snapshot keeps it, with its codec; None if it cannot be encoded."""

    def load_state(self, data: bytes, codec: str) -> Any:
        """The state that a snapshot keeps; raises if this code cannot read it."""
