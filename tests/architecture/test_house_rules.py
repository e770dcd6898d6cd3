"""Rules of the house that a reviewer should not have to remember."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT, Source, package_sources, part_of

LONGEST_FILE_LINES = 600
TEXT_SUFFIXES = {".py", ".sql", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".sh", ".html", ".ts", ".tsx", ""}
PROJECT_FOLDERS = ("src", "tests", "tools", "docs", "examples", "benchmarks", "requirements", ".ci")
# Upper case, as our SQL is written; the same words in prose are lower case.
SQL = re.compile(
    r"\b(SELECT\b.*\bFROM|INSERT\s+INTO|UPDATE\b.*\bSET|DELETE\s+FROM"
    r"|(CREATE|ALTER|DROP)\s+(UNIQUE\s+)?(TABLE|INDEX|DATABASE|VIEW|SCHEMA))\b",
    re.DOTALL,
)


def test_no_file_of_the_package_outgrows_its_subject() -> None:
    """A file that nears the limit holds a second noun that wants a file of its own."""
    long = []
    for source in package_sources():
        lines = len(source.path.read_text(encoding="utf-8").splitlines())
        if lines > LONGEST_FILE_LINES:
            long.append(f"{source.shown}: {lines} lines, at most {LONGEST_FILE_LINES}")
    assert not long, "\n".join(long)


def test_sql_is_never_put_together_from_strings_outside_the_store() -> None:
    """Statements live in .sql files under the store; text that is formatted into one may come from a user."""
    wrong = [
        f"{source.shown}:{line}: SQL built from strings"
        for source in package_sources()
        if part_of(source.module) != "store"
        for line in _formatted_sql(source)
    ]
    assert not wrong, "\n".join(wrong)


def _formatted_sql(source: Source) -> Iterator[int]:
    for node in ast.walk(source.tree):
        match node:
            case ast.JoinedStr(values=values):
                text = "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in values)
                if len(values) > 1 and SQL.search(text):
                    yield node.lineno
            case ast.BinOp(op=ast.Mod() | ast.Add(), left=ast.Constant(value=str(text))) if SQL.search(text):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")) if SQL.search(text):
                yield node.lineno
            case _:
                pass


def test_no_file_names_a_directory_of_the_machine_it_was_written_on() -> None:
    """A clone works wherever it is put; this checkout and this person's home appear in no file."""
    places = [str(place) for place in (ROOT, Path.home()) if len(place.parts) > 1]
    private = re.compile("|".join(rf"(?<![\w.]){re.escape(place)}(?![\w-])" for place in places))
    wrong = []
    for path in _project_files():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if private.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)


def _project_files() -> Iterator[Path]:
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in TEXT_SUFFIXES:
            yield path
    for folder in PROJECT_FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            skipped = {"__pycache__", "node_modules", "_ui", "results"} & set(path.parts)
            if path.is_file() and path.suffix in TEXT_SUFFIXES and not skipped:
                yield path


def test_every_error_carries_a_hint() -> None:
    """An error states the fact and names the fix, whoever raises it and however little they pass."""
    errors = pytest.importorskip("holdfast.core.errors", exc_type=ImportError)
    without = []
    for kind in _family(errors.HoldfastError):
        error: Any = kind("something happened")
        if not (isinstance(error.hint, str) and error.hint.strip()):
            without.append(kind.__name__)
        assert "something happened" in str(error), kind.__name__
    assert not without, f"no hint: {without}"


def _family(root: type[BaseException]) -> Iterator[type[BaseException]]:
    yield root
    for child in root.__subclasses__():
        if inspect.getmodule(child) is not None:
            yield from _family(child)


@pytest.mark.parametrize("name", ["test.txt", "dev.txt"])
def test_a_lock_pins_hashes_everything_and_names_no_address(name: str) -> None:
    """What is installed is what was checked, from whichever index the machine uses."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    assert "://" not in text
    requirements = [block for block in re.split(r"\n(?=[a-z0-9])", text, flags=re.IGNORECASE) if block.strip()]
    loose = [block.splitlines()[0] for block in requirements if "==" not in block or "--hash=sha256:" not in block]
    assert not loose, loose


@pytest.mark.parametrize(("name", "extra"), [("test.txt", "test"), ("dev.txt", "dev")])
def test_a_lock_holds_every_dependency_that_the_project_names(name: str, extra: str) -> None:
    """A dependency added without `make lock` fails here, not on somebody's bare machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {*project["project"]["dependencies"], *project["project"]["optional-dependencies"][extra]}
    wanted |= set(project["dependency-groups"]["build"])
    names = {re.split(r"[\[<>=;! ]", requirement)[0].lower() for requirement in wanted} - {"holdfast"}
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    locked = {match.lower() for match in re.findall(r"^([A-Za-z0-9._-]+)==", text, flags=re.MULTILINE)}
    assert not names - locked, f"run `make lock`: {sorted(names - locked)}"
