"""What a graph has become after its latest step, remembered, so that a step costs no read.

A checkpoint never changes, and what is remembered is found by the run and by a mark that covers the checkpoint's step,
state, frontier and time. So what was remembered for a commit that came to nothing is never taken for true.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from holdfast.core.errors import RunError
from holdfast.core.queries import StateChain
from holdfast.core.rows import Checkpoint, Run
from holdfast.core.state_items import Item
from holdfast.core.state_outcomes import Fields, split
from holdfast.core.state_patch import patched
from holdfast.core.stored import UNREADABLE, read_stored, unreadable
from holdfast.core.view import NotLoaded, View
from holdfast.models.state_code import GraphCode, Unsealing

LIMIT_BYTES = 64 * 1024 * 1024
FEW_ITEMS = 8
_MARK_DIGITS = 15  # of the key: what fits a signed 64-bit integer of either database
_MARK_BITS = (1 << 4 * _MARK_DIGITS) - 1

_items = msgspec.json.Decoder(tuple[Item, ...])


class Totals(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a run has done so far: the seed's SchedulerMetrics."""

    steps: int = 0
    nodes: int = 0
    retries: int = 0
    blocks: int = 0  # items that found the frontier full
    deepest: int = 0  # the most items that waited in the frontier
    latency: int = 0  # microseconds of all steps together
    last: int = 0  # microseconds of the latest step


_totals = msgspec.json.Decoder(Totals)


class Known(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint with its state put together."""

    step: int
    fields: Fields
    digest: str
    frontier: tuple[Item, ...]
    at: int
    totals: Totals = Totals()
    whole_bytes: int = 0  # of the last checkpoint that was stored whole,
    patches: int = 0  # and how many patches of how many bytes followed
    patch_bytes: int = 0
    before: int = 0  # the mark of the step before, if that was remembered too

    @property
    def size(self) -> int:
        return 500 + sum(map(len, self.fields.values())) + 300 * len(self.frontier)


def mark_of(key: str, at: int) -> int:
    """What the run's row holds of its latest checkpoint: covers its step, state and frontier, and when it was made."""
    return int(key[:_MARK_DIGITS], 16) ^ (at & _MARK_BITS)


def frontier_of(checkpoint: Checkpoint, code: Unsealing) -> tuple[Item, ...]:
    return read_stored(_items.decode, code.unseal(checkpoint.frontier), f"the frontier of {_place(checkpoint)}")


def totals_of(checkpoint: Checkpoint) -> Totals:
    try:  # with every step: what is wrong is put into words when something is
        return _totals.decode(checkpoint.totals)
    except UNREADABLE:
        return read_stored(_totals.decode, checkpoint.totals, f"what was counted at {_place(checkpoint)}")


def _place(checkpoint: Checkpoint) -> str:
    return f"checkpoint {checkpoint.step} of run {checkpoint.run}"


def put_together(chain: Sequence[Checkpoint], code: Unsealing) -> Known:
    """The state after the last of these: they begin with a whole one, or hold one."""
    first = max((number for number, row in enumerate(chain) if row.whole), default=-1)
    if first < 0:
        raise unreadable("the state of a graph", LookupError("no checkpoint of it was stored whole"))
    whole = code.unseal(chain[first].state)
    fields: Fields = split(whole)
    patch_bytes = 0
    for row in chain[first + 1 :]:
        patch = code.unseal(row.state)
        fields = patched(fields, patch)
        patch_bytes += len(patch)
    last = chain[-1]
    return Known(
        step=last.step,
        fields=fields,
        digest=last.digest,
        frontier=frontier_of(last, code),
        at=last.at,
        totals=totals_of(last),
        whole_bytes=len(whole),
        patches=len(chain) - first - 1,
        patch_bytes=patch_bytes,
    )


class StateMemory:
    """Remembered states. Only a memory: it may be emptied at any moment."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._known: OrderedDict[tuple[str, int], Known] = OrderedDict()
        self._limit = limit_bytes
        self._bytes = 0
        self._places: tuple[tuple[str, int, str], dict[str, int]] = (("", -1, ""), {})

    def known(self, view: View, run: Run, code: GraphCode) -> Known:
        """The latest checkpoint of a run as the View has it."""
        found = self.remembered(run)
        if found is not None:
            return found
        query = StateChain(run.id, run.base)
        chain: list[Checkpoint] = view.find(query)
        if not chain or chain[-1].step != run.base:
            if view.optimistic:  # checkpoints are not kept with the rows of a run, so that an empty answer says nothing
                raise NotLoaded(query)
            raise missing_checkpoint(run)
        found = put_together(chain, code)
        self.learn(run.id, run.token, found)
        return found

    def remembered(self, run: Run) -> Known | None:
        found = self._known.get((run.id, run.token))
        if found is not None:
            self._known.move_to_end((run.id, run.token))
        return found

    def item(self, run: str, known: Known, address: str) -> Item:
        """The frontier item of this address."""
        if len(known.frontier) <= FEW_ITEMS:
            for item in known.frontier:
                if item.address(known.step + 1) == address:
                    return item
        elif (place := self._places_of(run, known).get(address)) is not None:
            return known.frontier[place]
        raise RunError(
            f"{address} is not in the frontier of step {known.step} of run {run}", hint="rows were changed by hand"
        )

    def _places_of(self, run: str, known: Known) -> dict[str, int]:
        """Where each address of a wide step is: asked for by each of its items."""
        if self._places[0] != (run, known.step, known.digest):
            step = known.step + 1
            places = {item.address(step): place for place, item in enumerate(known.frontier)}
            self._places = ((run, known.step, known.digest), places)
        return self._places[1]

    def learn(self, run: str, mark: int, known: Known) -> None:
        replaced = self._known.pop((run, mark), None)
        self._bytes += known.size - (0 if replaced is None else replaced.size)
        self._known[(run, mark)] = known
        while self._bytes > self._limit and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.size

    def forget(self, run: str, mark: int) -> None:
        """The run has gone on from there."""
        gone = self._known.pop((run, mark), None)
        self._bytes -= 0 if gone is None else gone.size


def missing_checkpoint(run: Run) -> RunError:
    return RunError(
        f"checkpoint {run.base} of run {run.id} of graph {run.workflow} is missing",
        hint="rows were deleted by hand; restore a backup, or fork the run from an earlier step",
    )
