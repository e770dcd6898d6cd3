"""What to write in a flow instead of calls that a durable function may make, or that asyncio has."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from holdfast.authoring import function_commands as commands

__all__ = ["Advice", "advice_for"]


class Advice(NamedTuple):
    """Why a call is refused, and what to write instead."""

    why: str
    instead: str


_OTHERWISE: Final = "make this one a @hf.workflow, which may use it"
_DRAWS: Final = "its result is another one each time, and a decision may be made twice"
_TASKS: Final = Advice(
    "tasks live in one process",
    "use asyncio.gather or asyncio.TaskGroup for several calls, and timeout= of the action for a limit",
)
_LIMIT: Final = Advice(
    "a limit over a block would have to survive a crash",
    "limit the action, as in `await charge.options(timeout=5)(…)`, or make this one a @hf.workflow",
)
_SENDS: Final = Advice("a flow receives events and sends none", f"{_OTHERWISE}, or call engine.send(…) in an action")

_ADVICE: Final[dict[int, Advice]] = {
    id(commands.expose): Advice("a flow has no code in memory that could be asked", _OTHERWISE),
    id(commands.on_rollback): Advice("a flow has no list of what to undo", f"undo it in `except`, or {_OTHERWISE}"),
    id(commands.continue_as): Advice("a run of a flow follows one graph to its end", f"use a loop, or {_OTHERWISE}"),
    id(commands.send): _SENDS,
    id(commands.broadcast): _SENDS,
    id(commands.start_child): Advice(
        "a handle of another run is no value of a flow", f"await the workflow itself, or {_OTHERWISE}"
    ),
    id(commands.execute): Advice(
        "a flow gives no inputs to deciders", f"{_OTHERWISE}, or call engine.execute(…) in an action"
    ),
    id(commands.side_effect): Advice("its result would not be recorded", "make it an action and await that"),
    id(commands.patched): Advice(
        "a run follows the version of the graph that it began with", "leave it out and change the flow"
    ),
    id(commands.rng): Advice(_DRAWS, "draw in an action and use the result"),
    **{
        id(each): _TASKS
        for each in (asyncio.wait_for, asyncio.wait, asyncio.create_task, asyncio.ensure_future, asyncio.shield)
    },
    id(asyncio.timeout): _LIMIT,
    id(asyncio.timeout_at): _LIMIT,
}


def advice_for(found: Any) -> Advice | None:
    """The advice about calling this very object; None if there is nothing to say of it in particular."""
    return _ADVICE.get(id(found))
