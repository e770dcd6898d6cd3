"""The documents that `--json` gives have the keys that docs/cli.md promises to scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.projecting import ProjectionInfo
from tests.cli.conftest import Shell

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def promised() -> dict[str, list[set[str]]]:
    """For each row of the table, by its first command, the sets of keys it lists: the document's, then its parts'."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8").partition("What `--json`")[2], re.M)
    found = {}
    for name, keys in rows[1:]:  # below the heading
        first = re.sub(r"[`]", "", name.split(",")[0])
        found[first] = [set(part.split()) for part in re.findall(r"`([a-z_ ]+)`", keys)]
    return found


DOCUMENTS: dict[str, Callable[[Shell, str], list[dict[str, Any]]]] = {
    "start": lambda shell, run: [shell.json("start", "shop:greet", "Bob")],
    "runs": lambda shell, run: [page := shell.json("runs"), page["runs"][0]],
    "show": lambda shell, run: [shell.json("show", run)],
    "a node of show": lambda shell, run: [
        node := shell.json("show", run)["nodes"][0],
        node["attempts"][0],
    ],
    "an entry of show's history": lambda shell, run: [shell.json("show", run)["history"][0]],
    "explain": lambda shell, run: [told := shell.json("explain", run), told["fixes"][0]],
    "graph": lambda shell, run: [graph := shell.json("graph", run), graph["nodes"][0]],
    "cancel": lambda shell, run: [shell.json("cancel", run)],
    "fork": lambda shell, run: [shell.json("fork", run, "--from", "charge")],
    "freeze": lambda shell, run: [shell.json("freeze", run)],
    "verify": lambda shell, run: [shell.json("verify", run)],
    "maintenance": lambda shell, run: [held := shell.json("maintenance", "on"), held["holds"][0]],
    "drain": lambda shell, run: [shell.json("drain", "Order")],
    "prune": lambda shell, run: [shell.json("prune", "--older-than", "1d")],
    "stats": lambda shell, run: [counted := shell.json("stats"), counted["inbox"]],
    "migrate": lambda shell, run: [shell.json("migrate")],
    "doctor": lambda shell, run: [shell.json("doctor")],
}
ELSEWHERE = {
    "start --wait",
    "export",
    "import",
    "dead list",
    "dead replay EVENT",
    "projections",
    "projections pause",
    "a wait of show",
    "a child of show",
    "execute",
    "state",
    "stream",
    "the instance of runs",
    "the instance of show",
    "an effect of an instance",
    "a timer of an instance",
    "an input of an instance",
    "an observation of an instance",
    "graph of a decider",
    "graph of a flow",
    "graph of a state graph",
    "the graph of show",
    "checkpoints",
    "checkpoints --step",
    "diff",
    "replay of a state graph",
    "send",
    "query",
    "check",
    "replay",
    "watch",
    "watch RUN",
    "ui",
    "dev",
}
"""Made up of more than one step, and checked where those steps are."""


def test_every_command_of_the_table_is_checked() -> None:
    assert promised().keys() == DOCUMENTS.keys() | ELSEWHERE


def test_a_projection_has_the_keys_that_the_page_promises() -> None:
    assert promised()["projections"] == [{"projections"}, set(ProjectionInfo.__struct_fields__)]


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_document_has_the_keys_that_the_page_promises(shell: Shell, command: str) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    keys = [set(document) for document in DOCUMENTS[command](shell, run)]
    assert keys == promised()[command][: len(keys)]
    assert len(keys) == len(promised()[command])
