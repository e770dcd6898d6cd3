"""The other side of `holdfast.runtime.processes`: a process that runs one action after another until it is told off.

Started as `python -m holdfast.runtime.process_child SOCKET PARENT`. User code runs on the main thread, as it would in a
program. A second thread reads the socket all the time, because its end is how a child learns that its parent is gone.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import importlib.util
import operator
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Final, NoReturn

import msgspec

from holdfast.authoring.actions import Action
from holdfast.authoring.context import Context, NodeInfo, entered
from holdfast.authoring.dags import Dag
from holdfast.authoring.flow_control import signal_in
from holdfast.authoring.registry import default_registry
from holdfast.core import quoting
from holdfast.core.codec import ErrorRecord, decode_error, encode_error
from holdfast.core.errors import UsageError
from holdfast.runtime.outcome import Meter
from holdfast.runtime.processes import (
    SECOND_MAIN,
    Answer,
    Beat,
    Begun,
    Call,
    Done,
    Failed,
    FromChild,
    Hello,
    Instance,
    Note,
    Signalled,
    ToChild,
    Used,
    framed,
    take_frame,
)

_PR_SET_PDEATHSIG: Final = 1
_RECEIVE_BYTES: Final = 256 * 1024
_decode: Final = msgspec.msgpack.Decoder(ToChild).decode


class Child:
    """This process: its socket, and the call it is busy with."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._process = os.getpid()
        self._sending = threading.Lock()
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._current = 0
        self._old_mains: list[ModuleType] = []

    def serve(self) -> NoReturn:
        """Run calls as they come. Ends only with the process."""
        messages = self._messages()
        hello = next(messages)
        if isinstance(hello, Hello):
            _adopt(hello)
        threading.Thread(target=self._listen, args=(messages,), name="holdfast-parent", daemon=True).start()
        while True:
            call = self._calls.get()
            self._current = call.number
            self._send(Begun(call.number))
            answer = self._answer(call)
            self._current = 0
            if self._is_copy():
                _end_copy()
            _flush()
            self._send(answer)

    def _is_copy(self) -> bool:
        """Whether user code forked this process. It has the socket, and is nobody who may answer (G3)."""
        return os.getpid() != self._process

    def _messages(self) -> Iterator[ToChild]:
        received = bytearray()
        while True:
            frame = take_frame(received)
            if frame is not None:
                yield _decode(frame)
                continue
            data = self._connection.recv(_RECEIVE_BYTES)
            if not data:
                end_everything()
            received += data

    def _listen(self, messages: Iterator[ToChild]) -> None:
        try:
            for message in messages:
                if isinstance(message, Call):
                    self._calls.put(message)
        finally:
            end_everything()

    def _send(self, message: FromChild) -> None:
        if self._is_copy():
            return
        try:
            with self._sending:
                self._connection.sendall(framed(message))
        except OSError:
            end_everything()

    def _answer(self, call: Call) -> Answer:
        returned = False
        if not call.context.may_quote:
            quoting.forbid_for(self)
        try:
            action = self._action(call)
            args, kwargs = action.call.decode_call(call.call, call.codec)
            meter = Meter()
            try:
                with entered(self._context(call)):
                    value = meter.call(lambda: action.fn(*args, **kwargs))
                meter.saw(value)
            finally:
                self._send(Used(call.number, meter.cpu_seconds, meter.returned))
            returned = True
            return Done(call.number, action.call.encode_result(value, limit=call.context.payload_limit_bytes))
        except BaseException as error:  # SystemExit too: it ends the action, not the slot
            if self._is_copy():
                _end_copy(error)
            if (wish := signal_in(error)) is not None:
                return Signalled.of(call.number, wish)
            record = encode_error(error, earlier=call.earlier)
            if call.module != call.import_as:
                record = _renamed(record, call.import_as, call.module)
            return Failed(call.number, record, repeatable=not returned)

    def _context(self, call: Call) -> Context:
        told, number = call.context, call.number

        def note(text: str) -> None:
            if self._current == number:  # not from a thread that outlived its call
                self._send(Note(number, text))

        async def heartbeat() -> None:
            if self._current == number:
                self._send(Beat(number))

        return Context(
            run_id=told.run_id,
            workflow_name=told.workflow_name,
            node=NodeInfo(id=told.node_id or told.node, name=told.node, attempt=told.attempt),
            idempotency_key=told.idempotency_key,
            workflow=self._instance(told.instance),
            worker=told.worker,
            on_heartbeat=heartbeat,
            on_note=note,
        )

    def _instance(self, told: Instance | None) -> Dag | None:
        """The instance of the class that the node belongs to; None where this process can't have the class."""
        if told is not None:
            with suppress(Exception, SystemExit):
                found = operator.attrgetter(told.qualname)(self._module(told))
                if isinstance(found, type) and issubclass(found, Dag):
                    return found.decode_fields(told.fields)
        return None

    def _action(self, call: Call) -> Action[..., Any]:
        module = self._module(call)
        with suppress(AttributeError):
            found = operator.attrgetter(call.qualname)(module)
            if isinstance(found, Action):
                return found
        # The name may be bound to something else by now, such as the plain function.
        for action in default_registry.actions.values():
            place = action.__holdfast__.place
            if place.qualname == call.qualname and place.module in (call.module, call.import_as):
                return action
        raise UsageError(
            f"{call.target} is no action in a process that imports {call.import_as}",
            hint="define it at the top level of its module, unconditionally, under its own name",
        )

    def _module(self, place: Call | Instance) -> ModuleType:
        module = sys.modules.get(place.import_as) or _imported(place)
        if place.module == "__main__" and sys.modules["__main__"] is not module:
            # Code that says `import __main__` means the program, not this file. Dropping the old one would empty it.
            self._old_mains.append(sys.modules["__main__"])
            sys.modules["__main__"] = module
        return module


def _imported(place: Call | Instance) -> ModuleType:
    if place.import_as == SECOND_MAIN and place.file is not None:
        return _loaded_from(place.file, SECOND_MAIN)
    try:
        return importlib.import_module(place.import_as)
    except ModuleNotFoundError as missing:
        own = f"{place.import_as}.".startswith(f"{missing.name}.")
        if not own or place.file is None:
            raise
        # The parent loaded it from a file that is on nobody's path.
        return _loaded_from(place.file, place.import_as)


def _adopt(hello: Hello) -> None:
    """Import from where the parent does, and leave no trace of how this process was started."""
    sys.path[:] = hello.path
    if hello.python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = hello.python_path


def _loaded_from(file: str, name: str) -> ModuleType:
    """The module in this file, which may have any suffix, executed under this name."""
    loader = SourceFileLoader(name, file)
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is None:
        raise UsageError(f"{file} can't be loaded as {name}", hint="put the action into a module on sys.path")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _renamed(error: bytes, ours: str, theirs: str) -> bytes:
    """The record with classes of our copy of the main program under the name that the parent knows them by."""

    def name(qualified: str) -> str:
        return theirs + qualified.removeprefix(ours) if qualified.startswith(f"{ours}.") else qualified

    def changed(record: ErrorRecord) -> ErrorRecord:
        return msgspec.structs.replace(
            record,
            qualified=name(record.qualified),
            bases=tuple(name(base) for base in record.bases),
            cause=None if record.cause is None else changed(record.cause),
        )

    return msgspec.json.encode(changed(decode_error(error)))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # user code may have closed it; and what it printed must survive a kill
            stream.flush()


def _end_copy(error: BaseException | None = None) -> NoReturn:
    """End as a program of its own would, with the exit code that whoever forked it waits for."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        code = error.code or 0
    elif error is not None:
        with suppress(Exception):
            traceback.print_exception(error)
    _flush()
    os._exit(code & 0xFF)


def end_everything() -> NoReturn:
    """End this process and what user code has started in it, at once."""
    with suppress(OSError):
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _die_with(parent: int) -> None:
    """End when the parent does, even while C code holds the interpreter and the listening thread can't run."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        end_everything()


def main() -> NoReturn:
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    _die_with(parent)
    # A service manager sends SIGTERM to all processes of a worker; the worker decides what is still finished. Not
    # SIG_IGN, which programs that user code starts would inherit.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with suppress(RuntimeError, AttributeError):  # a daemon may have no standard error
        faulthandler.enable()  # a crash in C then says where in the user's code it happened
    Child(socket.socket(fileno=descriptor)).serve()


if __name__ == "__main__":
    main()
