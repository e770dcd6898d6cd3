"""One field of a graph's state: its type, its reducer, and its value as canonical JSON.

Canonical means that equal values are equal bytes, with keys and sets in order: a state's digest is taken over them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.authoring.state_laws import Law
from holdfast.core.authors_line import authors_line
from holdfast.core.codec import DEFAULT_LIMIT_BYTES, JSON, UNTYPED, Codecs
from holdfast.core.codec_hooks import decode_hook, encode_hook
from holdfast.core.codec_shape import display, shape_of
from holdfast.core.errors import ConflictingWrites, GraphError, PayloadRefused, PayloadTooLarge

__all__ = ["CANONICAL", "Field", "Wrapping", "Written", "canonical"]

Written = tuple[str, bytes]
"""A node, and what it gave for a field."""


_sorted_encode: Final = msgspec.json.Encoder(enc_hook=encode_hook, order="sorted").encode


class _CanonicalJson:
    """JSON with keys in order. No row carries its tag: what is stored is sealed with the engine's codec."""

    tag: Final = "canonical-json"

    def encode(self, plain: object, /) -> bytes:
        try:
            return _sorted_encode(plain)
        except TypeError:  # it sorts texts only: keys of other types become texts first
            return _sorted_encode(msgspec.json.decode(JSON.encode(plain)))

    def decode(self, data: bytes, annotation: object, /) -> object:
        return JSON.decode(data, annotation)


CANONICAL: Final = Codecs(_CanonicalJson())


def canonical(data: bytes, codec: str, codecs: Codecs) -> bytes:
    """What a process wrote with this codec, as canonical JSON; what is JSON was canonical when it was written."""
    return data if codec == JSON.tag else CANONICAL.default.encode(codecs.of(codec).decode(data, UNTYPED))


class Wrapping:
    """A class with the one field `value`: how fields travel whose type is another library's business."""

    __slots__ = ("make", "model")

    OPENING: Final = b'{"value":'
    CLOSING: Final = b"}"

    def __init__(self, model: type, make: Callable[[object], object]) -> None:
        self.model = model
        self.make = make


class Field:
    """A field of a state. Values go in and out through it; what cannot be stored is refused with the field's name."""

    __slots__ = ("_decode", "_shape", "_wrapping", "annotation", "default", "law", "name", "owner")

    def __init__(
        self,
        name: str,
        annotation: object,
        *,
        owner: str,
        law: Law | None = None,
        default: Callable[[], object] | None = None,
        wrapping: Wrapping | None = None,
    ) -> None:
        self.name: Final = name
        self.annotation: Final = annotation
        self.owner: Final = owner
        self.default: Final = default
        self._wrapping: Final = wrapping
        self._shape: Final = shape_of(annotation if wrapping is None else wrapping.model, self.where)
        self._decode: Final = msgspec.json.Decoder(_as_type(self._shape.wire), dec_hook=decode_hook).decode
        if law is not None and law.empty is not None and not self._takes(law.empty):
            law = dataclasses.replace(law, empty=None)  # a list that may not be empty, for example
        self.law: Final = law

    def __repr__(self) -> str:
        return f"<{self.where}, a {display(self.annotation)}>"

    @property
    def where(self) -> str:
        return f"field {self.name!r} of {self.owner}"

    @property
    def reducer(self) -> str | None:
        """The name of its reducer, for people."""
        return None if self.law is None else self.law.name

    def encode(self, value: object, where: str, limit: int = DEFAULT_LIMIT_BYTES) -> bytes:
        """The value as canonical JSON; PayloadRefused, with `where`, unless it will come back as it is."""
        if self._wrapping is None:
            return CANONICAL.write(value, self._shape, where, limit)
        data = CANONICAL.write(self._wrapping.make(value), self._shape, where, limit)
        return data[len(Wrapping.OPENING) : -len(Wrapping.CLOSING)]

    def decode(self, data: bytes) -> Any:
        """A fresh value from its JSON."""
        if self._wrapping is not None:
            data = Wrapping.OPENING + data + Wrapping.CLOSING
        try:
            value = self._shape.from_plain(self._decode(data))
        except Exception:
            value = CANONICAL.read(data, self._shape, self.where)  # says what is wrong with it
        return value if self._wrapping is None else value.value  # type: ignore[attr-defined]  # of a Wrapping

    def from_json(self, value: object, where: str) -> Any:
        """A value of the field's type from what JSON has instead: of a text a time, of a list a set."""
        try:
            data = msgspec.json.encode(value)
        except (ValueError, OverflowError):
            return value  # no JSON either; whoever stores it says so
        try:
            return self.decode(data)
        except PayloadRefused as refused:
            why = refused.__cause__ or refused.message
            raise PayloadRefused(
                f"{where} does not fit its annotation {display(self.annotation)}: {why}",
                hint=f"give a value of type {display(self.annotation)}, as JSON",
            ) from refused.__cause__

    def merged(self, current: bytes | None, written: Sequence[Written], limit: int = DEFAULT_LIMIT_BYTES) -> bytes:
        """The field's value after these nodes wrote it, in this order (I41)."""
        if self.law is None:
            if len(written) > 1:
                raise self._conflict(written)
            return written[0][1]
        if current is None:
            (_, current), *written = written
        if not written:
            return current
        if self.law.on_bytes is not None:
            merged = self.law.on_bytes(current, [data for _, data in written])
            if merged is not None:
                return self._of_fair_size(merged, limit)
        value = self.decode(current)
        for node, data in written:
            value = self._reduced(self.law, value, self.decode(data), node)
        return self.encode(value, f"what the reducer {self.law.name} of {self.where} returned", limit)

    def _reduced(self, law: Law, value: object, given: object, node: str) -> object:
        try:
            return law.reduce(value, given)
        except Exception as error:
            raise GraphError(
                f"the reducer {law.name} of {self.where} raised {type(error).__name__}, merging what node {node!r} "
                f"gave: {error}{authors_line(error)}",
                hint="repair it: it gets the field's value and what a node gave for it, and returns the new one",
            ) from error

    def _of_fair_size(self, data: bytes, limit: int) -> bytes:
        if len(data) > limit:
            raise PayloadTooLarge(
                f"{self.where} has grown to {len(data):,} bytes, over the limit of {limit:,}",
                hint="keep less in it, store the data elsewhere and keep a reference, or raise the engine's "
                "payload_limit_bytes",
            )
        return data

    def _conflict(self, written: Sequence[Written]) -> ConflictingWrites:
        nodes = list(dict.fromkeys(node for node, _ in written))
        if len(nodes) == 1:
            who = f"{len(written)} items of node {nodes[0]!r}"
        else:
            who = f"nodes {' and '.join(map(repr, nodes))}"
        return ConflictingWrites(
            f"{who} wrote {self.where} in one step, and it has no reducer",
            hint=f"name one in its annotation, such as {self.name}: Annotated[{display(self.annotation)}, "
            "hf.reducers.last_writer], and retry the run; or let only one of them write it and fork the run from the "
            "step before, since a retry merges what they gave already",
        )

    def _takes(self, data: bytes) -> bool:
        try:
            self.decode(data)
        except Exception:
            return False
        return True


def _as_type(wire: object) -> type[Any]:
    return wire  # type: ignore[return-value]  # whatever msgspec can decode to, which may be a union
