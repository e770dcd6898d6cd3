"""Code that crashes, eats memory, never ends or leaves: with isolation="process" it is a failure like any other."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from tests.reliability.hostile import deadly

DEADLINE_SECONDS = 30.0
DEADLY: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "crashes": (deadly.crash, (), "SIGSEGV"),
    "leaves": (deadly.leave, (), "7"),
    "leaves politely": (deadly.leave_politely, (), "so long"),
    "eats memory": (deadly.eat_memory, (), "MemoryError"),
    "never ends": (deadly.never_end, (), "1.5"),
    "closes everything": (deadly.close_everything, (), ""),
}


@pytest.mark.parametrize("kind", DEADLY)
async def test_g9_i8_an_action_that_takes_its_process_with_it_fails_alone(kind: str) -> None:
    """The run fails with a reason that says what happened; the worker, its other processes and its other runs go on."""
    action, arguments, told = DEADLY[kind]
    async with hf.Engine("memory://", registry=deadly.registry, processes=2) as engine, engine.worker():
        victim = await engine.start(action, *arguments)
        beside = await engine.start(deadly.add, 1)
        with pytest.raises(hf.RunFailed) as failed:
            await victim.result(DEADLINE_SECONDS)
        assert told in f"{failed.value} {failed.value.__cause__!r}"
        assert await beside.result(DEADLINE_SECONDS) == 2
        assert await engine.run(deadly.add, 2, timeout=DEADLINE_SECONDS) == 3
        assert len(await victim.step_executions()) == 1
