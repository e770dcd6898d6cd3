"""Frontier items of a state graph: where each came from, and the order that follows from it alone.

A path hash names the way by which an item was reached, so iterations of a loop differ and two runs of one graph agree
(I39). The order key is its first 8 bytes, as 16 hex digits; deltas merge in that order, whatever finished first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter

import msgspec

from holdfast.core.errors import RunError
from holdfast.core.state_outcomes import Sent, joined

ORDER_KEY_DIGITS = 16
_SIZES = [size.to_bytes(8, "big") for size in range(128)]
_SHARED = 8192  # paths that are remembered: runs of one graph that took the same way have the same


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node that is to run in the next step. `sent` is the part of the state that it was given alone, if any."""

    node: str
    path: str  # sha256 in hex
    parents: tuple[tuple[str, int], ...] = ()  # the nodes and edges that it was reached by; none for an entry
    sent: Sent | None = None

    @property
    def order_key(self) -> str:
        return self.path[:ORDER_KEY_DIGITS]

    def address(self, step: int) -> str:
        """The name of its work: a node runs once in a step, however many edges led to it; each sent item runs once."""
        return f"{self.node}@{step}" if self.sent is None else f"{self.node}@{step}.{self.order_key}"


def step_of(address: str) -> int:
    """The step that an item's work belongs to."""
    number = address.rpartition("@")[2].partition(".")[0]
    if not number.isdecimal():
        raise RunError(
            f"{address!r:.80} is not the address of a graph's work", hint="the row was changed by hand or damaged"
        )
    return int(number)


def node_of(address: str) -> str:
    return address.rpartition("@")[0]


def hash_parts(parts: Iterable[str | bytes]) -> str:
    """sha256 over parts with their lengths, so that no two lists of parts look the same."""
    chunks: list[bytes] = []
    for part in parts:
        data = part.encode() if part.__class__ is str else part
        size = len(data)
        chunks.append(_SIZES[size] if size < 128 else size.to_bytes(8, "big"))
        chunks.append(data)  # type: ignore[arg-type]  # bytes by now
    return hashlib.sha256(b"".join(chunks)).hexdigest()


@lru_cache(_SHARED)
def entry_path(node: str) -> str:
    return hash_parts(("entry", node))


@lru_cache(_SHARED)
def edge_path(parent: str, node: str, edge: int) -> str:
    return hash_parts(("edge", parent, node, str(edge)))


def join_path(node: str, parents: Iterable[tuple[str, int]]) -> str:
    """The path of a node that several edges led to, given the parents' paths and the edges' numbers."""
    flat: list[str] = ["join", node]
    for path, edge in sorted(parents):
        flat += [path, str(edge)]
    return hash_parts(flat)


_path = attrgetter("path")


def in_merge_order(items: Iterable[Item]) -> list[Item]:
    """By order key; ties by the whole path."""
    found = list(items)
    if len(found) > 1:
        found.sort(key=_path)
    return found


def run_seed(run: str) -> int:
    """I43: the same for the whole life of the run."""
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[:8], "big")


def item_seed(run: str, path: str) -> int:
    """I43: of one item's randomness, the same in every attempt."""
    return run_seed(run) ^ int(path[:ORDER_KEY_DIGITS], 16)


def state_digest(fields: Mapping[str, bytes]) -> str:
    """Over canonical JSON, field by field."""
    parts: list[str | bytes] = []
    for name in sorted(fields):
        parts += [name, fields[name]]
    return hash_parts(parts)


def checkpoint_key(run: str, step: int, digest: str, frontier: Iterable[Item]) -> str:
    """I44: what makes a repeated commit the same commit, and another one a different one."""
    parts: list[str | bytes] = [run, str(step), digest]
    for item in frontier:
        sent = item.sent
        parts += [item.node, item.path, b"" if sent is None else joined({name: bytes(sent[name]) for name in sent})]
    return hash_parts(parts)
