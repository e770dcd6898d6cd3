"""A join whose predecessors are finished at the same instant by several processes is enqueued once (I17, I20, G3)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import holdfast as hf
from holdfast.core.operations import RECORDED, REPEATED, CompleteWork
from holdfast.core.queries import AllWork, ValuesOf
from holdfast.core.rows import BARRIER, COMPLETED, LEASED, NODE, Work
from holdfast.store.contract import ClaimRequest
from tests.flows.join_racer import PASSES, WIDTH, Deed, Share, joined, joined_in_a_loop, registry
from tests.worker.support import PATIENT, ROOT, assert_sound, child_environment

SIDES = 4
SQUARES = sum(number * number for number in range(WIDTH))
pytestmark = pytest.mark.timeout(240)


class Racers:
    """The processes."""

    def __init__(self, url: str, folder: Path) -> None:
        meeting = folder / "meeting"
        meeting.write_bytes(bytes(8 * SIDES))
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.flows.join_racer", str(side), str(SIDES), url, str(meeting)],
                cwd=ROOT,
                env=child_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for side in range(SIDES)
        ]

    def race(self, shares: list[Share]) -> list[Deed]:
        """What each of them did with its share."""
        for process, share in zip(self._processes, shares, strict=True):
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(share) + b"\n")
            process.stdin.flush()
        deeds = []
        for process in self._processes:
            assert process.stdout is not None
            deeds.append(msgspec.json.decode(process.stdout.readline(), type=Deed))
        return deeds

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@contextmanager
def racing(url: str, folder: Path) -> Iterator[Racers]:
    racers = Racers(url, folder)
    try:
        yield racers
    finally:
        racers.stop()


async def claimed(engine: hf.Engine, count: int) -> list[Work]:
    """Everything that is ready, leased to nobody who would do anything about it."""
    names = engine.definitions
    request = ClaimRequest(
        worker="the test",
        queue="default",
        limit=count,
        workflows=names.known_workflows(),
        actions=names.known_actions(),
    )
    found = [handed.work for handed in await engine.store.claim(request)]
    assert len(found) == count
    return found


def shares_of(work: list[Work], *, overlap: int) -> list[Share]:
    """A quarter for each; `overlap` elements of each quarter are reported by the next side too."""
    elements = [(item.node, item.attempt, item.token, int(item.node.rpartition("[")[2][:-1]) ** 2) for item in work]
    size = len(elements) // SIDES
    both = elements + elements[:overlap]
    return [
        Share(run=work[0].run, elements=both[side * size : (side + 1) * size + overlap], one_by_one=side == SIDES - 1)
        for side in range(SIDES)
    ]


async def assert_joined_once(engine: hf.Engine, run: str, deeds: list[Deed], *, width: int, overlap: int) -> Work:
    """The barrier as it is: ready once, for one of them, with every element counted once."""
    verdicts = sum((Counter(deed.verdicts) for deed in deeds), Counter[str]())
    assert verdicts == Counter({RECORDED: width, REPEATED: SIDES * overlap})
    latest_start, first_end = max(deed.began for deed in deeds), min(deed.ended for deed in deeds)
    assert latest_start < first_end, "they did not act at the same time, and this shows nothing"
    work: list[Work] = await engine.store.rows(AllWork(run))
    (barrier,) = [item for item in work if item.kind == BARRIER]
    elements = [item for item in work if item.kind == NODE]
    assert Counter(item.status for item in elements) == {COMPLETED: width}
    assert len({item.node for item in elements}) == width
    assert (barrier.completed, barrier.required, barrier.attempt, barrier.status, barrier.token) == (
        *(width, width, 1),
        *(LEASED, 1),
    )
    assert [node for deed in deeds for node in deed.handed] == [barrier.node], "handed to nobody, or to several"
    gathered = [value for value in await engine.store.rows(ValuesOf(run)) if value.node == barrier.node]
    assert len([value for value in gathered if value.slot >= 0]) == width
    (row,) = await engine.store.runs([run])
    assert row.active == 1
    return barrier


@pytest.mark.parametrize("passes", [1, PASSES], ids=["once", "in a loop"])
async def test_i17_i20_g3_a_join_of_a_thousand_finished_at_once_by_four_processes_is_enqueued_once(
    postgres_url: str, tmp_path: Path, passes: int
) -> None:
    """I17, I20, K8: some elements are reported by two of them. The run ends once, with every element's value."""
    overlap = 20
    async with hf.Engine(postgres_url, registry=registry, **PATIENT) as engine:
        if passes == 1:
            handle = await engine.start(joined, WIDTH)
        else:
            handle = await engine.start(joined_in_a_loop, WIDTH, passes)
        with racing(postgres_url, tmp_path) as racers:
            for number in range(passes):
                shares = shares_of(await claimed(engine, WIDTH), overlap=overlap)
                deeds = await asyncio.to_thread(racers.race, shares)
                barrier = await assert_joined_once(engine, handle.id, deeds, width=WIDTH, overlap=overlap)
                if number < passes - 1:
                    await settle(engine, barrier)
        async with engine.worker():  # its racer is gone, and so the barrier is taken over from it
            assert await handle.result(timeout=30) == SQUARES * passes
        (row,) = await engine.store.runs([handle.id])
        assert (row.status, row.active) == (COMPLETED, 0)
        ended = [item for item in await engine.store.rows(AllWork(handle.id)) if item.status == COMPLETED]
        assert len(ended) == WIDTH + 2, "the elements of the last pass, their barrier and the output"
        await assert_sound(engine)


async def settle(engine: hf.Engine, barrier: Work) -> None:
    """Go on after the barrier, as whoever was handed it would."""
    answer = await engine.coordinator.submit(
        CompleteWork(run=barrier.run, node=barrier.node, attempt=barrier.attempt, token=barrier.token)
    )
    assert answer.verdict == RECORDED
