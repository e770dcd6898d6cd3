"""Where the programme takes place: a folder, in memory if possible, a PostgreSQL server, a nursery; as needed."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from functools import cached_property
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.runtime.postgres_server import PostgresServer
from tests.reliability.crash.killed import Nursery
from tests.reliability.crash.places import Place, PostgresPlace, SqlitePlace
from tests.support.postgres import server_settings

IN_MEMORY = Path("/dev/shm")


class Grounds:
    """Everything that points share."""

    def __init__(self, server: PostgresServer | None = None) -> None:
        self._given = server
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="hf-crash-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def place(self, store: str) -> Place:
        return self.sqlite if store == "sqlite" else self.postgres

    @cached_property
    def sqlite(self) -> SqlitePlace:
        return SqlitePlace(self.folder / "sqlite")

    @cached_property
    def server(self) -> PostgresServer:
        return self._given or self._stack.enter_context(PostgresServer(**server_settings()))

    @cached_property
    def postgres(self) -> PostgresPlace:
        place = PostgresPlace(*(self.server.create_database(name) for name in ("crash", "crash_blank")))
        self._stack.callback(place.close)
        return place

    @cached_property
    def nursery(self) -> Nursery:
        return self._stack.enter_context(Nursery(self.folder / "errors"))


_own: Grounds | None = None


def own_grounds() -> Grounds:
    """Those of this process, until it ends."""
    global _own
    if _own is None:
        _own = Grounds().__enter__()
        Finalize(None, _own.__exit__, args=(None, None, None), exitpriority=10)  # in processes of a pool, too
    return _own
