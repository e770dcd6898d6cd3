"""Where a node says that the run goes on: `hf.Goto`, `hf.Many`, `hf.Send` and `hf.Stop`.

A node that returns one of these takes the place of its own edges. Each may carry the node's delta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.errors import GraphError

__all__ = ["Goto", "Many", "Send", "Stop"]

Delta = Mapping[str, Any]

DELTA_FIX: Final = 'give a dict of the fields that change, such as {"notes": ["one more"]}'


@dataclass(frozen=True, slots=True)
class Goto:
    """Go to this node and to no other, whatever edges there are."""

    node: str
    delta: Delta | None = None

    def __post_init__(self) -> None:
        _check_node(self.node, "Goto")
        _check_delta(self.delta, f"hf.Goto({self.node!r}, …)")


@dataclass(frozen=True, slots=True)
class Send:
    """Run this node once more, with these fields of its own; of those that are not given it sees the merged state."""

    node: str
    state: Any

    def __post_init__(self) -> None:
        _check_node(self.node, "Send")
        if self.state is None or isinstance(self.state, Goto | Send | Many | Stop | str | bytes | int | float | list):
            raise GraphError(
                f"hf.Send({self.node!r}, …) was given a {type(self.state).__name__}, as the state",
                hint='give a dict of fields: hf.Send("fetch", {"url": url})',
            )


@dataclass(frozen=True, slots=True)
class Many:
    """Go to all of these: names of nodes, `Goto` and `Send`. An empty list leads nowhere."""

    targets: Sequence[str | Goto | Send]
    delta: Delta | None = None

    def __post_init__(self) -> None:
        if isinstance(self.targets, str) or not isinstance(self.targets, Sequence):
            raise GraphError(
                f"hf.Many was given {self.targets!r:.80}, a {type(self.targets).__name__}",
                hint='give a list: hf.Many(["research", "verify"])',
            )
        for target in self.targets:
            if not isinstance(target, str | Goto | Send):
                raise GraphError(
                    f"hf.Many was given {target!r:.80}, a {type(target).__name__}, as one of its targets",
                    hint='give names of nodes, hf.Goto("a", delta) or hf.Send("a", state)',
                )
            if isinstance(target, str):
                _check_node(target, "Many")
        object.__setattr__(self, "targets", tuple(self.targets))
        _check_delta(self.delta, "hf.Many(…)")


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run when this step's deltas are merged, whatever other nodes would lead to."""

    delta: Delta | None = None

    def __post_init__(self) -> None:
        _check_delta(self.delta, "hf.Stop(…)")


def _check_node(node: object, what: str) -> None:
    if isinstance(node, str) and node:
        return
    name = getattr(node, "__name__", None)
    shown = f"the function {name}" if name is not None else f"{node!r:.80}, a {type(node).__name__},"
    raise GraphError(
        f"hf.{what} was given {shown} as the node", hint=f"give the node's name: hf.{what}({name or 'write'!r}, …)"
    )


def _check_delta(delta: object, what: str) -> None:
    if delta is not None and not isinstance(delta, Mapping):
        raise GraphError(f"{what} was given a {type(delta).__name__}, as its delta", hint=DELTA_FIX)
