"""Lists that mostly stay empty: very many functions wait in memory, and each would hold ten of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def extended(items: Sequence[T], item: T) -> list[T]:
    """The items with one more. A list grows in place; the empty tuple that stood for one is replaced."""
    if isinstance(items, list):
        items.append(item)
        return items
    return [*items, item]
