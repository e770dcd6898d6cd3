"""Retry policies: whether a failed attempt gets a successor, and how long until then.

An attempt is one execution, numbered from 1, so `Retry(attempts=3)` runs at most three times. The wait after attempt
n doubles with n and carries a jitter that is computed from the run, the node and n. That keeps a herd of runs apart
and still gives the same due time in a replay, in a simulation and in whichever worker happens to compute it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.core.errors import NonRetryable, UsageError

RetryOn = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]

# 52 bits, not 53: with 53 the largest fraction times the base may round up to the base itself, which is excluded.
_JITTER_BITS: Final = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A policy that is checked when built: a wrong value fails at the definition, not in the night it is needed.

    `retry_on` is an exception type, a tuple of them, or a predicate that gets the exception.
    """

    attempts: int = 1
    base: float = 1.0
    cap: float = 60.0
    retry_on: RetryOn = (Exception,)

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise UsageError(
                f"Retry(attempts={self.attempts!r}): attempts must be a whole number of at least 1",
                hint="attempts counts executions, the first included; attempts=1 means no retry",
            )
        for name, value in (("base", self.base), ("cap", self.cap)):
            if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
                raise UsageError(
                    f"Retry({name}={value!r}): {name} must be a finite number of seconds, 0 or more",
                    hint=f"write for example {name}={1.0 if name == 'base' else 60.0}",
                )
        if self.cap < self.base:
            raise UsageError(
                f"Retry(base={self.base!r}, cap={self.cap!r}): cap is less than base",
                hint="cap limits every delay including the first, so make it at least base",
            )
        object.__setattr__(self, "retry_on", _checked_retry_on(self.retry_on))

    def gives_another(self, attempt: int) -> bool:
        """True if attempt number `attempt` may be followed by another one."""
        return attempt < self.attempts

    def allows(self, exc: BaseException) -> bool:
        """True if this exception is one to retry after.

        Never for NonRetryable, nor for what is no Exception (cancellation, KeyboardInterrupt, SystemExit). A
        predicate that raises counts as no; the exception gets a note that says so.
        """
        if isinstance(exc, NonRetryable) or not isinstance(exc, Exception):
            return False
        if isinstance(self.retry_on, tuple):
            return isinstance(exc, self.retry_on)
        try:
            return bool(self.retry_on(exc))
        except Exception as trouble:
            # The user's error must stay the error of the attempt, so the predicate's is only noted beside it.
            exc.add_note(f"not retried: retry_on={_name(self.retry_on)} itself raised {type(trouble).__name__}")
            return False

    def delay_seconds(self, run: str, node: str, attempt: int) -> float:
        """Seconds between the failure of attempt `attempt` and its successor; the same for the same arguments."""
        if attempt < 1:
            raise UsageError(f"attempt {attempt!r} of {node}: attempts are numbered from 1")
        try:
            grown = math.ldexp(self.base, attempt - 1)
        except OverflowError:
            return float(self.cap)
        # I3: the cap is the last word, jitter included.
        return float(min(grown + self.base * _fraction(run, node, attempt), self.cap))

    def describe(self) -> dict[str, object]:
        """The policy as JSON's own types, for definitions, the command line and the page."""
        on: object
        if isinstance(self.retry_on, tuple):
            on = [_name(kind) for kind in self.retry_on]
        else:
            on = f"predicate {_name(self.retry_on)}"
        return {"attempts": self.attempts, "base": self.base, "cap": self.cap, "retry_on": on}


def _checked_retry_on(given: object) -> RetryOn:
    candidates = given if isinstance(given, tuple) else (given,)
    if all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in candidates):
        return candidates
    if callable(given) and not isinstance(given, type):
        return given
    raise UsageError(
        f"Retry(retry_on={given!r}): not an exception type, a tuple of exception types or a predicate",
        hint="write for example retry_on=(ConnectionError, TimeoutError) or retry_on=lambda error: ...",
    )


def _fraction(run: str, node: str, attempt: int) -> float:
    """A number in [0, 1) that depends on nothing but the arguments."""
    hasher = hashlib.sha256()
    for part in (run, node, str(attempt)):
        raw = part.encode("utf-8", "surrogatepass")
        # The length goes first: otherwise ("ab", "c") and ("a", "bc") would share their jitter.
        hasher.update(len(raw).to_bytes(8, "big"))
        hasher.update(raw)
    return float((int.from_bytes(hasher.digest()[:8], "big") >> (64 - _JITTER_BITS)) / (1 << _JITTER_BITS))


def _name(thing: object) -> str:
    module = getattr(thing, "__module__", None) or type(thing).__module__
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return str(name) if module == "builtins" else f"{module}.{name}"


ACTION_RETRY: Final = Retry(attempts=1)
"""Actions and graph nodes: one execution, because only the author knows whether a second is harmless."""

EFFECT_RETRY: Final = Retry(attempts=5, base=1.0, cap=300.0)
"""Effects of a state machine."""

TIMER_RETRY: Final = Retry(attempts=5, base=1.0, cap=300.0)
"""Timers that are due."""
