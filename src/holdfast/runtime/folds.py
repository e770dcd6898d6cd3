"""Streams that are too long to be folded inside a decision are folded here, page by page, and then remembered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.coordinator import Coordinator
from holdfast.core.operations import Operation
from holdfast.core.queries import SnapshotOf, StreamAfter
from holdfast.core.rows import Fact, Run, Snapshot
from holdfast.models.flow_code import FlowNotLoaded
from holdfast.models.folding import Folded, FoldFirst, broken_stream, fold, restore
from holdfast.runtime.definitions import RegistryDefinitions
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.models.decider_code import DeciderCode

PAGE = 1_000


async def submit(
    operation: Operation, *, coordinator: Coordinator, store: Store, definitions: RegistryDefinitions
) -> Any:
    """Submit an operation that may give an instance an input; a long stream is folded first."""
    while True:
        try:
            return await coordinator.submit(operation)
        except FlowNotLoaded as late:
            await definitions.load_flow(store, late.workflow, late.signature)
        except FoldFirst as late:
            await fold_committed(late.run, store, definitions)


async def fold_committed(run_id: str, store: Store, definitions: RegistryDefinitions) -> None:
    """Fold what is committed of an instance, and remember it."""
    from holdfast.models.decider import code_of  # with all that decides: whoever opens no store needs none of it

    for run in await store.runs([run_id]):
        code = code_of(definitions, run.workflow)
        folded = await folded_now(store, run, code, definitions)
        if folded.sequence < run.base:  # it would be asked for again and again
            raise broken_stream(run, folded.sequence, 0)
        definitions.folding.learn(run.id, folded)


async def folded_now(store: Store, run: Run, code: DeciderCode, definitions: RegistryDefinitions) -> Folded:
    """The state of an instance as it is committed, from the nearest that is remembered or stored."""
    nearest = definitions.folding.remembered(run, code)
    if nearest is None:
        nearest = await _from_snapshot(store, run, code)
    return await folded_up_to(store, run, code, run.base, nearest)


async def folded_up_to(store: Store, run: Run, code: DeciderCode, sequence: int, start: Folded | None = None) -> Folded:
    """The state after this event of an instance."""
    folded = start or Folded(code.initial(), 0, run.created, code.code)
    while folded.sequence < sequence:
        facts: list[Fact] = await store.rows(StreamAfter(run.id, folded.sequence, PAGE))
        facts = [fact for fact in facts if fact.sequence <= sequence]
        if not facts:
            break
        folded = fold(folded, facts, code)
        await asyncio.sleep(0)  # others go on in between
    return folded


async def _from_snapshot(store: Store, run: Run, code: DeciderCode) -> Folded | None:
    snapshots: list[Snapshot] = await store.rows(SnapshotOf(run.id))
    for snapshot in snapshots:
        restored = restore(snapshot.state, snapshot.codec, snapshot.code, code)
        if restored is not None and snapshot.sequence <= run.base:
            return Folded(restored[0], snapshot.sequence, run.created, code.code, snapshot.sequence)
    return None
