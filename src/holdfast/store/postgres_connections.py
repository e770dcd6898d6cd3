"""Connections to PostgreSQL: made when needed, kept while they work, thrown away when they do not.

A pool that resets connections between uses would add a round trip to every commit, so this is the
least that does the job. Behind a pooler in transaction mode nothing of a session can be relied upon:
no prepared statement, no setting, no session lock. That is noticed by the backend's process id, which
such a pooler does not pass on, and `pooled` then says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
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

    @asynccontextmanager
    async def use(self, pool: Pool | None = None) -> AsyncIterator[Connection]:
        """A connection for as long as the context lasts. One that failed or was left in the middle is closed."""
        pool = pool or self.engine
        async with pool.slots:
            connection = None
            while pool.idle and connection is None:
                connection = pool.idle.pop()
                if connection.is_closed():
                    connection = None
            if connection is None:
                connection = await self.connect(ours=pool.ours)
            healthy = False
            try:
                with translate(self.shown):
                    yield connection
                healthy = pool.ours or await _cleaned(connection, self.pooled)
            except Conflict:
                healthy = True  # the server refused a statement; the session is fine
                raise
            except asyncio.CancelledError:
                raise
            except StoreError:
                raise
            except Exception:
                healthy = pool.ours
                raise
            finally:
                if healthy and not connection.is_closed() and not connection.is_in_transaction() and not self._closed:
                    pool.idle.append(connection)
                else:
                    connection.terminate()

    async def close(self) -> None:
        self._closed = True
        for pool in (self.engine, self.topics, self.users):
            while pool.idle:
                with suppress(Exception):
                    await pool.idle.pop().close(timeout=2.0)


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
    except (asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
        raise Conflict(str(error)) from error
    except asyncpg.LockNotAvailableError as error:
        raise Busy(str(error)) from error
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError) as error:
        raise NotOurDatabase(
            f"{where} has no Holdfast tables, or those of an older version: {error}",
            hint="run `holdfast migrate`; check that the URL names the right database",
        ) from error
    except asyncpg.InvalidCatalogNameError as error:
        raise StoreUnavailable(
            f"there is no such database as {where} names: {error}", hint="create it, or correct the URL"
        ) from error
    except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError) as error:
        raise StoreUnavailable(
            f"PostgreSQL refused the login to {where}: {error}", hint="check user and password in the URL"
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreUnavailable(
            f"{where} does not let this role do that: {error}",
            hint="grant the role what docs/security.md says; if the schema is older than this code, let its owner run "
            "`holdfast migrate`",
        ) from error
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise StoreUnavailable(
            f"{where} cannot be written: {error}", hint="connect to the primary, with a role that may write"
        ) from error
    except asyncpg.DiskFullError as error:
        raise StoreUnavailable(
            f"the disk of {where} is full: {error}", hint="free some space; work goes on by itself then"
        ) from error
    except (
        asyncpg.PostgresConnectionError,
        asyncpg.OperatorInterventionError,
        asyncpg.CannotConnectNowError,
        asyncpg.TooManyConnectionsError,
        asyncpg.InternalClientError,
        asyncpg.InterfaceError,
        ConnectionError,
        TimeoutError,
        OSError,
    ) as error:
        if isinstance(error, ValueError):
            raise  # asyncpg's word for an argument that does not fit: a poison operation, not a lost server
        raise StoreUnavailable(
            f"PostgreSQL at {where} cannot be reached: {error or type(error).__name__}",
            hint="check that the server runs and that the URL is right; workers reconnect by themselves",
        ) from error
