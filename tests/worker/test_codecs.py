"""The engine's codec: what it writes is written so, and what anybody wrote is read by its tag."""

from __future__ import annotations

import datetime
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.codec import decode_error, labelled, unlabelled
from holdfast.core.rows import DEAD, Run
from holdfast.runtime.stores import open_store
from holdfast.runtime.system import real_system
from tests.worker import codec_jobs as jobs
from tests.worker.support import assert_sound, engine_on, until, work_of

DAY = datetime.date(2031, 5, 1)
STAMPED = b"for Ada 01.05.2031"


class Engines:
    """Engines with different codecs on one store, one after the other where the store cannot be shared."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store = open_store(url, real_system(), timeout_seconds=5.0) if url == "memory://" else None

    def on(self, codec: Any, **settings: Any) -> hf.Engine:
        return engine_on(self._url, jobs.registry, store=self._store, codec=codec, **settings)


@pytest.fixture
def engines(url: str) -> Engines:
    return Engines(url)


@asynccontextmanager
async def working(engine: hf.Engine) -> AsyncIterator[hf.Engine]:
    async with engine, engine.worker():
        yield engine


async def row_of(engine: hf.Engine, run_id: str) -> Run:
    (row,) = await engine.store.runs([run_id])
    return row


async def test_i14_codecs_mix_each_payload_is_read_by_the_tag_of_who_wrote_it(engines: Engines) -> None:
    """I14: inputs follow the engine that starts, results the worker that ran, and neither asks the other's setting."""
    started: dict[str, str] = {}
    for starter in ("json", "msgpack"):
        async with engines.on(starter) as engine:
            handle = await engine.start(jobs.stamp.bind("for Ada", DAY, copies=2), key=starter)
            started[starter] = handle.id
            assert (await row_of(engine, handle.id)).codec == starter
    for starter, writer in (("json", "msgpack"), ("msgpack", "json")):
        async with engines.on(writer) as engine:
            await engine.get(started["json"]).pause()
            await engine.get(started["msgpack"]).pause()
            await engine.get(started[starter]).resume()
            async with engine.worker():
                assert await engine.get(started[starter]).result(timeout=10) == [STAMPED] * 2
            row = await row_of(engine, started[starter])
            assert row.codec == starter
            assert row.result is not None
            assert unlabelled(row.result).codec == writer
    for reader in ("json", "msgpack"):
        async with engines.on(reader) as engine:
            for run in started.values():
                assert await engine.get(run).result(timeout=10) == [STAMPED] * 2
            await assert_sound(engine)


@pytest.mark.parametrize("codec", ["json", "msgpack", jobs.sealed], ids=["json", "msgpack", "own"])
async def test_i14_actions_dags_and_transactional_actions_work_with_every_codec(engines: Engines, codec: Any) -> None:
    """I14: the caller gets the decoded form, and fields reach the nodes as what they are."""
    jobs.seen.clear()
    async with working(engines.on(codec)) as engine:
        assert await engine.run(jobs.stamp, "for Ada", DAY, timeout=10) == [STAMPED]
        assert await engine.run(jobs.echo, {"deep": [1, None, "é"]}, timeout=10) == {"deep": [1, None, "é"]}
        assert await engine.run(jobs.echo, None, timeout=10) is None
        assert await engine.run(jobs.nothing, timeout=10) is None
        assert await engine.run(jobs.Letter(text="Dear Ada", on=DAY), timeout=10) is None
        if engine.store.kind != "memory":
            assert await engine.run(jobs.stamp_with_the_commit, "wax", timeout=10) == b"wax"
        assert jobs.seen == [("Dear Ada", DAY)]
        await assert_sound(engine)


async def test_i14_nothing_of_a_payload_is_stored_in_the_clear_under_a_codec_that_encrypts(engines: Engines) -> None:
    """Inputs, fields, results, and what an outcome shows of them. The next process reads them with the same key."""
    async with engines.on(jobs.sealed) as engine:
        secret = await engine.start(jobs.echo, "the secret word")
        letter = await engine.start(jobs.Letter(text="the secret letter", on=DAY))
    async with working(engines.on(hf.Codecs(jobs.sealed))) as engine:
        assert await engine.get(secret.id).result(timeout=10) == "the secret word"
        await engine.get(letter.id).result(timeout=10)
        for run in (secret.id, letter.id):
            row = await row_of(engine, run)
            assert row.codec == jobs.sealed.tag
            stored = [row.input, row.result or b""]
            for item in await work_of(engine, run):
                stored += [item.payload or b"", item.result or b"", item.outcome or b""]
            assert not [data for data in stored if b"secret" in data]


async def test_i14_a_process_of_its_own_needs_no_codec_of_the_users(url: str) -> None:
    """The codec, and its key, stay in the worker; the action and its types are the child's."""
    for codec in ("msgpack", jobs.sealed):
        async with working(Engines(url).on(codec)) as engine:
            handle = await engine.start(jobs.stamp_elsewhere, "for Ada", DAY)
            (result,) = await handle.result(timeout=20)
            assert result.startswith(STAMPED)
            assert int(result.split()[-1]) != os.getpid()
            stored = (await row_of(engine, handle.id)).result
            assert stored is not None
            assert unlabelled(stored).codec == engine.codecs.default.tag
            (execution,) = await handle.step_executions()
            assert execution.outcome is not None
            assert ("returned" in execution.outcome) == (codec == "msgpack"), "no repr beside what is encrypted"


async def test_i12_a_key_is_the_same_run_whatever_codec_wrote_its_input(engines: Engines) -> None:
    """I12: inputs are compared as values; other bytes for the same value are no conflict, another value is."""
    letter = jobs.Letter(text="Dear Ada", on=DAY)
    async with engines.on("json") as engine:
        call = await engine.start(jobs.stamp, "for Ada", DAY, key="k")
        dag = await engine.start(letter, key="k")
    for codec in ("msgpack", jobs.sealed):
        async with engines.on(codec) as engine:
            assert (await engine.start(jobs.stamp, "for Ada", DAY, key="k")).id == call.id
            assert (await engine.start(letter, key="k")).id == dag.id
            with pytest.raises(hf.KeyConflict):
                await engine.start(jobs.stamp, "for Bob", DAY, key="k")


async def test_i8_an_input_of_an_unknown_codec_is_a_dead_letter_until_the_codec_is_there(engines: Engines) -> None:
    """I8, I14: dead at once, with the tag and the fix; the worker goes on, and a replay with the codec succeeds."""
    async with engines.on(jobs.sealed) as engine:
        handle = await engine.start(jobs.echo, "x")
    async with working(engines.on("json")) as engine:
        (item,) = await until(lambda: dead(engine, handle.id), "it is a dead letter")
        error = decode_error(item.error)
        assert "'sealed-1', which is not registered here" in error.message
        assert "Engine(codec=…)" in error.message
        assert await engine.run(jobs.echo, "others go on", timeout=10) == "others go on"
    async with working(engines.on(jobs.sealed)) as engine:
        await engine.replay_dead(handle.id, "echo")
        assert await engine.get(handle.id).result(timeout=10) == "x"


async def dead(engine: hf.Engine, run: str) -> list[Any]:
    return [item for item in await work_of(engine, run) if item.status == DEAD]


async def test_i8_an_input_sealed_with_another_key_is_a_dead_letter_that_names_the_codec(engines: Engines) -> None:
    async with engines.on(jobs.sealed_with_another_key) as engine:
        handle = await engine.start(jobs.echo, "x")
    async with working(engines.on(jobs.sealed)) as engine:
        (item,) = await until(lambda: dead(engine, handle.id), "it is a dead letter")
        assert "the codec sealed-1 here differs from the writer's" in decode_error(item.error).message


async def test_i14_a_result_of_an_unknown_codec_says_what_is_missing(engines: Engines) -> None:
    """The run has completed all the same; with the codec as one to read, its result is there."""
    async with working(engines.on(jobs.sealed)) as engine:
        handle = await engine.start(jobs.echo, "x")
        await handle.result(timeout=10)
    async with engines.on("msgpack") as engine:
        with pytest.raises(hf.PayloadRefused, match="codec 'sealed-1', which is not registered here"):
            await engine.get(handle.id).result(timeout=10)
        assert await engine.get(handle.id).status() == "completed"
    async with engines.on(hf.Codecs(hf.MSGPACK, extra=[jobs.sealed])) as engine:
        assert await engine.get(handle.id).result(timeout=10) == "x"


async def test_i14_a_result_over_the_limit_is_measured_as_it_would_be_stored() -> None:
    """A codec that compresses makes room, in the worker and in a process alike."""
    async with working(engine_on("memory://", jobs.registry, codec=jobs.sealed, payload_limit_bytes=5_000)) as engine:
        assert await engine.run(jobs.echo, "x" * 50_000, timeout=10) == "x" * 50_000
        noise = os.urandom(20_000).hex()
        with pytest.raises(hf.PayloadTooLarge):
            await engine.start(jobs.echo, noise)


def test_i14_a_label_is_told_from_json_and_names_what_follows() -> None:
    assert labelled(b"[1]", "json") == b"[1]"
    assert unlabelled(b"[1]") == unlabelled(labelled(b"[1]", "json"))
    for data in (b"", b"\xc1", b"anything"):
        assert unlabelled(labelled(data, "sealed-1")).data == data
        assert unlabelled(labelled(data, "sealed-1")).codec == "sealed-1"
    assert unlabelled(b"\xc1").codec == ""
