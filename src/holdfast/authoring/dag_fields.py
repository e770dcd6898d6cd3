"""The fields of a Dag class: the typed, frozen input of its runs.

Which fields there are is known when the class is created. Their types are read at the first use,
so that an annotation may name what is defined further down in the module.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, Codecs, digest
from holdfast.core.codec_shape import Shape, shape_of
from holdfast.core.errors import DagError, PayloadRefused, UsageError
from holdfast.core.graph import known_names

__all__ = ["DagFields", "own_annotations"]

CLASS_VARIABLE = re.compile(r"(\w+\.)?ClassVar\b")


def own_annotations(cls: type) -> Mapping[str, Any]:
    """The annotations written in this class's own body, possibly as text."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


class Default(msgspec.Struct, frozen=True):
    """What a field holds when nothing is given: made anew for every instance."""

    make: Callable[[], Any]

    @classmethod
    def of(cls, value: Any, owner: str) -> Default | None:
        """From what the class body assigns; None for a `dataclasses.field()` without a default."""
        if not isinstance(value, dataclasses.Field):
            # A copy each time: one list shared by all instances would be shared by all runs.
            return cls(functools.partial(copy.deepcopy, value))
        if not value.init:
            raise DagError(f"{owner} has init=False", hint="every field is an input of the run: remove it")
        if value.default_factory is not dataclasses.MISSING:
            return cls(value.default_factory)
        return None if value.default is dataclasses.MISSING else cls.of(value.default, owner)


class DagFields:
    """Names, types and defaults of one class's fields, and their way through the codec."""

    def __init__(self, owner: type, defaults: Mapping[str, Default | None]) -> None:
        self._owner = owner
        self._name = f"the fields of {owner.__qualname__}"  # for errors
        self._defaults = dict(defaults)
        self._struct: type[msgspec.Struct] | None = None
        self._shape: Shape | None = None  # of the struct
        self._hints: Mapping[str, Any] = {}

    @classmethod
    def declared_by(cls, owner: type, bases: typing.Iterable[type]) -> DagFields:
        """The fields of a class from its own and its bases' annotations, the base's first."""
        defaults: dict[str, Default | None] = {}
        for base in bases:
            own = vars(base)
            for name, annotation in own_annotations(base).items():
                if not _is_class_variable(annotation):
                    defaults[name] = None
            for name in defaults.keys() & own.keys():
                defaults[name] = Default.of(own[name], f"field {name!r} of {owner.__qualname__}")
        return cls(owner, defaults)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._defaults)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every field's value in its decoded form, the form that each node will see."""
        who = self._owner.__qualname__
        for name in given:
            if name not in self._defaults:
                raise UsageError(
                    f"{who} has no field {name!r}",
                    hint=f"annotate it in the class, or correct the name: {known_names(name, self._defaults)}",
                )
        missing = [name for name, default in self._defaults.items() if default is None and name not in given]
        if missing:
            raise UsageError(
                f"{who} needs {', '.join(map(repr, missing))}, which {'is' if len(missing) == 1 else 'are'} not given",
                hint=f"write {who}({', '.join(f'{name}=…' for name in missing)})",
            )
        hints = self._types()
        return {
            name: self._checked_value(name, hints[name], given[name] if name in given else default.make())  # type: ignore[union-attr]  # not missing, so it has a default
            for name, default in self._defaults.items()
        }

    def encode(
        self, values: Mapping[str, Any], limit: int = DEFAULT_LIMIT_BYTES, codecs: Codecs = DEFAULT_CODECS
    ) -> bytes:
        """The fields as one stored payload."""
        struct = self._struct_type()
        return codecs.encode(struct(**values), struct, where=self._name, limit=limit).data

    def digest(self, values: Mapping[str, Any]) -> str:
        """Equal for equal fields, also when their dicts are in another order."""
        struct = self._struct_type()
        return digest(DEFAULT_CODECS.canonical(struct(**values), struct, where=self._name))

    def decode(self, data: bytes, codec: str | None = None, codecs: Codecs = DEFAULT_CODECS) -> dict[str, Any]:
        """The fields of a stored payload; one added to the class since then has its default."""
        if self._shape is None:
            self._shape = shape_of(self._struct_type(), self._name)
        decoded: Any = codecs.read(data, self._shape, self._name, codec)
        return msgspec.structs.asdict(decoded)

    def _checked_value(self, name: str, hint: Any, value: Any) -> Any:
        where = f"field {name!r} of {self._owner.__qualname__}"
        try:
            # Without a limit: how much is too much is known to the engine that starts it, and is checked there.
            data = DEFAULT_CODECS.encode(value, hint, where=where, limit=sys.maxsize).data
            return DEFAULT_CODECS.decode(data, hint, where=where)
        except PayloadRefused as error:
            raise UsageError(
                f"{where} is annotated {_shown(hint)} and was given a {type(value).__name__}: {error.message}",
                hint=error.hint,
            ) from None

    def described(self) -> tuple[tuple[str, Any, Default | None], ...]:
        """Name, type and default of each field, for those who show them."""
        hints = self._types()
        return tuple((name, hints[name], default) for name, default in self._defaults.items())

    def _types(self) -> Mapping[str, Any]:
        if not self._hints and self._defaults:
            try:
                self._hints = _with_arguments(self._owner, typing.get_type_hints(self._owner, include_extras=True))
            except NameError as error:
                raise UsageError(
                    f"an annotation of {self._owner.__qualname__} cannot be read: {error}",
                    hint="import or define what it names at the top level of the module, also at run time",
                ) from None
        return self._hints

    def _struct_type(self) -> type[msgspec.Struct]:
        if self._struct is None:
            hints = self._types()
            members: list[Any] = [
                (name, hints[name])
                if default is None
                else (name, hints[name], msgspec.field(default_factory=default.make))
                for name, default in self._defaults.items()
            ]
            self._struct = msgspec.defstruct(
                self._owner.__name__, members, kw_only=True, frozen=True, module=self._owner.__module__
            )
        return self._struct


def _is_class_variable(annotation: object) -> bool:
    if isinstance(annotation, str):
        return CLASS_VARIABLE.match(annotation) is not None
    return annotation is ClassVar or typing.get_origin(annotation) is ClassVar


def _with_arguments(owner: type, hints: Mapping[str, Any]) -> Mapping[str, Any]:
    """The types with what the class gives generic bases: in `class Prices(Table[int])` a field `row: T` is an int."""
    given: dict[type, dict[Any, Any]] = {}
    _collect_arguments(owner, given)
    if not any(given.values()):
        return hints
    types = {}
    for name, hint in hints.items():
        declared_by = next((base for base in owner.__mro__ if name in own_annotations(base)), owner)
        types[name] = _filled_in(hint, given.get(declared_by, {}))
    return types


def _collect_arguments(cls: type, given: dict[type, dict[Any, Any]]) -> None:
    """Of each base, near or far, the type variables with what they stand for."""
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and not given.get(origin):
            variables = getattr(origin, "__parameters__", ())
            arguments = (_filled_in(argument, given.get(cls, {})) for argument in typing.get_args(base))
            given[origin] = dict(zip(variables, arguments, strict=False))
            _collect_arguments(origin, given)


def _filled_in(hint: Any, given: Mapping[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    variables = getattr(hint, "__parameters__", ()) if typing.get_origin(hint) is not None else ()
    if not any(variable in given for variable in variables):
        return hint
    return hint[tuple(given.get(variable, variable) for variable in variables)]


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
