"""Rows of passes that are over, found by their keys: what a release costs depends on the loop and not on the run (I18).

Control is single, so whatever is stored of a loop's nodes belongs to the passes in which the completed node ran: a
pass gives its rows back before the next one begins, and a loop those of its last pass when it is left. The addresses of
all rows that there may be follow from the graph and from those passes; only how many elements a spread had, and how
many chunks a sequence, is read from rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from holdfast.core.flow_addresses import FlowAddress, address_text, parse_address
from holdfast.core.flow_graph import CHUNK, FlowGraph, FlowNode
from holdfast.core.queries import Attempts, ValuesAt
from holdfast.core.rows import LEASED, NO_SLOT, READY, VALUES, WORK, Run, Value, Work
from holdfast.core.view import View
from holdfast.models.flow_code import FlowCode
from holdfast.models.flow_steps import LENGTH, Release

MOST_ELEMENTS = 1_000_000  # a count above this is damage, and is not counted up to
Place = tuple[str, str, int]
"""Where a value is kept within its run: node, variable, slot."""


def release_rows(view: View, run: Run, completed: str, release: Release, code: FlowCode) -> Run:
    """Delete what is stored of the released passes, and count what was still to be done there as gone."""
    start = parse_address(completed)
    places = [
        (node, address_text(node.id, start.passes[: len(node.loops)]))
        for node in _nodes_around(code.graph, start, release)
    ]
    work: list[Work] = view.find(Attempts(run.id, frozenset(address for _, address in places)))
    values: list[Value] = view.find(ValuesAt(run.id, frozenset(_kept_values(code.graph, start, release))))
    elements, more = _parts(code, start, places, work, values)
    if elements:
        work += view.find(Attempts(run.id, frozenset(elements)))
    if more:
        values += view.find(ValuesAt(run.id, frozenset(more)))
    for item in work:
        view.delete(WORK, item)
    for value in values:
        view.delete(VALUES, value)
    under_way = sum(item.status in (READY, LEASED) for item in work)
    return replace(run, active=run.active - under_way) if under_way else run


def _nodes_around(graph: FlowGraph, start: FlowAddress, release: Release) -> Iterator[FlowNode]:
    """The released nodes that the passes of the completed node are about; of other loops nothing is stored."""
    loops = graph.node(start.node).loops
    for node_id in release.node_ids:
        node = graph.node(node_id)
        if node.loops == loops[: len(node.loops)]:
            yield node


def _kept_values(graph: FlowGraph, start: FlowAddress, release: Release) -> Iterator[Place]:
    """Values that are bound to the released passes: also of inner loops, which may be waiting for their first pass."""
    loops = graph.node(start.node).loops
    for node_id in release.node_ids:
        around = graph.node(node_id).loops
        for variable, depth in graph.inbox_of(node_id).items():
            if depth >= len(release.passes) and around[:depth] == loops[:depth]:
                address = address_text(node_id, start.passes[:depth])
                yield address, variable, LENGTH if variable in graph.sequences else NO_SLOT


def _parts(
    code: FlowCode, start: FlowAddress, places: list[tuple[FlowNode, str]], work: list[Work], values: list[Value]
) -> tuple[list[str], list[Place]]:
    """Elements of spreads; and what they gave to their barriers, and the chunks of sequences."""
    elements: list[str] = []
    more: list[Place] = []
    required = {item.node: min(item.required, MOST_ELEMENTS) for item in work}
    for node, address in places:
        for branch_id in node.branches:
            branch = code.graph.node(branch_id)
            count, numbered = required.get(address, 0), branch.spread or node.shape is not None
            more += [(address, branch_id, index) for index in range(count if numbered else min(count, 1))]
            if numbered:
                passes = start.passes[: len(branch.loops)]
                elements += [address_text(branch_id, passes, index) for index in range(count)]
    for value in values:
        if value.slot == LENGTH:
            chunks = range(0, min(code.load(value.value), MOST_ELEMENTS), CHUNK)
            more += [(value.node, value.variable, first // CHUNK) for first in chunks]
    return elements, more
