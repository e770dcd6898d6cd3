"""What makes two inputs one: a command id that an input carries itself, or a window in which equal inputs are one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from holdfast.authoring.durations import span_us
from holdfast.core.errors import UsageError
from holdfast.models.decider_code import Window

__all__ = ["Dedup", "command_id_of", "idempotency_of", "idempotent"]

ATTRIBUTE: Final = "__holdfast_idempotent__"
LONGEST_SHOWN: Final = 150  # characters of a command id that are kept as they are

Kind = TypeVar("Kind", bound=type)
IdempotencyKey = str | Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Dedup:
    """Of equal inputs to one instance, all but the first are ignored: among its last `last`, for `ttl`, or both.

    With both, an input is a duplicate only if it is among the last and young enough.
    """

    last: int | None = None
    ttl: timedelta | float | None = None

    def __post_init__(self) -> None:
        if self.last is None and self.ttl is None:
            raise UsageError("hf.Dedup was given neither last nor ttl", hint="write hf.Dedup(last=100), or dedup=None")
        if self.last is not None and (type(self.last) is not int or self.last < 1):
            raise UsageError(f"hf.Dedup(last={self.last!r})", hint="give a number of inputs, at least 1")
        if self.ttl is not None and span_us("hf.Dedup(ttl=…)", self.ttl) == 0:
            raise UsageError(f"hf.Dedup(ttl={self.ttl!r}) forgets at once", hint="give a time above 0, or no ttl")

    @property
    def window(self) -> Window:
        """The same, as the engine counts."""
        seconds = None if self.ttl is None else span_us("hf.Dedup(ttl=…)", self.ttl) / 1_000_000
        return Window(last=self.last, seconds=seconds)


def idempotent(*, key: IdempotencyKey) -> Callable[[Kind], Kind]:
    """Inputs of this class carry their own command id: the value of a field, or what a function makes of the input.

    Two inputs of the class with the same value are applied once to an instance. None is no id. A `command_id` that is
    given to `execute` counts instead.
    """
    if isinstance(key, str):
        if not key.isidentifier():
            raise UsageError(f"@hf.idempotent(key={key!r}) names no field", hint="give a field's name, or a function")
    elif not callable(key):
        raise UsageError(
            f"@hf.idempotent(key={key!r:.80}) is a {type(key).__name__}",
            hint='give a field\'s name, as in key="charge_id", or a function of the input',
        )

    def decorate(kind: Kind) -> Kind:
        if not isinstance(kind, type):
            raise UsageError(
                f"@hf.idempotent was given {kind!r:.80}, which is no class", hint="decorate the class of an input"
            )
        setattr(kind, ATTRIBUTE, (key,))  # in a tuple, or a function would become a method
        idempotency_of.cache_clear()
        return kind

    return decorate


@lru_cache(maxsize=1024)  # asked of every input, and dear where the answer is no
def idempotency_of(kind: type) -> IdempotencyKey | None:
    """What `@hf.idempotent` said about a class of inputs or a base of it."""
    found: tuple[IdempotencyKey] | None = getattr(kind, ATTRIBUTE, None)
    return None if found is None else found[0]


def command_id_of(type_name: str, input: object) -> str | None:
    """The command id of an input, or None. It holds the type: a charge and its refund may share a number."""
    key = idempotency_of(cast("Hashable", type(input)))
    if key is None:
        return None
    value = getattr(input, key) if isinstance(key, str) else key(input)
    if value is None:
        return None
    text = value if isinstance(value, str) else repr(value) if isinstance(value, bytes | tuple | list) else str(value)
    if not text.isprintable() or len(text) > LONGEST_SHOWN:
        text = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{type_name[: LONGEST_SHOWN // 2]}:{text}"
