"""Code that was changed under open runs: what differs is named, nothing drifts, and nothing is lost.

A *deploy* is a registry of its own with another version of the workflow `order`. The old version takes a run up to a
wait; then the new one is asked with `engine.check()`, told of the event, and, where that fails, replaced again.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.errors import NonDeterminism
from holdfast.core.function_operations import TakeTurn
from tests.worker.support import assert_sound, engine_on, until, work_of


@dataclass
class Shop:
    """The actions that every version has, in a registry of its own, and what was really called."""

    journal: list[str]
    registry: hf.Registry = field(default_factory=hf.Registry)

    def __post_init__(self) -> None:
        self.reserve = self.action("reserve")
        self.charge = self.action("charge")
        self.ship = self.action("ship")
        self.weigh = self.action("weigh")

    def action(self, name: str, **options: Any) -> hf.Action[..., Any]:
        async def call(order: int, cents: int = 0) -> str:
            self.journal.append(name)
            return f"{name} {order}"

        return hf.action(name=name, registry=self.registry, **options)(call)


Version = Callable[[Shop], Any]


def deploy(version: Version, journal: list[str]) -> hf.Registry:
    """The registry of a process that has this version of the code."""
    shop = Shop(journal)
    hf.workflow(name="order", registry=shop.registry)(version(shop))
    return shop.registry


def as_it_was(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.reserve(number)
        await shop.charge(number, 100)
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


# --- what breaks -------------------------------------------------------------------------------------------------


def renamed(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.weigh(number)  # differs
        await shop.charge(number, 100)
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


def reordered(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.charge(number, 100)  # differs
        await shop.reserve(number)
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


def removed(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.reserve(number)
        await hf.wait_for("paid")  # differs
        return str(await shop.ship(number))

    return order


def added_before(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.reserve(number)
        await shop.weigh(number)  # differs
        await shop.charge(number, 100)
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


def added_where_it_waits(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.reserve(number)
        await shop.charge(number, 100)
        await shop.weigh(number)  # differs
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


def other_arguments(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.reserve(number)
        await shop.charge(number, 200)  # differs
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


def other_event(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.reserve(number)
        await shop.charge(number, 100)
        await hf.wait_for(hf.any_of("paid", hf.after(days=2)))  # differs
        return str(await shop.ship(number))

    return order


def wait_removed(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.reserve(number)
        await shop.charge(number, 100)
        return "done"

    return order


def emptied(shop: Shop) -> Any:
    async def order(number: int) -> str:
        return "done"

    return order


def in_another_branch(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await asyncio.gather(shop.reserve(number), shop.charge(number, 100))  # differs
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


# What each says, to the check before and to the run afterwards.
BREAKS = {
    renamed: r"at #1: another call: expected reserve\(\w{8}…\), found weigh\(\w{8}…\), at ",
    reordered: r"at #1: another call: expected reserve\(\w{8}…\), found charge\(\w{8}…\), at ",
    removed: r"at #2: another call: expected charge\(\w{8}…\), found wait_for\(paid\), at ",
    added_before: r"at #2: another call: expected charge\(\w{8}…\), found weigh\(\w{8}…\), at ",
    added_where_it_waits: r"at #3: .*expected wait_for\(paid\),.* found weigh",
    other_arguments: r"at #2: the same call of charge with other arguments: expected \w{8}…, found \w{8}…, at ",
    other_event: r"at #3: .*expected wait_for\(paid\),.* found wait_for\(after\(2 days, 0:00:00\) \| paid\), at ",
    wait_removed: r"at #3: expected wait_for\(paid\),.* the function has ended without asking for it",
    emptied: r"at #1: expected reserve\(\w{8}…\), the function has ended without asking for it",
    in_another_branch: r"at #1: expected reserve\(\w{8}…\), found only reserve\(\w{8}…\) as \w+#1 at .*; charge",
}


async def waiting_run(url: str, journal: list[str], version: Version = as_it_was) -> str:
    """A run that the old code has brought to its wait."""
    async with engine_on(url, deploy(version, journal)) as engine, engine.worker():
        handle = await engine.start("order", 17, key="order-17")

        async def suspended() -> bool:
            return await handle.status() == "suspended"

        await until(suspended, "the run waits")
        return handle.id


async def everything(engine: hf.Engine, run: str) -> list[Any]:
    return [await engine.store.runs([run]), await work_of(engine, run), await engine.store.history(run)]


def changed_line(version: Version) -> str | None:
    """Where a reader is to be sent: file and line of the first difference."""
    lines, first = inspect.getsourcelines(version)
    found = [first + place for place, line in enumerate(lines) if "# differs" in line]
    return f"test_code_changes.py:{found[0]} in order" if found else None


@pytest.mark.parametrize("version", BREAKS, ids=lambda version: version.__name__)
async def test_i48_a_changed_workflow_stops_with_what_was_expected_and_found_and_goes_on_after_the_fix(
    version: Version, sqlite_url: str
) -> None:
    """I48, G8: the check predicts it, the run fails with the line and nothing is lost; put right, it goes on."""
    await _breaks_and_is_mended(version, sqlite_url)


@pytest.mark.parametrize("version", [renamed, added_where_it_waits], ids=lambda version: version.__name__)
async def test_i48_a_changed_workflow_stops_and_is_mended_on_postgresql_too(
    version: Version, postgres_url: str
) -> None:
    """I48: the comparison is of the history, whatever keeps it."""
    await _breaks_and_is_mended(version, postgres_url)


async def _breaks_and_is_mended(version: Version, url: str) -> None:
    journal: list[str] = []
    run = await waiting_run(url, journal)
    assert journal == ["reserve", "charge"]
    async with engine_on(url, deploy(version, journal)) as engine:
        before = await everything(engine, run)
        (checked,) = await engine.check()
        assert await everything(engine, run) == before
        assert (checked.run, checked.verdict, checked.ok) == (run, "breaks", False)
        async with engine.worker():
            assert await engine.send("paid", to=run) == hf.Delivered(run)
            with pytest.raises(hf.RunFailed) as failed:
                await engine.get(run).result(timeout=20)
        assert await engine.get(run).status() == "failed"
        kept = await engine.store.history(run)
        assert [row.kind for row in kept] == ["result", "result", "event"]
        await assert_sound(engine)
    assert isinstance(failed.value.cause, NonDeterminism)
    for told in (checked.difference, str(failed.value.cause)):
        found = hf.NonDeterminism(told)
        with pytest.raises(hf.NonDeterminism, match=f"run {run} differs from its history {BREAKS[version]}"):
            raise found
        assert "hf.patched(…)" in told
        line = changed_line(version)
        assert line is None or line in told
    assert journal == ["reserve", "charge"]
    async with engine_on(url, deploy(as_it_was, journal)) as engine, engine.worker():
        await engine.get(run).retry()
        assert await engine.get(run).result(timeout=20) == "ship 17"
        await assert_sound(engine)
    assert journal == ["reserve", "charge", "ship"]


# --- what does not -----------------------------------------------------------------------------------------------


def patched_before_the_wait(shop: Shop) -> Any:
    async def order(number: int) -> str:
        await shop.reserve(number)
        await shop.charge(number, 100)
        if hf.patched("weigh"):
            await shop.weigh(number)
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


def patched_first_of_all(shop: Shop) -> Any:
    async def order(number: int) -> str:
        if hf.patched("weigh"):
            await shop.weigh(number)
        await shop.reserve(number)
        await shop.charge(number, 100)
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


def patched_away(shop: Shop) -> Any:
    async def order(number: int) -> str:
        if not hf.patched("no-reserve"):
            await shop.reserve(number)
        await shop.charge(number, 100)
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


def patched_in_another_order(shop: Shop) -> Any:
    async def order(number: int) -> str:
        if hf.patched("charge-first"):
            await shop.charge(number, 100)
            await shop.reserve(number)
        else:
            await shop.reserve(number)
            await shop.charge(number, 100)
        await hf.wait_for("paid")
        return str(await shop.ship(number))

    return order


OLD = ["reserve", "charge", "ship"]
PATCHED = {
    patched_before_the_wait: ["reserve", "charge", "weigh", "ship"],
    patched_first_of_all: ["weigh", "reserve", "charge", "ship"],
    patched_away: ["charge", "ship"],
    patched_in_another_order: ["charge", "reserve", "ship"],
}


@pytest.mark.parametrize("version", PATCHED, ids=lambda version: version.__name__)
async def test_i48_with_patched_old_runs_take_the_old_path_and_new_runs_the_new_one(
    version: Version, sqlite_url: str
) -> None:
    """I48: and the check says so; the new path is taken again in every replay."""
    journal: list[str] = []
    run = await waiting_run(sqlite_url, journal)
    new: list[str] = []
    later = await waiting_run_of_new_code(sqlite_url, version, new)
    async with engine_on(sqlite_url, deploy(version, journal)) as engine:  # which remembers neither of them
        assert {checked.run: checked.verdict for checked in await engine.check()} == {run: "fine", later: "fine"}
        async with engine.worker():
            await engine.send("paid", to=run)
            assert await engine.get(run).result(timeout=20) == "ship 17"
            assert journal == OLD
            await engine.send("paid", to=later)
            assert await engine.get(later).result(timeout=20) == "ship 18"
            assert new + journal[len(OLD) :] == PATCHED[version]


async def waiting_run_of_new_code(url: str, version: Version, journal: list[str]) -> str:
    async with engine_on(url, deploy(version, journal)) as engine, engine.worker():
        handle = await engine.start("order", 18)

        async def suspended() -> bool:
            return await handle.status() == "suspended"

        await until(suspended, "the new run waits")
        return handle.id


async def test_i48_a_run_that_has_not_come_to_a_patch_takes_the_new_path_there(shared_url: str) -> None:
    """I48: old is who passed there before; whether the run was in memory when its event came makes no difference."""

    def weighs_later(shop: Shop) -> Any:
        async def order(number: int) -> str:
            await shop.reserve(number)
            await shop.charge(number, 100)
            await hf.wait_for("paid")
            if hf.patched("weigh"):
                await shop.weigh(number)
            return str(await shop.ship(number))

        return order

    journal: list[str] = []
    run = await waiting_run(shared_url, journal)
    async with engine_on(shared_url, deploy(weighs_later, journal)) as engine, engine.worker():
        await engine.send("paid", to=run)
        assert await engine.get(run).result(timeout=20) == "ship 17"
    assert journal == ["reserve", "charge", "weigh", "ship"]


async def test_i48_a_run_that_only_waits_has_passed_a_patch_before_its_wait(sqlite_url: str) -> None:
    """I48: nothing is in its history, and yet it was here: the store knows what it waits for."""

    def waits(shop: Shop) -> Any:
        async def order(number: int) -> str:
            await hf.wait_for("paid")
            return str(await shop.ship(number))

        return order

    def reserves_first(shop: Shop) -> Any:
        async def order(number: int) -> str:
            if hf.patched("reserve"):
                await shop.reserve(number)
            await hf.wait_for("paid")
            return str(await shop.ship(number))

        return order

    journal: list[str] = []
    run = await waiting_run(sqlite_url, journal, waits)
    async with engine_on(sqlite_url, deploy(reserves_first, journal)) as engine:
        assert [checked.verdict for checked in await engine.check()] == ["fine"]
        async with engine.worker():
            await engine.send("paid", to=run)
            assert await engine.get(run).result(timeout=20) == "ship 17"
    assert journal == ["ship"]


async def test_g8_the_path_that_a_patch_chose_is_recorded_before_anything_on_it_starts() -> None:
    """G8: else a process that dies in the first call on the new path would come back on the old one."""
    registry = hf.Registry()
    seen: list[list[str]] = []

    @hf.action(registry=registry)
    async def look() -> None:
        seen.append([row.kind for row in await engine.store.history(hf.current().run_id)])

    @hf.workflow(registry=registry)
    async def chosen() -> None:
        if hf.patched("look"):
            await look()

    async with engine_on("memory://", registry) as engine, engine.worker():
        await engine.run(chosen, timeout=20)
    assert seen == [["patch"]]


async def test_g3_new_code_that_asks_for_something_else_when_its_time_comes_begins_it_behind_a_commit(
    sqlite_url: str,
) -> None:
    """G3: a lease of what a time brings need not be on the disk yet, so that nothing is begun on the lease alone."""

    def sleeps(shop: Shop) -> Any:
        async def order(number: int) -> str:
            await hf.sleep(0.5)
            return str(await shop.ship(number))

        return order

    def weighs_meanwhile(shop: Shop) -> Any:
        async def order(number: int) -> str:
            weighing = asyncio.create_task(shop.weigh(number))
            await hf.sleep(0.5)
            await weighing
            return str(await shop.ship(number))

        return order

    journal: list[str] = []
    run = await waiting_run(sqlite_url, journal, sleeps)
    async with engine_on(sqlite_url, deploy(weighs_meanwhile, journal)) as engine:
        engine.coordinator.observers.append(
            lambda commit: journal.extend("told" for operation, _ in commit.pairs if isinstance(operation, TakeTurn))
        )
        async with engine.worker():
            assert await engine.get(run).result(timeout=20) == "ship 17"
    assert journal[0] == "told"
    assert journal.count("weigh") == 1


async def test_i15_a_renamed_action_and_a_renamed_child_are_found_by_their_aliases(sqlite_url: str) -> None:
    """I15, I48: the old name is listed, so it is the same call; a queued one is too."""

    def version(suffix: str, aliases: Callable[[str], tuple[str, ...]], journal: list[str]) -> hf.Registry:
        registry = hf.Registry()

        @hf.action(name=f"pack{suffix}", aliases=aliases("pack"), registry=registry)
        async def pack(number: int) -> str:
            journal.append(f"pack{suffix}")
            return f"packed {number}"

        @hf.workflow(name=f"carry{suffix}", aliases=aliases("carry"), registry=registry)
        async def carry(number: int) -> str:
            journal.append(f"carry{suffix}")
            await hf.wait_for("carried")
            return f"carried {number}"

        @hf.workflow(name="order", registry=registry)
        async def order(number: int) -> list[str]:
            return [await pack(number), await carry(number), await pack(number + 1)]

        return registry

    journal: list[str] = []
    async with engine_on(sqlite_url, version("", lambda name: (), journal)) as engine, engine.worker():
        handle = await engine.start("order", 17)
        await until(lambda: _find_child(engine), "the child waits")
    async with engine_on(sqlite_url, version("_2", lambda name: (name,), journal)) as engine:
        assert {checked.verdict for checked in await engine.check()} == {"fine"}
        async with engine.worker():
            await engine.broadcast("carried")
            assert await engine.get(handle.id).result(timeout=20) == ["packed 17", "carried 17", "packed 18"]
    assert [each for each in journal if each.startswith("pack")] == ["pack", "pack_2"]


async def _find_child(engine: hf.Engine) -> bool:
    return [run.status for run in await engine.find(status="suspended", limit=2)] == ["suspended"] * 2


CALLS_ELSEWHERE: dict[str, Callable[[Shop, Any], Any]] = {
    "as it was": lambda shop, far: far(1, 100),
    "another action": lambda shop, far: shop.action("near", queue="elsewhere")(1, 100),
    "other arguments": lambda shop, far: far(1, 200),
    "nothing at all": lambda shop, far: hf.wait_for("paid"),
}


@pytest.mark.parametrize("now", CALLS_ELSEWHERE)
async def test_i48_check_compares_a_call_that_waits_for_its_queue_with_the_code(sqlite_url: str, now: str) -> None:
    """The call is all that the run waits for: nobody holds its turn."""

    def version(how: str) -> Version:
        def made(shop: Shop) -> Any:
            far = shop.action("far", queue="elsewhere")

            async def order(number: int) -> Any:
                return await CALLS_ELSEWHERE[how](shop, far)

            return order

        return made

    async with engine_on(sqlite_url, deploy(version("as it was"), [])) as engine, engine.worker():
        handle = await engine.start("order", 1)

        async def suspended() -> bool:
            return await handle.status() == "suspended"

        await until(suspended, "it waits for the other queue")
    async with engine_on(sqlite_url, deploy(version(now), [])) as engine:
        (checked,) = await engine.check()
    assert checked.verdict == ("fine" if now == "as it was" else "breaks")
    assert now == "as it was" or "far" in checked.difference


async def test_g5_an_event_that_is_sent_just_after_a_wait_was_given_up_is_for_the_next_wait() -> None:
    """G5: the code gave up, and the store may not know it yet; either way the event is taken once."""
    registry = hf.Registry()

    @hf.action(registry=registry)
    async def send_meanwhile() -> None:
        await engine.send("paid", "yes", to=hf.current().run_id)

    @hf.workflow(registry=registry)
    async def patient() -> str:
        try:
            async with asyncio.timeout(0.01):
                await hf.wait_for("paid")
        except TimeoutError:
            await send_meanwhile()
        return str((await hf.wait_for("paid")).value)

    async with engine_on("memory://", registry) as engine, engine.worker():
        assert await engine.run(patient, timeout=20) == "yes"


async def test_i49_the_logger_speaks_once_and_at_the_very_beginning_too(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """I49: silent in replay, and what is said before the first call or after an event that woke it is not lost."""

    def talks(shop: Shop) -> Any:
        async def order(number: int) -> str:
            logger = hf.current().logger
            logger.warning("begun")
            await shop.reserve(number)
            logger.warning("reserved")
            await hf.wait_for("paid")
            logger.warning("paid")
            return str(await shop.ship(number))

        return order

    journal: list[str] = []
    run = await waiting_run(sqlite_url, journal, talks)
    async with engine_on(sqlite_url, deploy(talks, journal)) as engine:
        await engine.check()
        async with engine.worker():
            await engine.send("paid", to=run)
            await engine.get(run).result(timeout=20)
    assert [record.message for record in caplog.records if record.name == "holdfast.workflows"] == [
        "begun",
        "reserved",
        "paid",
    ]


# --- code that was not changed, and yet differs --------------------------------------------------------------------


def _with_hash_seed(seed: int, *arguments: str) -> dict[str, str]:
    """What `engine.check()` says in a process with this seed."""
    command = [sys.executable, "-m", "tests.functions.hash_seed_deploy", *arguments]
    environ = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (checked,) = json.loads(done.stdout)
    return dict(checked)


def test_g8_the_check_under_another_hash_seed_finds_a_workflow_that_walks_over_a_set(sqlite_url: str) -> None:
    """G8: same names at the same addresses, and other arguments: only their digests can tell."""
    assert _with_hash_seed(1, sqlite_url, "start", "unsorted")["verdict"] == "fine"
    assert _with_hash_seed(1, sqlite_url, "check", "unsorted")["verdict"] == "fine"
    other = _with_hash_seed(2, sqlite_url, "check", "unsorted")
    assert other["verdict"] == "breaks"
    assert "the same call of mix with other arguments: expected " in other["difference"]
    assert "hash_seed_deploy.py:" in other["difference"]


def test_g8_a_workflow_that_sorts_its_set_is_fine_under_every_hash_seed(sqlite_url: str) -> None:
    """G8: the check does not cry wolf."""
    assert _with_hash_seed(1, sqlite_url, "start", "sorted")["verdict"] == "fine"
    assert _with_hash_seed(2, sqlite_url, "check", "sorted")["verdict"] == "fine"
