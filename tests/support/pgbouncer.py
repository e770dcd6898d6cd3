"""PgBouncer in transaction mode, for tests that must hold where session state is not kept between transactions."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from holdfast.runtime.postgres_server import PostgresServer

_READY = "process up"
_START_SECONDS = 20.0
# Debian keeps it in sbin, which is not on an ordinary user's PATH.
_EXTRA_PATH = os.pathsep.join(["/usr/sbin", "/usr/local/sbin"])


def find_pgbouncer() -> Path | None:
    """Return the program, or None; `PGBOUNCER_BIN` decides when it is set."""
    named = os.environ.get("PGBOUNCER_BIN")
    found = named or shutil.which("pgbouncer") or shutil.which("pgbouncer", path=_EXTRA_PATH)
    return Path(found) if found else None


class PgBouncer:
    """A pooler in transaction mode before a server of ours; a context manager."""

    def __init__(self, program: Path, server: PostgresServer, *, pool_size: int = 4) -> None:
        self._program = program
        self._server = server
        self._pool_size = pool_size
        self._directory = Path(tempfile.mkdtemp(prefix="hf-pb-"))
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        """Return the pooled address of a database on the server."""
        return f"postgresql:///{quote(database, safe='')}?host={quote(str(self._directory))}&port=6432&user=postgres"

    def __enter__(self) -> Self:
        configuration = self._directory / "pgbouncer.ini"
        configuration.write_text(
            "\n".join(
                [
                    "[databases]",
                    f"* = host={self._server.socket_directory} user=postgres",
                    "[pgbouncer]",
                    "listen_addr =",
                    f"unix_socket_dir = {self._directory}",
                    "listen_port = 6432",
                    "auth_type = any",
                    "pool_mode = transaction",
                    f"default_pool_size = {self._pool_size}",
                    "max_client_conn = 200",
                    # Harmless settings that asyncpg sends at connection time.
                    "ignore_startup_parameters = extra_float_digits,search_path",
                    "",
                ]
            )
        )
        # PgBouncer refuses root just as PostgreSQL does; the same account serves both.
        account = self._server.account
        if account is not None:
            os.chown(self._directory, account.pw_uid, account.pw_gid)
            os.chown(configuration, account.pw_uid, account.pw_gid)
        self._process = subprocess.Popen(
            [str(self._program), str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self._directory,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )
        self._wait_until_ready()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            # communicate and not wait: it also drains and closes the pipe.
            self._process.communicate()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        """Read its log until it says that it is up; no polling, and its own words if it dies instead."""
        if self._process is None or self._process.stderr is None:
            raise RuntimeError("PgBouncer has not been started; enter the context manager first")
        said = b""
        descriptor = self._process.stderr.fileno()
        while _READY.encode() not in said:
            readable, _, _ = select.select([descriptor], [], [], _START_SECONDS)
            chunk = os.read(descriptor, 65536) if readable else b""
            said += chunk
            if not chunk:
                self.__exit__(None, None, None)
                raise RuntimeError(f"{self._program} did not start: {said.decode(errors='replace').strip()}")
