"""DAGs and single actions: chains, joins, retries, transactions, and nodes that give up."""

from __future__ import annotations

from typing import Any

import holdfast as hf
from tests.reliability.crash.ledger import Doing, Line, current
from tests.reliability.crash.oracle import Rows, must
from tests.reliability.crash.scenario import Scenario, Scene, ended, placeholders

RETRY = hf.Retry(attempts=4, base=0.01, cap=0.02)

dags = hf.Registry()


class Chain(hf.Dag, registry=dags):
    @hf.step
    async def one(self) -> None:
        with Doing("one"):
            pass

    @hf.step
    async def two(self) -> None:
        with Doing("two"):
            pass

    @hf.step
    async def three(self) -> None:
        with Doing("three"):
            pass


class Diamond(hf.Dag, registry=dags):
    @hf.step
    async def top(self) -> None:
        with Doing("top"):
            pass

    @hf.task(depends_on=[top])
    async def left(self) -> None:
        with Doing("left"):
            pass

    @hf.task(depends_on=[top])
    async def right(self) -> None:
        with Doing("right"):
            pass

    @hf.step(depends_on=[left, right])
    async def bottom(self) -> None:
        with Doing("bottom"):
            pass


async def _chain(scene: Scene) -> None:
    await (await scene.start(Chain(), key="chain")).result()


async def _diamond(scene: Scene) -> None:
    await (await scene.start(Diamond(), key="diamond")).result()


@hf.action(registry=dags)
async def load(shop: str) -> None:
    with Doing(f"load {shop}"):
        pass


@hf.action(registry=dags)
async def report() -> None:
    with Doing("report"):
        pass


SHOPS = ("a", "b", "c", "d")


async def _fan(scene: Scene) -> None:
    dag = hf.DagBuilder("nightly", registry=dags)
    dag.fan_out(SHOPS, name=lambda shop: f"load_{shop}", job=load, args=lambda shop: {"shop": shop})
    dag.node("report", job=report, args={})
    await (await scene.start(dag.build(), key="fan")).result()


@hf.action(registry=dags, retry=RETRY)
async def flaky() -> str:
    with Doing("flaky"):
        if current().count("raised", "flaky") < 2:
            raise RuntimeError("not yet")
    return "at last"


async def _retry(scene: Scene) -> None:
    await (await scene.start(flaky, key="retry")).result()


@hf.action(registry=dags, transactional=True)
async def book(amount: int) -> int:
    with Doing(f"book {amount}"):
        await hf.current().tx.execute(
            f"INSERT INTO bookings (amount) VALUES ({placeholders(_kind(), 1)})",
            amount,
        )
    return amount


def _kind() -> str:
    return "sqlite" if hasattr(hf.current().tx.raw, "in_transaction") else "postgresql"


async def _bookings(scene: Scene) -> None:
    handles = [await scene.start(book, amount, key=f"book {amount}") for amount in (10, 20)]
    for handle in handles:
        await handle.result()


def _booked_once(rows: Rows, lines: list[Line]) -> None:
    amounts = sorted(row["amount"] for row in rows["bookings"])
    must(amounts == [10, 20], "G3", f"booked in the transactions of their results: {amounts}")


class Fragile(hf.Dag, registry=dags, on_failure="pause"):
    @hf.step
    async def fetch(self) -> None:
        with Doing("fetch"):
            pass

    @hf.step
    async def convert(self) -> None:
        with Doing("convert"):
            if not current().has("mended"):
                raise ValueError("a bad line")

    @hf.step
    async def publish(self) -> None:
        with Doing("publish"):
            pass


async def _reattempt(scene: Scene) -> None:
    handle = await scene.start(Fragile(), key="fragile")
    row = await scene.engine.watch.wait(handle.id, lambda row: row.ended or row.status == "paused", 30)
    if row.status == "paused":
        if not scene.ledger.has("mended"):
            scene.ledger.write("mended")
        await handle.reattempt("convert")
        scene.ack("reattempt")
    await handle.result(wait_paused=True)


class Doomed(hf.Dag, registry=dags, on_failure="fail"):
    @hf.step
    async def begin(self) -> None:
        with Doing("begin"):
            pass

    @hf.task(depends_on=[begin], retry=hf.Retry(attempts=2, base=0.01))
    async def fall(self) -> None:
        with Doing("fall"):
            raise ValueError("always")

    @hf.task(depends_on=[begin])
    async def beside(self) -> None:
        with Doing("beside"):
            pass

    @hf.task(depends_on=[fall])
    async def never(self) -> None:
        with Doing("never"):
            pass


async def _gives_up(scene: Scene) -> None:
    await scene.ends(await scene.start(Doomed(), key="doomed"))


@hf.action(registry=dags, timeout=0.02, retry=hf.Retry(attempts=2, base=0.01))
async def slow() -> str:
    import asyncio

    with Doing("slow"):
        if not current().has("raised", "slow"):
            await asyncio.sleep(20)
    return "done"


async def _timeout(scene: Scene) -> None:
    await (await scene.start(slow, key="slow")).result()


@hf.action(registry=dags, queue="elsewhere")
async def far(number: int) -> int:
    with Doing(f"far {number}"):
        return number


async def _starts_together(scene: Scene) -> None:
    """Several starts at once share commits, and those without a slot of ours are claimed."""
    import asyncio

    handles = await asyncio.gather(*[scene.start(load, str(number), key=f"load {number}") for number in range(6)])
    for handle in handles:
        await handle.result()


def scenarios() -> list[Scenario]:
    def made(name: str, play: Any, **fields: Any) -> Scenario:
        return Scenario(name=name, registry=dags, play=play, **fields)

    loads = {f"load {shop}": 1 for shop in SHOPS}
    return [
        made(
            "linear",
            _chain,
            results={"chain": None},
            does={"one": 1, "two": 1, "three": 1},
            order=(("one", "two"), ("two", "three")),
        ),
        made(
            "diamond",
            _diamond,
            results={"diamond": None},
            does={"top": 1, "left": 1, "right": 1, "bottom": 1},
            order=(("top", "left"), ("top", "right"), ("left", "bottom"), ("right", "bottom")),
        ),
        made(
            "fan",
            _fan,
            results={"fan": None},
            does=loads | {"report": 1},
            order=tuple((shop, "report") for shop in loads),
        ),
        made("retry", _retry, results={"retry": "at last"}, does={"flaky": 3}),
        made("transactions", _bookings, results={"book 10": 10, "book 20": 20}, check=_booked_once),
        made(
            "reattempt",
            _reattempt,
            results={"fragile": None},
            does={"fetch": 1, "convert": 2, "publish": 1},
            order=(("fetch", "convert"), ("convert", "publish")),
        ),
        made(
            "gives up",
            _gives_up,
            results={"doomed": ended("failed")},
            does={"begin": 1, "fall": 2, "beside": 1, "never": 0},
        ),
        made("timeout", _timeout, results={"slow": "done"}, does={"slow": 2}),
        made(
            "starts together",
            _starts_together,
            results={f"load {number}": None for number in range(6)},
            does={f"load {number}": 1 for number in range(6)},
            concurrency=3,
        ),
    ]
