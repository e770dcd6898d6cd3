"""Exception classes by the names that records of failures have: nothing is ever imported because a record names it.

A function catches what an action raised by its class, so the class must be found here. Three kinds are hard to find:
one in another class, one in a function (no name leads to it, but it is alive as long as somebody can catch it), and
one of a main program, whose module has another name where something else imports the same file.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from holdfast.authoring.registry import MAIN_MODULES, defining_modules
from holdfast.core.codec_failure import decode_error
from holdfast.core.codec_failure_parts import STAND_IN

_LOCAL = ".<locals>."


def as_it_was_raised(error: bytes) -> Exception:
    """A recorded failure for the code that it was raised in, which takes it alike whatever is loaded by now (G8)."""
    record = decode_error(error)
    return record.to_exception(known_exception, at_home=record.at_home)


def known_exception(qualified: str) -> type[BaseException] | None:
    """The exception class of this qualified name, if this process has it."""
    found = _loaded(qualified)
    if found is not None:
        return found
    named = ((name, _loaded(name)) for name in _other_names(qualified))
    alike = {kind for name, kind in named if kind is not None and _name(kind) == name}  # not what a module imported
    return alike.pop() if len(alike) == 1 else None


def _loaded(qualified: str) -> type[BaseException] | None:
    if _LOCAL in qualified:
        return _alive(qualified)
    parts = qualified.split(".")
    for end in range(len(parts) - 1, 0, -1):
        found: object = sys.modules.get(".".join(parts[:end]))
        if found is not None:
            for name in parts[end:]:  # not with getattr: a module may import what it is asked for
                found = getattr(found, "__dict__", {}).get(name)
            return found if isinstance(found, type) and issubclass(found, BaseException) else None
    return None


def _alive(qualified: str) -> type[BaseException] | None:
    """The youngest class of this name: a function that defines one makes another with every call."""
    found = None
    for kind in _exceptions(BaseException, set()):
        if _name(kind) == qualified:
            found = kind
    return found


def _exceptions(kind: type[BaseException], met: set[type]) -> Iterator[type[BaseException]]:
    for each in type.__subclasses__(kind):  # in the order in which they were made
        if each not in met and STAND_IN not in vars(each):
            met.add(each)
            yield each
            yield from _exceptions(each, met)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _other_names(qualified: str) -> Iterator[str]:
    """What a class may be called here if its module is, or was elsewhere, the main program."""
    module, _, name = qualified.partition(".")
    if module in MAIN_MODULES:
        yield from (f"{other}.{name}" for other in (*MAIN_MODULES, *defining_modules))
        return
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    own = inspect.getmodulename(file) if spec is None and file else getattr(spec, "name", None)
    _, met, name = f".{qualified}".partition(f".{own}.")
    if met:
        yield f"__main__.{name}"
