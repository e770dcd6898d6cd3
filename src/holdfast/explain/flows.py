"""A flow in sentences: what a barrier still gathers, and until when it sleeps."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.flow_addresses import parse_address
from holdfast.core.rows import OPEN_WORK, Work
from holdfast.explain.reason import Reason
from holdfast.explain.situation import Situation
from holdfast.explain.words import clock, listed, span


def sleeps(s: Situation, items: Sequence[Work], node: str) -> Reason:
    """The time is stored, so nobody keeps it in memory."""
    due = items[0].due
    return Reason(f"node {node} sleeps until {clock(due)} (in {span(due - s.now)}): the flow goes on then by itself")


def awaited(s: Situation, barrier: Work) -> str:
    """Which of its branches or elements a barrier still waits for."""
    if s.flow is None:
        return ""
    place = parse_address(barrier.node)
    node = s.flow.by_id.get(place.node)
    branches = frozenset(() if node is None else node.branches)
    open_ones = []
    for item in s.work:
        address = parse_address(item.node)
        if item.status in OPEN_WORK and address.node in branches and address.passes == place.passes:
            open_ones.append(item.node)
    return f": it waits for {listed(open_ones)}" if open_ones else ""
