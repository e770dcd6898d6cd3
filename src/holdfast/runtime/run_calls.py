"""What goes out of a run and what comes in: requests, the calls that make them, and entries."""

from __future__ import annotations

import warnings
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from holdfast.runtime.run_lines import UNKNOWN_LINE
from holdfast.runtime.run_task import CALL_MARK, RunFuture

if TYPE_CHECKING:
    from holdfast.runtime.run_loop import RunLoop

T = TypeVar("T")

RESULT: Final = "result"
ERROR: Final = "error"
TIMER: Final = "timer"
CANCEL: Final = "cancel"


class Entry(msgspec.Struct, frozen=True):
    """Something that enters a run, decoded: the answer to a request, a timer that fired, a cancel.

    For `error` the value is the exception; for `cancel` an optional text; a timer has neither name nor value.
    """

    address: str
    kind: str
    name: str = ""
    digest: str = ""
    value: Any = None
    at_us: int = 0


class Pending(msgspec.Struct, frozen=True, eq=False):
    """A request that has no answer yet.

    It holds no task: whoever keeps it while an action runs must not keep the run's code alive past its eviction.
    """

    address: str
    kind: str
    name: str
    digest: str
    payload: Any
    future: RunFuture

    @property
    def line(self) -> str:
        """The user's line that waits for the answer. Found when asked for: whoever asked is still suspended there."""
        loop: Any = self.future.get_loop()
        line: str = loop.line_of_branch(self.address.rpartition(CALL_MARK)[0])
        return line or UNKNOWN_LINE


class Outcome(msgspec.Struct, frozen=True):
    """How a run's function ended: a value, or the exception that it raised."""

    value: Any
    error: BaseException | None


class Complaint(msgspec.Struct, frozen=True):
    """Something that went wrong in the run with nobody to tell: a callback that raised, a task never awaited."""

    message: str
    error: BaseException | None


def raisable(error: Any) -> BaseException:
    """Return the value of an error entry as an exception that can be raised into a coroutine."""
    if isinstance(error, StopIteration):
        told = RuntimeError(f"a call raised StopIteration({error.value!r})")
        told.__cause__ = error
        return told
    if not isinstance(error, BaseException):
        raise TypeError(f"the value of an error entry is an exception, not {type(error).__name__}")
    return error


class DurableCall(Coroutine[Any, Any, T]):
    """A request that is made when first awaited, by the task that awaits it.

    A coroutine to asyncio and to type checkers, so create_task, gather, TaskGroup, wait_for, shield and as_completed
    take it. Like a coroutine it can be awaited once.
    """

    __slots__ = ("__weakref__", "_answer", "_loop", "_over", "digest", "kind", "mark", "name", "payload")

    def __init__(self, loop: RunLoop, kind: str, name: str, digest: str, payload: Any) -> None:
        self._loop = loop
        self._answer: Generator[Any, Any, Any] | None = None
        self._over = False
        self.kind = kind
        self.name = name
        self.digest = digest
        self.payload = payload
        self.mark = loop.next_mark()

    def __hash__(self) -> int:
        return self.mark

    def __repr__(self) -> str:
        return f"<call of {self.name} in run {self._loop.run_id}>"

    def __await__(self) -> Generator[Any, Any, T]:
        if self._over or self._answer is not None:
            raise RuntimeError(f"this call of {self.name} was already awaited; call {self.name} again for another one")
        self._answer = answer = self._loop.request(self.kind, self.name, self.digest, self.payload).__await__()
        return answer

    def send(self, value: Any) -> Any:
        answer = self._answer
        if answer is None or self._over:
            answer = self.__await__()
        return answer.send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        if self._answer is not None:
            return self._answer.throw(typ) if val is None and tb is None else self._answer.throw(typ, val, tb)
        self._over = True  # cancelled before its first step: nothing was asked for
        if isinstance(typ, type):
            typ = val if isinstance(val, BaseException) else typ()
        raise typ if tb is None else typ.with_traceback(tb)

    def close(self) -> None:
        self._over = True
        if self._answer is not None:
            self._answer.close()

    def __del__(self) -> None:
        # A forgotten await is as silent a mistake here as with a plain coroutine, so it is reported the same way. But
        # what a cancelled function had not come to was not forgotten; the collector may find it before it is evicted.
        if self._answer is None and not self._over and not (self._loop.is_closed() or self._loop.done):
            warnings.warn(
                f"the call of {self.name} was never awaited, so it was not made", RuntimeWarning, stacklevel=2
            )
