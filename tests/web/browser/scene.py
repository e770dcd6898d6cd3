"""The world that the page is tried on: runs of every model in every state, one of them after a SIGKILL.

    python -m tests.web.browser.scene DIRECTORY

builds it on SQLite in that directory, serves the page with a worker beside it, prints one line of JSON with the address
and the ids of the runs, and stays until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast as hf

ROOT = Path(__file__).resolve().parents[3]
LOOK_AGAIN_SECONDS = 0.02
PATIENCE_SECONDS = 60.0
SHOPS = 500  # more than the server draws one by one
HUGE = 5_000
PINGS = 30  # so that there is a second page of runs
TOKENS = {"look-and-do-not-touch": "read", "let-me-in": "admin"}
SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Scene:
    """Where the page is, with and without a sign-in, and which run is which."""

    url: str
    locked_url: str
    runs: dict[str, str]
    process: subprocess.Popen[str]


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    """Build the world in a process of its own, and end it afterwards."""
    source = Path(hf.__file__).parents[1]  # whichever is tested
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.web.browser.scene", str(directory)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the scene ended with {process.wait()} before it was ready")
        told = json.loads(line)
        yield Scene(told["url"], told["locked_url"], told["runs"], process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


async def main(directory: Path) -> None:
    from holdfast.web import serve
    from tests.web.browser import workflows as w

    os.environ[w.PLACE] = str(directory)
    url = f"sqlite:///{directory / 'scene.db'}"
    engine = hf.Engine(url)
    async with engine:
        killed = await engine.start(w.Inventory(shop="harbour"), key="inventory-harbour", tags={"shop": "harbour"})
        await _kill_a_worker(url, directory)
        async with engine.worker(queues=["default"]):
            runs = {"killed": killed.id, **await _build(engine, url)}
            async with asyncio.TaskGroup() as servers:
                url = await _serving(servers, serve, engine)
                locked_url = await _serving(servers, serve, engine, tokens=TOKENS)
                print(json.dumps({"url": url, "locked_url": locked_url, "runs": runs}), flush=True)
                await asyncio.to_thread(sys.stdin.read)
                os._exit(0)  # some of these run for ever, on purpose


async def _serving(servers: asyncio.TaskGroup, serve: Any, engine: hf.Engine, **options: Any) -> str:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    servers.create_task(serve(engine, port=0, ready=ready.set_result, **options))
    return await ready


async def _kill_a_worker(url: str, directory: Path) -> None:
    """A worker that dies in the middle of a step, as no test double could."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "worker", "tests.web.browser.workflows", "--url", url,
        "--log-level", "error",
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (directory / "counting").exists():  # noqa: ASYNC110 - another process: there is nothing to wait on
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def _build(engine: hf.Engine, url: str) -> dict[str, str]:
    from holdfast.authoring.registry import Registry
    from tests.web.browser import workflows as w

    handles: dict[str, Any] = {}
    start = engine.start
    for number in range(PINGS):
        await start(w.ping, number, tags={"kind": "ping"})
    handles["huge"] = await start(w.nightly(HUGE), key="nightly-huge", paused=True)
    for number in range(1001, 1013):
        region = "north" if number % 2 else "south"
        handles[f"order-{number}"] = await start(
            w.Order(number=number), key=f"order-{number}", tags={"region": region, "tenant": "acme"}
        )
    for name, number in (("failed", 1013), ("failed-too", 1113), ("failed-bulk", 1213)):
        handles[name] = await start(w.Order(number=number), key=f"order-{number}", tags={"region": "north"})
    handles["script"] = await start(w.Order(number=7, note=SCRIPT), key=SCRIPT, tags={"note": "<b>bold</b>"})
    for name in ("paused", "paused-bulk-1", "paused-bulk-2"):
        handles[name] = await start(w.Order(number=2), key=name, paused=True, tags={"batch": "b1"})
    for name in ("restock-lamp", "restock-chair"):
        handles[name] = await start(w.Restock(article=name.partition("-")[2]), key=name)
    handles["wide"] = await start(w.nightly(SHOPS), key="nightly-2031-05-04")
    for member in ("Ada", "Grace"):
        handles[f"onboard-{member}"] = await start(w.onboard, member, key=f"onboard-{member}", tags={"plan": "family"})
    handles["sleeping"] = await start(w.remind, "Linus", 3, key="remind-Linus")
    handles["parent"] = await start(w.household, ["Kay", "Bea"], key="household-12")
    handles["running"] = await start(w.watch_prices, key="watch")
    handles["to-cancel"] = await start(w.watch_prices, key="watch-2")
    handles["unserved"] = await start(w.render, 240, key="render-240", queue="gpu")
    handles["flow"] = await start(w.negotiate, ["lamp", "chair", "table"], key="negotiate-9")
    for name in ("agent", "agent-answered"):
        handles[name] = await start(w.agent, {"question": "a lamp and a chair?", "messages": []}, key=name)
    for owner, cents in (("ada", 5000), ("grace", 700), ("ada", 1200), ("linus", 900)):
        await engine.execute(w.Account, w.Deposit(owner, cents))
    for owner, cents in (("ada", 300), ("grace", 800)):
        await engine.execute(w.Account, w.Withdraw(owner, cents))
    handles["cancelled"] = await start(w.onboard, "Nobody", key="onboard-Nobody")
    await _until(handles, STANDING)
    await handles["cancelled"].cancel()
    await handles["agent-answered"].resume_with("yes", by="ada")
    # From a program that does not know the event's type: what cannot be read becomes a dead letter.
    async with hf.Engine(url, registry=Registry()) as stranger:
        await stranger.send("membership-approved", {"who": "nobody"}, to=handles["onboard-Grace"], id="unreadable")
    await _until(handles, {"cancelled": "cancelled", "agent-answered": "completed", "onboard-Grace": "suspended"})
    instance = await engine.snapshot(w.Account, "ada")
    return {**{name: handle.id for name, handle in handles.items()}, "account": instance.run_id}


STANDING = {
    "onboard-Ada": "suspended",
    "onboard-Grace": "suspended",
    "sleeping": "suspended",
    "parent": "suspended",
    "agent": "suspended",
    "agent-answered": "suspended",
    "cancelled": "suspended",
    "flow": "completed",
    "wide": "paused",
    "failed": "failed",
    "restock-lamp": "paused",
    "restock-chair": "paused",
    "order-1001": "completed",
    "order-1012": "completed",
}


async def _until(handles: dict[str, Any], standing: dict[str, str]) -> None:
    """Not `settle`: some of these run for ever, on purpose."""
    for name, status in standing.items():
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await handles[name].status() != status:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
        except TimeoutError:
            raise RuntimeError(f"{name} is {await handles[name].status()}, not {status}") from None


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
