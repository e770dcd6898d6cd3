"""The engine's verbs are kept in files by subject: each of those is a base class of `Engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from holdfast.engine import Engine


class EnginePart:
    """A base of `Engine` that holds some of its verbs, and nothing else."""

    @property
    def _engine(self) -> Engine:
        return cast("Engine", self)
