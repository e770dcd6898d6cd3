"""Two processes that do something to the same run at the same instant: it happens once, and nothing is half-written."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import holdfast as hf
from holdfast.core.codec import encode_error
from holdfast.core.operations import RECORDED, CompleteWork, FailWork, Offer, StartRun
from holdfast.core.queries import AllWork
from holdfast.core.rows import FAILED, LEASED, PAUSED, READY, RUNNING, Run, Work
from tests.dags.race_jobs import PARENTS, Family, LargeFamily, registry
from tests.dags.racer import MEETING_BYTES, Deed, Race
from tests.dags.soundness import contradictions
from tests.worker.support import ROOT, assert_sound, child_environment

MEETINGS = 1000
pytestmark = pytest.mark.timeout(240)


class Pair:
    """The two processes."""

    def __init__(self, url: str, folder: Path) -> None:
        meeting = folder / "meeting"
        meeting.write_bytes(bytes(MEETING_BYTES))
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.dags.racer", str(side), url, str(meeting)],
                cwd=ROOT,
                env=child_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for side in (0, 1)
        ]

    def race(self, runs: list[str], *deeds: str, remembered: tuple[bool, bool] = (False, False)) -> list[list[Deed]]:
        """What each side did in each run: pairs, in the order of the runs."""
        order = msgspec.json.encode(Race(runs=runs, deeds=(deeds[0], deeds[-1]), remembered=remembered)) + b"\n"
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(order)
            process.stdin.flush()
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            answers.append(msgspec.json.decode(process.stdout.readline(), type=list[Deed]))
        return [list(pair) for pair in zip(*answers, strict=True)]

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@contextmanager
def racing(url: str, folder: Path) -> Iterator[Pair]:
    pair = Pair(url, folder)
    try:
        yield pair
    finally:
        pair.stop()


# -- what is prepared


def engine_on(url: str) -> hf.Engine:
    return hf.Engine(url, registry=registry, notify=False)


async def families(engine: hf.Engine, count: int, dag: type[hf.Dag] = Family) -> list[str]:
    """Runs whose parents are leased, with token 1; an aunt is done already."""
    graph = dag.compiled_dag()
    offer = Offer(worker="the test", room=len(graph.entries), queues=("default",))
    starts = [
        StartRun(
            run=engine.system.ids.new(),
            workflow=dag.__name__,
            model="dag",
            on_failure="pause",
            signature=graph.signature,
            offer=offer,
        )
        for _ in range(count)
    ]
    runs = [answer.run for answer in await engine.coordinator.submit_batch(starts)]
    if "aunt" in graph.by_id:
        done = [CompleteWork(run=run, node="aunt", attempt=1, token=1, result=b"1") for run in runs]
        assert {answer.verdict for answer in await engine.coordinator.submit_batch(done)} == {RECORDED}
    return runs


async def failed_children(engine: hf.Engine, count: int) -> list[str]:
    """Runs whose parents are done and whose child has given up: they are paused."""
    runs = await families(engine, count)
    offer = Offer(worker="the test", room=1, queues=("default",))
    reports = [
        CompleteWork(run=run, node=node, attempt=1, token=1, result=b"1", offer=offer)
        for run in runs
        for node in PARENTS
    ]
    await engine.coordinator.submit_batch(reports)
    error = encode_error(ValueError("as planned"))
    failures = [FailWork(run=run, node="child", attempt=1, token=1, error=error) for run in runs]
    answers = await engine.coordinator.submit_batch(failures)
    assert {answer.run_status for answer in answers} == {PAUSED}
    return runs


async def rows_of(engine: hf.Engine, run: str) -> tuple[Run, dict[str, list[Work]]]:
    """The run and its attempts by node, checked for contradictions, also in its history."""
    (row,) = await engine.store.runs([run])
    work: list[Work] = await engine.store.rows(AllWork(run))
    graph = await engine.get(run).dag()
    assert not (wrong := contradictions(row, work, graph)), wrong
    assert [entry.sequence for entry in await engine.store.history(run)] == list(range(1, row.entries + 1))
    assert await engine.get(run).verify_ancestry()
    attempts: dict[str, list[Work]] = {}
    for item in work:
        attempts.setdefault(item.node, []).append(item)
    return row, attempts


def at_the_same_time(pairs: list[list[Deed]]) -> int:
    """How many of these were under way at once: a race that nobody ran shows nothing. A busy machine runs few."""
    return sum(max(one.began, other.began) < min(one.ended, other.ended) for one, other in pairs)


# -- races


async def test_i17_two_parents_that_finish_at_once_in_two_processes_make_their_child_ready_once(
    shared_url: str, tmp_path: Path
) -> None:
    """1,000 times: with neither, either and both of them deciding from memory; the child's row is there, or is not."""
    async with engine_on(shared_url) as engine:
        small, large = [await families(engine, MEETINGS // 2, dag) for dag in (Family, LargeFamily)]
        runs = [run for two in zip(small, large, strict=True) for run in two]
        pairs: list[list[Deed]] = []
        with racing(shared_url, tmp_path) as pair:
            for number, remembered in enumerate(itertools.product([False, True], repeat=2)):
                share = runs[number * MEETINGS // 4 : (number + 1) * MEETINGS // 4]
                pairs += await asyncio.to_thread(
                    pair.race, share, "complete_own_parent", remembered=(remembered[0], remembered[1])
                )
        assert at_the_same_time(pairs) > MEETINGS // 10
        rows = {row.id: row for row in await engine.store.runs(runs)}
        for run, both in zip(runs, pairs, strict=True):
            assert [deed.said for deed in both] == ["recorded", "recorded"]
            assert sum(deed.handed for deed in both) == 1, "the child went to both, or to nobody"
            work = {item.node: item for item in await engine.store.rows(AllWork(run))}
            child = work["child"]
            assert (child.completed, child.status, child.token) == (child.required, LEASED, 1)
            assert len(work) == child.required + 1
            row = rows[run]
            assert (row.status, row.remaining, row.active) == (RUNNING, 1, 1)
        await rows_of(engine, runs[-1])
        await assert_sound(engine)


async def test_i29_a_reattempt_that_two_ask_for_at_once_is_one_attempt(shared_url: str, tmp_path: Path) -> None:
    """K8: the second is told that it is done already; the history knows of one."""
    async with engine_on(shared_url) as engine:
        runs = await failed_children(engine, 100)
        with racing(shared_url, tmp_path) as pair:
            pairs = await asyncio.to_thread(pair.race, runs, "reattempt")
        assert at_the_same_time(pairs) > len(runs) // 10
        for run, both in zip(runs, pairs, strict=True):
            assert [deed.said for deed in both] == ["None", "None"]
            row, attempts = await rows_of(engine, run)
            assert [item.status for item in attempts["child"]] == [FAILED, READY]
            assert (row.status, row.active, row.gave_up) == (RUNNING, 1, 0)
            asked = [entry for entry in await engine.store.history(run) if entry.kind == "reattempted"]
            assert len(asked) == 1
        await assert_sound(engine)


async def test_i31_of_two_imports_at_once_one_wins_and_the_other_is_told(shared_url: str, tmp_path: Path) -> None:
    """Both edited the same export. The graph is that of the winner, whole; the loser is told to export again."""
    async with engine_on(shared_url) as engine:
        runs = await families(engine, 100)
        with racing(shared_url, tmp_path) as pair:
            pairs = await asyncio.to_thread(pair.race, runs, "import_edited")
        assert at_the_same_time(pairs) > len(runs) // 10
        winners: Counter[int] = Counter()
        for run, both in zip(runs, pairs, strict=True):
            (winner,) = [side for side, deed in enumerate(both) if deed.said == "None"]
            winners[winner] += 1
            loser = both[1 - winner]
            assert loser.said.startswith("DagError: the graph of run"), loser
            assert "was changed since this document was exported" in loser.said
            row, _ = await rows_of(engine, run)
            names = {node.name for node in (await engine.get(run).dag()).nodes}
            assert names == {*PARENTS, "child", f"added_by_{winner}"}
            assert row.remaining == 4
            imported = [entry for entry in await engine.store.history(run) if entry.kind == "graph imported"]
            assert len(imported) == 1
        await assert_sound(engine)


DEEDS = ("pause", "resume", "skip", "retry", "cancel", "reattempt", "import_edited")
CROSSINGS = list(itertools.combinations_with_replacement(DEEDS, 2))


async def test_k7_operators_whose_wishes_cross_leave_nothing_half_written(shared_url: str, tmp_path: Path) -> None:
    """Every pair of wishes, on a run that a failure paused: each is done or refused as a whole, in some order."""
    async with engine_on(shared_url) as engine:
        runs = await failed_children(engine, 3 * len(CROSSINGS))
        with racing(shared_url, tmp_path) as pair:
            for number, (one, other) in enumerate(CROSSINGS):
                await asyncio.to_thread(pair.race, runs[3 * number : 3 * number + 3], one, other)
        for run in runs:
            row, attempts = await rows_of(engine, run)
            assert len(attempts["child"]) <= 2, f"{run}: two wishes made {len(attempts['child']) - 1} attempts"
            assert row.gave_up + row.active + (row.remaining == 0) + row.ended >= 1
        await assert_sound(engine)
