"""Databases for tests: a fresh one per test, on a server that no other test process can disturb.

Each xdist worker has a server of its own (0.7 s, started only when a test asks). A shared one would need a lock to
start, another to stop, and a test that crashes its server would crash everybody's.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

from holdfast.runtime.postgres_server import PostgresServer

EXTERNAL_URL_VARIABLE = "TEST_DATABASE_URL"

PrepareTemplate = Callable[[str], None]


class DatabaseMaker(Protocol):
    """What creates and drops databases: a server of ours, or somebody else's."""

    def create_database(self, name: str, template: str | None = None) -> str: ...

    def drop_database(self, name: str) -> None: ...


class ExternalServer:
    """The server that `TEST_DATABASE_URL` names; it is used, never stopped, and keeps nothing of ours."""

    def __init__(self, url: str) -> None:
        self._url = url

    def create_database(self, name: str, template: str | None = None) -> str:
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}"')
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{quote(name, safe='')}"))

    def drop_database(self, name: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        async def run() -> None:
            import asyncpg

            connection = await asyncpg.connect(self._url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        # In a thread of its own, because an async test that asks for a database has a loop running in this one.
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(lambda: asyncio.run(run())).result()


class Databases:
    """Fresh databases with names that no other test process uses."""

    def __init__(self, maker: DatabaseMaker) -> None:
        self._maker = maker
        self._numbers = itertools.count(1)
        self._templates: dict[str, str] = {}

    def fresh(self, template: str | None = None) -> AbstractContextManager[str]:
        """Give the address of a new database, dropped afterwards even if sessions are left in it."""
        return self._fresh(template)

    @contextmanager
    def _fresh(self, template: str | None) -> Iterator[str]:
        name = self._new_name("test")
        url = self._maker.create_database(name, template)
        try:
            yield url
        finally:
            if isinstance(self._maker, PostgresServer):
                # A test may have stopped the server to see what happens.
                self._maker.start()
            self._maker.drop_database(name)

    def template(self, key: str, prepare: PrepareTemplate) -> str:
        """Name a database that `prepare` has filled, once per session; hand the name to `fresh`.

        `prepare` must close its connections, or PostgreSQL refuses to copy the database.
        """
        if key not in self._templates:
            name = self._new_name("template")
            prepare(self._maker.create_database(name))
            self._templates[key] = name
        return self._templates[key]

    def drop_templates(self) -> None:
        """Leave nothing behind on a server that outlives us."""
        if isinstance(self._maker, PostgresServer):
            return
        for name in self._templates.values():
            self._maker.drop_database(name)
        self._templates.clear()

    def _new_name(self, kind: str) -> str:
        return f"holdfast_{kind}_{os.getpid()}_{next(self._numbers)}"


def external_url() -> str | None:
    return os.environ.get(EXTERNAL_URL_VARIABLE) or None


def server_settings() -> dict[str, Any]:
    """How the tests' own server is run: durable against every crash that a test can cause, and quick."""
    return {"fsync": False, "settings": {"max_connections": "200", "shared_buffers": "64MB"}}
