"""Every example of state graphs runs, tells its story, and can be replayed without the world outside."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast as hf
from examples.graphs import agent, map_reduce, pipeline
from tests.docs.documents import ROOT, environment, run_program

GRAPHS = ROOT / "examples" / "graphs"


async def replayed(folder: Path, graph: hf.StateGraph[Any], mode: str = "strict") -> Any:
    """What a replay of the run that a program left behind finds."""
    async with hf.Engine(f"sqlite:///{folder / 'holdfast.db'}") as engine:
        (run,) = await engine.find(workflow=graph.name)
        return await engine.replay(run.id, mode=mode)


def refuse_the_world(module: ModuleType, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"the world was asked in a replay: {args} {kwargs}")

    for name in names:
        monkeypatch.setattr(module, name, refused)


async def test_i45_an_agent_asks_a_person_and_goes_on_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I42, I45: no recorded call is repeated by the process that has the answer, nor by a replay."""
    asked = r"tool@4\.\w{16} asks: {'may I send this': 'a lamp and a chair: 169'}\n"
    first = run_program(GRAPHS / "agent.py", folder=tmp_path)
    assert re.fullmatch(
        r"  the model is asked, with 0 messages\n(  the price of a \w+ is looked up\n){2}"
        rf"  the model is asked, with 3 messages\n{asked}",
        first,
    )
    assert re.fullmatch(asked, run_program(GRAPHS / "agent.py", folder=tmp_path))
    told = "Done: the mail was sent.\nreplayed 5 steps with 7 recorded calls: the same state\n"
    answered = run_program(GRAPHS / "agent.py", "--answer", "yes", folder=tmp_path)
    assert answered == f"  mail: a lamp and a chair: 169\n  the model is asked, with 5 messages\n{told}"
    assert run_program(GRAPHS / "agent.py", "--answer", "yes", folder=tmp_path) == told
    refuse_the_world(agent, ["fake_model", "price", "mail"], monkeypatch)
    report = await replayed(tmp_path, agent.agent)
    assert report.ok
    assert [message["role"] for message in report.state["messages"]] == [
        *("model", "tool", "tool", "model", "tool", "model")
    ]


def test_an_agent_that_was_told_no_sends_nothing(tmp_path: Path) -> None:
    run_program(GRAPHS / "agent.py", folder=tmp_path)
    refused = run_program(GRAPHS / "agent.py", "--answer", "no", folder=tmp_path)
    assert "mail:" not in refused
    assert "Done: the mail was refused by a person.\n" in refused


def test_i42_an_agent_that_was_killed_goes_on_with_what_it_has_recorded(tmp_path: Path) -> None:
    """I42: what the model said before SIGKILL is not asked for again."""
    program = [sys.executable, str(GRAPHS / "agent.py")]
    with subprocess.Popen(
        program, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(2)]
        process.kill()
        seen += process.stdout.readlines()
    rest = run_program(GRAPHS / "agent.py", folder=tmp_path).splitlines(keepends=True)
    assert seen[0] == "  the model is asked, with 0 messages\n"
    assert seen[0] not in rest  # its answer was recorded before the tools ran
    assert rest[-1].endswith("{'may I send this': 'a lamp and a chair: 169'}\n")


async def test_i41_documents_are_counted_by_an_item_each_and_merged_the_same_way_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I39, I41: whichever was read first, two runs end with the same state; a replay reads no document."""
    told = "4 documents: a 7, the 7, ship 5, for 3, is 3\n6 items in 3 steps, 3 retries\n"
    states = []
    refuse_the_world(map_reduce, ["read"], monkeypatch)
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        printed = run_program(GRAPHS / "map_reduce.py", folder=folder)
        assert printed.endswith(told)
        assert sorted(printed.removesuffix(told).split()[::3]) == sorted(map_reduce.LIBRARY)
        assert run_program(GRAPHS / "map_reduce.py", folder=folder) == told
        report = await replayed(folder, map_reduce.words)
        assert report.ok
        assert (report.steps, report.nodes, report.calls) == (3, 6, 5)
        states.append((report.state_digest, report.state["titles"]))
    assert states[0] == states[1]


async def test_i45_a_pipeline_with_retries_is_replayed_without_the_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I45: two failures and a success are told by the emitter; the replay needs the record of the success alone."""
    told = "published: 70.00 EUR, 1 problems\nreplayed 4 nodes with 3 recorded calls: 70.00 EUR, 1 problems\n"
    printed = run_program(GRAPHS / "pipeline.py", folder=tmp_path)
    assert printed.endswith(told)
    assert sorted(printed.removesuffix(told).splitlines()) == [
        "  step 1: fetch, attempt 1: done",
        "  step 2: check, attempt 1: done",
        "  step 2: convert, attempt 1: ConnectionError: the exchange does not answer",
        "  step 2: convert, attempt 2: ConnectionError: the exchange does not answer",
        "  step 2: convert, attempt 3: done",
        "  step 3: publish, attempt 1: done",
    ]
    assert run_program(GRAPHS / "pipeline.py", folder=tmp_path) == told
    refuse_the_world(pipeline, ["exchange"], monkeypatch)
    assert (await replayed(tmp_path, pipeline.pipeline)).ok


async def test_i45_a_pipeline_whose_code_was_changed_is_told_apart_by_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I45: a node that declares no side effect runs again, and what it returns is compared with what it returned."""
    run_program(GRAPHS / "pipeline.py", folder=tmp_path)
    node = pipeline.pipeline.nodes["check"]
    monkeypatch.setitem(pipeline.pipeline._nodes, "check", replace(node, fn=lambda state: {"problems": []}))
    with pytest.raises(hf.ReplayMismatch, match=r"(?s)step 2, check@2: .*lamp is too cheap.*now: "):
        await replayed(tmp_path, pipeline.pipeline)
    report = await replayed(tmp_path, pipeline.pipeline, mode="lenient")
    assert [difference.node for difference in report.differences] == ["check@2"]
