"""Fresh databases with durable defaults: SQLite files and a PostgreSQL server of our own, both syncing every commit."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.slow_disk import in_environment, slow_disk
from holdfast.runtime.postgres_server import PostgresServer


class Databases:
    """Makes empty databases of one store, one after another, and removes them all at the end.

    With a delay each sync of the disk takes that much longer. PostgreSQL's server has it then; who opens a file of
    SQLite syncs itself, and must be started with `client_environment`. Without `fsync` nothing measured means anything:
    for tests that only see whether it runs.
    """

    def __init__(
        self, store: str, *, commit_delay_ms: float = 0.0, settings: Mapping[str, str] | None = None, fsync: bool = True
    ) -> None:
        self.store = store
        self._settings = settings
        self._fsync = fsync
        self.client_environment: dict[str, str] = {}
        self._delay_ms = commit_delay_ms
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self._server: PostgresServer | None = None
        self._directory = Path()
        self._names: dict[str, str] = {}

    def __enter__(self) -> Databases:
        slow = self._stack.enter_context(slow_disk(self._delay_ms))
        if self.store == SQLITE:
            self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-bench-")))
            self.client_environment = slow
        else:
            with in_environment(slow):
                self._server = self._stack.enter_context(PostgresServer(fsync=self._fsync, settings=self._settings))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def fresh_url(self) -> str:
        """The address of a database that holds nothing yet."""
        number = next(self._numbers)
        if self.store == SQLITE:
            return f"sqlite:///{self._directory / f'bench{number}.db'}"
        assert self.store == POSTGRES
        assert self._server is not None
        name = f"bench{number}"
        url = self._server.create_database(name)
        self._names[url] = name
        return url

    def drop(self, url: str) -> None:
        """Remove a database, so that no vacuum or checkpoint of it disturbs what is measured next."""
        if self._server is not None:
            self._server.drop_database(self._names.pop(url))
            return
        path = Path(url.removeprefix("sqlite:///"))
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink(missing_ok=True)
