"""The code on the pages that newcomers read first runs, and does what the page says."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest

import holdfast as hf
from holdfast.authoring.flow_refusals import SYNTAX
from holdfast.cli import failures
from holdfast.cli.program import program
from tests.docs.documents import ROOT, environment, python_blocks, run_program
from tests.web.client import API, Client

README = ROOT / "README.md"
USING = ROOT / "docs" / "using.md"
DAGS = ROOT / "docs" / "dags.md"
FUNCTIONS = ROOT / "docs" / "functions.md"
DECIDERS = ROOT / "docs" / "deciders.md"
FLOWS = ROOT / "docs" / "flows.md"
GRAPHS = ROOT / "docs" / "graphs.md"
HTTP = ROOT / "docs" / "http.md"


def _quicker(code: str) -> str:
    """The program as printed, but for the seconds that let a reader kill it."""
    assert "await hf.sleep(seconds=5)" in code
    return code.replace("await hf.sleep(seconds=5)", "await hf.sleep(seconds=0.1)")


def _wait_until_recorded(database: Path, kind: str) -> None:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader:
        deadline = time.monotonic() + 10
        while reader.execute("SELECT kind FROM history").fetchall() != [(kind,)]:
            assert time.monotonic() < deadline, f"no {kind} was recorded"


def test_g1_the_first_program_is_killed_and_goes_on_as_the_readme_says(tmp_path: Path) -> None:
    """What was recorded does not run again after SIGKILL, and a finished run is found by its key."""
    program = tmp_path / "hello.py"
    code = python_blocks(README)[0]
    assert code.startswith("# hello.py\n")
    program.write_text(code, encoding="utf-8")  # with its seconds, so that the kill hits the middle of the sleep
    with subprocess.Popen(
        [sys.executable, str(program)], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "greeting Ada\n"
        _wait_until_recorded(tmp_path / "holdfast.db", "result")
        process.kill()
        assert process.stdout.read() == ""
    # The time of the sleep is counted from the recorded greeting, in whichever process it is over.
    program.write_text(_quicker(code), encoding="utf-8")
    assert run_program("hello.py", folder=tmp_path) == "Hello, Ada! Welcome back.\n"
    assert run_program("hello.py", folder=tmp_path) == "Hello, Ada! Welcome back.\n"
    readme = README.read_text(encoding="utf-8")
    assert "kill -9 $!           # greeting Ada\n" in readme
    assert readme.count("# Hello, Ada! Welcome back.\n") == 2


def test_the_code_of_the_readme_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """The later blocks need nothing but the earlier ones."""
    first, *others = python_blocks(README)
    (tmp_path / "all.py").write_text("\n".join([_quicker(first), *others]), encoding="utf-8")
    printed = run_program("all.py", folder=tmp_path)
    assert printed.startswith("greeting Ada\nHello, Ada! Welcome back.\nGrace was approved by Ada\n")


def test_the_code_of_the_page_about_functions_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    """I48 to I56 as people use them: events, timers, children, rollbacks, queries, patches, tests in virtual time."""
    (tmp_path / "all.py").write_text("\n".join(python_blocks(FUNCTIONS)), encoding="utf-8")
    printed = run_program("all.py", folder=tmp_path)
    assert re.match(r"receipt buy:\S+:#2\n(Delivered|Queued)\(", printed)
    assert "\nAda is in, says Grace\nTargetEnded(status='completed')\nshelf of order-5 is free again\n" in printed
    assert "progress: 2 of 3\n1 result reserve\n2 result reserve\nwaits for: ['event:continue']\n" in printed


def test_the_code_of_the_page_about_deciders_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    """I33 to I38 as people use them: instances, effects, timers, repeated inputs, the inbox, upcasts, projections."""
    blocks = python_blocks(DECIDERS)
    assert len([line for line in blocks[0].splitlines() if line]) <= 30  # first contact
    (tmp_path / "all.py").write_text("\n".join(blocks), encoding="utf-8")
    printed = run_program("all.py", folder=tmp_path)
    for said in re.findall(r"^(?:asyncio\.run|print|    +print)\(.*\)  +# (.+)$", "\n".join(blocks), re.MULTILINE):
        assert said in printed or said.startswith(("or ", "nobody"))
    assert printed.startswith("750 [Deposited(cents=500), Deposited(cents=250)]\n1 Placed(article='lamp')\n")
    assert "\n3 TimerCancelled(key='payment')\n4 Shipped(tracking='lamp-" in printed
    assert "\n2 Pay command applied open -> locked {'type': 'Pay', 'order': 'front', 'payment': 'p-4'}\n" in printed
    assert "    s0 --> s1 : Place (1)\n" in printed
    assert "\n1 Paid(payment='card:p-1')\nAda has 805\nopen-orders running at " in printed
    assert printed.endswith(" lag 0\n[('1', 'lamp'), ('3', 'table')]\n")


def test_the_code_of_the_page_about_flows_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    """I17 to I24 as people use them: graphs, refusals, loops, spreads, exceptions, children, versions, parity."""
    blocks = python_blocks(FLOWS)
    assert len([line for line in blocks[0].splitlines() if line]) <= 30  # first contact
    (tmp_path / "all.py").write_text("\n".join(blocks), encoding="utf-8")
    printed = run_program("all.py", folder=tmp_path)
    said = re.findall(r"^ *print\(.*\)  +# (.+)$", "\n".join(blocks), re.MULTILINE)
    assert len(said) > 8
    assert printed.splitlines() == said


def test_the_code_of_the_page_about_graphs_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    """I39 to I47 as people use them: reducers, routes, subgraphs, records, questions, time travel, replay, events."""
    blocks = python_blocks(GRAPHS)
    assert len([line for line in blocks[0].splitlines() if line]) <= 30  # first contact
    (tmp_path / "all.py").write_text("\n".join(blocks), encoding="utf-8")
    printed = run_program("all.py", folder=tmp_path).splitlines()
    (listing,) = re.findall(r"^```text\n(.*?)^```", GRAPHS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    said = re.findall(r"^ *print\(.*\)  +# (.+)$", "\n".join(blocks), re.MULTILINE)
    assert len(said) > 14
    assert [line for line in printed if line not in listing.splitlines()] == said
    assert [line for line in printed if line in listing.splitlines()] == listing.splitlines()


def test_the_page_about_graphs_names_every_option_and_every_reducer() -> None:
    """A reader finds what the code takes; the values are on the generated page of defaults."""
    page = GRAPHS.read_text(encoding="utf-8")
    options = [*inspect.signature(hf.StateGraph).parameters, *inspect.signature(hf.StateGraph.node).parameters]
    wanted = {*options, *hf.reducers.__all__} - {"self", "fn", "state", "name", "aliases", "registry"}
    assert not sorted(name for name in wanted if name not in page)


def test_i24_the_page_about_flows_names_every_construct_that_is_never_compiled() -> None:
    """A reader finds in the table what the compiler's table has."""
    section = FLOWS.read_text(encoding="utf-8").partition("## What is refused")[2].partition("\n## ")[0]
    constructs = {refused.construct for refused in SYNTAX.values() if refused is not None}
    assert len(constructs) > 10
    assert not [construct for construct in sorted(constructs) if construct not in section]


def test_the_code_of_the_using_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """Blocks that need a package we do not install say so in their first line, and are at least Python."""
    blocks = python_blocks(USING)
    for block in blocks:
        compile(block, str(USING), "exec")
    own = [block for block in blocks if not block.startswith("# pip install ")]
    assert len(own) > len(blocks) / 2
    (tmp_path / "all.py").write_text("\n".join(own), encoding="utf-8")
    run_program("all.py", folder=tmp_path)


def test_the_code_of_the_page_about_dags_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    """I27, I29, I31: build, start, reattempt, fork, skip and import as the page shows them."""
    (tmp_path / "all.py").write_text("\n".join(python_blocks(DAGS)), encoding="utf-8")
    printed = run_program("all.py", folder=tmp_path)
    assert "4  wrap <- charge\n5  ship <- wrap, label\n" in printed
    assert "(path fetch > convert); 1 node blocked by it\n" in printed
    assert "'node': 'publish', 'shared': 2" in printed
    assert "[('pack', 'completed'), ('weigh_again', 'skipped')]\n" in printed
    assert printed.endswith("'charge', 'hand over'] Ada\n")


def test_every_path_in_a_command_of_the_readme_exists() -> None:
    """A claim is worth its command, and the command is worth what it names."""
    text = README.read_text(encoding="utf-8")
    named = re.findall(r"\b(?:tests|examples|docs)/[\w./-]+", text)
    assert len(named) > 10
    missing = sorted({name for name in named if not (ROOT / name).exists()})
    assert not missing


def test_every_make_target_that_a_page_names_exists() -> None:
    """`make demo` and `make test` are the two commands of the README; others are named elsewhere."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w[\w-]*):", makefile, re.MULTILINE))
    for page in (
        README,
        USING,
        DAGS,
        FLOWS,
        GRAPHS,
        FUNCTIONS,
        DECIDERS,
        ROOT / "docs" / "tour.md",
        ROOT / "examples" / "README.md",
    ):
        named = set(re.findall(r"(?:`|^)make (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{page.name}: {named - targets}"


def test_every_command_of_holdfast_that_a_page_names_exists_with_its_options() -> None:
    """A page that names a command or an option that is not there sends its reader into an error."""
    for page in (
        README,
        USING,
        DAGS,
        FUNCTIONS,
        FLOWS,
        GRAPHS,
        DECIDERS,
        ROOT / "docs" / "guarantees.md",
        ROOT / "examples" / "README.md",
    ):
        for text in re.findall(r"`(?:\.venv/bin/)?holdfast ([^`]+)`", page.read_text(encoding="utf-8")):
            command: click.Command = program
            words = shlex.split(text)
            while isinstance(command, click.Group) and words and not words[0].startswith("-"):
                found = command.get_command(click.Context(command), words.pop(0))
                assert found is not None, f"{page.name}: holdfast {text}"
                command = found
            known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
            unknown = {word for word in words if word.startswith("-")} - known
            assert not unknown, f"{page.name}: holdfast {text}: {unknown}"


def test_the_exit_codes_on_the_using_page_are_those_of_the_program() -> None:
    """Scripts are written against that table."""
    section = USING.read_text(encoding="utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE)
    assert rows == [(str(code), meaning) for code, meaning in failures.CODES]


def test_the_readme_names_no_place_and_makes_no_figure_of_speed() -> None:
    """How fast it is, is what `make bench` says on the reader's machine."""
    text = README.read_text(encoding="utf-8")
    assert not re.search(r"\d\s*(ms|µs|steps/s|/s)\b", text)
    assert os.fspath(Path.home()) not in text or Path.home() == Path("/")


async def test_the_application_that_mounts_the_page_answers_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lifespan opens the engine, without which every answer would be 503."""
    monkeypatch.chdir(tmp_path)
    (code,) = [block for block in python_blocks(HTTP) if "Mount(" in block]
    module: dict[str, Any] = {}
    exec(compile(code, str(HTTP), "exec"), module)  # noqa: S102 - a page of ours
    app = module["app"]
    async with app.router.lifespan_context(app):
        client = Client(app, {"host": "shop.example.org"}).with_token("a-long-random-token")
        assert (await client.get("/ops/readyz")).status == 200
        assert (await client.get(f"/ops{API}/me")).json()["role"] == "operate"
    await module["ops"].state.holdfast.close()
