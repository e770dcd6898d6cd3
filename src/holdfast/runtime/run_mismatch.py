"""What `NonDeterminism` says: what the history holds, what the code asked for, and at which line (I48)."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.errors import NonDeterminism
from holdfast.runtime.run_calls import Entry, Pending

_SHOWN = 3


def asked_for_something_else(run_id: str, entry: Entry, asked: Pending) -> NonDeterminism:
    """The address is waited for, but by another call."""
    expected, found = _shown(entry.name, entry.digest), _shown(asked.name, asked.digest)
    if entry.name == asked.name:
        what = f"the same call of {entry.name} with other arguments: expected {entry.digest}, found {asked.digest},"
    else:
        what = f"another call: expected {expected}, found {found},"
    return NonDeterminism(f"run {run_id} differs from its history at {entry.address}: {what} at {asked.line}")


def never_asked_for(run_id: str, entry: Entry, waiting: Iterable[Pending], ended: bool) -> NonDeterminism:
    """The history goes on at an address that the code has not come to."""
    asked = [f"{_shown(each.name, each.digest)} as {each.address} at {each.line}" for each in waiting]
    more = f" and {len(asked) - _SHOWN} more" if len(asked) > _SHOWN else ""
    if ended:
        found = "the function has ended without asking for it"
    elif asked:
        found = f"found only {'; '.join(asked[:_SHOWN])}{more}"
    else:
        found = "found no call that waits"
    expected = _shown(entry.name, entry.digest) if entry.name else f"a {entry.kind}"
    return NonDeterminism(f"run {run_id} differs from its history at {entry.address}: expected {expected}, {found}")


def timer_differs(run_id: str, entry: Entry, due_us: int, line: str) -> NonDeterminism:
    """The timer at the address has another deadline than the one that fired."""
    return NonDeterminism(
        f"run {run_id} differs from its history at {entry.address}: expected a timer due at {entry.digest}, found one "
        f"due at {due_us}, at {line}"
    )


def _shown(name: str, digest: str) -> str:
    return f"{name}({digest})" if digest else name
