"""Going through a state graph's run step by step, from what is stored alone: no code of the graph is needed.

A long run has more states than fit into memory together, so they are handed out one at a time, each made from the one
before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.authoring.state_fields import canonical
from holdfast.core.codec import Codecs, unlabelled
from holdfast.core.errors import RunError, UsageError
from holdfast.core.queries import CheckpointsBetween
from holdfast.core.rows import Checkpoint, Run
from holdfast.core.state_items import Item
from holdfast.core.state_outcomes import Fields, Sent, split, with_sent
from holdfast.core.state_patch import patched
from holdfast.models.state_code import GRAPH, Unsealing
from holdfast.models.state_memory import frontier_of

if TYPE_CHECKING:
    from holdfast.store.contract import Store

PAGE = 200  # steps that are read at once


class GraphWithoutCode:
    """A graph of which only runs are known: their states are plain values, as JSON has them."""

    max_concurrent = 0
    queue_depth = 0

    def __init__(self, codecs: Codecs) -> None:
        self.codecs = codecs

    def unseal(self, stored: bytes) -> bytes:
        """Canonical JSON, whatever codec it was written with."""
        written = unlabelled(stored)
        return canonical(written.data, written.codec, self.codecs)

    def state_for(self, fields: Fields, sent: Sent | None = None) -> dict[str, Any]:
        return plain_state(with_sent(fields, sent))


class Step(NamedTuple):
    """A checkpoint with its state put together, field by field, and what runs next."""

    row: Checkpoint
    fields: Fields
    frontier: tuple[Item, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return labels_of(self.row)


def labels_of(row: Checkpoint) -> tuple[str, ...]:
    """Those of the nodes that ran in the step."""
    return tuple(label for label in (row.label or "").split("\n") if label)


def plain_state(fields: Fields) -> dict[str, Any]:
    """The values of the fields as JSON has them."""
    return {name: msgspec.json.decode(value) for name, value in fields.items()}


def changed_fields(before: Fields, after: Fields) -> tuple[str, ...]:
    """The names of the fields that are not what they were."""
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


async def each_step(store: Store, run: Run, code: Unsealing) -> AsyncIterator[Step]:
    """Every checkpoint that is kept, oldest first."""
    if run.model != GRAPH:
        raise UsageError(
            f"run {run.id} of {run.workflow} is a {run.model} and has no checkpoints", hint="state graphs have them"
        )
    if run.base < 0 or not await store.rows(CheckpointsBetween(run.id, run.base, run.base + 1)):
        raise RunError(
            f"run {run.id} of {run.workflow} says that it is at step {run.base}, and there is no such checkpoint",
            hint="its rows were changed by hand or damaged: cancel the run",
        )
    fields: Mapping[str, bytes] = {}
    for first in range(0, run.base + 1, PAGE):
        row: Checkpoint
        for row in await store.rows(CheckpointsBetween(run.id, first, min(first + PAGE, run.base + 1))):
            state = code.unseal(row.state)
            # One that was stored as a change follows the one before it at once: those between are never pruned.
            fields = split(state) if row.whole else patched(fields, state)
            yield Step(row, fields, frontier_of(row, code))
