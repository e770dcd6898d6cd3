"""`make demo`: orders are processed by a worker that is killed in the middle, and by the one that takes over.

Everything is real: the worker is a process of its own, the kill is SIGKILL, the database is SQLite with the default
settings. At the end the engine's record is compared with what the outside world has seen; the exit code is 0 only if
every promise was kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from display import Display, make_display
from report import Facts, collect_attempts, how_far, print_executions, print_interrupted, verdicts
from rich.console import Console
from shop import STEPS, Order
from world import FOLDER_VARIABLE, PACE_VARIABLE, read_log

import holdfast as hf

HERE = Path(__file__).resolve().parent
KILL_AT = 0.45  # of all steps
ORDER_EVERY_SECONDS = 0.3
LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 3.0  # how long the killer waits for a moment that makes a good story
GIVE_UP_SECONDS = 100.0


class DemoFailed(Exception):
    """The story cannot be told to its end."""


class WorkerProcess:
    """A worker in a process of its own, writing its log beside the database."""

    def __init__(self, number: int, folder: Path, pace: float) -> None:
        self.number = number
        self.log = folder / f"worker-{number}.log"
        environment = {
            **os.environ,
            "HOLDFAST_URL": url_of(folder),
            FOLDER_VARIABLE: str(folder),
            PACE_VARIABLE: str(pace),
        }
        with self.log.open("wb") as log:
            self.started_at = time.time()
            self._process = subprocess.Popen([sys.executable, str(HERE / "worker.py")], env=environment, stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise if it has ended by itself."""
        if self._process.poll() is not None:
            words = self.log.read_text(encoding="utf-8", errors="replace")
            raise DemoFailed(f"worker {self.number} ended with {self._process.returncode}; its last words:\n{words}")

    def kill(self) -> float:
        """SIGKILL: no handler, no farewell. The time of death."""
        self._process.kill()
        at = time.time()
        self._process.wait()
        return at

    def stop(self) -> None:
        """Ask politely, and insist if that is not heard."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'shop.db'}"


async def tell(display: Display, folder: Path, orders: int, pace: float, cleanup: ExitStack) -> Facts:
    """Let orders come in, kill a worker, start another, wait for the end, and collect what is known."""
    log, total = folder / "world.jsonl", orders * len(STEPS)
    handles: dict[int, hf.Handle[None]] = {}
    async with hf.Engine(url_of(folder)) as engine:
        shop = asyncio.create_task(take_orders(engine, handles, orders, pace))
        display.say(f"The shop is open: [bold]{orders} orders[/] of {len(STEPS)} steps will come in.")

        first = WorkerProcess(1, folder, pace)
        cleanup.callback(first.stop)
        display.say(f"[bold green]Worker 1[/] is started (process {first.pid}).")
        await watch(display, handles, first, until=int(KILL_AT * total))
        await good_moment(log)
        killed_at = first.kill()
        cut_off = [attempt for attempt in await collect_attempts(handles) if attempt.state == "leased"]
        display.say(f"[bold red]Worker 1 is killed[/] with SIGKILL in the middle of {len(cut_off)} steps:")
        events = list(read_log(log))
        for attempt in cut_off:
            display.say(f"    order {attempt.order}, {attempt.step}: {how_far(events, attempt.call)}")

        second = WorkerProcess(2, folder, pace)
        cleanup.callback(second.stop)
        display.say(f"[bold green]Worker 2[/] is started (process {second.pid}).")
        await watch(display, handles, second, until=total)
        await shop
        for handle in handles.values():
            await handle.result(timeout=GIVE_UP_SECONDS)
        display.say("Every order is done. Now all of them are started again, under the same keys.")

        before = {handle.id for handle in handles.values()}
        again = [(await start(engine, number)).id for number in handles]
        statuses = {handle.id: await handle.status() for handle in handles.values()}
        second.stop()
        return Facts(
            orders=orders,
            statuses=statuses,
            attempts=await collect_attempts(handles),
            events=list(read_log(log)),
            killed_pid=first.pid,
            killed_at=killed_at,
            restarted_at=second.started_at,
            repeated_starts=sum(1 for run in again if run in before),
            new_runs=len(set(again) - before),
            complaints=[found.message for found in await engine.doctor() if found.severity == "error"],
            lease_seconds=engine.settings.lease_seconds,
        )


async def take_orders(engine: hf.Engine, handles: dict[int, hf.Handle[None]], orders: int, pace: float) -> None:
    """Customers do not wait for workers: an order is accepted whether one is alive or not."""
    for number in range(1, orders + 1):
        handles[number] = await start(engine, number)
        await asyncio.sleep(ORDER_EVERY_SECONDS * pace)


async def start(engine: hf.Engine, number: int) -> hf.Handle[None]:
    return await engine.start(Order(number=number, cents=1000 + 37 * number), key=f"order-{number}")


async def watch(display: Display, handles: dict[int, hf.Handle[None]], worker: WorkerProcess, *, until: int) -> None:
    """Show the progress until so many steps are recorded."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        recorded: Counter[str] = Counter(dict.fromkeys(STEPS, 0))
        for attempt in await collect_attempts(handles):
            recorded[attempt.step] += attempt.state == "completed"
        display.show(recorded)
        if recorded.total() >= until:
            return
        worker.check()
        if time.monotonic() > deadline:
            raise DemoFailed(f"only {recorded.total()} of {until} steps were recorded in {GIVE_UP_SECONDS:g} s")
        await asyncio.sleep(LOOK_SECONDS)


async def good_moment(log: Path) -> None:
    """Wait until a card is charged and the answer still under way: the worst moment to die, so the one to show."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        charges = [event for event in read_log(log) if event.step == "charge_card"]
        answered = {event.call for event in charges if event.what == "answered"}
        if any(event.what == "done" and event.call not in answered for event in charges):
            return
        await asyncio.sleep(LOOK_SECONDS / 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=40, help="how many orders (default: %(default)s)")
    parser.add_argument("--pace", type=float, default=1.0, help="how slow the world is (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep database and logs in this empty folder")
    options = parser.parse_args()
    if options.orders < 4 or options.pace <= 0:
        parser.error("give at least 4 orders, and a pace above 0")
    if options.keep is not None and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"{options.keep} is not empty; name another folder, or remove it")
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without these characters
    console = Console(width=None if sys.stdout.isatty() else 110)

    with ExitStack() as cleanup:
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            folder = options.keep.resolve()
        else:
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-")))
        console.print("\n[bold]A shop, a bank, and a worker that dies in the middle[/]\n")
        try:
            with make_display(console, STEPS, options.orders) as display:
                facts = asyncio.run(tell(display, folder, options.orders, options.pace, cleanup))
        except (DemoFailed, TimeoutError, hf.HoldfastError) as error:
            console.print(f"\n[bold red]The demo failed:[/] {error}", highlight=False)
            return 1
        console.print()
        print_executions(console, facts)
        console.print()
        print_interrupted(console, facts)
        console.print()
        kept = verdicts(facts)
        for good, text in kept:
            console.print(f"  [green]✓[/] {text}" if good else f"  [bold red]✗ NOT KEPT: {text}[/]", highlight=False)
        for complaint in facts.complaints:
            console.print(f"      {complaint}", highlight=False)
        console.print(f"\n{last_words(options.keep)}\n", highlight=False, soft_wrap=True)
        return 0 if all(good for good, _ in kept) else 1


def last_words(kept: Path | None) -> str:
    if kept is None:
        return "The code is in examples/demo; `run.py --keep demo-data` there keeps the database for you to look at."
    return f"Look around: holdfast runs --url sqlite:///{kept / 'shop.db'}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
