"""Two runs of a state graph compared, state by state: where they part, and in which fields.

A fork and its source, a run before a change of the code and one after it. Only what is stored is read, so the values
are plain ones, and no code is needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.errors import UsageError
from holdfast.core.rows import Run
from holdfast.graph_steps import GraphWithoutCode, Step, changed_fields, each_step

if TYPE_CHECKING:
    from holdfast.engine import Engine

VERSION: Final = 1
MOST_STEPS: Final = 1_000  # whose values are kept in a report; all of them are counted


class Missing:
    """What stands for a field that one of the two runs has not written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<no value>"


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDifference:
    """A step after which the two runs are not the same.

    `fields` has the values of both for those that differ. `frontier` has the nodes that follow, where those differ. A
    step that only one of the runs has taken is `only` "first" or "second".
    """

    step: int
    fields: Mapping[str, tuple[Any, Any]]
    frontier: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    only: str | None = None

    def document(self) -> dict[str, Any]:
        both = {name: _sides(first, second) for name, (first, second) in self.fields.items()}
        frontier = None if self.frontier is None else _sides(list(self.frontier[0]), list(self.frontier[1]))
        return {"step": self.step, "fields": both, "frontier": frontier, "only": self.only}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiff:
    """How two runs differ. `differences` begins with the first step that does; of very many it has the first 1,000."""

    first: str
    second: str
    compared: int
    differing: int
    differences: tuple[StepDifference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether every step that both have kept is the same, and neither has more."""
        return not self.differing

    @property
    def first_step(self) -> int | None:
        """The first step after which they are not the same."""
        return self.differences[0].step if self.differences else None

    def document(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "version": VERSION,
            "first": self.first,
            "second": self.second,
            "same": self.same,
            "compared": self.compared,
            "differing": self.differing,
            "first_step": self.first_step,
            "differences": [each.document() for each in self.differences],
        }


async def diff(engine: Engine, first: Run, second: Run) -> RunDiff:
    """Compare the runs from the first step that both have on: a fork begins where it was taken."""
    if first.id == second.id:
        raise UsageError(f"run {first.id} was to be compared with itself", hint="name two runs")
    reader = GraphWithoutCode(engine.codecs)
    ours, theirs = (each_step(engine.store, run, reader) for run in (first, second))
    compared = differing = 0
    found: list[StepDifference] = []
    async for one, other in _side_by_side(ours, theirs):
        if one is not None and other is not None:
            compared += 1
            difference = _difference(one, other)
        else:
            difference = _alone(one, "first", second) or _alone(other, "second", first)
        if difference is not None:
            differing += 1
            if len(found) < MOST_STEPS:
                found.append(difference)
    if not compared:
        raise UsageError(
            f"runs {first.id} and {second.id} have no step in common",
            hint="a graph with keep_checkpoints keeps the latest only",
        )
    return RunDiff(first=first.id, second=second.id, compared=compared, differing=differing, differences=tuple(found))


async def _side_by_side(
    ours: AsyncIterator[Step], theirs: AsyncIterator[Step]
) -> AsyncIterator[tuple[Step | None, Step | None]]:
    one, other = await anext(ours, None), await anext(theirs, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.row.step < other.row.step):
            yield one, None
            one = await anext(ours, None)
        elif one is None or other.row.step < one.row.step:
            yield None, other
            other = await anext(theirs, None)
        else:
            yield one, other
            one, other = await anext(ours, None), await anext(theirs, None)


def _alone(step: Step | None, whose: str, lacking: Run) -> StepDifference | None:
    """A step that the other run has not taken. What it has pruned, or a fork has not inherited, says nothing."""
    if step is None or step.row.step <= lacking.base:
        return None
    return StepDifference(step=step.row.step, fields={}, only=whose)


def _difference(one: Step, other: Step) -> StepDifference | None:
    nodes = tuple(_nodes(step) for step in (one, other))
    frontier = None if nodes[0] == nodes[1] else (nodes[0], nodes[1])
    changed = () if one.row.digest == other.row.digest else changed_fields(one.fields, other.fields)
    if frontier is None and not changed:
        return None
    fields = {name: (_value(one.fields.get(name)), _value(other.fields.get(name))) for name in changed}
    return StepDifference(step=one.row.step, fields=fields, frontier=frontier)


def _nodes(step: Step) -> tuple[str, ...]:
    """The nodes that follow. Paths are not compared: two ways to the same nodes and states are the same to a reader."""
    return tuple(sorted(item.node for item in step.frontier))


def _value(field: bytes | None) -> Any:
    return MISSING if field is None else msgspec.json.decode(field)


def _sides(first: Any, second: Any) -> dict[str, Any]:
    """Both values; a field that is not there is left out, since null is a value."""
    sides = {"first": first, "second": second}
    return {side: value for side, value in sides.items() if value is not MISSING}
