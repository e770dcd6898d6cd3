"""Connections to PostgreSQL: made when needed, kept while they work, thrown away when they do not.

A pool that resets connections between uses would add a round trip to every commit, so this is the
least that does the job. Behind a pooler in transaction mode nothing of a session can be relied upon:
no prepared statement, no setting, no session lock. That is noticed by the backend's process id, which
such a pooler does not pass on, and `pooled` then says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

import asyncpg

from holdfast.core.addresses import redacted
from holdfast.core.errors import NotOurDatabase, StoreError, StoreUnavailable, UsageError
from holdfast.store.contract import Busy, Conflict

LOCK_TIMEOUT_MILLISECONDS = 2000
_SESSION = (
    "SET application_name = 'holdfast'; SET jit = off; SET client_min_messages = warning; "
    # Every hot statement looks rows up by key. A hash join or a scan may look cheaper while a table is small, and the
    # plan is kept when it has grown.
    "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; "
    "SET plan_cache_mode = force_generic_plan; "
    f"SET lock_timeout = {LOCK_TIMEOUT_MILLISECONDS}"
)

Connection = Any  # asyncpg.Connection; its stubs are loose


class Pool:
    """At most `limit` connections for one purpose: what waits in one pool holds up no other."""

    def __init__(self, limit: int, *, ours: bool = True) -> None:
        self.slots = asyncio.Semaphore(limit)
        self.idle: list[Connection] = []
        self.ours = ours  # with our session settings, which user code must not meet or change


class Connections:
    """Connections, handed out to one user at a time.

    Transactional actions hold theirs for as long as user code runs, and topics are made while a transaction
    is open: both would deadlock or starve the engine if they took from its own pool.
    """

    def __init__(self, dsn: str, *, timeout_seconds: float, limit: int = 6, user_limit: int = 8) -> None:
        self.dsn = dsn
        self.shown = redacted(dsn)
        self.pooled = False
        self.engine, self.topics, self.users = Pool(limit), Pool(1), Pool(user_limit, ours=False)
        self._timeout = timeout_seconds
        self._closed = False

    async def probe(self) -> None:
        """Connect once, and find out whether a pooler stands in between."""
        connection = await self._raw_connect(pooled=True)
        try:
            with translate(self.shown):
                backend = await connection.fetchval("SELECT pg_backend_pid()")
            self.pooled = backend != connection.get_server_pid()
        finally:
            await connection.close()

    async def connect(self, *, ours: bool = True) -> Connection:
        """A connection of one's own, with our settings unless it is for user code."""
        with translate(self.shown):
            connection = await self._raw_connect(pooled=self.pooled)
            if not self.pooled and ours:
                try:
                    await connection.execute(_SESSION)
                except BaseException:  # cancelled, too: nobody else knows of this connection
                    connection.terminate()
                    raise
            return connection

    async def _raw_connect(self, *, pooled: bool) -> Connection:
        with translate(self.shown):
            try:
                return await asyncpg.connect(
                    self.dsn,
                    timeout=min(self._timeout, 10.0),
                    command_timeout=self._timeout,
                    statement_cache_size=0 if pooled else 512,
                )
            except ValueError as error:  # asyncpg's word for an address that it cannot read
                raise UsageError(
                    f"{self.shown!r} is not an address that PostgreSQL's driver understands: {error}",
                    hint="write postgresql://user:password@host:5432/database, with %XX for special characters",
                ) from error

    def use(self, pool: Pool | None = None) -> _Use:
        """A connection for as long as the context lasts. One that failed or was left in the middle is closed."""
        return _Use(self, pool or self.engine)

    def may_keep(self, connection: Connection) -> bool:
        return not (connection.is_closed() or connection.is_in_transaction() or self._closed)

    async def close(self) -> None:
        self._closed = True
        for pool in (self.engine, self.topics, self.users):
            while pool.idle:
                with suppress(Exception):
                    await pool.idle.pop().close(timeout=2.0)


class _Use:
    """The context of `Connections.use`. A class, because every statement passes here, and a generator costs more."""

    __slots__ = ("_connection", "_connections", "_pool")

    def __init__(self, connections: Connections, pool: Pool) -> None:
        self._connections = connections
        self._pool = pool
        self._connection: Connection = None

    async def __aenter__(self) -> Connection:
        pool = self._pool
        await pool.slots.acquire()
        try:
            connection = None
            while pool.idle and connection is None:
                connection = pool.idle.pop()
                if connection.is_closed():
                    connection = None
            if connection is None:
                connection = await self._connections.connect(ours=pool.ours)
        except BaseException:
            pool.slots.release()
            raise
        self._connection = connection
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ours = translated(error, self._connections.shown) if isinstance(error, Exception) else None
        healthy = False
        try:
            if error is None:
                healthy = self._pool.ours or await _cleaned(self._connection, self._connections.pooled)
            elif isinstance(ours or error, Conflict):
                healthy = True  # the server refused a statement; the session is fine
            elif isinstance(error, Exception):
                healthy = self._pool.ours and not isinstance(ours or error, StoreError)
        finally:
            self._give_back(healthy)
        if ours is not None:
            raise ours from error

    def _give_back(self, healthy: bool) -> None:
        connection = self._connection
        if healthy and self._connections.may_keep(connection):
            self._pool.idle.append(connection)
        else:
            connection.terminate()
        self._pool.slots.release()


async def _cleaned(connection: Connection, pooled: bool) -> bool:
    """Undo what user code may have set in the session; False if that did not work."""
    if pooled:
        return True
    try:
        await connection.reset(timeout=5.0)
    except Exception:
        return False
    return True


async def run_statement(connection: Connection, pooled: bool, method: str, sql: str, *args: Any) -> Any:
    """One statement; behind a pooler in a transaction, so that parse and execute meet the same server."""
    call = getattr(connection, method)
    if pooled and not connection.is_in_transaction():
        async with connection.transaction():
            return await call(sql, *args)
    return await call(sql, *args)


@contextmanager
def translate(where: str = "the database") -> Iterator[None]:
    """PostgreSQL's and the network's errors, as ours; `where` names the database in them."""
    try:
        yield
    except Exception as error:
        if (ours := translated(error, where)) is None:
            raise
        raise ours from error


def translated(error: Exception, where: str) -> Exception | None:
    """What an error of PostgreSQL or of the network is to us; None for any other."""
    if isinstance(error, asyncpg.UniqueViolationError | asyncpg.DeadlockDetectedError | asyncpg.SerializationError):
        return Conflict(str(error))
    if isinstance(error, asyncpg.LockNotAvailableError):
        return Busy(str(error))
    if isinstance(error, asyncpg.UndefinedTableError | asyncpg.UndefinedColumnError):
        return NotOurDatabase(
            f"{where} has no Holdfast tables, or those of an older version: {error}",
            hint="run `holdfast migrate`; check that the URL names the right database",
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return StoreUnavailable(
            f"there is no such database as {where} names: {error}", hint="create it, or correct the URL"
        )
    if isinstance(error, asyncpg.InvalidSchemaNameError):
        return StoreUnavailable(
            f"{where} has none of the schemas that its search_path names: {error}",
            hint="CREATE SCHEMA it, let the role use it, or correct search_path in the URL or of the role",
        )
    if isinstance(error, asyncpg.InvalidPasswordError | asyncpg.InvalidAuthorizationSpecificationError):
        return StoreUnavailable(
            f"PostgreSQL refused the login to {where}: {error}", hint="check user and password in the URL"
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreUnavailable(
            f"{where} does not let this role do that: {error}",
            hint="grant the role what docs/security.md says; if the schema is older than this code, let its owner run "
            "`holdfast migrate`",
        )
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return StoreUnavailable(
            f"{where} cannot be written: {error}", hint="connect to the primary, with a role that may write"
        )
    if isinstance(error, asyncpg.DiskFullError):
        return StoreUnavailable(
            f"the disk of {where} is full: {error}", hint="free some space; work goes on by itself then"
        )
    if isinstance(
        error,
        (
            asyncpg.PostgresConnectionError,
            asyncpg.OperatorInterventionError,
            asyncpg.CannotConnectNowError,
            asyncpg.TooManyConnectionsError,
            asyncpg.InternalClientError,
            asyncpg.InterfaceError,
            ConnectionError,
            TimeoutError,
            OSError,
        ),
    ):
        if isinstance(error, ValueError):
            return None  # asyncpg's word for an argument that does not fit: a poison operation, not a lost server
        return StoreUnavailable(
            f"PostgreSQL at {where} cannot be reached: {str(error) or type(error).__name__}",
            hint="check that the server runs and that the URL is right; workers reconnect by themselves",
        )
    return None
