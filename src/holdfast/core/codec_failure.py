"""Exceptions as data: what an attempt died of, readable without the code that raised it.

A record never fails to be written. Exceptions come from user code and may be hostile: str() that raises, messages of
megabytes, arguments that no codec takes. Each part is therefore taken with care and cut to size, and what can't be
kept is left out. Records are always JSON, whatever codec the payloads use, so that operators can read them.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final

import msgspec

from holdfast.core.authors_line import is_ours
from holdfast.core.codec_faithful import plain_fault
from holdfast.core.errors import HoldfastError, RemoteError, RunFailed

MESSAGE_LIMIT: Final = 8_000
TRACEBACK_LIMIT: Final = 16_000
_EARLIER_MESSAGE_LIMIT: Final = 1_000
_ARGS_LIMIT: Final = 16_000
_CAUSES: Final = 5
_MEMBERS: Final = 50
_NESTED_GROUPS: Final = 3
_EARLIER: Final = 100
_EARLIER_WITH_TRACEBACK: Final = 3
_OURS: Final = f"{HoldfastError.__module__}.{HoldfastError.__qualname__}"


KnownClasses = Callable[[str], type | None]
"""From a qualified name to the class, or None where this process does not have it."""


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One exception as stored. `earlier` holds the errors of the attempts before, oldest first."""

    type: str
    qualified: str
    message: str
    bases: tuple[str, ...] = ()
    """Qualified names of the base classes, nearest first, so that handlers match without the class at hand."""
    traceback: str = ""
    args: list[object] | None = None
    state: dict[str, object] | None = None
    cause: ErrorRecord | None = None
    earlier: tuple[ErrorRecord, ...] = ()
    members: tuple[ErrorRecord, ...] = ()
    """Of an exception group: what it holds, in its order."""

    @property
    def fact(self) -> str:
        """The message without the fix that an error of ours ends with."""
        return self.message.partition(". Fix: ")[0] if _OURS in (self.qualified, *self.bases) else self.message

    def to_exception(self, known: KnownClasses = lambda qualified: None) -> Exception:
        """The original exception if its class is built in or `known`, and its arguments rebuild it; else RemoteError.

        `known` maps a qualified name to a class. The result has its cause as `__cause__`. Attributes beyond the
        arguments are there if all of them were JSON's own types.
        """
        rebuilt = self._rebuilt(known)
        exception = rebuilt or RemoteError(self.type, self.message, self.traceback)
        if self.cause is not None and exception.__cause__ is None:
            exception.__cause__ = self.cause.to_exception(known)
        if isinstance(exception, RunFailed) and exception.cause is None:
            exception.cause = exception.__cause__
        return exception

    def _rebuilt(self, known: KnownClasses) -> Exception | None:
        if self.args is None and not self.members:
            return None
        try:
            module, _, name = self.qualified.rpartition(".")
            kind = getattr(builtins, name, None) if module == "builtins" else known(self.qualified)
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                return None
            exception: Exception
            if self.members:
                if kind is not ExceptionGroup:
                    return None
                message = str((self.state or {})["message"])
                exception = ExceptionGroup(message, [each.to_exception(known) for each in self.members])
            else:
                exception = kind(*self.args or ())
            if self.state and not self.members:
                exception.__dict__.update(self.state)
            # A class that makes its message from other arguments would now say something else than it said.
            same = type(exception) is kind and _message(exception) == self.message
        except Exception:
            return None
        return exception if same else None


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
    args, state = _rebuilding(exc)
    members: tuple[ErrorRecord, ...] = ()
    if type(exc) is ExceptionGroup and depth < _NESTED_GROUPS and len(exc.exceptions) <= _MEMBERS:
        args, state = None, {"message": _clean(exc.message, MESSAGE_LIMIT)}
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
        state=state,
        cause=_record(cause, depth + 1) if cause is not None and depth < _CAUSES else None,
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


def _rebuilding(exc: BaseException) -> tuple[list[object] | None, dict[str, object] | None]:
    """What pickle would rebuild it from, where JSON can hold that: a file error's args lack the file's name."""
    try:
        reduced = exc.__reduce__()
        kind, args, state = (*reduced, None)[:3] if isinstance(reduced, tuple) else (None, exc.args, None)
        if kind is not type(exc) or not isinstance(args, tuple):
            args, state = exc.args, None
    except Exception:
        args, state = exc.args, None
    kept_args = _kept(list(args))
    if isinstance(state, dict):  # a cause that is an attribute too, as in RunFailed, has a record of its own
        state = {name: value for name, value in state.items() if value is None or value is not exc.__cause__}
    kept_state = _kept(state) if state else None
    return (
        kept_args if isinstance(kept_args, list) else None,
        kept_state if isinstance(kept_state, dict) else None,
    )


def _kept(value: object) -> object:
    try:
        if plain_fault(value) is None and len(_encode(value)) <= _ARGS_LIMIT:
            return value
    except Exception:  # lone surrogates
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
