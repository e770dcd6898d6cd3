"""Which run an instance of a decider is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.ids import instance_id
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from holdfast.authoring.decider_code import BoundDecider


async def run_of_instance(store: Store, code: BoundDecider, key: str) -> str:
    """The id of an instance's run. One that was created under an earlier name of its decider keeps its id."""
    names = code.definition.cls.__holdfast__.names
    own_id = instance_id(code.name, key)
    if len(names) == 1:
        return own_id
    found = {run.id for run in await store.runs([instance_id(name, key) for name in names])}
    return next((known for name in names if (known := instance_id(name, key)) in found), own_id)
