"""Exceptions as data: what an attempt died of, readable without the code that raised it.

A record never fails to be written. Exceptions come from user code and may be hostile: str() that raises, messages of
megabytes, arguments that no codec takes. Each part is therefore taken with care and cut to size, and what can't be
kept is left out. Records are always JSON, whatever codec the payloads use, so that operators can read them.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import asdict

from holdfast.core import quoting
from holdfast.core.authors_line import is_ours
from holdfast.core.codec_failure_parts import (
    CARRIED,
    LEFT_OUT,
    RECORDED,
    STAND_IN,
    hides,
    made_plainly,
    parts_of,
    read_arguments,
    read_typed,
    set_attribute,
    unmade,
)
from holdfast.core.errors import HoldfastError, RemoteError, RunFailed

MESSAGE_LIMIT: Final = 8_000
TRACEBACK_LIMIT: Final = 16_000
_EARLIER_MESSAGE_LIMIT: Final = 1_000
_NOTE_LIMIT: Final = 4_000
_CAUSES: Final = 5
_MEMBERS: Final = 50
_NESTED_GROUPS: Final = 3
_EARLIER: Final = 100
_EARLIER_WITH_TRACEBACK: Final = 3
_OURS: Final = f"{HoldfastError.__module__}.{HoldfastError.__qualname__}"
_FIX: Final = ". Fix: "
_TOLD: Final = "__told__"  # the text of an exception whose class is not here

KnownClasses = Callable[[str], type | None]
"""From a qualified name to the class, or None where this process does not have it."""


ExceptionClass: TypeAlias = type[Exception]  # in a record, `type` is a field
AnyExceptionClass: TypeAlias = type[BaseException]


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One exception as stored. `earlier` holds the errors of the attempts before, oldest first."""

    type: str
    qualified: str
    message: str
    bases: tuple[str, ...] = ()
    """Qualified names of the base classes, nearest first, so that handlers match without the class at hand."""
    traceback: str = ""
    args: list[object] | None = None
    literal: str | None = None
    """The arguments as Python writes them, where JSON can't hold them and this can: bytes, tuples, lone surrogates."""
    packed: list[object] | None = None
    """The arguments as a flow writes its values, where neither of the two can hold them: Decimals, dates, UUIDs."""
    exact: bool = False
    """Whether arguments and attributes are the exception's own, so that its constructor, which might make others of
    them, is not called. Not so in rows of older versions, and if the class has a `__reduce__` of its author's."""
    state: dict[str, object] | None = None
    typed: dict[str, object] | None = None
    """Attributes as a flow writes its values: those that JSON can't hold, and those in slots."""
    cause_as: tuple[str, ...] = ()
    """Attributes that are the cause."""
    left_out: tuple[str, ...] = ()
    """Attributes that could not be kept."""
    at_home: bool | None = None
    """Whether the process that recorded it had the code of the run's workflow: then a function has its class, though
    the process that replays it may not have loaded it yet. None in rows of older versions."""
    cause: ErrorRecord | None = None
    earlier: tuple[ErrorRecord, ...] = ()
    members: tuple[ErrorRecord, ...] = ()
    """Of an exception group: what it holds, in its order."""

    @property
    def fact(self) -> str:
        """The message without the fix that an error of ours ends with."""
        return self.message.partition(_FIX)[0] if _OURS in (self.qualified, *self.bases) else self.message

    @property
    def fix(self) -> str:
        """What an error of ours ends with."""
        return self.message.removeprefix(self.fact).removeprefix(_FIX)

    @property
    def arguments(self) -> tuple[object, ...] | None:
        """What the exception's `args` were; None if that could not be kept."""
        return read_arguments(self.args, self.literal, self.packed)

    @property
    def attributes(self) -> dict[str, object]:
        """What Python code had set on it, as far as that could be kept."""
        return {**(self.state or {}), **read_typed(self.typed)}

    def to_exception(self, known: KnownClasses = lambda qualified: None, *, at_home: bool | None = None) -> Exception:
        """The exception with its own type and message if its class is built in or `known`; else RemoteError.

        `known` maps a qualified name to a class. The result has its cause as `__cause__`, and where it was raised as a
        note: the frames are gone. It has those attributes that could be kept. With `at_home`, which a function is
        given, what it catches does not depend on whether its class is loaded yet (G8): see `_in_its_place`.
        """
        exception = self._rebuilt(known, at_home)
        if exception is None and at_home is not None:
            exception = self._in_its_place(known, at_home)
        if exception is None:
            exception = RemoteError(self.type, self.message, self.traceback)
        self._note_where(exception)
        if self.cause is not None and exception.__cause__ is None:
            exception.__cause__ = self.cause.to_cause(known, at_home=at_home)
        for name in self.cause_as:
            with suppress(Exception):
                set_attribute(exception, name, exception.__cause__)
        if isinstance(exception, RunFailed):
            exception.cause, exception.attempts = exception.__cause__, ()
            if exception.cause is not None and self.cause is not None:
                exception.attempts = self.cause.attempts(exception.cause, known, at_home=at_home)
        if self.earlier:
            with suppress(Exception):  # a class may forbid it
                exception.__dict__[CARRIED] = self.earlier
        return exception

    def to_cause(self, known: KnownClasses = lambda qualified: None, *, at_home: bool | None = None) -> BaseException:
        """As `to_exception`, for what is told and never raised: SystemExit and its like may be themselves there."""
        with suppress(Exception):
            kind = self._class(self.qualified, known)
            if kind is not None and not issubclass(kind, Exception):
                told = kind(*(self.arguments or ()))
                if type(told) is kind and _message(told) == self.message:
                    self._note_where(told)
                    return told
        return self.to_exception(known, at_home=at_home)

    def attempts(
        self,
        last: BaseException,
        known: KnownClasses = lambda qualified: None,
        *,
        at_home: bool | None = None,
    ) -> tuple[BaseException, ...]:
        """What each attempt raised, the oldest first; `last` is this record's own exception."""
        return (*(each.to_exception(known, at_home=at_home) for each in self.earlier), last)

    def stand_in(self, kind: ExceptionClass) -> Exception | None:
        """An exception of this class with the recorded message, made without calling its constructor.

        The constructor may want other arguments than the exception keeps: `Declined(5)` whose message is "declined 5".
        None if the class can't be made without it.
        """
        for arguments in (self.arguments, (self.message,)):
            if arguments is not None:
                with suppress(Exception):
                    exception = self._with_state(self._unmade(kind), arguments)
                    if self._is_told_by(exception, kind):
                        return exception
        with suppress(Exception):  # its text is made of what was not kept, so that the recorded one is put in its place
            speaking: ExceptionClass = type(kind.__name__, (kind,), _names_of(kind) | {"__str__": _first_argument})
            exception = self._with_state(self._unmade(speaking), (self.message,))
            if self._is_told_by(exception, speaking):
                return exception
        return None

    def _rebuilt(self, known: KnownClasses, at_home: bool | None) -> Exception | None:
        try:
            kind = self._class(self.qualified, known)
            if kind is None or not issubclass(kind, Exception):
                return None
            if self.members:
                if kind is not ExceptionGroup:
                    return None
                message = str((self.state or {})["message"])
                members = [each.to_exception(known, at_home=at_home) for each in self.members]
                group = ExceptionGroup(message, members)
                return group if self._is_told_by(group, kind) else None
            kind = _without(kind, self.left_out)
        except Exception:
            return None
        if self.arguments is not None:
            with suppress(Exception):
                made = made_plainly(kind, self.arguments) if self.exact else kind(*self.arguments)
                exception = self._with_state(made)
                # A class that makes its message from other arguments would now say something else than it said.
                if self._is_told_by(exception, kind):
                    return exception
        return self.stand_in(kind)

    def _in_its_place(self, known: KnownClasses, at_home: bool) -> Exception | None:
        """What stands for an exception whose class is not here: also an instance of those of its bases that are.

        What a function's code can name is loaded wherever it runs, so that `except` does the same with this as with the
        original, which another process may have raised there. If the class came from the function's own program this
        is no RemoteError, as the original was none, and has its name, text, arguments and attributes.
        """
        for start in range(len(self.bases)):  # a base that nothing can be derived from is passed over
            with suppress(Exception):
                nearest: list[ExceptionClass] = []
                for kind in (self._class(qualified, known) for qualified in self.bases[start:]):
                    if kind is not None and issubclass(kind, Exception):
                        nearest += () if any(issubclass(each, kind) for each in nearest) else (kind,)
                if nearest:
                    return self._likeness(tuple(nearest)) if at_home else self._remote(tuple(nearest))
        return None

    def _likeness(self, bases: tuple[ExceptionClass, ...]) -> Exception:
        kind = _without(_class_in_its_place(self.type, self.qualified, self.bases, bases), self.left_out)
        exception, kept = self._with_state(unmade(kind), (self.message,)), self.arguments
        with suppress(Exception):
            exception = self._with_state(made_plainly(kind, exception.args if kept is None else kept))
        set_attribute(exception, _TOLD, self.message)
        return exception

    def _remote(self, bases: tuple[ExceptionClass, ...]) -> Exception:
        told = RemoteError(self.type, self.message, self.traceback)
        bases = tuple(kind for kind in bases if not issubclass(RemoteError, kind))
        if not bases:
            return told
        kind: ExceptionClass = type(RemoteError.__name__, (RemoteError, *bases), _names_of(RemoteError))
        exception = unmade(kind)  # no constructor of theirs: it would set attributes of its own
        exception.args = told.args
        exception.__dict__.update(told.__dict__)
        return exception

    def _class(self, qualified: str, known: KnownClasses) -> AnyExceptionClass | None:
        module, _, name = qualified.rpartition(".")
        kind = getattr(builtins, name, None) if module == "builtins" else known(qualified)
        return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None

    def _unmade(self, kind: ExceptionClass) -> Exception:
        return unmade(kind) if self.exact else kind.__new__(kind)

    def _with_state(self, exception: Exception, arguments: tuple[object, ...] | None = None) -> Exception:
        if arguments is not None:
            exception.args = arguments
        if self.state:
            exception.__dict__.update(self.state)
        for name, value in read_typed(self.typed).items():
            set_attribute(exception, name, value)
        return exception

    def _note_where(self, exception: BaseException) -> None:
        if "\n  File " in self.traceback:  # else it was never raised
            with suppress(Exception):  # a class may forbid it
                exception.add_note(f"{RECORDED}\n{_cut(self.traceback.rstrip(), _NOTE_LIMIT)}")

    def _is_told_by(self, exception: Exception, kind: ExceptionClass) -> bool:
        return type(exception) is kind and _message(exception) == self.message


def _names_of(kind: AnyExceptionClass) -> dict[str, object]:
    """For a class that is made here under the name of this one."""
    stands_for = vars(kind).get(STAND_IN, kind)
    return {"__module__": kind.__module__, "__qualname__": kind.__qualname__, STAND_IN: stands_for}


@lru_cache(maxsize=256)
def _class_in_its_place(
    name: str, qualified: str, bases: tuple[str, ...], nearest: tuple[ExceptionClass, ...]
) -> ExceptionClass:
    """One for all exceptions of a class: code may compare their types."""
    module, _, last = qualified.rpartition(".")
    names: dict[str, object] = {"__module__": module, "__qualname__": last, STAND_IN: bases, "__slots__": (_TOLD,)}
    return type(name, nearest, names | {"__str__": _told})


def _without(kind: ExceptionClass, left_out: tuple[str, ...]) -> ExceptionClass:
    """The class, or a likeness of it where it would show values of its own for attributes that were not kept."""
    hidden = tuple(name for name in left_out if hides(kind, name))
    if not hidden:
        return kind
    names = _names_of(kind) | {LEFT_OUT: hidden} | {name: property(_Missing(name)) for name in hidden}
    return type(kind.__name__, (kind,), names)


class _Missing:
    """What is said of an attribute that was not kept."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, exception: Exception) -> object:
        raise AttributeError(
            f"{self._name} of this {type(exception).__name__} was not kept: a record of a failure "
            "holds values of Python's own types"
        )


def _told(exception: Exception) -> str:
    return str(getattr(exception, _TOLD))


def _first_argument(exception: Exception) -> str:
    return str(exception.args[0])


_encode: Final = msgspec.json.Encoder().encode


def encode_error(
    exc: BaseException, *, earlier: bytes | None = None, cause: bytes | None = None, at_home: bool | None = None
) -> bytes:
    """The exception as JSON; `earlier` is the encoded error of the attempt before, whose chain is continued.

    `cause` is the encoded error of another run that it stands for, whose class need not be known here. `at_home` says
    whether this process has the code of the run's workflow.
    """
    record = msgspec.structs.replace(_record(exc, depth=0), at_home=at_home)
    if cause:
        record = msgspec.structs.replace(record, cause=_beneath(decode_error(cause), 1))
    if earlier:
        record = msgspec.structs.replace(record, earlier=_chain(decode_error(earlier)))
    try:
        return _encode(record)
    except Exception:  # for example an args list that a hostile object changed after it was checked
        return _encode(ErrorRecord(type=record.type, qualified=record.qualified, message=record.message))


def encode_record(record: ErrorRecord) -> bytes:
    """A failure that was read before, as it is stored."""
    return msgspec.json.encode(record)


def decode_error(data: bytes) -> ErrorRecord:
    """The record in these bytes; bytes that hold none give a record that says so, since failing here helps nobody."""
    try:
        # No decoder is kept for it: that would read all annotations of the record in programs where nothing fails.
        return msgspec.json.decode(data, type=ErrorRecord)
    except Exception as trouble:
        return ErrorRecord(
            type="UndecodableError",
            qualified="holdfast.UndecodableError",
            message=f"the stored error can't be read: {_message(trouble)}",
        )


def _record(exc: BaseException, depth: int) -> ErrorRecord:
    kind, cause = type(exc), exc.__cause__ if depth < _CAUSES else None
    record = ErrorRecord(
        type=_clean(kind.__name__, 200),
        qualified=_qualified(kind),
        message=_message(exc),
        bases=_bases(kind),
        # A cause's traceback is part of its effect's, so only the outermost record carries one.
        traceback=_traceback(exc) if depth == 0 else "",
        cause=_record(cause, depth + 1) if cause is not None else None,
        earlier=_carried(exc),
    )
    if type(exc) is ExceptionGroup and depth < _NESTED_GROUPS and len(exc.exceptions) <= _MEMBERS:
        members = tuple(_record(each, depth + 1) for each in exc.exceptions)
        return msgspec.structs.replace(record, state={"message": _clean(exc.message, MESSAGE_LIMIT)}, members=members)
    try:
        # Of errors of ours the attributes are names and texts.
        told = None if quoting.is_allowed() or _is_ours(kind) else record.message
        return msgspec.structs.replace(record, **asdict(parts_of(exc, with_cause=cause is not None, told=told)))
    except Exception:  # its class has an answer of its own to every question
        return record


def _is_ours(kind: AnyExceptionClass) -> bool:
    return issubclass(kind, HoldfastError) and kind.__module__ == HoldfastError.__module__


def _bases(kind: AnyExceptionClass) -> tuple[str, ...]:
    recorded = vars(kind).get(STAND_IN)
    if isinstance(recorded, tuple):  # what stands in has fewer
        return recorded
    return tuple(_qualified(base) for base in kind.__mro__[1:] if issubclass(base, BaseException))


def _chain(previous: ErrorRecord) -> tuple[ErrorRecord, ...]:
    """All attempts so far without their own chains: the first one and the latest, the latest three with traceback."""
    links = [*previous.earlier, msgspec.structs.replace(previous, earlier=())]
    if len(links) > _EARLIER:
        links = [links[0], *links[-(_EARLIER - 1) :]]
    old = len(links) - _EARLIER_WITH_TRACEBACK
    return tuple(
        ErrorRecord(
            type=link.type,
            qualified=link.qualified,
            message=_cut(link.message, _EARLIER_MESSAGE_LIMIT),
            bases=link.bases,
        )
        if index < old
        else link
        for index, link in enumerate(links)
    )


def _beneath(record: ErrorRecord, depth: int) -> ErrorRecord:
    """The record with as many causes as are kept; the last of all, which is the reason, is one of them."""
    below = record.cause
    if below is None:
        return record
    if depth < _CAUSES:
        return msgspec.structs.replace(record, cause=_beneath(below, depth + 1))
    while below.cause is not None:
        below = below.cause
    return below


def _carried(exc: BaseException) -> tuple[ErrorRecord, ...]:
    """The attempts before the one that raised it, if it was rebuilt from a record: in a function it may end the run."""
    try:
        found = exc.__dict__.get(CARRIED, ())
        return found if type(found) is tuple and all(type(link) is ErrorRecord for link in found) else ()
    except Exception:
        return ()


def _message(exc: BaseException) -> str:
    try:
        text = str(exc)
        if type(text) is not str:  # a subclass may lie about everything below
            text = str.__str__(text)
    except BaseException as trouble:  # even SystemExit: whatever str() does, the attempt's error must be recorded
        return f"<str() of this {_clean(type(exc).__name__, 200)} raised {_clean(type(trouble).__name__, 200)}>"
    return _clean(text, MESSAGE_LIMIT)


def _traceback(exc: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(type(exc), exc, _from_the_author_on(exc.__traceback__)))
    except BaseException as trouble:
        return f"<the traceback can't be shown: {_clean(type(trouble).__name__, 200)}>"
    return _clean(text, TRACEBACK_LIMIT)


def _from_the_author_on(trace: TracebackType | None) -> TracebackType | None:
    """Without our own frames above the author's, who has no use for them; all of them if there are no others."""
    first = trace
    while first is not None and is_ours(first):
        first = first.tb_next
    return trace if first is None else first


def _qualified(kind: type) -> str:
    return _clean(f"{kind.__module__}.{kind.__qualname__}", 400)


def _clean(text: str, limit: int) -> str:
    """The text as UTF-8 can hold it: cut first, not to convert megabytes, and again, because escapes are longer."""
    return _cut(_cut(text, limit).encode("utf-8", "backslashreplace").decode(), limit)


def _cut(text: str, limit: int) -> str:
    """At most `limit` characters; the middle goes, because a traceback's first and last lines say the most."""
    if len(text) <= limit:
        return text
    head = limit // 4
    mark = f"\n… {len(text) - limit:,} characters left out …\n"
    return text[:head] + mark + text[-(limit - head - len(mark)) :]
