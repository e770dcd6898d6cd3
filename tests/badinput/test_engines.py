"""An engine that was set up wrongly, or used at the wrong time, says so at once."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from tests.badinput.checks import refused

registry = hf.Registry()


@hf.action(registry=registry)
async def greet(name: str) -> str:
    return name


@pytest.mark.parametrize(
    ("settings", "named", "fix"),
    [
        ({"lease_second": 3}, "'lease_second'", "did you mean lease_seconds?"),
        ({"frobnicate": 3}, "'frobnicate'", "known: batch_limit"),
        ({"registry": 7}, "registry is 7", "hf.Registry()"),
        ({"lease_seconds": 0}, "lease_seconds is 0", "greater than 0"),
        ({"lease_seconds": -30}, "lease_seconds is -30", "greater than 0"),
        ({"lease_seconds": math.nan}, "lease_seconds is nan", "greater than 0"),
        ({"store_timeout_seconds": math.inf}, "store_timeout_seconds is inf", "greater than 0"),
        ({"poll_seconds": None}, "poll_seconds is None", "number"),
        ({"poll_seconds": "1"}, "poll_seconds is '1'", "number"),
        ({"lost_limit": 2.5}, "lost_limit is 2.5", "whole number"),
        ({"threads": True}, "threads is True", "whole number"),
        ({"notify": "yes"}, "notify is 'yes'", "True or False"),
        ({"retention": timedelta(days=-1)}, "retention", "greater than 0"),
        ({"lease_seconds": timedelta(seconds=30)}, "lease_seconds", "number"),
    ],
)
def test_a_setting_that_is_unknown_or_out_of_range_is_refused(settings: dict[str, Any], named: str, fix: str) -> None:
    with refused(hf.UsageError, named, fix=fix):
        hf.Engine("memory://", **settings)
    with refused(hf.UsageError, named, fix=fix):
        hf.Settings(**settings)


def test_the_registry_is_a_setting_and_has_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = hf.Registry()
    assert hf.Settings().registry is None
    assert hf.Settings(registry=registry).registry is registry
    engine = hf.Engine("memory://", registry=registry)
    assert engine.registry is engine.settings.registry is registry
    monkeypatch.setenv("HOLDFAST_REGISTRY", "app")
    with refused(hf.UsageError, "there is no setting HOLDFAST_REGISTRY", fix="known: HOLDFAST_BATCH_LIMIT"):
        hf.Engine("memory://")


@pytest.mark.parametrize(
    ("variable", "text", "named", "fix"),
    [
        ("HOLDFAST_LEASE", "3", "HOLDFAST_LEASE", "did you mean HOLDFAST_LEASE_SECONDS?"),
        ("HOLDFAST_LEASE_SECONDS", "soon", "HOLDFAST_LEASE_SECONDS is 'soon'", "number"),
        ("HOLDFAST_LOST_LIMIT", "2.5", "HOLDFAST_LOST_LIMIT is '2.5'", "number"),
        ("HOLDFAST_NOTIFY", "perhaps", "HOLDFAST_NOTIFY is 'perhaps'", "on or off"),
        ("HOLDFAST_THREADS", "0", "threads is 0", "greater than 0"),
    ],
)
def test_a_variable_that_is_unknown_or_out_of_range_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, named: str, fix: str
) -> None:
    monkeypatch.setenv(variable, text)
    with refused(hf.UsageError, named, fix=fix):
        hf.Engine("memory://")


@pytest.mark.parametrize(
    ("url", "named", "fix"),
    [
        ("mysql://ada@host/db", "'mysql://ada@host/db'", "postgresql://"),
        ("postgresq://ada:secret@host/db", "'postgresq://ada:***@host/db'", "did you mean postgresql://?"),
        ("app.db", "'app.db'", "sqlite:///app.db"),
        ("sqlite://app.db", "'sqlite://app.db'", "sqlite:///app.db"),
        ("sqlite:///", "'sqlite:///'", "sqlite:///app.db"),
        ("sqlite:///a%00b", "'sqlite:///a%00b'", "sqlite:///app.db"),
        ("postgresql://host:port/db", "postgresql://host:port/db", "5432"),
        (7, "7, a int", "text"),
        (Path("app.db"), "PosixPath('app.db')", "sqlite:///app.db"),
        (Path("/srv/app.db"), "PosixPath('/srv/app.db')", "sqlite:////srv/app.db"),
    ],
)
async def test_an_address_that_names_no_database_is_refused_without_its_password(
    url: Any, named: str, fix: str
) -> None:
    with refused(hf.UsageError, named, fix=fix) as refusal:
        await hf.Engine(url).open()
    assert "secret" not in refusal.text


def test_a_password_is_never_shown_wherever_the_address_has_it() -> None:
    for url in ("postgresql://ada:secret@host/db", "postgresql://host/db?user=ada&password=secret&x=1"):
        shown = repr(hf.Engine(url))
        assert "secret" not in shown
        assert "***" in shown
        assert "host" in shown


MISSING_DRIVER = """
import asyncio, sys

class NoDriver:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "asyncpg":
            raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")

sys.meta_path.insert(0, NoDriver())
import holdfast as hf
try:
    asyncio.run(hf.Engine("postgresql://host/db").open())
except hf.UsageError as error:
    print(error)
"""


def test_a_missing_driver_says_what_to_install() -> None:
    """In a process of its own, because here the driver has long been loaded."""
    done = subprocess.run([sys.executable, "-c", MISSING_DRIVER], capture_output=True, text=True, check=True)
    assert "asyncpg" in done.stdout
    assert 'pip install "holdfast[postgres]"' in done.stdout


async def test_an_engine_that_is_not_open_refuses_every_call() -> None:
    """Before it was opened, and after it was closed."""
    engine = hf.Engine("memory://", registry=registry)
    handle = engine.get("some-run")

    async def ask_everything() -> None:
        for ask in (
            lambda: engine.start(greet, "Ada"),
            lambda: engine.run(greet, "Ada"),
            lambda: engine.find(),
            lambda: engine.stats(),
            lambda: engine.dead(),
            lambda: engine.workers(),
            lambda: engine.drain("greet"),
            lambda: engine.prune(older_than_seconds=1),
            lambda: engine.doctor(),
            lambda: engine.run_worker(),
            handle.status,
            handle.result,
            handle.cancel,
            handle.explain,
        ):
            with refused(hf.EngineClosed, "not open", fix="async with engine"):
                await ask()

    await ask_everything()
    async with engine:
        pass
    await ask_everything()
    await engine.close()


async def test_who_waits_for_a_result_while_the_engine_closes_is_told() -> None:
    engine = hf.Engine("memory://", registry=registry)
    async with engine:
        handle = await engine.start(greet, "Ada", queue="nobody")
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with refused(hf.EngineClosed, "closed while a result was awaited"):
        await waiting


async def test_opening_twice_is_refused_and_harms_nothing() -> None:
    async with hf.Engine("memory://", registry=registry) as engine:
        handle = await engine.start(greet, "Ada")
        with refused(hf.UsageError, "open already", fix="once"):
            await engine.open()
        assert await handle.status() == "pending"


async def test_hf_run_inside_a_running_loop_says_what_to_await() -> None:
    with refused(hf.UsageError, "running event loop", fix="await engine.run"):
        hf.run(greet, "Ada")


def test_hf_run_refuses_what_cannot_be_started_and_leaves_the_directory_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(hf.UnknownWorkflow, "'nonsense'"):
        hf.run("nonsense")
