"""The code on the pages that newcomers read first runs, and does what the page says."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import click

from holdfast.cli import failures
from holdfast.cli.program import program
from tests.docs.documents import ROOT, environment, python_blocks, run_program

README = ROOT / "README.md"
USING = ROOT / "docs" / "using.md"
DAGS = ROOT / "docs" / "dags.md"


def _quicker(code: str) -> str:
    """The program as printed, but for the second that lets a reader watch."""
    assert "await asyncio.sleep(1)" in code
    return code.replace("await asyncio.sleep(1)", "await asyncio.sleep(0.1)")


def _wait_until_recorded(database: Path, node: str) -> None:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader:
        deadline = time.monotonic() + 10
        while reader.execute("SELECT status FROM work WHERE node = ?", (node,)).fetchall() != [("completed",)]:
            assert time.monotonic() < deadline, f"{node} was not recorded"


def test_g1_the_first_program_is_killed_and_goes_on_as_the_readme_says(tmp_path: Path) -> None:
    """What was recorded does not run again after SIGKILL; what was cut off does; a finished run is found by its key."""
    program = tmp_path / "tea.py"
    code = python_blocks(README)[0]
    assert code.startswith("# tea.py\n")
    program.write_text(code, encoding="utf-8")  # with its second, so that the kill hits the middle of a step
    with subprocess.Popen(
        [sys.executable, str(program)], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line.strip())
            if line.strip() == "brewing":
                _wait_until_recorded(tmp_path / "holdfast.db", "find_cup")  # which ends in the same instant
                process.kill()
    assert sorted(printed) == ["boiling water", "brewing", "looking for a cup"]
    program.write_text(_quicker(code), encoding="utf-8")
    assert run_program("tea.py", folder=tmp_path).split("\n") == ["brewing", "pouring for Ada", "done", ""]
    assert run_program("tea.py", folder=tmp_path).split("\n") == ["done", ""]
    for line in ("boiling water, looking for a cup, brewing", "brewing, pouring for Ada, done"):
        assert f"# {line}\n" in README.read_text(encoding="utf-8")


def test_the_code_of_the_readme_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """The later blocks need nothing but the earlier ones."""
    first, *others = python_blocks(README)
    (tmp_path / "all.py").write_text("\n".join([_quicker(first), *others]), encoding="utf-8")
    printed = run_program("all.py", folder=tmp_path)
    assert re.search(r"^receipt charge:\S+:charge$", printed, re.MULTILINE)


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
    for page in (README, USING, DAGS, ROOT / "docs" / "tour.md", ROOT / "examples" / "README.md"):
        named = set(re.findall(r"(?:`|^)make (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{page.name}: {named - targets}"


def test_every_command_of_holdfast_that_a_page_names_exists_with_its_options() -> None:
    """A page that names a command or an option that is not there sends its reader into an error."""
    for page in (README, USING, DAGS, ROOT / "docs" / "guarantees.md", ROOT / "examples" / "README.md"):
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
