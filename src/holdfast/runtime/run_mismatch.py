"""What `NonDeterminism` says: what the history holds, what the code asked for, and at which line (I48)."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.errors import NonDeterminism
from holdfast.runtime.run_calls import Entry, Pending

_SHOWN = 3
_DIGITS_SHOWN = 8
_HINT = (
    "if the code was changed, change it back or keep the old path for old runs with hf.patched(…), then "
    "`holdfast retry {run}`; if it was not, move clocks, chance and I/O into actions or take them from hf"
)


def asked_for_something_else(run_id: str, entry: Entry, asked: Pending) -> NonDeterminism:
    """The address is waited for, but by another call."""
    expected, found = _shown(entry.name, entry.digest), _shown(asked.name, asked.digest)
    if entry.name == asked.name:
        digests = f"expected {_short(entry.digest)}, found {_short(asked.digest)}"
        what = f"the same call of {entry.name} with other arguments: {digests},"
    else:
        what = f"another call: expected {expected}, found {found},"
    return _differs(run_id, entry.address, f"{what} at {asked.line}")


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
    return _differs(run_id, entry.address, f"expected {expected}, {found}")


def waits_for_something_else(
    run_id: str, address: str, name: str, asked: Pending | None, ended: bool
) -> NonDeterminism:
    """The run was left waiting at the address for something that the code does not ask for there."""
    if asked is not None:
        also = " with other arguments" if asked.name == name else ""
        found = f"found {asked.name}{also}, at {asked.line}"
    elif ended:
        found = "the function has ended without asking for it"
    else:
        found = "found nothing that waits there"
    return _differs(run_id, address, f"expected {name}, which the run waits for, {found}")


def timer_differs(run_id: str, entry: Entry, due_us: int, line: str) -> NonDeterminism:
    """The timer at the address has another deadline than the one that fired."""
    return _differs(
        run_id, entry.address, f"expected a timer due at {entry.digest}, found one due at {due_us}, at {line}"
    )


def _differs(run_id: str, address: str, how: str) -> NonDeterminism:
    return NonDeterminism(f"run {run_id} differs from its history at {address}: {how}", hint=_HINT.format(run=run_id))


def _shown(name: str, digest: str) -> str:
    return f"{name}({_short(digest)})" if digest and "(" not in name else name


def _short(digest: str) -> str:
    return digest if len(digest) <= _DIGITS_SHOWN else f"{digest[:_DIGITS_SHOWN]}…"
