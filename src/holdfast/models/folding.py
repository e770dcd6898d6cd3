"""States of instances, folded from their streams and remembered, so that an input costs no read of the stream.

A state is remembered under the length of the stream that it was folded from. Streams only grow, and what is committed
never changes, so such a state stays true for ever; a longer stream is folded on from there. Within a batch nothing
is committed yet: a state that a decision has just made is valid only as long as the very row of its last event is
the one in the View. A decision that was undone leaves a state whose row is nowhere, and it is not used (K7).
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.decider_operations import DECIDER
from holdfast.core.errors import HoldfastError, RunError
from holdfast.core.queries import StreamAfter
from holdfast.core.rows import RUNS, SNAPSHOTS, STREAM, Fact, Run
from holdfast.core.view import Changes, NotLoaded, View

if TYPE_CHECKING:
    from holdfast.models.decider_code import DeciderCode

FOLD_LIMIT = 1_000  # events that are folded inside a decision; more are folded before it
REMEMBERED = 20_000  # states


class Folded(msgspec.Struct, frozen=True):
    """A state, and the length of the stream it came from."""

    state: Any
    sequence: int
    created: int = 0  # when the run was created: a pruned one's successor has the same id
    code: str = ""
    kept: int = 0  # the length at which the state was last kept in a snapshot, as far as this process knows


class FoldFirst(HoldfastError):
    """A stream is too long to be folded inside a decision: fold it outside, then submit again. Users never see it."""

    default_hint = "this is caught by whoever executes an input"

    def __init__(self, run: str) -> None:
        super().__init__(f"the stream of run {run} is folded first")
        self.run = run


class Folding:
    """Remembered states. Only a memory: it may be emptied at any moment."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._committed: OrderedDict[str, Folded] = OrderedDict()
        self._pending: dict[str, tuple[Fact, Folded]] = {}
        self._limit = limit

    def state(self, view: View, run: Run, code: DeciderCode) -> Folded:
        """The state of an instance as the View has it."""
        pending = self._pending.get(run.id)
        if pending is not None and pending[1].sequence == run.base and _in_view(view, pending[0]):
            return pending[1]
        folded = self.remembered(run, code)
        if folded is None:
            folded = self._from_snapshot(view, run, code)
        missing = run.base - folded.sequence
        if missing == 0:
            return folded
        if missing > FOLD_LIMIT:
            raise FoldFirst(run.id)
        query = StreamAfter(run.id, folded.sequence, FOLD_LIMIT)
        facts: list[Fact] = view.find(query)
        if len(facts) != missing:
            # Rows of a stream are not kept once they are folded, so a short answer is a memory that has gaps.
            raise NotLoaded(query) if view.optimistic else broken_stream(run, folded.sequence, len(facts))
        return fold(folded, facts, code)

    def remembered(self, run: Run, code: DeciderCode) -> Folded | None:
        folded = self._committed.get(run.id)
        if folded is None or folded.created != run.created or folded.sequence > run.base or folded.code != code.code:
            return None
        self._committed.move_to_end(run.id)
        return folded

    def _from_snapshot(self, view: View, run: Run, code: DeciderCode) -> Folded:
        if run.base == 0:
            return Folded(code.initial(), 0, run.created, code.code)
        snapshot = view.get(SNAPSHOTS, (run.id,))
        restored = None if snapshot is None else restore(snapshot.state, snapshot.codec, snapshot.code, code)
        if snapshot is None or restored is None or snapshot.sequence > run.base:
            return Folded(code.initial(), 0, run.created, code.code)
        return Folded(restored[0], snapshot.sequence, run.created, code.code, snapshot.sequence)

    def note(self, run: Run, last: Fact, folded: Folded) -> None:
        """A decision has brought an instance here. It counts once it is committed."""
        self._pending[run.id] = (last, folded)
        if len(self._pending) > self._limit:  # decisions that came to nothing leave theirs behind
            del self._pending[next(iter(self._pending))]

    def learn(self, run: str, folded: Folded) -> None:
        """A committed stream was folded up to here."""
        self._committed[run] = folded
        self._committed.move_to_end(run)
        while len(self._committed) > self._limit:
            self._committed.popitem(last=False)

    def absorb(self, changes: Changes) -> None:
        """A batch was committed: what was noted for it is true now."""
        facts = changes.inserts.get(STREAM)
        if not facts:
            return
        last = {fact.run: fact for fact in facts}  # sorted by sequence
        for run in changes.rows(RUNS):
            if run.model != DECIDER:
                continue
            pending = self._pending.pop(run.id, None)
            if run.ended:
                self._committed.pop(run.id, None)
            elif pending is not None and pending[0] is last.get(run.id):
                self.learn(run.id, pending[1])

    def forget(self, run: str) -> None:
        self._committed.pop(run, None)

    def clear(self) -> None:
        self._committed.clear()
        self._pending.clear()


def fold(folded: Folded, facts: list[Fact], code: DeciderCode) -> Folded:
    """Go on from a state with the events that followed it; records of the engine's own are passed over (I33)."""
    state = own(folded.state, code)
    for fact in facts:
        if not fact.system:
            state = code.evolve(state, fact)
    return msgspec.structs.replace(folded, state=state, sequence=facts[-1].sequence) if facts else folded


def broken_stream(run: Run, after: int, found: int) -> RunError:
    """The store itself has not as many events as the instance says: whatever is decided now would be wrong."""
    return RunError(
        f"the stream of {run.workflow} {run.key!r} (run {run.id}) is broken: of the {run.base - after} events after "
        f"number {after}, {found} are there",
        hint="rows of the table stream were deleted or restored apart from the others; put them back from a backup, "
        "and see with `holdfast doctor` whether this is the only one",
    )


def own(state: Any, code: DeciderCode) -> Any:
    """The state for somebody's code to work with: a copy, if that code could change it in place."""
    return state if code.state_is_immutable else copy.deepcopy(state)


def restore(data: bytes, codec: str, made_by: str, code: DeciderCode) -> tuple[Any] | None:
    """The state that a snapshot holds, in a tuple, as a state may be None; None if this code cannot use it (I38)."""
    if made_by != code.code:
        return None
    try:
        return (code.load_state(data, codec),)
    except Exception:  # whatever is wrong with it, the stream is the truth
        return None


def _in_view(view: View, fact: Fact) -> bool:
    try:
        return view.get(STREAM, (fact.run, fact.sequence)) is fact
    except NotLoaded:
        return False


__all__ = ["FOLD_LIMIT", "FoldFirst", "Folded", "Folding", "broken_stream", "fold", "own", "restore"]
