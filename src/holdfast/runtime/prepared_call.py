"""An action call of a durable function, with its arguments as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.authoring.function_calls import ActionCall
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, MAX_INT, Codecs
from holdfast.core.codec import digest as digest_of_bytes

_TAG: Final = DEFAULT_CODECS.default.tag


class PreparedCall(ActionCall, frozen=True):
    """An action call with its arguments encoded: they are needed for its digest, and again when it is made.

    The digest is over the JSON of the arguments as the code gives them. A dict that is filled in another order in a
    replay is a difference that must show, or a set in it would give its elements the wrong results (I48).
    """

    data: bytes
    scalars: bool  # the arguments are what decoding would give

    def encoded(self, *, limit: int = DEFAULT_LIMIT_BYTES, codecs: Codecs = DEFAULT_CODECS) -> bytes:
        if codecs.default.tag == _TAG and len(self.data) <= limit:
            return self.data
        return super().encoded(limit=limit, codecs=codecs)

    def arguments(self, stored: bytes, codecs: Codecs) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments as the action receives them, wherever it runs: as they come out of what is stored (I14)."""
        if self.scalars and stored is self.data:
            return self.args, self.kwargs
        return self.action.call.decode_call(stored, codecs.default.tag, codecs=codecs)

    def digest(self) -> str:
        return digest_of_bytes(self.data)


def prepared(call: ActionCall) -> PreparedCall:
    data = call.action.call.encode_scalars(call.args, call.kwargs)
    if data is None:
        return PreparedCall(call.action, call.args, call.kwargs, call.encoded(limit=MAX_INT), False)
    return PreparedCall(call.action, call.args, call.kwargs, data, True)
