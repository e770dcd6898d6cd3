"""Actions in processes of their own, which can be killed: what `isolation="process"` means.

Theory of operation. A slot is a Python process (`process_child`) that is started when first needed and kept for the
next call. Parent and child talk over a socket pair in frames: four bytes of length, then MessagePack. Only payload
bytes, names and error records cross, never code or pickles; the child imports the action's module by itself. Standard
output stays the user's.

What can go wrong, and what is done about it:

- User code hangs, or is no longer wanted. Cancelling the caller kills the child at once with SIGKILL, and with it what
  it started, since each child leads a process group of its own. The slot is free when the child is reaped.
- The child dies (a crash in C, `os._exit`, out of memory). A thread that waits for its exit notices even if a
  grandchild keeps the socket open; the caller gets ProcessDied.
- An idle child dies. A call that it had not begun is given to another one, since no user code has run.
- The parent dies, by SIGKILL too. The child sees the end of the socket, even while user code runs, and ends itself.
- Ctrl-C and SIGTERM reach whole groups. Children are not in the parent's group and ignore SIGTERM: the parent decides
  what is still to be finished.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from holdfast.authoring.flow_control import SIGNALS, FlowControl, ReattemptThisNode
from holdfast.core.codec import DEFAULT_LIMIT_BYTES, MAX_INT, ErrorRecord, decode_error
from holdfast.core.errors import EngineClosed, RemoteError, RunError, UsageError
from holdfast.runtime.exception_classes import known_exception
from holdfast.runtime.threads import Slots

if TYPE_CHECKING:
    from holdfast.authoring.dags import Dag

CHILD_MODULE: Final = "holdfast.runtime.process_child"
# The name under which a script is loaded a second time, so that its `if __name__ == "__main__"` part does not run.
SECOND_MAIN: Final = "__mp_main__"

_RECEIVE_BYTES: Final = 256 * 1024
_REAP_SECONDS: Final = 5.0


# --- what goes wrong ---------------------------------------------------------------------------------------------


class RemoteFailure(Exception):
    """The action raised in its process; `error` is the encoded record of what it raised.

    Not `repeatable` if it returned what can't be stored: another attempt would do all it did once more.
    """

    def __init__(self, error: bytes, *, repeatable: bool = True) -> None:
        super().__init__(error)
        self.error: Final = error
        self.repeatable: Final = repeatable

    def __str__(self) -> str:
        return f"{self.record.type}: {self.record.message}"

    @property
    def record(self) -> ErrorRecord:
        """The record, decoded."""
        return decode_error(self.error)

    def to_exception(self) -> Exception:
        """The exception as far as this process can rebuild it, for deciding about a retry.

        One whose class is not loaded here is stood in for by its nearest base class that is, with the same message:
        a NonRetryable stays one whatever its class.
        """
        record = self.record
        rebuilt = record.to_exception(known_exception)
        if not isinstance(rebuilt, RemoteError) or record.qualified.endswith(".RemoteError"):
            return rebuilt
        for qualified in record.bases:
            kind = known_exception(qualified)
            if kind is Exception:
                break
            if kind is not None and issubclass(kind, Exception):
                stand_in = record.stand_in(kind)
                if stand_in is not None:
                    stand_in.__cause__ = rebuilt
                    return stand_in
        return rebuilt


class ProcessDied(RunError):
    """The process that ran an action ended before the action did; `exit_code` is negative for a signal."""

    default_hint = "look at the worker's standard error; for SIGKILL, look for an out-of-memory kill in the system log"

    def __init__(self, message: str, *, exit_code: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


# --- frames ------------------------------------------------------------------------------------------------------


class Instance(msgspec.Struct, frozen=True):
    """The instance of a Dag class that a call belongs to: where its class is, and its fields as plain JSON."""

    module: str
    import_as: str
    file: str | None
    qualname: str
    fields: bytes


class CallContext(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `hf.current()` says in the child."""

    run_id: str
    workflow_name: str
    node: str
    attempt: int
    idempotency_key: str
    node_id: str = ""
    worker: str = ""
    payload_limit_bytes: int = DEFAULT_LIMIT_BYTES
    may_quote: bool = True
    instance: Instance | None = None


class Hello(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """First to a child: where this process imports from."""

    path: list[str]
    python_path: str | None


class Call(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """To a child: run this action."""

    number: int
    module: str
    import_as: str
    file: str | None
    qualname: str
    call: bytes
    codec: str
    context: CallContext
    earlier: bytes | None

    @property
    def target(self) -> str:
        return f"{self.module}:{self.qualname}"


class Begun(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From a child: from here on, user code may have run."""

    number: int


class Note(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From a child: `hf.current().note(text)`."""

    number: int
    text: str


class Beat(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From a child: `hf.current().heartbeat()`."""

    number: int


class Used(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From a child, before its answer: the processor time that the action took, and what it returned, shortened."""

    number: int
    cpu_seconds: float
    returned: str | None


class Done(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From a child: the action's encoded result."""

    number: int
    result: bytes


class Failed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From a child: the encoded record of what the action, or the way to it, raised."""

    number: int
    error: bytes
    repeatable: bool = True


class Signalled(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From a child: the action told the engine what becomes of its node or run (`hf.current().skip()` …)."""

    number: int
    signal: str
    reason: str
    after_seconds: float = 0.0
    after_runs: tuple[str, ...] = ()

    @classmethod
    def of(cls, number: int, signal: FlowControl) -> Signalled:
        """The signal as data; a class of the user's own goes as the one of ours that it derives from."""
        kind = next(kind for kind in SIGNALS if isinstance(signal, kind))
        after_runs = getattr(signal, "after_runs", ())
        return cls(number, kind.__name__, signal.reason, getattr(signal, "after_seconds", 0.0), after_runs)

    def to_signal(self) -> FlowControl:
        """The signal again, on this side."""
        kind = next(kind for kind in SIGNALS if kind.__name__ == self.signal)
        if issubclass(kind, ReattemptThisNode):
            return kind(self.after_seconds, self.reason, self.after_runs)
        return kind(self.reason)


ToChild: TypeAlias = Hello | Call
Answer: TypeAlias = Done | Failed | Signalled
FromChild: TypeAlias = Begun | Note | Beat | Used | Answer

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(FromChild).decode


def framed(message: ToChild | FromChild) -> bytes:
    """The message as it goes over the socket."""
    data = _encode(message)
    return len(data).to_bytes(4, "big") + data


def take_frame(received: bytearray) -> bytes | None:
    """Remove the first whole frame from what was received and return its content; None if there is none yet."""
    if len(received) < 4:
        return None
    end = 4 + int.from_bytes(received[:4], "big")
    if len(received) < end:
        return None
    frame = bytes(received[4:end])
    del received[:end]
    return frame


# --- the parent's side -------------------------------------------------------------------------------------------


class _Child:
    """One process and our end of its socket. Used on one event loop; only its watcher runs elsewhere."""

    def __init__(self, loop: asyncio.AbstractEventLoop, when_gone: Callable[[_Child], None]) -> None:
        self.gone: Final = asyncio.Event()
        self.exit_code: int | None = None
        self.served = 0
        self.begun = 0
        self.slot_of: Slots | None = None
        self._loop: Final = loop
        self._when_gone: Final = when_gone
        self._asking = False
        self._received: Final = bytearray()
        self._socket, self._process = _started()
        self._to_send = framed(Hello(_import_path(), os.environ.get("PYTHONPATH")))
        threading.Thread(target=self._watch, name=f"holdfast-watch-{self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(
        self,
        call: Call,
        on_note: Callable[[str], object] | None,
        on_heartbeat: Callable[[], object] | None,
        on_used: Callable[[float, str | None], object] | None,
    ) -> Answer | None:
        """The child's answer; None if it ended, or talks nonsense, instead of giving one."""
        self._asking = True
        try:
            hello, self._to_send = self._to_send, b""
            await self._loop.sock_sendall(self._socket, hello + framed(call))
            while (message := await self._receive()) is not None:
                if message.number != call.number:
                    continue  # a thread that an earlier call left behind may still speak
                match message:
                    case Done() | Failed() | Signalled():
                        self.served += 1
                        return message
                    case Begun(number):
                        self.begun = number
                    case Note(text=text):
                        if on_note is not None:
                            on_note(text)
                    case Beat():
                        if on_heartbeat is not None:
                            on_heartbeat()
                    case Used(cpu_seconds=cpu_seconds, returned=returned):
                        if on_used is not None:
                            on_used(cpu_seconds, returned)
            return None
        except (OSError, msgspec.MsgspecError):
            return None
        finally:
            self._asking = False
            if self.exit_code is not None:
                self._socket.close()

    async def _receive(self) -> FromChild | None:
        while (frame := take_frame(self._received)) is None:
            data = await self._loop.sock_recv(self._socket, _RECEIVE_BYTES)
            if not data:
                return None
            self._received.extend(data)
        message: FromChild = _decode(frame)
        return message

    def kill(self) -> None:
        """SIGKILL to the child and all it started. Harmless when it is gone."""
        # Its number can't belong to another process: it is reaped on this thread only, by `bury`.
        if self.exit_code is None and self._process.returncode is None:
            # macOS refuses to signal a group whose members have all ended.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def bury(self) -> None:
        """Reap the child, which has ended, and tell whoever waits for that."""
        if self.exit_code is not None:
            return
        self.kill()  # what it started must not outlive it
        self.exit_code = self._process.wait()
        if self._asking:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the reader, which closes it
        else:
            self._socket.close()
        self.gone.set()
        self._when_gone(self)

    def bury_within(self, seconds: float) -> None:
        """Wait here for the child's end and bury it; leave it to the watcher if that takes longer."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            self.bury()

    def _watch(self) -> None:
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        try:
            self._loop.call_soon_threadsafe(self.bury)
        except RuntimeError:  # the loop is closed
            self._process.wait()
            self._socket.close()


class ProcessSlots:
    """Runs actions in at most `limit` processes, started when first needed and kept. For one event loop."""

    def __init__(self, limit: int, when_died: Callable[[], None] | None = None) -> None:
        """`when_died` is called for every process that ended without being told to, idle ones included."""
        self._slots: Final = Slots(limit, "ProcessSlots")
        self._when_died: Final = when_died
        self._idle: Final[list[_Child]] = []
        self._children: Final[set[_Child]] = set()
        self._numbers: Final = itertools.count(1)

    @property
    def limit(self) -> int:
        return self._slots.limit

    @property
    def busy(self) -> int:
        """Calls that are running, and killed children that are not yet reaped."""
        return self._slots.busy

    @property
    def pids(self) -> frozenset[int]:
        """The processes that are alive, idle ones included."""
        return frozenset(child.pid for child in self._children)

    async def run(
        self,
        target: str,
        call: bytes,
        codec: str,
        context: Mapping[str, object],
        *,
        earlier: bytes | None = None,
        on_note: Callable[[str], object] | None = None,
        on_heartbeat: Callable[[], object] | None = None,
        on_used: Callable[[float, str | None], object] | None = None,
    ) -> bytes:
        """The encoded result of the action `module:qualname` for an encoded call.

        Raises RemoteFailure if the action raised (`earlier`, the error of the attempt before, is continued in its
        record), a FlowControl if it signalled one, ProcessDied if its process ended, EngineClosed after `close`.
        Cancelling kills the process.
        """
        frame = _call_frame(next(self._numbers), target, call, codec, context, earlier)
        while True:
            await self._slots.take()
            child = self._child()
            fresh = child.served == 0
            try:
                answer = await child.ask(frame, on_note, on_heartbeat, on_used)
            except BaseException:
                await self._end(child)
                raise
            if answer is not None:
                if child.exit_code is None:
                    self._idle.append(child)
                self._slots.give_back()
                if isinstance(answer, Failed):
                    raise RemoteFailure(answer.error, repeatable=answer.repeatable)
                if isinstance(answer, Signalled):
                    raise answer.to_signal()
                return answer.result
            await self._end(child)
            if self._slots.closed:
                raise EngineClosed(f"the process that ran {target} was ended because its engine closed")
            self._died()
            if fresh or child.begun == frame.number:
                raise ProcessDied(
                    f"the process {child.pid} that ran {target} {_manner(child.exit_code)}", exit_code=child.exit_code
                )

    def close(self) -> None:
        """Kill all processes, wait until they are gone, and run nothing more. Calls that ran get EngineClosed."""
        self._slots.close()
        children = list(self._children)
        for child in children:
            child.kill()
        for child in children:
            child.bury_within(_REAP_SECONDS)

    def _child(self) -> _Child:
        """An idle child or a new one; gives the slot back if there can be none."""
        if self._idle:
            return self._idle.pop()
        try:
            child = _Child(asyncio.get_running_loop(), self._gone)
        except BaseException:
            self._slots.give_back()
            raise
        self._children.add(child)
        return child

    async def _end(self, child: _Child) -> None:
        """Kill the child and wait until it is reaped. Its slot is given back then, also if this wait is cancelled."""
        child.kill()
        if child.exit_code is not None:
            self._slots.give_back()
        else:
            child.slot_of = self._slots
            await child.gone.wait()

    def _gone(self, child: _Child) -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
            if not self._slots.closed:
                self._died()
        if child.slot_of is not None:
            child.slot_of.give_back()

    def _died(self) -> None:
        if self._when_died is not None:
            self._when_died()


def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        # The child must find this package before it can be told anything. It puts the variable back, for what the
        # user's code may start; -P keeps the current directory from shadowing the standard library.
        path = os.pathsep.join(place for place in _import_path() if os.pathsep not in place)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", CHILD_MODULE, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "PYTHONPATH": path},
            process_group=0,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours, process


def _import_path() -> list[str]:
    """sys.path with every place absolute: the child may be in another directory by the time it looks."""
    return [os.path.abspath(place) for place in sys.path]


def instance_told(instance: Dag | None) -> Instance | None:
    """A node's instance for a child, which has it too if it can import the class; None if nobody but us can."""
    if instance is None:
        return None
    owner = type(instance)
    try:
        place = _where(owner.__module__, owner.__qualname__)
    except UsageError:
        return None
    return Instance(owner.__module__, *place, owner.__qualname__, instance.encode_fields(limit=MAX_INT))


def _call_frame(
    number: int, target: str, call: bytes, codec: str, context: Mapping[str, object], earlier: bytes | None
) -> Call:
    module, separator, qualname = target.partition(":")
    if not (module and separator and qualname):
        raise UsageError(f"{target!r} names no action", hint='write it as "module:qualname"')
    try:
        known = msgspec.convert(dict(context), CallContext)
    except msgspec.ValidationError as wrong:
        raise UsageError(
            f"the context for {target} is incomplete or wrong: {wrong}",
            hint=f"pass the fields {', '.join(CallContext.__struct_fields__)}",
        ) from wrong
    import_as, file = _where(module, target)
    return Call(number, module, import_as, file, qualname, call, codec, known, earlier)


def _where(module: str, target: str) -> tuple[str, str | None]:
    """The name by which another process can import a module of this one, and its file in case it can't."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if module != "__main__":
        return module, file
    spec = getattr(loaded, "__spec__", None)
    if spec is not None:  # python -m package.module: the program has a name of its own
        return spec.name, file
    if file is None:
        raise UsageError(
            f"{target} was defined interactively, where another process can't find it",
            hint='put the action into a file, or leave out isolation="process"',
        )
    return SECOND_MAIN, os.path.abspath(file)


def _manner(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"ended by itself with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
