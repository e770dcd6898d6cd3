"""The codecs: how plain values become bytes. Each row names its codec by tag, so old rows stay readable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import msgspec

from holdfast.core.codec_hooks import decode_hook, encode_hook

_CACHE_LIMIT: Final = 4096


class Codec(Protocol):
    """A format for payloads.

    To compress or encrypt, wrap JSON or MSGPACK: transform what its `encode` returns, undo it before its `decode`.
    `encode` must give equal bytes for equal values of equal order, or digests of payloads mean nothing. A codec whose
    ciphertext differs each time is fine as long as nobody compares its bytes; inputs are compared decoded.
    """

    @property
    def tag(self) -> str:
        """Short and never reused: it is stored beside every payload."""

    def encode(self, plain: object, /) -> bytes:
        """Bytes for anything that msgspec and the hooks can write."""

    def decode(self, data: bytes, annotation: object, /) -> object:
        """A value of the annotation; raises msgspec.ValidationError if the bytes hold something else."""


class _MsgspecCodec:
    """One of msgspec's formats with a decoder per annotation, made once."""

    __slots__ = ("_decoders", "_make_decoder", "encode", "tag")

    def __init__(
        self,
        tag: str,
        encode: Callable[[object], bytes],
        make_decoder: Callable[[object], Callable[[bytes], object]],
    ) -> None:
        self.tag: Final = tag
        self.encode: Final = encode  # the encoder's own method: no Python frame between the caller and C
        self._make_decoder: Final = make_decoder
        self._decoders: Final[dict[object, Callable[[bytes], object]]] = {}

    def decode(self, data: bytes, annotation: object, /) -> object:
        try:
            found = self._decoders.get(annotation)
        except TypeError:  # an unhashable annotation
            return self._make_decoder(annotation)(data)
        if found is None:
            found = self._make_decoder(annotation)
            if len(self._decoders) >= _CACHE_LIMIT:
                self._decoders.clear()
            self._decoders[annotation] = found
        return found(data)

    def __repr__(self) -> str:
        return f"<codec {self.tag}>"


def json_decoder(annotation: object) -> Callable[[bytes], object]:
    return msgspec.json.Decoder(cast("type[Any]", annotation), dec_hook=decode_hook).decode


def _msgpack_decoder(annotation: object) -> Callable[[bytes], object]:
    return msgspec.msgpack.Decoder(cast("type[Any]", annotation), dec_hook=decode_hook).decode


JSON: Final[Codec] = _MsgspecCodec("json", msgspec.json.Encoder(enc_hook=encode_hook).encode, json_decoder)
"""The default: people can read it in the database."""

MSGPACK: Final[Codec] = _MsgspecCodec("msgpack", msgspec.msgpack.Encoder(enc_hook=encode_hook).encode, _msgpack_decoder)
"""Smaller, and bytes are not inflated."""
