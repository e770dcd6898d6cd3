"""From a URL to a store. Drivers are imported only when they are asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.core.addresses import redacted as redacted
from holdfast.core.errors import UsageError
from holdfast.runtime.system import System
from holdfast.store.contract import Store

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_URL = "sqlite:///holdfast.db"
SCHEMES = ("sqlite", "postgresql", "postgres", "memory")


def as_url(url: object) -> str:
    """The URL that was given; UsageError if it is no text."""
    if isinstance(url, str):
        return url
    meant = f"sqlite:///{os.fspath(url)}" if isinstance(url, os.PathLike) else "a text such as sqlite:///app.db"
    raise UsageError(f"the URL is {url!r:.80}, a {type(url).__name__}", hint=f"give {meant}")


def open_store(url: str, system: System, *, timeout_seconds: float) -> Store:
    """A store for `sqlite:///file`, `postgresql://…` or `memory://`; not opened yet."""
    scheme, found, rest = as_url(url).partition("://")
    if not found or scheme not in SCHEMES:
        import difflib  # for those who made a mistake

        close = difflib.get_close_matches(scheme, SCHEMES, n=1)
        meant = f"did you mean {close[0]}://? " if close else ""
        raise UsageError(
            f"{redacted(url)!r} is not a database that Holdfast knows",
            hint=f"{meant}use sqlite:///app.db, postgresql://user@host/database or memory://",
        )
    if scheme == "memory":
        from holdfast.store.memory import MemoryStore

        return MemoryStore(system.clock)
    if scheme == "sqlite":
        from holdfast.store.sqlite import SqliteStore

        return SqliteStore(
            _sqlite_file(rest, url),
            clock=system.clock,
            inline=system.make_inline(),
            threaded=system.make_threaded("holdfast-sqlite"),
            sleep=system.sleep,
            timeout_seconds=timeout_seconds,
        )
    try:
        from holdfast.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise UsageError(
            "a postgresql:// URL needs the asyncpg driver, which is not installed",
            hint='pip install "holdfast[postgres]"',
        ) from None
    return PostgresStore(url, clock=system.clock, timeout_seconds=timeout_seconds)


def check_transactional(store: Store, name: str) -> None:
    """UsageError if a transactional action cannot run on this store."""
    if store.kind == "memory":
        raise UsageError(
            f"{name} is transactional and needs a database, and memory:// has none",
            hint="use a SQLite file or PostgreSQL for this engine",
        )


def sqlite_path(url: str) -> Path | None:
    """The file that a sqlite:// URL names; None for any other database."""
    from pathlib import Path  # for the command line: the store works with texts

    scheme, _, rest = url.partition("://")
    return Path(_sqlite_file(rest, url)) if scheme == "sqlite" else None


def _sqlite_file(rest: str, url: str) -> str:
    if "%" in rest:
        from urllib.parse import unquote  # few have a reason to quote anything

        rest = unquote(rest)
    # Three slashes: relative to the current directory; four: absolute.
    name = rest[1:].rstrip("/")
    if not rest.startswith("/") or not name or "\0" in name:
        raise UsageError(
            f"{url!r} names no file", hint="write sqlite:///app.db (this directory) or sqlite:////var/lib/app.db"
        )
    return name
