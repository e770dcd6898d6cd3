"""`hf.run`: a whole engine for the length of one call, for scripts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, overload

from holdfast.any_queue import serve_what_is_there, serve_whatever_comes
from holdfast.authoring.actions import Bound
from holdfast.authoring.dags import Dag
from holdfast.core.errors import UsageError
from holdfast.engine import Engine

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph

R = TypeVar("R")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")


@overload
def run(workflow: Dag, /, *, key: str | None = ..., timeout: float | None = ..., **options: Any) -> None: ...
@overload
def run(
    workflow: StateGraph[S],
    state: S | Mapping[str, Any],
    /,
    *,
    key: str | None = ...,
    timeout: float | None = ...,
    **options: Any,
) -> S: ...
@overload
def run(workflow: Bound[R], /, *, key: str | None = ..., timeout: float | None = ..., **options: Any) -> R: ...
@overload
def run(
    workflow: Callable[[*Ts], Awaitable[R]],
    /,
    *args: *Ts,
    key: str | None = ...,
    timeout: float | None = ...,
    **options: Any,
) -> R: ...
@overload
def run(workflow: str, /, *args: Any, key: str | None = ..., timeout: float | None = ..., **options: Any) -> Any: ...
def run(  # type: ignore[misc]  # mypy cannot match *Ts with *args
    workflow: Any, /, *args: Any, key: str | None = None, timeout: float | None = None, **options: Any
) -> Any:
    """Start, work and wait, in one call: for scripts.

    The state is in `holdfast.db` in the current directory, or where HOLDFAST_URL says. Running it again
    with the same key goes on where it stopped, or returns the stored result. While it waits it also works
    for whatever else the script has defined, on every queue that its code names.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise UsageError(
            "hf.run was called inside a running event loop (Jupyter has one, and so has every async function)",
            hint="write: async with hf.Engine() as engine, engine.worker(): await engine.run(…)",
        )

    async def main() -> Any:
        engine = Engine()
        queues = {"default", *engine.definitions.queues(), *filter(None, [options.get("queue")])}
        async with engine, engine.worker(queues=sorted(queues)) as worker:
            serve_whatever_comes(engine, worker)
            if key is not None:  # else there is nothing to go on with
                await serve_what_is_there(engine, worker)
            try:
                return await engine.run(workflow, *args, key=key, timeout=timeout, **options)
            except asyncio.CancelledError:
                limit = engine.settings.shutdown_seconds
                print(
                    f"interrupted: finishing what is running, {limit:g} s at most; Ctrl-C again stops", file=sys.stderr
                )
                raise

    try:
        return asyncio.run(main())
    except KeyboardInterrupt:
        # Not the thirty lines of how asyncio was interrupted: nothing is lost, and the same call goes on.
        raise KeyboardInterrupt("what was recorded is kept; run it again to go on") from None
