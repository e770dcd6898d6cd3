"""Where a state graph's run stands: the step under way, what was not let in of it, and what its nodes ask people.

Read from committed rows. The graph's code adds its limits, where this process has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.errors import HoldfastError, PayloadRefused
from holdfast.core.queries import CheckpointsOf, OpenWork, RecordedBy
from holdfast.core.rows import Checkpoint, Recorded, Run, Work
from holdfast.graph_steps import GraphWithoutCode
from holdfast.models.state_code import GRAPH
from holdfast.models.state_graph import asks_person, waits_for_room
from holdfast.models.state_memory import frontier_of
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.runtime.recorded_calls import CallCoding, redaction
from holdfast.store.contract import Store

QUESTIONS_READ = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a node asks a person, and since when."""

    payload: Any
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The step under way. The limits are 0 where the graph's code is not known."""

    step: int
    waiting: int = 0
    max_concurrent: int = 0
    queue_depth: int = 0
    questions: Mapping[str, Question] = field(default_factory=dict)


async def standing_of(store: Store, run: Run, definitions: RegistryDefinitions) -> Standing | None:
    """None for runs of other models."""
    if run.model != GRAPH:
        return None
    if run.ended:
        return Standing(step=run.base)
    reader = GraphWithoutCode(definitions.codecs)
    latest: list[Checkpoint] = await store.rows(CheckpointsOf(run.id, run.base + 1, 1))
    try:
        code = definitions.state_graph(run.workflow)
    except HoldfastError:  # something is wrong with it: the rest can still be told
        code = None
    work: list[Work] = await store.rows(OpenWork(run.id))
    try:
        kept = max(0, len(frontier_of(latest[0], reader)) - run.due) if latest else 0
    except PayloadRefused:  # written with a codec that this process does not have
        kept = 0
    return Standing(
        step=run.base + 1,
        waiting=kept + sum(map(waits_for_room, work)),
        max_concurrent=0 if code is None else code.max_concurrent,
        queue_depth=0 if code is None else code.queue_depth,
        questions=await _questions(store, run, definitions, work),
    )


async def _questions(store: Store, run: Run, definitions: RegistryDefinitions, work: list[Work]) -> dict[str, Question]:
    coding = CallCoding(definitions.codecs, 0, redaction())
    found: dict[str, Question] = {}
    for item in [item for item in work if asks_person(item)][:QUESTIONS_READ]:
        row: Recorded
        for row in await store.rows(RecordedBy(run.id, item.node)):
            if row.kind == "interrupt" and row.response is None:
                try:
                    payload = coding.unseal(row.request)
                except PayloadRefused:
                    payload = "<a question that this process cannot read>"
                found[item.node] = Question(payload=payload, since=row.at)
    return found
