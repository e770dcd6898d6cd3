"""Code that kills its process, and what runs beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.operations import Handed
from holdfast.core.rows import COMPLETED, DEAD, LOST, Run, Work
from holdfast.runtime.lost_often import LostOften
from holdfast.store.contract import NO_LOSSES_LIMIT
from tests.endtoend.programs import app, journal
from tests.worker.support import HURRY, Processes, assert_sound, engine_on, statuses, until, work_of

LOST_LIMIT = 4


def items(*losses: int) -> list[Handed]:
    works = [Work(run=f"r{n}", node="n", attempt=1, workflow="w", losses=lost) for n, lost in enumerate(losses)]
    return [Handed(work, Run(id=work.run, workflow="w", model="dag")) for work in works]


async def test_i6_what_runs_beside_a_culprit_is_not_buried_with_it(
    shared_url: str, tmp_path: Path, processes: Processes
) -> None:
    """I6: only work that dies alone as well reaches `lost_limit`; the innocent complete."""
    paths = [str(tmp_path / f"journal-{number}") for number in range(3)]
    settings = {**HURRY, "lease_seconds": 30.0, "lost_limit": LOST_LIMIT}
    async with engine_on(shared_url, app.registry) as engine:
        culprit = await engine.start(app.kill_own_worker, str(tmp_path / "culprit"))
        innocents = [await engine.start(app.hold, path) for path in paths]
        for _ in range(LOST_LIMIT):
            victim = processes.serve(shared_url, settings=settings)
            await until(lambda worker=victim: worker.poll() is not None, "the culprit kills its worker")  # type: ignore[misc]
        for path in paths:
            Path(f"{path}.go").touch()
        processes.serve(shared_url, settings=settings)
        for innocent in innocents:
            await innocent.result(timeout=15)
            attempts = await work_of(engine, innocent.id)
            assert attempts[-1].status == COMPLETED
            assert attempts[-1].losses == LOST_LIMIT // 2, "beside the culprit until both were suspects, and no longer"
        assert await statuses(engine, culprit.id) == [LOST] * (LOST_LIMIT - 1) + [DEAD]
        assert len(journal.begun(tmp_path / "culprit")) == LOST_LIMIT
        await assert_sound(engine)


@pytest.mark.parametrize(
    ("lost_limit", "losses", "run", "given_back"),
    [
        (10, (0, 4, 4, 1), (0, 4, 4, 1), ()),
        (10, (0, 5, 4, 9, 5, 0), (0, 5, 4, 0), (9, 5)),
        (3, (1, 0, 1), (1, 0), (1,)),
        (1, (0, 0), (0, 0), ()),
    ],
)
def test_i6_one_item_that_was_lost_often_is_kept_and_everything_else_as_it_was(
    lost_limit: int, losses: tuple[int, ...], run: tuple[int, ...], given_back: tuple[int, ...]
) -> None:
    """I6: from half of `lost_limit` on; the order of a claim stays."""
    kept, too_many = LostOften(lost_limit).sort(items(*losses))
    assert tuple(item.work.losses for item in kept) == run
    assert tuple(item.work.losses for item in too_many) == given_back


def test_i6_while_one_runs_no_second_is_claimed_and_a_crowd_of_them_is_not_claimed_in_vain() -> None:
    often = LostOften(10)
    suspects = items(5, 6, 7)
    assert often.losses_below([items(4)[0].work]) == NO_LOSSES_LIMIT
    assert often.losses_below([item.work for item in items(0, 5)]) == 5
    assert often.limit(100, NO_LOSSES_LIMIT) == 100
    often.sort(suspects)
    assert often.limit(100, NO_LOSSES_LIMIT) == 1, "the others of the crowd would only be given back"
    assert often.limit(100, 5) == 100, "none of the crowd can come, so as much as there is room for"
    often.sort(items(0))
    assert often.limit(100, NO_LOSSES_LIMIT) == 100
