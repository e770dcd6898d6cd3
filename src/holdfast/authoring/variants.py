"""The events, inputs and effects of a decider: records that say themselves which of a few classes they are.

A value is written as an object whose first field, "type", holds the name of its class, also where there is only one
class: a second one may be added later, and old events must stay readable. A struct that tags itself under "type" keeps
its own tag. Reading goes by that name alone, so a field more or less never turns one event into another.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, get_origin

import msgspec

from holdfast.authoring.type_parameters import members_of_union
from holdfast.core import quoting
from holdfast.core.codec import JSON, Codecs
from holdfast.core.codec_faithful import record_difference
from holdfast.core.codec_hooks import decode_hook, encode_hook, is_pydantic_model
from holdfast.core.codec_shape import TAG_FIELD, Shape, display, shape_of
from holdfast.core.errors import PayloadRefused, UsageError
from holdfast.core.graph import known_names

__all__ = ["Variant", "Variants"]

# Left alone when a record is made plain, because each codec has its own way to write them.
_LEFT_TO_THE_CODEC: Final = (
    bytes, bytearray, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, decimal.Decimal,
)  # fmt: skip
_JSON_START: Final = msgspec.json.encode({TAG_FIELD: ""})[:-2]
_RECORDS: Final = "a dataclass, a msgspec.Struct or a pydantic model"


class _Tagged(msgspec.Struct, gc=False):
    """Of a written value no more than the name of its class."""

    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One class of events, inputs or effects under the name that it is written with."""

    name: str
    annotation: object
    kind: type
    tags_itself: bool

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The names of its fields as they are written, in order; None where it is a record's own affair (pydantic)."""
        return None if is_pydantic_model(self.kind) else _written_names(self.kind)

    def unread(self, plain: object) -> list[str]:
        """What an object of JSON's own types holds that the class has no field for, where that is known."""
        if not isinstance(plain, dict) or self.fields is None:
            return []
        return sorted(str(name) for name in plain.keys() - {*self.fields, TAG_FIELD})

    @property
    def shape(self) -> Shape:
        """How its values travel. Not made with the class: a field's annotation may name what is defined later."""
        inner = shape_of(self.annotation, self.kind.__name__)
        if self.tags_itself:
            return inner
        name = self.name

        def to_plain(value: object) -> object:
            plain = msgspec.to_builtins(inner.to_plain(value), enc_hook=encode_hook, builtin_types=_LEFT_TO_THE_CODEC)
            if type(plain) is not dict or TAG_FIELD in plain:
                raise TypeError(f"{name} is not written as an object without a field {TAG_FIELD!r}")
            return {TAG_FIELD: name, **plain}

        if _ignores_unknown_fields(self.kind):
            return Shape(annotation=self.annotation, wire=self.annotation, to_plain=to_plain)
        return Shape(annotation=self.annotation, wire=Any, to_plain=to_plain, from_plain=self.from_plain)

    def from_plain(self, plain: object) -> object:
        """The value from an object of JSON's own types, with or without its tag."""
        if type(plain) is not dict:
            raise msgspec.ValidationError(f"expected an object, got {type(plain).__name__}")
        if not self.tags_itself:
            plain = {name: value for name, value in plain.items() if name != TAG_FIELD}
        return msgspec.convert(plain, cast("type[object]", self.annotation), dec_hook=decode_hook, str_keys=True)


class Variants:
    """All classes of one role in one decider. `role` is "event", "input" or "effect"."""

    __slots__ = ("_by_class", "_by_tag", "_prefixes", "_shapes", "_spliced", "by_name", "decider", "role")

    def __init__(self, decider: str, role: str, annotation: object) -> None:
        self.decider = decider
        self.role = role
        self.by_name: dict[str, Variant] = {}
        self._by_class: dict[type, Variant] = {}
        self._shapes: dict[str, Shape] = {}
        for member in members_of_union(annotation):
            variant = _variant(member, f"class {decider}, its {role} type {display(member)}")
            if variant.name in self.by_name:
                raise UsageError(
                    f"class {decider}: two of its {role} types are called {variant.name}",
                    hint="rename one of them: the name is what tells them apart in the database",
                )
            self.by_name[variant.name] = variant
            self._by_class[variant.kind] = variant
        self._prefixes = {name: msgspec.json.encode({TAG_FIELD: name})[:-1] for name in self.by_name}
        written = {name: prefix[len(_JSON_START) : -1] for name, prefix in self._prefixes.items()}
        self._by_tag = {tag: name for name, tag in written.items() if b"\\" not in tag}
        self._spliced: dict[str, Callable[[object], object] | None] = {}

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def names(self) -> str:
        """The names of all, for messages."""
        return ", ".join(self.by_name) or "none"

    def check(self) -> None:
        """UsageError unless all can be stored. What names something that is not defined yet is left for later."""
        for variant in self.by_name.values():
            try:
                self._shape(variant)
            except PayloadRefused as error:
                if isinstance(error.__cause__, NameError):
                    continue
                raise UsageError(f"class {self.decider}, {self.role} type: {error.message}", hint=error.hint) from error

    def of(self, value: object) -> Variant | None:
        """The variant of a value; None for a value that is none of them. A subclass is another class."""
        return self._by_class.get(type(value))

    def write(self, value: object, variant: Variant, codecs: Codecs, limit: int) -> bytes:
        """The value as stored; PayloadRefused unless it comes back equal."""
        return self.written(value, variant, codecs, limit)[0]

    def written(self, value: object, variant: Variant, codecs: Codecs, limit: int) -> tuple[bytes, Any]:
        """The same, with the value as its readers will see it."""
        shape = self._shapes.get(variant.name) or self._shape(variant)
        if codecs.default is JSON and (plain := self._plain_of(variant)) is not None:
            # Most values by far: what JSON makes of the record, with its name in front. Whatever is wrong with one is
            # found out again below, where the message is made.
            try:
                body = JSON.encode(plain(value))
                data = self._prefixes[variant.name] + (b"," + body[1:] if len(body) > 2 else b"}")
                back = JSON.decode(data, shape.wire)
                if len(data) <= limit and record_difference(value, back) is None:
                    return data, back
            except Exception:  # noqa: S110
                pass
        data = codecs.write(value, shape, self._where(variant.name), limit)
        return data, codecs.read(data, shape, self._where(variant.name))

    def _plain_of(self, variant: Variant) -> Callable[[object], object] | None:
        """How a record is made ready for JSON if its name can simply be put in front of what that writes."""
        name = variant.name
        if name not in self._spliced:
            plain = not variant.tags_itself and _ignores_unknown_fields(variant.kind)
            self._spliced[name] = shape_of(variant.annotation, name).to_plain if plain else None
        return self._spliced[name]

    def read(
        self,
        data: bytes,
        codecs: Codecs,
        codec: str,
        where: str | None = None,
        hint: str | None = None,
        version: int | None = None,
    ) -> Any:
        """A stored value; PayloadRefused names `where` and what is missing or unknown (I37).

        `hint` is for fields that do not fit, `version` the one that the value was stored with, for its upcast.
        """
        if codec == JSON.tag and (told := self._told_by(data)) is not None:
            try:
                return self.read_quickly(told, data, codecs, codec)
            except Exception:  # noqa: S110 - read again below, where the message is made
                pass
        name = self.tag(data, codecs, codec, where, version)
        try:
            return codecs.read(data, self._shape(self.by_name[name]), where or self._where(name), codec)
        except PayloadRefused as error:
            if hint is None:
                raise
            raise PayloadRefused(error.message, hint=hint) from error

    def read_quickly(self, name: str, data: bytes, codecs: Codecs, codec: str) -> Any:
        """`read` for folding long streams, without telling where: anything may come out of it."""
        if codec != JSON.tag or not data.startswith(self._prefixes[name]):
            return self.read(data, codecs, codec)
        shape = self._shapes.get(name) or self._shape(self.by_name[name])
        return shape.from_plain(codecs.of(codec).decode(data, shape.wire))

    def tag(self, data: bytes, codecs: Codecs, codec: str, where: str | None = None, version: int | None = None) -> str:
        """The name that a stored value says it has; PayloadRefused, listing the known ones, if there is none such."""
        who = where or f"a stored {self.role} of {self.decider}"
        try:
            name = cast("_Tagged", codecs.of(codec).decode(data, _Tagged)).type
        except PayloadRefused:
            raise
        except Exception as trouble:
            raise PayloadRefused(
                f"{who} does not say which {self.role} it is: {_text(trouble)}",
                hint=f'it has to be an object with "{TAG_FIELD}", one of {self.names}',
            ) from quoting.cause(trouble)
        if name not in self.by_name:
            raise self._unknown(name, who, version)
        return name

    def _told_by(self, data: bytes) -> str | None:
        """The name at the beginning of JSON as it is written here; None for any other form."""
        if not data.startswith(_JSON_START):
            return None
        start = len(_JSON_START)
        return self._by_tag.get(data[start : data.find(b'"', start)])

    def from_plain(self, plain: dict[str, Any], where: str, hint: str) -> Any:
        """A value whose stored form was changed after it was read; PayloadRefused as for `read`."""
        name = plain[TAG_FIELD]
        if name not in self.by_name:
            raise self._unknown(name, where)
        try:
            return self.by_name[name].from_plain(plain)
        except Exception as trouble:
            raise PayloadRefused(f"{where} does not decode to {name}: {_text(trouble)}", hint=hint) from quoting.cause(
                trouble
            )

    def from_mapping(self, given: object) -> Any:
        """The value that an untyped caller describes: a mapping with "type" and the fields; UsageError otherwise."""
        if not isinstance(given, Mapping):
            raise UsageError(
                f"{self.decider} was given a {type(given).__name__} where a mapping describes the {self.role}",
                hint=f'write {{"{TAG_FIELD}": …, …}} with one of {self.names}',
            )
        name = given.get(TAG_FIELD)
        if name is None:
            raise UsageError(
                f'{self.decider} was given a mapping of {_named(given)}, which has no "{TAG_FIELD}"',
                hint=f'add "{TAG_FIELD}", one of {self.names}',
            )
        variant = self.by_name.get(name) if isinstance(name, str) else None
        if variant is None:
            raise UsageError(
                f"{self.decider} has no {self.role} {name!r:.80}", hint=known_names(str(name), self.by_name)
            )
        for field in given:  # a misspelt one would be left out without a word
            if field != TAG_FIELD and variant.fields is not None and field not in variant.fields:
                raise UsageError(
                    f"{self._where(variant.name)} has no field {field!r:.80}",
                    hint=known_names(str(field), variant.fields) if variant.fields else "it has no fields",
                )
        try:
            return variant.from_plain(dict(given))
        except Exception as trouble:
            raise PayloadRefused(
                f"{self._where(variant.name)} cannot be made of {_named(given)}: {_text(trouble)}",
                hint=f"give the fields of {variant.kind.__name__} as JSON has them"
                + (f": {', '.join(sorted(variant.fields))}" if variant.fields else ""),
            ) from quoting.cause(trouble)

    def _shape(self, variant: Variant) -> Shape:
        shape = self._shapes.get(variant.name)
        if shape is None:
            shape = self._shapes[variant.name] = variant.shape
        return shape

    def _where(self, name: str) -> str:
        return f"{self.role} {name} of {self.decider}"

    def _unknown(self, name: str, who: str, version: int | None = None) -> PayloadRefused:
        if self.role == "event":
            step = f"@hf.upcast({self.decider}, {name[:80]!r}, from_version={version or '…'})"
            instead = f"turn it into one that exists with {step}"
        else:
            instead = f"run code that has it until none is left; {known_names(name, self.by_name)}"
        return PayloadRefused(
            f"{who} has the {TAG_FIELD} {name!r:.80}, which is no {self.role} of {self.decider} (known: {self.names})",
            hint=f"bring the class {name!r:.80} back, or {instead}",
        )


def _named(given: Mapping[Any, Any]) -> str:
    """The fields of what was given, without their values: an error is logged by whoever gets it."""
    return ", ".join(map(str, given))[:200] or "no fields"


def _text(trouble: Exception) -> str:
    return quoting.text_of(trouble)[:300]


def _variant(member: object, where: str) -> Variant:
    kind = get_origin(member) or member
    if not isinstance(kind, type) or not _is_record(kind):
        shown = "None" if kind is type(None) else display(member)
        hint = f"use {_RECORDS}: it is stored under the name of its class"
        if kind is type(None):
            hint = "for a decider without effects write Never: hf.Decider[State, Input, Event, Never]"
        raise UsageError(f"{where}: {shown} is no class of records", hint=hint)
    name, tags_itself = kind.__name__, False
    if issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        if config.array_like:
            raise UsageError(f"{where} is array_like, so it cannot be tagged", hint="leave array_like out")
        if config.tag is not None and config.tag_field == TAG_FIELD:
            if not isinstance(config.tag, str):
                raise UsageError(f"{where} has the tag {config.tag!r}", hint="give it a text as tag=, or tag=True")
            name, tags_itself = config.tag, True
    if getattr(kind, "__pydantic_root_model__", False):
        raise UsageError(f"{where} is a root model, which has no fields", hint=f"use {_RECORDS} with fields")
    if TAG_FIELD in _written_names(kind):
        raise UsageError(
            f'{where} has a field "{TAG_FIELD}" of its own',
            hint=f'rename the field: "{TAG_FIELD}" is where the name of the class is written',
        )
    return Variant(name=name, annotation=member, kind=kind, tags_itself=tags_itself)


def _is_record(kind: type) -> bool:
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or is_pydantic_model(kind)
        or hasattr(kind, "__attrs_attrs__")
    )


def _written_names(kind: type) -> tuple[str, ...]:
    """The names of its fields as they are written."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_encode_fields__
    if is_pydantic_model(kind):
        fields: Mapping[str, Any] = kind.model_fields  # type: ignore[attr-defined]
        return tuple(field.serialization_alias or field.alias or name for name, field in fields.items())
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(field.name for field in getattr(kind, "__attrs_attrs__", ()))


def _ignores_unknown_fields(kind: type) -> bool:
    """Whether the tag may stay where it is when a value is read: faster than taking it out."""
    if issubclass(kind, msgspec.Struct):
        return not kind.__struct_config__.forbid_unknown_fields
    return not is_pydantic_model(kind)
