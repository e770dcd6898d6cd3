"""Which call of a function its run failed with: two rows tell, whatever the length of its history."""

from __future__ import annotations

import msgspec

from holdfast.core.function_operations import ENDED_RUN, FAILURE, TURN, entry_of
from holdfast.core.queries import Attempts, HistoryPage
from holdfast.core.rows import COMPLETED, History, Run
from holdfast.core.stored import stored_number
from holdfast.models.delivery import RunEnd
from holdfast.store.contract import Store

_decode_end = msgspec.msgpack.Decoder(RunEnd).decode


async def failed_call(store: Store, run: Run) -> str | None:
    """The name of the call or the child that ended the run; None if its own code did, or did something about it."""
    turns = await store.rows(Attempts(run.id, frozenset({TURN})))
    last = max(turns, key=lambda turn: turn.attempt, default=None)
    if last is None or last.parents is None:
        return None
    cause = stored_number(last.parents, f"column parents of {last.node}")
    rows: list[History] = await store.rows(HistoryPage(run.id, cause - 1, 1))
    return None if not rows or rows[0].sequence != cause else _name_of_failure(rows[0])


def _name_of_failure(row: History) -> str | None:
    entry = entry_of(row.data)
    if row.kind == FAILURE:
        return entry.name
    # A wait for the end of a run raises nothing, however that run ended.
    waits = row.kind != ENDED_RUN or entry.name.startswith("wait_for(")
    return None if waits or _decode_end(entry.value or b"").status == COMPLETED else entry.name
