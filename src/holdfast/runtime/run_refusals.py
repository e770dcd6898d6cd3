"""What does not exist on a run's loop, and how each attempt to use it is refused.

A durable function may wait only for what its history can repeat. Sockets, threads, processes, signals and other
loops can't be repeated, so the run's loop has none of them: the methods that asyncio and its users would call are
here, and each raises `NotDurable` with the user's line before anything has happened.

Some uses reach no method of the loop. They are found where asyncio passes by: a task that was not made by the loop
when it schedules its first step, `as_completed` over coroutines (a set of objects that hash by memory address, so the
numbers of their tasks would differ in a replay) by its code in the stack, and awaits of another loop's futures by the
error that asyncio itself raises.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import inspect
import logging
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any, Final

from holdfast.core.errors import UsageError
from holdfast.runtime.run_calls import DurableCall
from holdfast.runtime.run_lines import UNKNOWN_LINE, line_of_error
from holdfast.runtime.run_task import RunFuture, RunTask

log = logging.getLogger("holdfast.functions")

# Requests that abandoned generators made, each told once a process.
_warned_of: set[str] = set()


class NotDurable(UsageError):
    """A durable function used something that its history can't repeat."""

    default_hint = "do it in an @action and await that"


_INTO_ACTION: Final = "do it in an @action and await that; an action may use the network, threads and processes"
_NOT_YOURS: Final = "leave the loop of a durable function to Holdfast; asyncio's functions work on it"


def _refused(method: str, hint: str = _INTO_ACTION) -> Any:
    def refuse(self: DurableOnly, *args: Any, **kwargs: Any) -> Any:
        for argument in args:
            if inspect.iscoroutine(argument):
                argument.close()  # it will never run; without this Python would warn of that as well
        raise self.not_durable(f"loop.{method}()", hint)

    refuse.__name__ = refuse.__qualname__ = method
    return refuse


class DurableOnly(asyncio.AbstractEventLoop):
    """An event loop without a world: every method that would touch it raises `NotDurable`."""

    def not_durable(self, what: str, hint: str) -> NotDurable:
        """Return the error for `what`, with the user's line."""
        raise NotImplementedError

    create_connection: Any = _refused("create_connection")
    create_server: Any = _refused("create_server")
    create_unix_connection: Any = _refused("create_unix_connection")
    create_unix_server: Any = _refused("create_unix_server")
    create_datagram_endpoint: Any = _refused("create_datagram_endpoint")
    connect_accepted_socket: Any = _refused("connect_accepted_socket")
    connect_read_pipe: Any = _refused("connect_read_pipe")
    connect_write_pipe: Any = _refused("connect_write_pipe")
    start_tls: Any = _refused("start_tls")
    sendfile: Any = _refused("sendfile")
    getaddrinfo: Any = _refused("getaddrinfo")
    getnameinfo: Any = _refused("getnameinfo")
    sock_accept: Any = _refused("sock_accept")
    sock_connect: Any = _refused("sock_connect")
    sock_recv: Any = _refused("sock_recv")
    sock_recv_into: Any = _refused("sock_recv_into")
    sock_recvfrom: Any = _refused("sock_recvfrom")
    sock_recvfrom_into: Any = _refused("sock_recvfrom_into")
    sock_sendall: Any = _refused("sock_sendall")
    sock_sendfile: Any = _refused("sock_sendfile")
    sock_sendto: Any = _refused("sock_sendto")
    add_reader: Any = _refused("add_reader")
    remove_reader: Any = _refused("remove_reader")
    add_writer: Any = _refused("add_writer")
    remove_writer: Any = _refused("remove_writer")
    subprocess_exec: Any = _refused("subprocess_exec")
    subprocess_shell: Any = _refused("subprocess_shell")
    run_in_executor: Any = _refused("run_in_executor")
    set_default_executor: Any = _refused("set_default_executor")
    shutdown_default_executor: Any = _refused("shutdown_default_executor")
    add_signal_handler: Any = _refused("add_signal_handler", "handle signals in the program that runs the worker")
    remove_signal_handler: Any = _refused("remove_signal_handler", "handle signals in the program that runs the worker")
    run_forever: Any = _refused("run_forever", _NOT_YOURS)
    run_until_complete: Any = _refused("run_until_complete", "await it instead")
    stop: Any = _refused("stop", _NOT_YOURS)
    close: Any = _refused("close", _NOT_YOURS)
    set_task_factory: Any = _refused("set_task_factory", _NOT_YOURS)
    set_exception_handler: Any = _refused("set_exception_handler", _NOT_YOURS)
    default_exception_handler: Any = _refused("default_exception_handler", _NOT_YOURS)
    set_debug: Any = _refused("set_debug", _NOT_YOURS)
    shutdown_asyncgens: Any = _refused("shutdown_asyncgens", "close generators with contextlib.aclosing")

    get_debug: Any = bool  # () is False: asyncio's debug mode measures real time. Asked with every future and callback

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> None:
        return None


# --- what reaches no method of the loop -----------------------------------------------------------------------------

_WAIT: Final[CodeType] = asyncio.tasks._wait.__code__  # type: ignore[attr-defined]
_ENSURE: Final = frozenset(
    function.__code__
    for name in ("ensure_future", "_ensure_future")
    if (function := getattr(asyncio.tasks, name, None)) is not None
)
# A function up to 3.12, the constructor of an iterator since.
_AS_COMPLETED: Final = frozenset(
    code
    for owner in (asyncio.as_completed, getattr(getattr(asyncio.tasks, "_AsCompletedIterator", None), "__init__", None))
    if (code := getattr(owner, "__code__", None)) is not None
)
_FRAMES_UP_TO_AS_COMPLETED: Final = 4


def made_by_as_completed(coro: Any, caller: FrameType | None) -> bool:
    """Say whether `as_completed` is wrapping a plain coroutine; calls of actions hash in order, so they may pass."""
    if caller is None or caller.f_code not in _ENSURE or isinstance(coro, DurableCall):
        return False
    for _ in range(_FRAMES_UP_TO_AS_COMPLETED):
        if caller is None:
            return False
        if caller.f_code in _AS_COMPLETED:
            return True
        caller = caller.f_back
    return False


def spins(run_id: str, callbacks: int, line: str) -> NotDurable:
    """What to say of a run that runs and runs, and asks for nothing."""
    return NotDurable(
        f"run {run_id} ran {callbacks:,} callbacks without asking for anything: it spins at {line}",
        hint="wait with an asyncio.Event, a condition or asyncio.sleep() of more than 0 seconds instead of polling",
    )


def waited_without_mark(caller: FrameType) -> Any | None:
    """Return what `asyncio.wait` was given that does not hash in order of creation, if it is asyncio.wait that calls.

    It returns sets: with another loop's futures, or with what `gather` returns, they would iterate in another order
    in a replay.
    """
    if caller.f_code is not _WAIT:
        return None
    waited: Iterable[Any] = caller.f_locals["fs"]
    return next((each for each in waited if not isinstance(each, RunFuture | RunTask)), None)


def warn_of_abandoned_generator(run_id: str, name: str) -> None:
    """Tell of a request that is made while an abandoned generator is closed: allowed, and seldom meant."""
    if name in _warned_of:
        return  # every replay comes by here again
    _warned_of.add(name)
    log.warning(
        "run %s asks for %s while an abandoned async generator is closed, at a moment that may differ in a replay. "
        "Fix: iterate over it inside `async with contextlib.aclosing(...)`",
        run_id,
        name,
    )


_FOREIGN: Final = (
    "attached to a different loop",
    "belongs to a different loop",
    "bound to a different event loop",
    "cannot be called from a running event loop",
    "Cannot run the event loop while another loop is running",
)


def translated(run_id: str, error: BaseException) -> BaseException:
    """Return asyncio's complaint about another loop as `NotDurable`, with the user's line; any other error as it is."""
    found = _foreign(error)
    if found is None:
        return error
    line = line_of_error(found) or UNKNOWN_LINE
    told = NotDurable(
        f"run {run_id} used something of another event loop, at {line}: {str(found).rstrip('.')}",
        hint="wait for it in an @action; make locks, queues and events inside the durable function",
    )
    told.__cause__ = error
    return told


def _foreign(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := _foreign(each)) is not None), None)
    if isinstance(error, RuntimeError | ValueError) and any(words in str(error) for words in _FOREIGN):
        return error
    return None
