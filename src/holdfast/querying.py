"""Asking a function something while it runs or waits: its history is replayed here, and nothing is started."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UsageError
from holdfast.core.rows import Run

if TYPE_CHECKING:
    from holdfast.engine import Engine


async def answer_query(engine: Engine, run: Run, name: str) -> Any:
    """What the function exposes under this name."""
    if run.model != "function":
        raise UsageError(f"run {run.id} of {run.workflow} is no function", hint="only workflows expose anything")
    from holdfast.runtime.function_driver import replayed  # heavy, and only for those who ask

    limit = engine.settings.payload_limit_bytes
    function = await replayed(engine.store, engine.definitions, engine.codecs, run, limit_bytes=limit)
    try:
        return contextvars.copy_context().run(function.query, name)  # what it sets is not the caller's
    finally:
        function.evict()
