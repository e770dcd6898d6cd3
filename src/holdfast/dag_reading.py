"""A run's graph and its proof of order, read for people: nothing here is ever used for a decision."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.graph import Graph
from holdfast.core.ids import ancestry_hash, parents_hash
from holdfast.core.rows import SATISFIED, Work

DOCUMENT_VERSION = 1


class AncestryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether every recorded attempt followed the very attempts of its parents that it claims to follow (I28)."""

    ok: bool
    checked: int
    first_break: str | None = None

    def __bool__(self) -> bool:
        return self.ok


def dag_document(graph: Graph) -> dict[str, Any]:
    """The graph as plain data: structure only, no state."""
    return {
        "version": DOCUMENT_VERSION,
        "signature": graph.signature,
        "nodes": {
            node.id: {
                "name": node.name,
                "job": node.job,
                "method": node.method,
                "args": None if node.args is None else msgspec.json.decode(node.args or b"null"),
                "depends_on": list(node.depends_on),
                "policy": node.policy.describe(),
            }
            for node in graph.nodes
        },
    }


def check_ancestry(graph: Graph, work: list[Work]) -> AncestryReport:
    """Recompute the hashes of a run in topological order; the first attempt whose hash is another is named."""
    satisfied = {item.node: item.ancestry or "" for item in work if item.status in SATISFIED}
    checked = 0
    for node_id in graph.topological_order:
        parents = graph.by_id[node_id].depends_on
        if any(parent not in satisfied for parent in parents):
            continue  # blocked, or the graph changed: nothing to compare with
        expected = parents_hash([satisfied[parent] for parent in parents])
        for item in work:
            if item.node != node_id or item.ancestry is None:
                continue
            checked += 1
            if item.parents != expected:
                return _broken(checked, item, "follows other attempts of its parents than those that are recorded")
            if item.ancestry != ancestry_hash(node_id, item.attempt, expected):
                return _broken(checked, item, "does not have the hash of what it is")
    return AncestryReport(ok=True, checked=checked)


def _broken(checked: int, item: Work, what: str) -> AncestryReport:
    return AncestryReport(
        ok=False, checked=checked, first_break=f"attempt {item.attempt} of node {item.node} (run {item.run}) {what}"
    )
