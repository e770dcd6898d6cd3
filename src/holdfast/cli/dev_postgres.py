"""The PostgreSQL of `holdfast dev --postgres`: a server of its own whose data stays in the project's directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.cli.failures import FAILED, Failure

if TYPE_CHECKING:
    from holdfast.runtime.postgres_server import PostgresServer

FOLDER: Final = ".holdfast"


@contextmanager
def own_postgres(below: Path) -> Iterator[PostgresServer]:
    """A running server with its data in .holdfast/postgres, stopped at the end. One at a time in a directory."""
    from holdfast.runtime.postgres_server import PostgresServer

    folder = below / FOLDER
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():  # a database belongs into no repository
        ignore.write_text("*\n", encoding="utf-8")
    with _locked(folder / "postgres.lock"):
        server = PostgresServer(folder / "postgres")
        if (server.data_directory / "postmaster.pid").exists():
            server.stop()  # nobody holds the lock: its owner was killed, and perhaps its child too
        with server:
            yield server


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock ends with this process, however that ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failure(
                f"another `holdfast dev --postgres` runs in {path.parent.parent}",
                hint="stop that one, or give --url with the address that it has printed",
                code=FAILED,
            ) from None
        yield
    finally:
        os.close(descriptor)


__all__ = ["own_postgres"]
