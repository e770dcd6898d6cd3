"""Another process with a coordinator of its own, which submits an operation and stands still where it is told to.

`python -m tests.functions.rival` reads orders, one JSON document a line: an operation to submit and the failpoint to
stop at. It answers "held" when it stands there (and goes on at the next line), and then the result.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import IO, Any

import msgspec

from holdfast.core import failpoints
from holdfast.core.every_operation import AnyOperation, AnyResult
from holdfast.core.operations import Operation
from tests.kernel.kernels import make_coordinator
from tests.kernel.scripts import plain
from tests.support.stores import Site, VirtualClock
from tests.worker.support import ROOT, child_environment


class Order(msgspec.Struct):
    url: str
    place: str
    operation: AnyOperation


class Answer(msgspec.Struct):
    """`held` while it stands still; else the result, or the error in words."""

    held: bool = False
    result: AnyResult | None = None
    error: str = ""


class Rival:
    """The other process, as a test talks to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.functions.rival"],
            cwd=ROOT,
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def close(self) -> None:
        self._pipe(self._process.stdin).close()
        self._process.wait(10)
        self._pipe(self._process.stdout).close()

    def _pipe(self, pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe

    def say(self, line: bytes) -> None:
        pipe = self._pipe(self._process.stdin)
        pipe.write(line + b"\n")
        pipe.flush()

    async def hear(self) -> Answer:
        line = await asyncio.to_thread(self._pipe(self._process.stdout).readline)
        assert line, f"the rival ended with {self._process.wait(10)}"
        return msgspec.json.decode(line, type=Answer)

    async def submit(self, url: str, place: str, operation: Operation) -> Answer:
        """Its first answer: that it is held there, or the result if it never came by."""
        self.say(msgspec.json.encode({"url": url, "place": place, "operation": operation}))
        return await self.hear()

    async def go_on(self) -> Any:
        self.say(b"")
        return outcome_of(await self.hear())


def outcome_of(answer: Answer) -> Any:
    return answer.error or answer.result


# --- in the other process ------------------------------------------------------------------------------------------


async def _obey(order: Order, site_stores: dict[str, Any]) -> None:
    clock = VirtualClock()
    if order.url not in site_stores:
        store = Site("postgresql", order.url).store(clock)
        await store.open()
        site_stores[order.url] = store
    store = site_stores[order.url]
    coordinator = make_coordinator(store, clock)
    held = False

    def hook(name: str) -> Any:
        nonlocal held
        if name != order.place or held:
            return None
        held = True
        _tell(Answer(held=True))
        return asyncio.ensure_future(asyncio.to_thread(sys.stdin.buffer.readline))

    failpoints.arm(hook)
    (result,) = await coordinator.submit_batch([order.operation])
    failpoints.disarm()
    await coordinator.close()
    _tell(Answer(error=plain(result)) if isinstance(result, BaseException) else Answer(result=result))


def _tell(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


async def _main() -> None:
    stores: dict[str, Any] = {}
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        await _obey(msgspec.json.decode(line, type=Order), stores)
    for store in stores.values():
        await store.close()


if __name__ == "__main__":
    asyncio.run(_main())
