"""What really happened, kept outside of any store: what actions did, and what was acknowledged to whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


class Broken(AssertionError):
    """A promise was broken."""


def must(holds: object, promise: str, told: str) -> None:
    """Raise `Broken` with the promise and what contradicts it."""
    if not holds:
        raise Broken(f"{promise}: {told}")


@dataclass(slots=True)
class Execution:
    """One call of user code."""

    run: str
    node: str
    attempt: int
    label: str
    host: str
    began: float
    ended: float | None = None
    end: str = ""  # returned, raised, cut (cancelled from outside); empty: its process died in it, or it still runs
    nonce: int = 0


@dataclass(slots=True)
class Ledger:
    """The world's own record."""

    executions: list[Execution] = field(default_factory=list)
    by_label: dict[str, list[Execution]] = field(default_factory=dict)
    by_nonce: dict[int, Execution] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    notes: dict[str, list[Any]] = field(default_factory=dict)

    def begin(self, execution: Execution) -> Execution:
        self.executions.append(execution)
        self.by_label.setdefault(execution.label, []).append(execution)
        return execution

    def returned(self, execution: Execution, at: float) -> int:
        """The number that tells this very execution from all others."""
        execution.end, execution.ended = "returned", at
        execution.nonce = len(self.by_nonce) + 1
        self.by_nonce[execution.nonce] = execution
        return execution.nonce

    def note(self, subject: str, what: Any) -> None:
        self.notes.setdefault(subject, []).append(what)

    def raised(self, label: str) -> int:
        """How often what has this label has raised so far."""
        return sum(1 for each in self.by_label.get(label, ()) if each.end == "raised")

    def check_result(self, label: str, nonce: int) -> Execution:
        """G2, G3: a recorded result is what one execution of just this label returned."""
        execution = self.by_nonce.get(nonce)
        must(execution is not None, "G2", f"the result {nonce} of {label} was returned by nobody")
        assert execution is not None
        must(execution.label == label, "G2", f"{label} has the result of {execution.label}")
        return execution

    def check_once(self) -> None:
        """G3: without a death or a lost lease every attempt is executed a single time, of cancelled runs as well."""
        for label, executions in self.by_label.items():
            attempts = Counter((each.run, each.node, each.attempt) for each in executions)
            for attempt, times in attempts.items():
                must(times == 1, "G3", f"{label} was executed {times} times as {attempt}, and nobody had died")
