"""Results say themselves how they are written.

A run's row has one tag, for its input. Its result may come from a process that is set to another codec, so the bytes
of a result carry their tag: JSON is stored as it is, anything else behind a label of 0xC1, the tag's length and the
tag. No JSON begins with 0xC1, since no UTF-8 does, and a result in any other format has its label.
"""

from __future__ import annotations

from typing import Final, Protocol

from holdfast.core.codec_call import CallCodec
from holdfast.core.codec_formats import JSON
from holdfast.core.codec_payload import Codecs, Encoded

_LABEL: Final = b"\xc1"
_PLAIN: Final = JSON.tag


class ResultCodec(Protocol):
    """What reads the results of a definition's runs: a function's CallCodec, or the type of a graph's state."""

    def decode_result(self, data: bytes, codec: str | None = None, *, codecs: Codecs | None = None) -> object: ...


def labelled(data: bytes, tag: str) -> bytes:
    """The bytes of a result as they are stored."""
    if tag == _PLAIN:
        return data
    name = tag.encode()
    return _LABEL + bytes((len(name),)) + name + data


def is_labelled(stored: bytes) -> bool:
    """Whether these bytes are anything but JSON."""
    return stored.startswith(_LABEL)


def unlabelled(stored: bytes) -> Encoded:
    """The bytes of a stored result and the tag of the codec that reads them."""
    if not stored.startswith(_LABEL):
        return Encoded(stored, _PLAIN)
    end = 2 + (stored[1] if len(stored) > 1 else 0)
    return Encoded(stored[end:], stored[2:end].decode("utf-8", "backslashreplace"))


def encode_stored_result(call: CallCodec, codecs: Codecs, limit: int, value: object) -> bytes:
    """A function's result as it is stored by a process that writes with these codecs."""
    data, tag = call.encode_result(value, limit=limit, codecs=codecs), codecs.default.tag
    return data if tag == _PLAIN else labelled(data, tag)


def decode_stored_result(reader: ResultCodec, codecs: Codecs, stored: bytes) -> object:
    """A run's result as the caller is to receive it, whoever wrote it."""
    if not stored.startswith(_LABEL):
        return reader.decode_result(stored, _PLAIN, codecs=codecs)
    result = unlabelled(stored)
    return reader.decode_result(result.data, result.codec, codecs=codecs)
