"""The state machine of a decider: as its author declares it, or as instances were seen to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.authoring.state_machine import StateMachine
    from holdfast.engine import Engine


def declared_machine(decider: Any) -> StateMachine | None:
    """What the author declares; None if that is nothing."""
    declared: StateMachine = decider.state_machine()
    return declared if declared.definition.transitions else None


async def observed_machine(engine: Engine, names: tuple[str, ...]) -> StateMachine | None:
    """What instances were seen to do, with counts; None if nothing was observed. No code is needed."""
    from holdfast.authoring.state_machine import StateMachine

    rows = [row for name in names for row in await engine.store.transitions(name)]
    if not rows:
        return None
    code = engine.definitions.decider(names[0])
    declared = None if code is None else code.definition.machine().definition
    return StateMachine.observed(
        [(before, given, after or "?", count) for before, given, after, count in rows],
        name=names[0],
        initial=None if declared is None else declared.initial,
        terminals=() if declared is None else declared.terminals,
    )
