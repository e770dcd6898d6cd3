"""Fresh databases with durable defaults: SQLite files and a PostgreSQL server of our own, both syncing every commit."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

from benchmarks.measures import POSTGRES, SQLITE
from holdfast.runtime.postgres_server import PostgresServer


class Databases:
    """Makes empty databases of one store, one after another, and removes them all at the end."""

    def __init__(self, store: str, *, commit_delay_ms: float = 0.0) -> None:
        self.store = store
        self._delay_ms = commit_delay_ms
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self._server: PostgresServer | None = None
        self._directory = Path()
        self._proxy: Path | None = None

    def __enter__(self) -> Databases:
        self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-bench-")))
        if self.store == POSTGRES:
            self._server = self._stack.enter_context(PostgresServer(fsync=True))
            if self._delay_ms > 0:
                self._proxy = self._stack.enter_context(_delaying_proxy(self._server, self._delay_ms))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def fresh_url(self) -> str:
        """The address of a database that holds nothing yet."""
        number = next(self._numbers)
        if self.store == SQLITE:
            return f"sqlite:///{self._directory / f'bench{number}.db'}"
        assert self._server is not None
        name = f"bench{number}"
        url = self._server.create_database(name)
        return url if self._proxy is None else f"postgresql:///{name}?host={quote(str(self._proxy))}&user=postgres"


@contextmanager
def _delaying_proxy(server: PostgresServer, delay_ms: float) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hf-delay-") as directory:
        command = [sys.executable, "-m", "benchmarks.delay_proxy", str(server.socket_directory), directory]
        proxy = subprocess.Popen([*command, str(delay_ms)], stdout=subprocess.PIPE, text=True)
        try:
            assert proxy.stdout is not None
            proxy.stdout.readline()  # it says when it listens
            yield Path(directory)
        finally:
            proxy.kill()
            proxy.communicate()
