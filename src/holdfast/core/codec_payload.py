"""Codecs: the one way in and out for payloads.

`encode` returns bytes only for a value that will come back equal; everything else is refused before anything is
written, with the place inside the value and the fix. Values without an annotation are checked by looking at them,
values with one by decoding what was just encoded and comparing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NoReturn

import msgspec

from holdfast.core import quoting
from holdfast.core.codec_faithful import AWAIT_IT, Fault, difference, nesting_fault, plain_fault, unwritten_fault
from holdfast.core.codec_formats import JSON, MSGPACK, Codec
from holdfast.core.codec_hooks import NotAwaited, encode_hook
from holdfast.core.codec_shape import UNTYPED, Shape, display, shape_of, unchanged
from holdfast.core.codec_unset import unnoted
from holdfast.core.errors import PayloadRefused, PayloadTooLarge, UsageError

DEFAULT_LIMIT_BYTES: Final = 2 * 1024 * 1024
LONGEST_TAG: Final = 64
CODEC_CHOICES: Final = '"json", "msgpack", "module:name" of a codec of your own, or that codec itself'
CODEC_FORM: Final = "a codec has `tag`, `encode(plain)` and `decode(data, annotation)`; see hf.Codec"
_SAMPLE: Final = {"sample": [None, True, -1, 0.5, "é"]}

_sorted_encode: Final = msgspec.json.Encoder(enc_hook=encode_hook, order="sorted").encode


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A payload as it is stored: bytes and the tag of the codec that can read them."""

    data: bytes
    codec: str


class Codecs:
    """Encodes with one codec and decodes with whichever codec a row names; JSON and MSGPACK are always readable."""

    __slots__ = ("_by_tag", "_null", "default")

    def __init__(self, default: Codec = JSON, extra: Iterable[Codec] = ()) -> None:
        self.default: Final = default
        self._by_tag: Final[dict[str, Codec]] = {}
        for codec in (JSON, MSGPACK, *extra, default):
            _check_form(codec)
            known = self._by_tag.setdefault(codec.tag, codec)
            if known is not codec:
                raise UsageError(
                    f"two codecs share the tag {codec.tag!r}: {known!r} and {codec!r}",
                    hint="give the new codec a tag of its own; rows written under the old one must stay readable",
                )
            if codec is not JSON and codec is not MSGPACK:
                _try_out(codec)
        self._null: Final = Encoded(default.encode(None), default.tag)

    def __repr__(self) -> str:
        return f"<Codecs writing {self.default.tag}, reading {', '.join(sorted(self._by_tag))}>"

    def __contains__(self, tag: object) -> bool:
        return tag in self._by_tag

    @property
    def are_ours(self) -> bool:
        """Whether they write JSON or MessagePack, which anybody can read."""
        return self.default is JSON or self.default is MSGPACK

    def of(self, tag: str) -> Codec:
        """The codec with this tag; PayloadRefused if this process does not have it."""
        try:
            return self._by_tag[tag]
        except KeyError:
            raise PayloadRefused(
                f"a payload was written with the codec {tag!r}, which is not registered here "
                f"(known: {', '.join(sorted(self._by_tag))})",
                hint="give this process that codec too: Engine(codec=…), or codec=hf.Codecs(…, extra=[…]) to read "
                "it and write another; or upgrade it to the version that wrote the row",
            ) from None

    def encode(
        self, value: object, annotation: object = UNTYPED, *, where: str, limit: int = DEFAULT_LIMIT_BYTES
    ) -> Encoded:
        """The value as bytes that decode to an equal value; `where` names it in errors, as "the result of charge"."""
        if value is None and (annotation is UNTYPED or annotation is None):
            return self._null
        return Encoded(self.write(value, shape_of(annotation, where), where, limit), self.default.tag)

    def decode(self, data: bytes, annotation: object = UNTYPED, *, where: str, codec: str | None = None) -> object:
        """A value of the annotation from bytes written with the codec of that tag (the default one if None)."""
        return self.read(data, shape_of(annotation, where), where, codec)

    def canonical(self, value: object, annotation: object = UNTYPED, *, where: str) -> bytes:
        """Bytes that are equal whenever the values are: sets and keys sorted, whatever the default codec.

        Not for storing, since dicts lose their order; for digests that decide whether two inputs are the same.
        """
        plain = shape_of(annotation, where).to_plain(value)
        try:
            return unnoted(_sorted_encode(plain))
        except TypeError:  # it sorts texts only: keys of other types become texts first
            pass
        try:
            return unnoted(_sorted_encode(msgspec.json.decode(JSON.encode(plain))))
        except Exception as trouble:  # MessagePack takes keys that JSON has no text for
            raise PayloadRefused(
                f"{where} can't be compared with others: {_text(trouble)}",
                hint="use keys that have a text in JSON: str, int, an enum, a UUID or a date; or a list of pairs",
            ) from quoting.cause(trouble)

    def write(self, value: object, shape: Shape, where: str, limit: int, depth: int = 0) -> bytes:
        """`encode` for callers that keep the shape; a negative depth allows for containers of their own around it."""
        fault: Fault | None
        try:
            if shape.checked:
                data = self.default.encode(value)
            elif shape.untyped or type(value) is shape.exact:
                fault = plain_fault(value, depth)
                if fault is not None:
                    _refuse(where, fault)
                data = self.default.encode(value)
            else:
                data = self.default.encode(shape.to_plain(value))
                fault = difference(value, shape.from_plain(self.default.decode(data, shape.wire)), depth)
                if fault is not None:
                    _refuse(where, fault)
        except PayloadRefused:
            raise
        except Exception as trouble:
            # Anything at all may come out of the user's own classes: properties, validators, __eq__.
            _refuse_because(value, shape, where, trouble)
        if len(data) > limit:
            raise PayloadTooLarge(
                f"{where} is {len(data):,} bytes, over the limit of {limit:,}",
                hint="store the data elsewhere and pass a reference to it, or raise the engine's payload_limit_bytes",
            )
        return data

    def read(self, data: bytes, shape: Shape, where: str, codec: str | None = None) -> object:
        """`decode` for callers that keep the shape."""
        reader = self.default if codec is None else self._by_tag.get(codec) or self.of(codec)
        try:
            plain = reader.decode(data, shape.wire)
            return plain if shape.from_plain is unchanged else shape.from_plain(plain)
        except Exception as trouble:
            wanted = "JSON" if shape.untyped else display(shape.annotation)
            own = "" if reader in (JSON, MSGPACK) else f"the codec {reader.tag} here differs from the writer's, or "
            raise PayloadRefused(
                f"{where} was stored as {reader.tag} that does not decode to {wanted}: {_text(trouble)}",
                hint=f"{own}the annotation changed since it was stored: let it accept the old form too",
            ) from quoting.cause(trouble)


def codecs_for(codec: str | Codec | Codecs) -> Codecs:
    """What the setting `codec` means: a name, a codec of the user's own, or several of which one writes."""
    if isinstance(codec, Codecs):
        return codec
    if isinstance(codec, str):
        if codec not in _BY_NAME:
            raise UsageError(f"codec is {codec!r}", hint=f"use {CODEC_CHOICES}")
        return _BY_NAME[codec]
    return Codecs(codec)


def _check_form(codec: object) -> None:
    missing = [name for name in ("tag", "encode", "decode") if not hasattr(codec, name)]
    if isinstance(codec, type) or missing:
        lack = "a class and no instance" if isinstance(codec, type) else f"without {', '.join(missing)}"
        raise UsageError(f"codec is {codec!r:.80}, {lack}", hint=f"use {CODEC_CHOICES}; {CODEC_FORM}")
    tag: object = codec.tag  # type: ignore[attr-defined]  # looked at above
    if not (isinstance(tag, str) and tag.isascii() and tag.isprintable() and 0 < len(tag) <= LONGEST_TAG):
        raise UsageError(
            f"the tag of codec {codec!r:.80} is {tag!r:.80}",
            hint=f"choose 1 to {LONGEST_TAG} printable ASCII characters; it is stored beside every payload",
        )


def _try_out(codec: Codec) -> None:
    """A codec that cannot write and read is refused when it is given, not when the first result is lost."""
    try:
        data: object = codec.encode(_SAMPLE)
        back = codec.decode(data, UNTYPED) if isinstance(data, bytes) else None
    except Exception as trouble:
        raise UsageError(f"codec {codec.tag} fails on {_SAMPLE}: {_text(trouble)}", hint=CODEC_FORM) from trouble
    if not isinstance(data, bytes):
        raise UsageError(f"codec {codec.tag} encodes to {type(data).__name__}, not to bytes", hint=CODEC_FORM)
    if back != _SAMPLE:
        raise UsageError(f"codec {codec.tag} gives {back!r:.80} back for {_SAMPLE}", hint=CODEC_FORM)


def digest(data: bytes) -> str:
    """The sha256 of the bytes in hex. Compare inputs by the digest of their canonical form, not of stored bytes."""
    return hashlib.sha256(data).hexdigest()


def _refuse(where: str, fault: Fault) -> NoReturn:
    raise PayloadRefused(f"{where}: {fault.path} {fault.reason}", hint=fault.fix)


def _refuse_because(value: object, shape: Shape, where: str, trouble: Exception) -> NoReturn:
    fault = nesting_fault() if isinstance(trouble, RecursionError) else _fault_behind(trouble, value)
    if fault is not None:
        raise PayloadRefused(f"{where}: {fault.path} {fault.reason}", hint=fault.fix) from quoting.cause(trouble)
    hint = "pass a value of the annotated type, or correct the annotation"
    if isinstance(trouble, UnicodeDecodeError):  # pydantic writes bytes as text unless it is told otherwise
        hint = 'let the model write bytes as base64: model_config = ConfigDict(ser_json_bytes="base64", '
        hint += 'val_json_bytes="base64")'
    wanted, told = "JSON" if shape.untyped else display(shape.annotation), _text(trouble)
    if isinstance(trouble, NotAwaited):
        told, hint = str(trouble), AWAIT_IT
    if " - at `$" not in told:  # what JSON calls an object has a name here
        told = told.replace("Expected `object`, got", f"Expected `{wanted}`, got")
    raise PayloadRefused(f"{where} does not fit its annotation {wanted}: {told}", hint=hint) from quoting.cause(trouble)


def _fault_behind(trouble: Exception, value: object) -> Fault | None:
    """The part that JSON has no form for, if there is one: of a NaN a decoder says only that it found `null`."""
    of_keys = isinstance(trouble, NotImplementedError) or "`key`" in _text(trouble)
    try:
        return unwritten_fault(value, of_keys)
    except Exception:  # the user's own classes may mind being looked at
        return None


def _text(trouble: Exception) -> str:
    """The message of an exception that may come from the user's code, so that str() of it may fail too."""
    try:
        text = quoting.text_of(trouble)
    except Exception:
        text = "its message can't be shown"
    kind = type(trouble)
    prefix = "" if kind.__module__.startswith("msgspec") else f"{kind.__name__}: "
    return (prefix + text).encode("utf-8", "backslashreplace").decode()[:500]


DEFAULT_CODECS: Final = Codecs()
_BY_NAME: Final = {"json": DEFAULT_CODECS, "msgpack": Codecs(MSGPACK)}
