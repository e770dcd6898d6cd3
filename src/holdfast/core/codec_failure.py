"""Exceptions as data: what an attempt died of, readable without the code that raised it.

A record never fails to be written. Exceptions come from user code and may be hostile: str() that raises, messages of
megabytes, arguments that no codec takes. Each part is therefore taken with care and cut to size, and what can't be
kept is left out. Records are always JSON, whatever codec the payloads use, so that operators can read them.
"""

from __future__ import annotations

import ast
import builtins
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, TypeAlias, cast

import msgspec

from holdfast.core.authors_line import is_ours
from holdfast.core.codec_faithful import plain_fault
from holdfast.core.errors import HoldfastError, RemoteError, RunFailed

MESSAGE_LIMIT: Final = 8_000
TRACEBACK_LIMIT: Final = 16_000
_EARLIER_MESSAGE_LIMIT: Final = 1_000
_ARGS_LIMIT: Final = 16_000
_NOTE_LIMIT: Final = 4_000
_RECORDED: Final = "Its traceback, as it was recorded:"
_CAUSES: Final = 5
_MEMBERS: Final = 50
_NESTED_GROUPS: Final = 3
_EARLIER: Final = 100
_EARLIER_WITH_TRACEBACK: Final = 3
_OURS: Final = f"{HoldfastError.__module__}.{HoldfastError.__qualname__}"
_CARRIED: Final = "__attempts__"
STAND_IN: Final = "__stands_in_for__"  # what marks a class that is made here under another one's name


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
    state: dict[str, object] | None = None
    cause: ErrorRecord | None = None
    earlier: tuple[ErrorRecord, ...] = ()
    members: tuple[ErrorRecord, ...] = ()
    """Of an exception group: what it holds, in its order."""

    @property
    def fact(self) -> str:
        """The message without the fix that an error of ours ends with."""
        return self.message.partition(". Fix: ")[0] if _OURS in (self.qualified, *self.bases) else self.message

    @property
    def arguments(self) -> tuple[object, ...] | None:
        """What the exception's `args` were; None if that could not be kept."""
        if self.args is not None or self.literal is None:
            return None if self.args is None else tuple(self.args)
        try:
            read = ast.literal_eval(self.literal)
        except Exception:  # the row was changed by hand or damaged
            return None
        return read if isinstance(read, tuple) else None

    def to_exception(self, known: KnownClasses = lambda qualified: None) -> Exception:
        """The exception with its own type and message if its class is built in or `known`; else RemoteError.

        `known` maps a qualified name to a class. The result has its cause as `__cause__`, and where it was raised as a
        note: the frames are gone. It has those attributes that were JSON's own types.
        """
        exception = self._rebuilt(known) or RemoteError(self.type, self.message, self.traceback)
        self._note_where(exception)
        if self.cause is not None and exception.__cause__ is None:
            exception.__cause__ = self.cause.to_cause(known)
        if isinstance(exception, RunFailed) and exception.cause is None and exception.__cause__ is not None:
            exception.cause = exception.__cause__
            exception.attempts = () if self.cause is None else self.cause.attempts(exception.cause, known)
        if self.earlier:
            with suppress(Exception):  # a class may forbid it
                exception.__dict__[_CARRIED] = self.earlier
        return exception

    def to_cause(self, known: KnownClasses = lambda qualified: None) -> BaseException:
        """As `to_exception`, for what is told and never raised: SystemExit and its like may be themselves there."""
        with suppress(Exception):
            kind = self._class(known)
            if kind is not None and not issubclass(kind, Exception):
                told = kind(*(self.arguments or ()))
                if type(told) is kind and _message(told) == self.message:
                    self._note_where(told)
                    return told
        return self.to_exception(known)

    def attempts(self, last: BaseException, known: KnownClasses = lambda qualified: None) -> tuple[BaseException, ...]:
        """What each attempt raised, the oldest first; `last` is this record's own exception."""
        return (*(each.to_exception(known) for each in self.earlier), last)

    def stand_in(self, kind: ExceptionClass) -> Exception | None:
        """An exception of this class with the recorded message, made without calling its constructor.

        The constructor may want other arguments than the exception keeps: `Declined(5)` whose message is "declined 5".
        None if the class can't be made without it.
        """
        for arguments in (self.arguments, (self.message,)):
            if arguments is not None:
                with suppress(Exception):
                    exception = self._with_state(kind.__new__(kind), arguments)
                    if self._is_told_by(exception, kind):
                        return exception
        with suppress(Exception):  # its text is made of what was not kept, so that the recorded one is put in its place
            names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, STAND_IN: kind}
            names["__str__"] = _first_argument
            speaking: ExceptionClass = type(kind.__name__, (kind,), names)
            exception = self._with_state(speaking.__new__(speaking), (self.message,))
            if self._is_told_by(exception, speaking):
                return exception
        return None

    def _rebuilt(self, known: KnownClasses) -> Exception | None:
        try:
            kind = self._class(known)
            if kind is None or not issubclass(kind, Exception):
                return None
            if self.members:
                if kind is not ExceptionGroup:
                    return None
                message = str((self.state or {})["message"])
                group = ExceptionGroup(message, [each.to_exception(known) for each in self.members])
                return group if self._is_told_by(group, kind) else None
        except Exception:
            return None
        if self.arguments is not None:
            with suppress(Exception):
                exception = self._with_state(kind(*self.arguments))
                # A class that makes its message from other arguments would now say something else than it said.
                if self._is_told_by(exception, kind):
                    return exception
        return self.stand_in(kind)

    def _class(self, known: KnownClasses) -> AnyExceptionClass | None:
        module, _, name = self.qualified.rpartition(".")
        kind = getattr(builtins, name, None) if module == "builtins" else known(self.qualified)
        return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None

    def _with_state(self, exception: Exception, arguments: tuple[object, ...] | None = None) -> Exception:
        if arguments is not None:
            exception.args = arguments
        if self.state:
            exception.__dict__.update(self.state)
        return exception

    def _note_where(self, exception: BaseException) -> None:
        if "\n  File " in self.traceback:  # else it was never raised
            with suppress(Exception):  # a class may forbid it
                exception.add_note(f"{_RECORDED}\n{_cut(self.traceback.rstrip(), _NOTE_LIMIT)}")

    def _is_told_by(self, exception: Exception, kind: ExceptionClass) -> bool:
        return type(exception) is kind and _message(exception) == self.message


def _first_argument(exception: Exception) -> str:
    return str(exception.args[0])


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ErrorRecord).decode


def encode_error(exc: BaseException, *, earlier: bytes | None = None) -> bytes:
    """The exception as JSON; `earlier` is the encoded error of the attempt before, whose chain is continued."""
    record = _record(exc, depth=0)
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
        return _decode(data)
    except Exception as trouble:
        return ErrorRecord(
            type="UndecodableError",
            qualified="holdfast.UndecodableError",
            message=f"the stored error can't be read: {_message(trouble)}",
        )


def _record(exc: BaseException, depth: int) -> ErrorRecord:
    kind = type(exc)
    args, literal, state = _rebuilding(exc)
    members: tuple[ErrorRecord, ...] = ()
    if type(exc) is ExceptionGroup and depth < _NESTED_GROUPS and len(exc.exceptions) <= _MEMBERS:
        args, literal, state = None, None, {"message": _clean(exc.message, MESSAGE_LIMIT)}
        members = tuple(_record(each, depth + 1) for each in exc.exceptions)
    cause = exc.__cause__
    return ErrorRecord(
        type=_clean(kind.__name__, 200),
        qualified=_qualified(kind),
        message=_message(exc),
        bases=tuple(_qualified(base) for base in kind.__mro__[1:] if issubclass(base, BaseException)),
        # A cause's traceback is part of its effect's, so only the outermost record carries one.
        traceback=_traceback(exc) if depth == 0 else "",
        args=args,
        literal=literal,
        state=state,
        cause=_record(cause, depth + 1) if cause is not None and depth < _CAUSES else None,
        earlier=_carried(exc),
        members=members,
    )


def _chain(previous: ErrorRecord) -> tuple[ErrorRecord, ...]:
    """All attempts so far without their own chains: the first one and the latest, the latest three with traceback."""
    links = [*previous.earlier, msgspec.structs.replace(previous, earlier=())]
    if len(links) > _EARLIER:
        links = [links[0], *links[-(_EARLIER - 1) :]]
    old = len(links) - _EARLIER_WITH_TRACEBACK
    return tuple(
        ErrorRecord(type=link.type, qualified=link.qualified, message=_cut(link.message, _EARLIER_MESSAGE_LIMIT))
        if index < old
        else link
        for index, link in enumerate(links)
    )


def _carried(exc: BaseException) -> tuple[ErrorRecord, ...]:
    """The attempts before the one that raised it, if it was rebuilt from a record: in a function it may end the run."""
    try:
        found = exc.__dict__.get(_CARRIED, ())
        return found if type(found) is tuple and all(type(link) is ErrorRecord for link in found) else ()
    except Exception:
        return ()


def _rebuilding(exc: BaseException) -> tuple[list[object] | None, str | None, dict[str, object] | None]:
    """What pickle would rebuild it from, as far as text can hold that: a file error's args lack the file's name."""
    try:
        reduced = exc.__reduce__()
        kind, args, state = (*reduced, None)[:3] if isinstance(reduced, tuple) else (None, exc.args, None)
        if kind is not type(exc) or not isinstance(args, tuple):
            args, state = exc.args, None
    except Exception:
        args, state = exc.args, None
    kept_args = list(args) if _is_plain(list(args)) else None
    literal = _literal(args) if kept_args is None else None
    return kept_args, literal, _kept_state(state, exc.__cause__) if isinstance(state, dict) else None


def _kept_state(state: dict[object, object], cause: BaseException | None) -> dict[str, object] | None:
    """The attributes that JSON can hold. A cause that is one too, as in RunFailed, has a record of its own."""
    kept = {name: value for name, value in state.items() if value is None or value is not cause}
    if isinstance(notes := kept.pop("__notes__", None), list):  # ours are in the traceback, and would be told twice
        own = [note for note in notes if not (isinstance(note, str) and note.startswith(_RECORDED))]
        kept |= {"__notes__": own} if own else {}
    if not _is_plain(kept):
        kept = {name: value for name, value in kept.items() if _is_plain({name: value})}
    return cast("dict[str, object]", kept) if kept and _is_plain(kept) else None


def _is_plain(value: object) -> bool:
    try:
        return plain_fault(value) is None and len(_encode(value)) <= _ARGS_LIMIT
    except Exception:  # lone surrogates
        return False


def _literal(args: tuple[object, ...]) -> str | None:
    try:
        text = repr(args)
        # Both must agree: a repr may be that of something else, and 1 equals True.
        if len(text) <= _ARGS_LIMIT and (back := ast.literal_eval(text)) == args and repr(back) == text:
            return text
    except Exception:  # most objects are no literals
        return None
    return None


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
