"""Rounds of cells, interleaved: the bare database, ours, a peer, ours, a peer, …, so that a noisy minute hits them all.

What was measured is kept after each cell, so that a run that is stopped has said what it knew; a cell that fails or
takes too long is noted and leaves a gap, and nothing else.
"""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import msgspec

from benchmarks import measures
from benchmarks.databases import Databases
from benchmarks.figures import BARE, OURS, Figure, Measure
from benchmarks.own_cells import OWN_CELLS, Values
from benchmarks.peers.adapters import PEERS, cells_of, measure_for
from benchmarks.peers.environments import NoEnvironment
from benchmarks.processes import CellFailed, values_said
from benchmarks.sizes import Sizes
from holdfast.core.errors import StoreUnavailable

LIMITS = {"one_commit": "ONE_COMMIT", "batched": "BATCHED"}
MEASURES = measures.by_key()
OF_QUANTITY: dict[str, Measure] = {}
for _each in MEASURES.values():
    if _each.quantity is not None:
        OF_QUANTITY.setdefault(_each.quantity, _each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured. `here` runs our own cells in this process: quicker, and without a time limit."""

    stores: Sequence[str]
    workloads: Sequence[str]
    peers: Sequence[str]
    rounds: int
    sizes: Sizes
    delay_ms: float = 0.0
    cell_seconds: float = 300.0
    here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A cell that gave no figure."""

    who: str
    workload: str
    store: str
    round: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Who is measured with what; values by the name of a measure, or of a quantity for a peer."""

    who: str
    name: str
    note: str
    measured: Callable[[str, float, Mapping[str, str]], Values]


@dataclass(slots=True)
class Kept:
    """Everything that was measured so far."""

    samples: dict[tuple[str, str, str], dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    bare: dict[tuple[str, str, str], dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    notes: dict[tuple[str, str, str], str] = field(default_factory=dict)  # by store, peer and workload
    failures: list[Failure] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        """The bare database's first, then in the order of measures.py, ours before the others'."""
        made = []
        for (store, name), values in self._bare_by_name().items():
            made.append(Figure(measure=MEASURES[name], store=store, who=BARE, samples=values))
        for (store, who, key), values in sorted(self.samples.items(), key=_place):
            measure = MEASURES.get(key) or measure_for(key, OF_QUANTITY[key], who)
            limit = LIMITS.get(measure.limit or "")
            limits = self.bare.get((store, measure.name, limit), {}) if limit is not None else {}
            note = self.notes.get((store, who, measure.name), "")
            made.append(Figure(measure=measure, store=store, who=who, samples=values, limits=limits, note=note))
        return made

    def _bare_by_name(self) -> dict[tuple[str, str], dict[int, float]]:
        """All of its samples: it is measured once for each workload of each round."""
        found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for (store, _, name), values in self.bare.items():
            known = found[store, name]
            for value in values.values():
                known[len(known) + 1] = value
        return found


def _place(sampled: tuple[tuple[str, str, str], dict[int, float]]) -> tuple[object, ...]:
    store, who, key = sampled[0]
    measure = MEASURES.get(key) or OF_QUANTITY[key]
    first = OF_QUANTITY.get(measure.quantity or "", measure)
    order = list(MEASURES.values())
    return order.index(first), store, who != OURS, order.index(measure), who


def run(plan: Plan, say: Callable[[str], None], save: Callable[[Kept], None]) -> Kept:
    """Measure it all; `save` is called after each cell."""
    kept = Kept()
    open_databases = {store: Databases(store, commit_delay_ms=plan.delay_ms) for store in plan.stores}
    try:
        for databases in open_databases.values():
            databases.__enter__()
        for number in range(1, plan.rounds + 1):
            for store, databases in open_databases.items():
                started = time.perf_counter()
                for workload in plan.workloads:
                    _measure_limits(plan, databases, workload, number, kept, say)
                    for cell in _interleaved(plan, store, workload, number):
                        _measure(plan, databases, workload, number, cell, kept, say)
                        save(kept)
                say(f"{store}: round {number} of {plan.rounds} took {time.perf_counter() - started:.0f} s")
    finally:
        for databases in open_databases.values():
            databases.__exit__()
    return kept


def _interleaved(plan: Plan, store: str, workload: str, number: int) -> Iterator[Cell]:
    """Ours and theirs in turn; in each round in another order, so that none is always first or last."""
    ours = [_own(plan, name) for name, each in OWN_CELLS.items() if each.workload == workload]
    theirs = [
        Cell(who=each.who, name=each.who, note=each.note, measured=each.measured)
        for peer in plan.peers
        for each in cells_of(PEERS[peer], workload, store, plan.sizes.peers_part)
    ]
    draw = random.Random(f"{store} {workload} {number}")
    draw.shuffle(ours)
    draw.shuffle(theirs)
    return (cell for cell in chain.from_iterable(zip_longest(ours, theirs)) if cell is not None)


def _own(plan: Plan, name: str) -> Cell:
    def measured(url: str, seconds: float, extra: Mapping[str, str]) -> Values:
        if plan.here:
            return OWN_CELLS[name].measuring(url, plan.sizes)
        sizes = msgspec.json.encode(plan.sizes).decode()
        command = [sys.executable, "-m", "benchmarks.own_cells", name, url, sizes]
        return values_said(command, seconds=seconds, extra=extra)

    return Cell(who=OURS, name=name, note="", measured=measured)


def _measure_limits(
    plan: Plan, databases: Databases, workload: str, number: int, kept: Kept, say: Callable[[str], None]
) -> None:
    values = _values(plan, databases, workload, number, _own(plan, "limits"), kept, say)
    for name, value in values.items():
        kept.bare[databases.store, workload, name][number] = value


def _measure(
    plan: Plan, databases: Databases, workload: str, number: int, cell: Cell, kept: Kept, say: Callable[[str], None]
) -> None:
    values = _values(plan, databases, workload, number, cell, kept, say)
    if cell.note:
        kept.notes[databases.store, cell.who, workload] = cell.note
    for name, value in values.items():
        if name in MEASURES or name in OF_QUANTITY:
            kept.samples[databases.store, cell.who, name][number] = value


def _values(
    plan: Plan, databases: Databases, workload: str, number: int, cell: Cell, kept: Kept, say: Callable[[str], None]
) -> Values:
    started = time.perf_counter()
    url = None
    try:
        url = databases.fresh_url()
        return cell.measured(url, plan.cell_seconds, databases.client_environment)
    except (CellFailed, NoEnvironment, StoreUnavailable, OSError) as error:
        failure = Failure(who=cell.who, workload=workload, store=databases.store, round=number, reason=str(error))
        kept.failures.append(failure)
        say(f"{databases.store}: {workload} of {cell.name} has no figure: {error}")
        return {}
    finally:
        if time.perf_counter() - started > 20:
            say(f"{databases.store}: {workload} of {cell.name} took {time.perf_counter() - started:.0f} s")
        if url is not None:
            with suppress(StoreUnavailable):  # it goes with its server at the end
                databases.drop(url)
