"""A history is recorded by one version of Python: the run keeps which, and whoever reads it with another is told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import holdfast as hf
from holdfast.authoring.functions import PYTHON
from holdfast.core.rows import Run
from holdfast.runtime.function_driver import another_python
from tests.worker.support import engine_on, until

REGISTRY = hf.Registry()


@hf.action(registry=REGISTRY)
async def say(word: str) -> str:
    return word


@hf.workflow(registry=REGISTRY)
async def waits_for_word() -> str:
    said = await say("hello")
    heard = await hf.wait_for("word")
    return f"{said} {heard.value}"


async def suspended(handle: hf.Handle[Any]) -> None:
    async def is_suspended() -> bool:
        return (await handle.status()) == "suspended"

    await until(is_suspended, "the function waits")


async def test_i48_a_run_keeps_the_python_that_records_it(shared_url: str) -> None:
    """Whoever starts it: the one that drives it counts, from the first entry on."""
    async with engine_on(shared_url, REGISTRY) as engine:
        handle = await engine.start(waits_for_word)
        (row,) = await engine.store.runs([handle.id])
        assert row.signature == PYTHON
        async with engine.worker():
            await suspended(handle)
        (row,) = await engine.store.runs([handle.id])
        assert row.signature == PYTHON
        assert [checked.difference for checked in await engine.check()] == [""]


async def test_i48_a_history_of_another_python_is_told_of(
    shared_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By `check`, before a deploy, and in the log when it is replayed; it goes on all the same."""
    async with engine_on(shared_url, REGISTRY) as engine:
        async with engine.worker():
            handle = await engine.start(waits_for_word)
            await suspended(handle)
        monkeypatch.setattr("holdfast.runtime.function_driver.PYTHON", "python 9.9")
        (checked,) = await engine.check()
        assert checked.verdict == "fine"
        assert f"recorded by {PYTHON}, and this is python 9.9" in checked.difference
        caplog.clear()
        async with engine.worker():
            await engine.send("word", "bye", to=handle)
            assert await handle.result(timeout=10) == "hello bye"
        assert "and this is python 9.9" in caplog.text
        (row,) = await engine.store.runs([handle.id])
        assert row.signature == PYTHON, "what has begun with one version says so for ever"


def test_a_run_that_has_recorded_nothing_is_anybodys() -> None:
    run = Run(id="r", workflow="f", model="function", signature="python 9.9")
    assert another_python(run) is None
    assert another_python(replace(run, entries=1)) is not None
