"""How every test runs: async tests on a loop of their own, real databases, no leftovers."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from holdfast.runtime.postgres_server import PostgresServer
from tests.support import variants
from tests.support.minutes import MinutesPerArea
from tests.support.pgbouncer import PgBouncer, find_pgbouncer
from tests.support.postgres import EXTERNAL_URL_VARIABLE, Databases, ExternalServer, external_url, server_settings
from tests.support.second_try import MissedDeadlines

# No deadline: machines are shared, and a slow example is not a wrong one. The blob repeats a failing example anywhere.
hypothesis.settings.register_profile("holdfast", deadline=None, print_blob=True)
hypothesis.settings.load_profile("holdfast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(variants.OPTION, type=int, default=1, metavar="N", help="of the variants of each test, one in N")


def pytest_configure(config: pytest.Config) -> None:
    if (one_in := config.getoption(variants.OPTION)) > 1:
        config.pluginmanager.register(variants.SomeVariants(one_in, variants.commit()), "some-variants")
    config.pluginmanager.register(MinutesPerArea(), "minutes-per-area")
    config.pluginmanager.register(MissedDeadlines(), "missed-deadlines")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests with asyncio.run: a fresh loop each, closed and empty at the end."""
    test = pyfuncitem.obj
    under_hypothesis = getattr(test, "hypothesis", None)
    if under_hypothesis is not None and inspect.iscoroutinefunction(under_hypothesis.inner_test):
        # Every example gets its own loop; hypothesis itself stays synchronous.
        under_hypothesis.inner_test = _on_own_loop(under_hypothesis.inner_test)
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(test(**arguments))
    return True


def _on_own_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running server that this test process may crash and restart as it likes."""
    if external_url() is not None:
        pytest.skip(f"{EXTERNAL_URL_VARIABLE} is set, and this test stops and starts its server; unset it to run this")
    with PostgresServer(**server_settings()) as server:
        yield server


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """What makes fresh PostgreSQL databases, from a template if one is named."""
    url = external_url()
    made = Databases(ExternalServer(url) if url else request.getfixturevalue("postgres"))
    yield made
    made.drop_templates()


@pytest.fixture
def postgres_url(databases: Databases) -> Iterator[str]:
    """The address of an empty PostgreSQL database, dropped afterwards."""
    with databases.fresh() as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'app.db'}"


@pytest.fixture
def pgbouncer_url(postgres: PostgresServer, postgres_url: str) -> Iterator[str]:
    """The address of an empty PostgreSQL database behind PgBouncer in transaction mode."""
    program = find_pgbouncer()
    if program is None:
        pytest.skip("PgBouncer was not found; install the package pgbouncer or set PGBOUNCER_BIN")
    database = postgres_url.partition("?")[0].rpartition("/")[2]
    with PgBouncer(program, postgres) as pooler:
        yield pooler.url(database)
