"""Streams in the memory store: positions in the order of writes, and what people ask about a workflow's events."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

from msgspec.structs import replace

from holdfast.core.rows import STREAM, Fact, Key, Observation
from holdfast.store.contract import StreamType, Transition

_position = attrgetter("position")


class Positions:
    """The last position given, and the events of each workflow in their order. Pruned ones stay until they are met."""

    def __init__(self) -> None:
        self.last = 0
        self._by_workflow: dict[str, list[Fact]] = {}

    def placed(self, fact: Fact) -> Fact:
        """The event with its position; one that has its place already (its removal was undone) keeps it."""
        if fact.position:
            return fact
        self.last += 1
        fact = replace(fact, position=self.last)
        if not fact.system:
            self._by_workflow.setdefault(fact.workflow, []).append(fact)
        return fact

    def after(self, workflow: str, position: int, stored: Mapping[Key, Fact]) -> Iterator[Fact]:
        """Events of a workflow that are still stored, by position."""
        facts = self._by_workflow.get(workflow, [])
        for place in range(bisect_right(facts, position, key=_position), len(facts)):
            if stored.get(STREAM.key(facts[place])) is facts[place]:
                yield facts[place]


def types_of(facts: Iterable[Fact]) -> list[StreamType]:
    """Every type and version among these events, with the last of each as a sample."""
    counts: Counter[tuple[str, int]] = Counter()
    newest: dict[tuple[str, int], Fact] = {}
    for fact in facts:
        kind = (fact.type, fact.version)
        counts[kind] += 1
        newest[kind] = fact
    return [StreamType(*kind, counts[kind], newest[kind].run, newest[kind].sequence) for kind in sorted(counts)]


def transitions_of(observations: Iterable[Observation]) -> list[Transition]:
    """How often which input that was applied led from where to where."""
    counts = Counter((row.before, row.type, row.after) for row in observations if row.outcome == "applied")
    ordered = sorted(counts, key=lambda each: [(word is not None, word or "") for word in each])
    return [Transition(*each, counts[each]) for each in ordered]
