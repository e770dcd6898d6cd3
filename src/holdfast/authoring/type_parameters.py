"""Which types a class was given for the parameters of its generic base, as its author wrote them.

`class Order(hf.Decider[OrderState, OrderInput, …])` says its types only there, so they are read from the bases of the
class: through classes in between, aliases, unions and names that were given as text.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, ForwardRef, TypeVar, Union, get_args, get_origin

__all__ = ["arguments_of_base", "is_never", "members_of_union", "names_around", "read_names", "type_variables_in"]

_UNIONS = (Union, types.UnionType)


def arguments_of_base(cls: type, base: type) -> tuple[object, ...] | None:
    """What `cls` gives for the parameters of `base`, in order; None if no class on the way says anything."""
    for written in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = get_origin(written) or written
        if origin is base:
            return get_args(written) or None
        if not (isinstance(origin, type) and issubclass(origin, base)):
            continue
        inherited = arguments_of_base(origin, base)
        if inherited is None:
            continue
        given = get_args(written)
        known = dict(zip(getattr(origin, "__parameters__", ()), given, strict=False))
        return tuple(_substituted(argument, known) for argument in inherited)
    return None


def _substituted(argument: object, known: Mapping[object, object]) -> object:
    if argument in known:
        return known[argument]
    parameters = getattr(argument, "__parameters__", ())
    if parameters and not isinstance(argument, type):
        # A union or an alias of type variables, such as `list[T]`.
        wanted = tuple(known.get(parameter, parameter) for parameter in parameters)
        return argument[wanted]  # type: ignore[index]
    return argument


def type_variables_in(arguments: tuple[object, ...]) -> bool:
    """Whether something is still open: the class is then a base for others."""
    return any(
        isinstance(argument, TypeVar) or bool(getattr(argument, "__parameters__", ()) and get_args(argument))
        for argument in arguments
    )


def names_around(cls: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names that a text in the bases of `cls` may use: of its module, and of the function that defines it.

    To be called while the class is being created. Those of the module are alive: more may come.
    """
    module = sys.modules.get(cls.__module__)
    own_globals = vars(module) if module is not None else {}
    if "<locals>" not in cls.__qualname__:
        return own_globals, {}
    frame = sys._getframe(1)
    while frame is not None:
        # Metaclasses and bases of the author's own may stand between; the function is of the class's module.
        if frame.f_globals.get("__name__") == cls.__module__ and frame.f_locals is not frame.f_globals:
            return frame.f_globals, dict(frame.f_locals)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return own_globals, {}


def read_names(annotation: object, names: Mapping[str, Any], local_names: Mapping[str, Any]) -> object:
    """The annotation with every text in it read; NameError if one names what does not exist (yet)."""
    if isinstance(annotation, str):
        annotation = ForwardRef(annotation)

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    return typing.get_type_hints(holder, dict(names), dict(local_names), include_extras=True)["it"]


def is_never(annotation: object) -> bool:
    """Whether this is the type without values."""
    return without_alias(annotation) in (typing.Never, typing.NoReturn)


def without_alias(annotation: object) -> object:
    """What an alias made with `type X = …` stands for, and an Annotated is about."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__value__") and not isinstance(annotation, type):
            annotation = annotation.__value__
        else:
            return annotation


def members_of_union(annotation: object) -> list[object]:
    """The members of a union in order, through aliases and unions inside; of anything else, itself; of Never, none."""
    annotation = without_alias(annotation)
    if annotation in (typing.Never, typing.NoReturn):
        return []
    if get_origin(annotation) in _UNIONS:
        found: dict[object, None] = {}
        for member in get_args(annotation):
            found.update(dict.fromkeys(members_of_union(member)))
        return list(found)
    return [annotation]
