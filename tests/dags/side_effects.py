"""Where nodes leave what they did, and how a test looks at it: tables, and lists in this process."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any

import asyncpg

import holdfast as hf


async def execute_sql(url: str, statement: str) -> None:
    """A statement of the user's own, or one behind our back; it must suit both dialects."""
    await query_sql(url, statement)


async def query_sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    """All rows of a statement, as the user's other programs would read them."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            rows = db.execute(statement).fetchall()
        db.close()
        return rows
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


class Stage:
    """What nodes did, in order, and what the test makes of them meanwhile."""

    def __init__(self) -> None:
        self.registry = hf.Registry()
        self.did: list[str] = []
        self.broken: dict[str, BaseException] = {}

    def play(self, name: str | None = None) -> None:
        """What a node's body calls: written down, and raises what the test wants it to raise."""
        name = name or hf.current().node.name
        self.did.append(name)
        if name in self.broken:
            raise self.broken[name]


def edges_of(graph: hf.Graph) -> set[tuple[str, str]]:
    """Every edge, from parent to child, by the names that people read."""
    return {(graph.by_id[parent].name, node.name) for node in graph.nodes for parent in node.depends_on}


def drawn_edges(mermaid: str) -> set[tuple[str, str]]:
    """The edges of a Mermaid drawing, by the names that it shows."""
    names: dict[str, str] = {}
    edges: list[tuple[str, str]] = []
    for line in (line.strip() for line in mermaid.splitlines()):
        if " --> " in line:
            parent, child = line.split(" --> ")
            edges.append((parent, child))
        elif '["' in line:
            symbol, _, label = line.partition('["')
            names[symbol] = label.partition('"]')[0].partition("<br/>")[0]
    return {(names[parent], names[child]) for parent, child in edges}


def assert_in_order(did: Sequence[str], graph: hf.Graph) -> None:
    """Every node was run exactly once, after everything it depends on."""
    assert sorted(did) == sorted(node.name for node in graph.nodes)
    position = {name: number for number, name in enumerate(did)}
    early = [(parent, child) for parent, child in edges_of(graph) if position[parent] > position[child]]
    assert not early, f"ran before what they depend on: {early}"


def ancestry_by_hand(node: str, attempt: int, *parents: str) -> str:
    """I28 as it is written down, computed without our own code: what the hash of this attempt must be."""
    return hashed(node, str(attempt), hashed(*sorted(parents)))


def hashed(*parts: str) -> str:
    """sha256 over parts, each after its length in eight bytes."""
    data = b"".join(len(part.encode()).to_bytes(8, "big") + part.encode() for part in parts)
    return hashlib.sha256(data).hexdigest()
