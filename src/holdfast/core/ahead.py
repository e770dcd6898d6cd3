"""How long before it is due work may be claimed (decision 0033): whoever has claimed it waits for the rest of it."""

from __future__ import annotations

MOST_AHEAD_US = 20_000


def starts_at(due: int, now: int) -> int:
    """When something begins that is taken now: what is due in a moment then.

    What is due later than work is ever let in was made so by a clock that was ahead of this one, and is taken as it is.
    """
    return due if now < due <= now + MOST_AHEAD_US else now
