"""The steps of a state graph's run, as lines: what ran, and which fields changed. Only what is stored is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.documents.times import moment_of

if TYPE_CHECKING:
    from holdfast.core.rows import Run, Work
    from holdfast.core.state_items import Item
    from holdfast.engine import Engine


async def steps_of(engine: Engine, row: Run) -> list[dict[str, Any]]:
    """A line for every checkpoint that is kept: what ran, and which fields it changed; no states."""
    from holdfast.core.queries import RecordedOf
    from holdfast.core.state_items import step_of
    from holdfast.graph_steps import GraphWithoutCode, Step, changed_fields, each_step

    calls = Counter(step_of(call.node) for call in await engine.store.rows(RecordedOf(row.id)))
    lines: list[dict[str, Any]] = []
    before: Step | None = None
    async for step in each_step(engine.store, row, GraphWithoutCode(engine.codecs)):
        known = before is not None and before.row.step == step.row.step - 1
        ran = before.frontier if before is not None and known else ()
        changed = changed_fields(before.fields, step.fields) if before is not None and known else tuple(step.fields)
        lines.append(
            {
                "step": step.row.step,
                "at": moment_of(step.row.at),
                "ran": _ran(ran, step.row.step),
                "labels": list(step.labels),
                "changed": list(changed),
                "calls": calls[step.row.step],
                "state_digest": step.row.digest,
                "key": step.row.key,
            }
        )
        before = step
    return lines


async def steps_without_states(engine: Engine, row: Run, work: Iterable[Work]) -> list[dict[str, Any]]:
    """The same for a process that has no codec for the states: what ran is told by the attempts."""
    from holdfast.core.queries import CheckpointsBetween, RecordedOf
    from holdfast.core.state_items import step_of
    from holdfast.graph_steps import labels_of

    calls = Counter(step_of(call.node) for call in await engine.store.rows(RecordedOf(row.id)))
    ran: dict[int, list[str]] = {}
    for item in work:
        ran.setdefault(step_of(item.node), []).append(item.node)
    return [
        {
            "step": each.step,
            "at": moment_of(each.at),
            "ran": list(dict.fromkeys(ran.get(each.step, ()))),
            "labels": list(labels_of(each)),
            "changed": [],
            "calls": calls[each.step],
            "state_digest": each.digest,
            "key": each.key,
        }
        for each in await engine.store.rows(CheckpointsBetween(row.id, 0, row.base + 1))
    ]


def _ran(items: Iterable[Item], step: int) -> list[str]:
    return [item.address(step) for item in items]
