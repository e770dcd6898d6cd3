"""A nightly batch whose graph is built from a template: one node for every shop, then the report.

    python examples/nightly.py 2031-05-04

A template is a plain function that returns a builder. It is started by name with arguments, from here or with
`holdfast start`, and expands once: what it built is stored with the run. The nodes write files into nightly-DAY/.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import date
from pathlib import Path

import holdfast as hf

SHOPS = ("harbour", "market", "station", "university")
CLOSED = {"university"}


@hf.action
async def wait_for_rates(day: date) -> None:
    """The rates arrive some time after midnight: look again in a while. This is no failure and uses no retry."""
    if hf.current().attempt < 3:
        hf.current().reattempt(after=0.1, reason="the rates are not there yet")
    print("rates are here", flush=True)


@hf.action(retry=hf.Retry(attempts=5, base=0.1, cap=10.0), timeout=60.0)
def export_shop(day: date, shop: str) -> None:
    """A plain `def` runs in a thread. Running it twice leaves the same file: the final name is given last."""
    if shop in CLOSED:
        hf.current().skip(f"{shop} is closed on {day}")
    if shop == "station" and hf.current().attempt == 1:
        raise ConnectionError("the till of the station does not answer")
    print(f"exported {shop}", flush=True)
    write(day, shop, {"shop": shop, "sales": len(shop) * 100})


@hf.action
def report(day: date) -> None:
    sales = sum(json.loads(file.read_text())["sales"] for file in folder(day).glob("shop-*.json"))
    write(day, "report", {"sales": sales})
    print(f"report: {sales}", flush=True)


@hf.dag_template
def nightly(day: date, shops: list[str]) -> hf.DagBuilder:
    """The arguments are the run's input. Whatever else the graph depends on belongs into them."""
    dag = hf.DagBuilder("nightly", on_failure="pause")
    dag.node("rates", job=wait_for_rates, args={"day": day})
    dag.fan_out(
        shops, name=lambda shop: f"export_{shop}", job=export_shop, args=lambda shop: {"day": day, "shop": shop}
    )
    dag.node("report", job=report, args={"day": day})
    return dag


def folder(day: date) -> Path:
    return Path(f"nightly-{day}")


def write(day: date, name: str, content: dict[str, object]) -> None:
    folder(day).mkdir(exist_ok=True)
    unfinished = folder(day) / f"{name}.unfinished"
    unfinished.write_text(json.dumps(content))
    os.replace(unfinished, folder(day) / (f"{name}.json" if name == "report" else f"shop-{name}.json"))


async def main(day: date) -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        # By name, as a scheduler would: the module that defines the template has to be imported, and that is all.
        handle = await engine.start("nightly", day, list(SHOPS), key=f"nightly-{day}")
        await handle.result()
        for node in await handle.nodes_with_state():
            print(f"{node.name}: {node.state}, attempt {node.attempt}")


if __name__ == "__main__":
    asyncio.run(main(date.fromisoformat(sys.argv[1]) if len(sys.argv) > 1 else date(2031, 5, 4)))
