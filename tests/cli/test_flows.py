"""Flows on the command line: started, drawn, looked at and explained as other runs are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.queries import OpenWork
from tests.cli.conftest import Shell
from tests.worker.support import until

SHOP = """
import asyncio

import holdfast as hf


class Refused(Exception):
    pass


@hf.action
async def charge(cents: int) -> int:
    if cents > 1000:
        raise Refused(f"no {cents}")
    return cents


@hf.action(retry=hf.Retry(attempts=2, base=3600, cap=3600))
async def check(cents: int) -> bool:
    if cents < 0:
        raise ValueError("negative")
    return True


@hf.workflow
async def wrap(paper: str) -> str:
    await hf.wait_for("wrapped")
    return paper


@hf.flow
async def checkout(items: list[int], paper: str = "") -> int:
    paid = await asyncio.gather(*[charge(item) for item in items])
    if paper == "sleep":
        await asyncio.sleep(3600)
    elif paper:
        await wrap(paper)
    total = 0
    for cents in paid:
        await check(cents)
        total += cents
    return total
"""


@pytest.fixture
def flows(shell: Shell, folder: Path) -> Shell:
    """With a module `desk` that has a flow; the fixtures forget modules of that name."""
    (folder / "desk.py").write_text(SHOP, encoding="utf-8")
    return shell


DOCUMENT = ("id", "kind", "line", "label", "call", "loops", "next", "on_error", "state")


def work_until_idle(shell: Shell, run: str) -> None:
    """Run a worker in this process until all that is left of the run waits for a time or for something else."""

    async def work() -> None:
        async with hf.Engine(shell.url, poll_seconds=0.02) as engine, engine.worker():

            async def is_idle() -> bool:
                now = engine.store.now()
                left = await engine.store.rows(OpenWork(run))
                return all(item.status == "blocked" or (item.status == "ready" and item.due > now) for item in left)

            await until(is_idle, "the flow waits for something")

    asyncio.run(work())


def test_a_flow_is_started_by_its_place_and_by_its_name(flows: Shell) -> None:
    by_place = flows.start("desk:checkout", "[1, 2]")
    by_name = flows.start("checkout", "[3]", "", "--app", "desk")
    flows.work(by_place, by_name)
    assert [flows.json("show", run)["result"] for run in (by_place, by_name)] == [3, 3]
    missing = flows("start", "desk:checkout")
    assert missing.exit_code == 2
    assert "flow checkout cannot be called like this: missing a required argument: 'items'" in missing.stderr


def test_i24_a_flow_is_drawn_before_any_run_in_three_formats(flows: Shell) -> None:
    drawn = flows.ok("graph", "desk:checkout").splitlines()
    assert [line.split()[1] for line in drawn[:4]] == ["input", "fork", "charge", "gather"]
    assert drawn[2].endswith("charge(…) -> gather")
    assert flows.ok("graph", "checkout", "--app", "desk").splitlines() == drawn
    assert flows.ok("graph", "desk:checkout", "--format", "mermaid").startswith("graph TD\n")
    document = flows.json("graph", "desk:checkout")
    assert document.keys() == {"workflow", "run", "signature", "nodes"}
    gather = document["nodes"][3]
    assert gather.keys() == set(DOCUMENT)
    assert (gather["kind"], gather["state"]) == ("barrier", None)
    assert gather["next"][0].keys() == {"node", "when", "next_pass"}
    refused = flows("graph", "desk:checkout", "--format", "svg")
    assert refused.exit_code == 2
    assert "use --format mermaid" in refused.stderr


def test_i2_a_blocked_barrier_says_how_many_it_has_and_what_it_waits_for(flows: Shell) -> None:
    run = flows.start("desk:checkout", "[1, 2, 3]")
    shown = {node["name"]: node for node in flows.json("show", run)["nodes"]}
    assert list(shown) == ["charge[0]", "charge[1]", "charge[2]", "gather"]
    assert [node["does"] for node in shown.values()] == ["action charge"] * 3 + ["barrier"]
    assert shown["gather"]["detail"].startswith("0 of 3 since ")
    lines = flows.ok("show", run)
    assert "charge[0] … charge[2]  3 ready" in lines
    assert "charge[1]  ready" in flows.ok("show", run, "--nodes")
    told = " ".join(flows.ok("explain", run).split())
    assert "node gather is blocked (0 of 3) since " in told
    assert ": it waits for charge[0], charge[1], charge[2]" in told
    assert "(ready 3 of 3) charge(…)" in flows.ok("graph", run)
    assert "(blocked 0 of 3)" in flows.ok("graph", run)


def test_a_flow_that_sleeps_says_until_when(flows: Shell) -> None:
    run = flows.start("desk:checkout", "[]", "sleep")
    assert [node["does"] for node in flows.json("show", run)["nodes"]] == ["barrier"]
    work_until_idle(flows, run)
    (_, sleep) = flows.json("show", run)["nodes"]
    assert (sleep["does"], sleep["state"], sleep["detail"][:4]) == ("sleep", "ready", "due ")
    assert "due at " in flows.ok("explain", run)


def test_a_flow_that_waits_for_a_child_names_it(flows: Shell) -> None:
    run = flows.start("desk:checkout", "[1]", "red")
    work_until_idle(flows, run)
    document = flows.json("show", run)
    (child,) = document["children"]
    assert child["workflow"] == "wrap"
    assert [wait["run"] for wait in document["waits"]] == [child["run"]]
    assert "run of wrap" in flows.ok("show", run)
    assert f"for the end of its child run {child['run']} of wrap" in " ".join(flows.ok("explain", run).split())


def test_i18_nodes_of_loops_are_shown_under_their_addresses(flows: Shell) -> None:
    run = flows.start("desk:checkout", "[5, -1]")
    work_until_idle(flows, run)
    nodes = {node["name"]: node["state"] for node in flows.json("show", run)["nodes"]}
    assert nodes["check@1"] == "ready"
    assert "check@0" not in nodes, "a pass that is over gives its rows back"
    told = " ".join(flows.ok("explain", run).split())
    assert "node check@1 is backing off until " in told
    assert "after ValueError: negative" in told


def test_i24_check_finds_what_the_graph_of_an_open_run_calls_and_new_code_has_not(flows: Shell, folder: Path) -> None:
    """A run keeps its graph, so other code is fine as long as it has the actions that this graph calls."""
    flows.start("desk:checkout", "[1]")
    (folder / "desk.py").write_text(SHOP.replace("total += cents", "total += 2 * cents"), encoding="utf-8")
    with flows.process("check", "desk") as fine:
        assert fine.wait(60) == 0
    (folder / "desk.py").write_text(SHOP.replace("check(", "inspect("), encoding="utf-8")
    with flows.process("check", "desk") as broken:
        told, _ = broken.communicate(timeout=60)
        assert broken.returncode == 1
    assert "its graph calls what this code does not have: check" in told
