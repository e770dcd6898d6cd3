"""What each peer can express, and how much of it is asked for.

Everything is as the peer's own guide writes it, with its defaults for durability. Counts are ours where that takes
minutes at most, and always where a wall time is told (W3, W5). A smaller count divides a peer's fixed costs (a poll, a
server's first answer) among fewer steps, which makes it look slower than it is; the figure says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import Measure
from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.peers import environments
from benchmarks.processes import first_words, values_said
from benchmarks.stored import stored_bytes

HERE = Path(__file__).parent
FULL_COUNTS = {"W1": 100, "W2": 2000, "W3": 1000, "W4": 300, "W5": 1000, "W6": 1000}
FIRST_WORDS = "Hello, world!"

Values = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another engine. `counts` are those of FULL_COUNTS that it is asked for."""

    name: str
    package: str
    stores: tuple[str, ...]
    counts: Mapping[str, int]
    program: str
    imports: str
    note: str = ""
    graphs: bool = False
    on_sqlite: Mapping[str, int] = field(default_factory=dict)  # other counts there; 0 leaves a workload out

    @property
    def version(self) -> str:
        return environments.version_of(self.name, self.package)


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            name="dbos",
            package="dbos",
            stores=(SQLITE, POSTGRES),
            counts={"W1": 100, "W2": 2000, "W3": 1000, "W4": 100, "W5": 1000, "W6": 1000},
            program="dbos_program.py",
            imports="import dbos; dbos.DBOS",
            # 2,000 at once ended in a timeout of its pool of connections when this was tried.
            on_sqlite={"W2": 200, "W5": 0},
            note="on SQLite with the newer one of pysqlite3-binary and its default journal",
        ),
        Peer(
            name="langgraph",
            package="langgraph",
            stores=(SQLITE, POSTGRES),
            counts={"W1": 100, "W2": 2000, "W3": 1000, "W4": 100, "W5": 1000},
            program="functional_program.py",
            imports="from langgraph.func import entrypoint; import langgraph.checkpoint.{driver}",
            note="runs in the caller's process; its default does not wait for checkpoints",
            graphs=True,
        ),
        Peer(
            name="procrastinate",
            package="procrastinate",
            stores=(POSTGRES,),
            counts={"W1": 30, "W2": 2000, "W3": 1000, "W4": 100, "W6": 1000},
            program="procrastinate_program.py",
            imports="import procrastinate; procrastinate.PsycopgConnector",
            note="a queue: chains of jobs, no results; W1 is its median step",
        ),
        Peer(
            name="absurd",
            package="absurd-sdk",
            stores=(POSTGRES,),
            counts={"W1": 100, "W2": 2000, "W3": 1000, "W4": 50, "W5": 1000, "W6": 1000},
            program="absurd_program.py",
            imports="import absurd_sdk; absurd_sdk.AsyncAbsurd",
            note="100 tasks at once; W1 between its first and last step",
        ),
        Peer(
            name="prefect",
            package="prefect",
            stores=(SQLITE, POSTGRES),
            counts={"W1": 100, "W2": 100, "W3": 1000, "W4": 10},
            program="prefect_program.py",
            imports="from prefect import flow, task",
            on_sqlite={"W2": 10},
            note="a server of its own in another process; a flow takes a second, however little there is to do",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCell:
    """One workload of one peer: `measured(url, seconds, environment)` gives values by quantity."""

    who: str
    workload: str
    note: str
    measured: Callable[[str, float, Mapping[str, str]], Values]


def cells_of(peer: Peer, workload: str, store: str, part: int) -> list[PeerCell]:
    """What this peer can be measured with here; nothing when it cannot express the workload."""
    if store not in peer.stores:
        return []
    if workload == "W9":
        return [PeerCell(who=peer.name, workload=workload, note=peer.note, measured=_startup(peer, store))]
    if workload == "W8" and peer.graphs:
        return _graph_cells(peer, part)
    counts = {**peer.counts, **peer.on_sqlite} if store == SQLITE else peer.counts
    if not counts.get(workload):
        return []
    count = max(2, counts[workload] // part)
    return [
        PeerCell(
            who=peer.name,
            workload=workload,
            note=_note(peer, workload, count),
            measured=_workload(peer, workload, count),
        )
    ]


def measure_for(quantity: str, of_ours: Measure, peer: str) -> Measure:
    """How a peer's figure of a quantity is shown: in the words and the unit of ours."""
    workload, _, what = quantity.partition(" ")
    return Measure(
        name=workload,
        what=f"{peer}: {what.replace('_', ' ')}",
        unit=of_ours.unit,
        quantity=quantity,
        more_is_better=of_ours.more_is_better,
        limit=of_ours.limit,
        commits=of_ours.commits,
        steps=of_ours.steps,
    )


def _note(peer: Peer, workload: str, count: int) -> str:
    parts = [peer.note] if peer.note else []
    if workload in FULL_COUNTS and count != FULL_COUNTS[workload]:
        parts.append(f"{count} instead of {FULL_COUNTS[workload]}")
    return "; ".join(parts)


def _workload(peer: Peer, workload: str, count: int) -> Callable[[str, float, Mapping[str, str]], Values]:
    def measured(url: str, seconds: float, extra: Mapping[str, str]) -> Values:
        command = [str(environments.python_of(peer.name)), str(HERE / peer.program), url, workload, str(count)]
        values = values_said(command, seconds=seconds, extra=extra)
        return {f"{workload} {name}": value for name, value in values.items()}

    return measured


def _startup(peer: Peer, store: str) -> Callable[[str, float, Mapping[str, str]], Values]:
    def measured(url: str, seconds: float, extra: Mapping[str, str]) -> Values:
        python = str(environments.python_of(peer.name))
        imports = peer.imports.format(driver="sqlite" if store == SQLITE else "postgres")
        timed = (
            f"import time; t = time.perf_counter(); {imports}; "
            "import json; print(json.dumps({'values': {'ms': (time.perf_counter() - t) * 1000}}))"
        )
        import_ms = values_said([python, "-c", timed], seconds=seconds)["ms"]
        command = [python, str(HERE / peer.program), url, "first", "1"]
        first_seconds, megabytes = first_words(command, FIRST_WORDS, seconds=seconds, extra=extra)
        return {"W9 import_ms": import_ms, "W9 first_seconds": first_seconds, "W9 megabytes": megabytes}

    return measured


def _graph_cells(peer: Peer, part: int) -> list[PeerCell]:
    """State graphs, when a step waits for its checkpoint and when it does not; with the better of its interfaces."""

    def program(url: str, seconds: float, extra: Mapping[str, str], *words: str) -> float:
        command = [str(environments.python_of(peer.name)), str(HERE / "langgraph_program.py"), url, *words]
        return values_said(command, seconds=seconds, extra=extra)["ms"]

    size = str(max(2, 100 // part))

    def timed(workload: str, durability: str) -> Callable[[str, float, Mapping[str, str]], Values]:
        def measured(url: str, seconds: float, extra: Mapping[str, str]) -> Values:
            best = min(program(url, seconds, extra, workload, durability, way, size) for way in ("sync", "async"))
            return {f"W8 {workload}_ms": best}

        return measured

    def stored(url: str, seconds: float, extra: Mapping[str, str]) -> Values:
        program(url, seconds, extra, "setup", "sync", "sync", "0")
        before = stored_bytes(url)
        program(url, seconds, extra, "talk", "sync", "sync", str(max(2, 1000 // part)))
        return {"W8 stored_mb": (stored_bytes(url) - before) / 1e6}

    made = [
        PeerCell(who=who, workload="W8", note=note, measured=timed(workload, durability))
        for who, durability, note in (
            (peer.name, "async", "its default: steps do not wait for their checkpoints"),
            (f"{peer.name}, waiting", "sync", 'durability="sync"'),
        )
        for workload in ("chain", "wide")
    ]
    return [*made, PeerCell(who=peer.name, workload="W8", note="", measured=stored)]
