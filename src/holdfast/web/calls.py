"""A request that was let in, as handlers see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.core.rows import Run
from holdfast.web.access import Caller, Role
from holdfast.web.redaction import Redaction
from holdfast.web.refusals import Refused

if TYPE_CHECKING:
    from holdfast.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Who asks what. `query` and `body` have the types that the route declares; `key` is the Idempotency-Key.

    `targets` is what the line in the log names beside the address: handlers add what was meant, and what came of it.
    """

    engine: Engine
    caller: Caller
    redaction: Redaction
    path: Mapping[str, str]
    query: Any = None
    body: Any = None
    key: str | None = None
    readonly_reason: str | None = None
    targets: dict[str, object] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """What a run's history says of who did it."""
        return f"http:{self.caller.name}"

    async def run(self) -> Run:
        """The run that the address names; UnknownWorkflow otherwise."""
        return await self.engine.get(self.path["id"])._row()

    def require(self, role: Role, what: str) -> None:
        """Refuse what needs more than the route itself does."""
        if self.caller.role < role:
            raise Refused(
                403,
                "Forbidden",
                f"{what} needs the role {role.word}, and {self.caller.name} has {self.caller.role.word}",
                f"ask somebody with a token of the role {role.word}",
            )
