"""The state of a graph: a TypedDict, a dataclass, a msgspec struct or a pydantic model, read field by field.

States are kept as one piece of canonical JSON for each field that has a value. In a TypedDict a field may be without
one until somebody writes it; a field with a reducer begins with its empty value, where that is known; the others have
the defaults of their class, or have to be given when a run is started.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NotRequired, Required, get_args, get_origin

import msgspec

from holdfast.authoring import state_models
from holdfast.authoring.state_fields import Field, canonical
from holdfast.authoring.state_laws import Law, Reducer, law_of, takes_two
from holdfast.authoring.type_parameters import names_around
from holdfast.core import quoting
from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, JSON, Codecs
from holdfast.core.codec_hooks import is_pydantic_model
from holdfast.core.errors import GraphError
from holdfast.core.graph import known_names
from holdfast.core.state_outcomes import Fields, split

__all__ = ["StateType", "names_near"]

KINDS: Final = "a TypedDict, a dataclass, a msgspec.Struct or a pydantic model"
WRITE: Final = "write class State(TypedDict): question: str, and give the class: hf.StateGraph(State, name=…)"


class StateType:
    """The class of a graph's states, and how its fields are stored."""

    __slots__ = ("_make", "cls", "fields", "kind", "name")

    def __init__(self, cls: Any, graph: str, names: Mapping[str, Any] | None = None) -> None:
        """GraphError if this is no class of states; NameError if an annotation names what does not exist yet."""
        self.kind: Final = _kind_of(cls, graph)
        self.cls: Final[type] = cls
        self.name: Final = cls.__name__
        self._make: Final = _maker(cls, self.kind)
        self.fields: Final[Mapping[str, Field]] = {
            field.name: field for field in _fields_of(cls, self.kind, dict(names or {}))
        }
        if not self.fields:
            raise GraphError(
                f"the state {self.name} of graph {graph!r} has no fields", hint="annotate at least one in the class"
            )

    def __repr__(self) -> str:
        return f"<state {self.name} with {', '.join(self.fields)}>"

    def is_state(self, value: object) -> bool:
        """Whether this is a whole state. A TypedDict's cannot be told from a part of one."""
        return self.kind != "TypedDict" and isinstance(value, self.cls)

    def encode_part(self, part: Mapping[str, object], whose: str, limit: int = DEFAULT_LIMIT_BYTES) -> dict[str, bytes]:
        """Some fields' values, by name; GraphError for one that the state lacks, PayloadRefused for a wrong value."""
        encoded = {}
        for name, value in part.items():
            field = self.fields.get(name)
            if field is None:
                raise self.unknown(name, whose)
            encoded[name] = field.encode(value, f"field {name!r} of {whose}", limit)
        return encoded if len(encoded) < 2 else dict(sorted(encoded.items()))

    def from_json(self, part: Mapping[str, object], whose: str) -> dict[str, object]:
        """Fields that came as JSON, with values of their types; those that the state lacks are left as they are."""
        fields = self.fields
        return {
            name: fields[name].from_json(value, f"field {name!r} of {whose}") if name in fields else value
            for name, value in part.items()
        }

    def encode_whole(self, given: object, whose: str, limit: int = DEFAULT_LIMIT_BYTES) -> dict[str, bytes]:
        """A state that a run begins with: an instance of the class, or its fields by name; the rest are defaults."""
        if self.is_state(given):
            given = {name: getattr(given, name) for name in self.fields}
        if not isinstance(given, Mapping):
            example = f"{self.name}(…)" if self.kind != "TypedDict" else _example(self.fields)
            raise GraphError(
                f"{whose} is {given!r:.80}, a {type(given).__name__}, where a {self.name} is due",
                hint=f"give its fields by name: {example}",
            )
        return self.complete(self.encode_part(given, whose, limit), whose)

    def complete(self, fields: Fields, whose: str) -> dict[str, bytes]:
        """The fields with the defaults and empty values of those that are missing; GraphError if one has neither."""
        completed = dict(fields)
        missing = []
        for name, field in self.fields.items():
            if name in completed:
                continue
            if field.default is not None:
                completed[name] = field.encode(field.default(), f"the default of {field.where}")
            elif field.law is not None and field.law.empty is not None:
                completed[name] = field.law.empty
            elif self.kind != "TypedDict":
                missing.append(name)
        if missing:
            raise GraphError(
                f"{whose} lacks {', '.join(map(repr, missing))}, and {self.name} has no default for "
                f"{'it' if len(missing) == 1 else 'them'}",
                hint=f"give a value, or write a default: {missing[0]}: … = …",
            )
        return completed

    def decode(self, fields: Fields) -> Any:
        """A fresh state. Stored fields that the class no longer has are left out."""
        values = {name: field.decode(fields[name]) for name, field in self.fields.items() if name in fields}
        if self._make is None:
            return values
        try:
            return self._make(values)
        except Exception as error:
            lacking = [name for name in self.fields if name not in values]
            told = f"; it has no value for {', '.join(map(repr, lacking))}" if lacking else ""
            why = f"{type(error).__name__}: {quoting.text_of(error)}"
            raise GraphError(
                f"a state of {self.name} cannot be made of its fields: {why}{told}",
                hint="give new fields a default, and let the class accept what its reducers and nodes give",
            ) from quoting.cause(error)

    def decode_result(self, data: bytes, codec: str | None = None, *, codecs: Codecs | None = None) -> Any:
        """The state that a run ended with, as the caller is to receive it."""
        return self.decode(split(canonical(data, codec or JSON.tag, codecs or DEFAULT_CODECS)))

    def unknown(self, name: object, whose: str) -> GraphError:
        """The refusal of a field that the state lacks."""
        return GraphError(
            f"{whose} has {name!r}, which is no field of {self.name}",
            hint=f"annotate it in {self.name}, or correct the name: {known_names(str(name), self.fields)}",
        )


def names_near(cls: object) -> dict[str, Any]:
    """The names that annotations of a class made in a function may use; to be called while that function runs."""
    return names_around(cls)[1] if isinstance(cls, type) else {}


def _kind_of(cls: Any, graph: str) -> str:
    if isinstance(cls, type):
        if is_pydantic_model(cls):
            return "model"
        if issubclass(cls, msgspec.Struct):
            return "struct"
        if dataclasses.is_dataclass(cls):
            return "dataclass"
        if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
            return "TypedDict"
        raise GraphError(f"the state of graph {graph!r} is the class {cls.__name__}, which is not {KINDS}", hint=WRITE)
    origin = get_origin(cls)
    if isinstance(origin, type):
        raise GraphError(
            f"the state of graph {graph!r} is {cls!r}, a class with type parameters",
            hint=f"make it {KINDS} without parameters: class State({cls!r}): …"
            if origin is not dict
            else f"a state has named fields: {WRITE}",
        )
    raise GraphError(f"the state of graph {graph!r} is {cls!r:.80}, which is not {KINDS}", hint=WRITE)


def _maker(cls: Any, kind: str) -> Callable[[Mapping[str, object]], object] | None:
    if kind == "TypedDict":
        return None
    if kind == "model":
        return state_models.maker(cls)
    return lambda values: cls(**values)


def _fields_of(cls: Any, kind: str, names: dict[str, Any]) -> list[Field]:
    if kind == "model":
        return [_of_model(cls, name, info) for name, info in cls.model_fields.items()]
    try:
        hints = typing.get_type_hints(cls, localns=names or None, include_extras=True)
    except NameError:
        raise
    except Exception as error:
        raise GraphError(
            f"the annotations of the state {cls.__name__} cannot be read: {type(error).__name__}: {error}",
            hint="import or define what they name at the top level of the module, also at run time",
        ) from error
    if kind == "TypedDict":
        return [_of_hint(cls, name, hint, None) for name, hint in hints.items()]
    if kind == "struct":
        return [_of_hint(cls, each.name, hints[each.name], _struct_default(each)) for each in _struct_fields(cls)]
    for each in dataclasses.fields(cls):
        if not each.init:
            raise GraphError(
                f"field {each.name!r} of the state {cls.__name__} has init=False",
                hint="a state is made of its fields: make it a property, or an ordinary field with a default",
            )
    return [_of_hint(cls, each.name, hints[each.name], _dataclass_default(each)) for each in dataclasses.fields(cls)]


def _of_hint(cls: type, name: str, hint: Any, default: Callable[[], object] | None) -> Field:
    annotation, reducer = _taken_apart(hint, cls, name)
    return Field(name, annotation, owner=cls.__name__, law=_law(cls, name, annotation, reducer), default=default)


def _of_model(cls: Any, name: str, info: Any) -> Field:
    annotation, reducer = _taken_apart(state_models.field_hint(info), cls, name)
    return Field(
        name,
        annotation,
        owner=cls.__name__,
        law=_law(cls, name, annotation, reducer),
        default=state_models.default_of(info),
        wrapping=state_models.wrapped(cls, annotation),
    )


def _law(cls: type, name: str, annotation: object, reducer: Reducer | None) -> Law | None:
    return None if reducer is None else law_of(reducer, annotation, f"field {name!r} of {cls.__name__}")


def _taken_apart(hint: Any, cls: type, name: str) -> tuple[Any, Reducer | None]:
    """The type of a field without what concerns only us or the class as a whole, and its reducer."""
    while get_origin(hint) in (NotRequired, Required) or _is_read_only(hint):
        (hint,) = get_args(hint)
    if get_origin(hint) is not Annotated:
        return hint, None
    inner, *metadata = get_args(hint)
    found = [each for each in metadata if _is_reducer(each)]
    if len(found) > 1:
        raise GraphError(
            f"field {name!r} of the state {cls.__name__} has {len(found)} reducers in its annotation",
            hint="a field has one: write a function that does both",
        )
    rest = [each for each in metadata if not _is_reducer(each)]
    inner, deeper = _taken_apart(inner, cls, name) if get_origin(inner) in (NotRequired, Required) else (inner, None)
    return (Annotated[(inner, *rest)] if rest else inner), (found[0] if found else deeper)


def _is_read_only(hint: Any) -> bool:
    return getattr(get_origin(hint), "_name", None) == "ReadOnly"


def _is_reducer(metadata: object) -> bool:
    """A function, or an object that is called with two. Other libraries put objects and classes there."""
    if inspect.isroutine(metadata) or isinstance(metadata, functools.partial):
        return True  # one that does not take two is refused, not passed over
    return callable(metadata) and not isinstance(metadata, type) and takes_two(metadata)


def _struct_fields(cls: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(cls)


def _struct_default(field: msgspec.structs.FieldInfo) -> Callable[[], object] | None:
    if field.default_factory is not msgspec.NODEFAULT:
        return typing.cast("Callable[[], object]", field.default_factory)
    return None if field.default is msgspec.NODEFAULT else functools.partial(copy.deepcopy, field.default)


def _dataclass_default(field: dataclasses.Field[Any]) -> Callable[[], object] | None:
    if field.default_factory is not dataclasses.MISSING:
        return typing.cast("Callable[[], object]", field.default_factory)
    return None if field.default is dataclasses.MISSING else functools.partial(copy.deepcopy, field.default)


def _example(fields: Mapping[str, Field]) -> str:
    shown = [f'"{name}": …' for name in [*fields][:3]]
    return "{" + ", ".join(shown) + "}"
