"""Errors as a caller sees them: a status, and the fact with the fix. Never a traceback."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.errors import (
    HoldfastError,
    KeyConflict,
    PayloadRefused,
    PayloadTooLarge,
    RunError,
    StoreError,
    UnknownNode,
    UnknownWorkflow,
)
from holdfast.store.contract import Conflict

MEANINGS: Final = {
    400: "the request makes no sense as it is",
    401: "no token, or one that is not known",
    403: "the role does not allow it, or another site asked",
    404: "there is no such thing",
    405: "not with this method",
    409: "what it is about is in another state, or the key is taken",
    413: "the body is too large",
    415: "the body is not JSON",
    421: "this server is not that host",
    422: "the request does not have the form that is documented",
    429: "too many live streams, or too many wrong tokens",
    503: "the store does not answer",
}


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, and what helps."""

    type: str
    message: str
    hint: str


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every refusal."""

    error: ErrorView


class Refused(Exception):
    """A request that is not served, with the status and the words for it."""

    def __init__(self, status: int, type: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.status = status
        self.view = ErrorView(type=type, message=message, hint=hint)


def refusal_of(error: BaseException) -> Refused:
    """How an exception is told. What nobody expected says nothing about itself: the log does."""
    match error:
        case Refused():
            return error
        case UnknownWorkflow() | UnknownNode():
            status = 404
        case PayloadTooLarge():
            status = 413
        case PayloadRefused():
            status = 422
        case KeyConflict() | RunError():
            status = 409
        case StoreError():
            status = 503
        case HoldfastError():
            status = 400
        case Conflict():
            return Refused(409, "Conflict", f"others changed the same thing: {error}", "ask again")
        case msgspec.ValidationError():
            hint = "the document at openapi.json says what is expected"
            return Refused(422, "Unfit", f"the request does not fit: {error}", hint)
        case msgspec.DecodeError() | RecursionError() | UnicodeDecodeError():
            return Refused(400, "NotJson", f"the body is no JSON: {error}", "send one JSON document in UTF-8")
        case TimeoutError():
            return Refused(503, "TimedOut", "the store did not answer in time", "ask again in a while")
        case _:
            hint = "its log has the traceback; please report it"
            return Refused(500, "InternalError", "the server failed in a way that it does not know", hint)
    return Refused(status, type(error).__name__, error.message, error.hint)
