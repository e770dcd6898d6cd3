"""`holdfast graph`, `fork`, `freeze`, `export`, `import` and `verify`; and what `show` makes of a graph."""

from __future__ import annotations

import json
import sqlite3
from xml.etree import ElementTree

import pytest

import holdfast as hf
from holdfast.documents.history_words import about
from tests.cli.conftest import Shell

SVG = "{http://www.w3.org/2000/svg}"


def test_graph_draws_what_can_be_started_in_three_formats(shell: Shell) -> None:
    assert shell.ok("graph", "shop:Order") == "1  validate\n2  charge <- validate\n3  ship <- charge\n"
    assert shell.ok("graph", "shop:Order", "--format", "mermaid").startswith('graph TD\n    n0["validate"]\n')
    document = shell.json("graph", "shop:Order")
    assert document.keys() == {"workflow", "run", "signature", "nodes"}
    assert (document["workflow"], document["run"]) == ("Order", None)
    assert document["nodes"][1] == {
        "id": "charge",
        "name": "charge",
        "job": None,
        "method": "charge",
        "after": ["validate"],
        "state": None,
    }
    assert shell.ok("graph", "shop:greet") == "1  greet\n"


def test_a_template_is_drawn_and_started_with_arguments_by_module_or_by_name(shell: Shell) -> None:
    assert shell.ok("graph", "shop:batch", "50") == "1  item_0 … item_49 (50 nodes)\n2  report <- item_0 … item_49\n"
    missing = shell("graph", "batch", "--app", "shop")
    assert missing.exit_code == 2
    assert "missing a required argument: 'count'" in missing.stderr
    run = shell.start("batch", "3", "--app", "shop")
    assert shell.json("show", run)["workflow"] == "batch"
    assert [node["name"] for node in shell.json("show", run)["nodes"]] == ["item_0", "item_1", "item_2", "report"]
    assert shell("start", "shop:batch", "many").exit_code == 2


def test_i2_graph_of_a_run_has_the_state_of_each_node(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13", "--key", "a:b")
    shell.work(run)
    assert shell.ok("graph", "Order/a:b").splitlines() == [
        "1  validate (completed)",
        "2  charge (failed) <- validate",
        "3  ship (pending) <- charge",
    ]
    assert ":::failed" in shell.ok("graph", run, "--format", "mermaid")
    assert [node["state"] for node in shell.json("graph", run)["nodes"]] == ["completed", "failed", "pending"]
    assert shell("graph", run, "surplus").exit_code == 2
    assert shell("graph", "ffff").exit_code == 3
    drawn = shell.ok("graph", run)
    shell.forget_code()
    assert shell.ok("graph", run) == drawn, "the graph that a run followed last needs no code to be looked at"
    shell.ok("skip", run, "charge")  # what follows is for the code to say, and the latest that was seen is known
    assert shell.ok("graph", run) == drawn.replace("charge (failed)", "charge (skipped)")


def test_a_graph_is_drawn_as_a_picture_that_needs_nothing_else(shell: Shell) -> None:
    drawn = _parsed(shell.ok("graph", "shop:Order", "--format", "svg"))
    assert _texts(drawn) == ["validate", "charge", "ship"]
    run = shell.start("shop:batch", "50", "7")
    shell.work(run)
    picture = shell.ok("graph", run, "--format", "svg")
    drawn = _parsed(picture)
    assert _texts(drawn) == ["item_0 … item_49", "49 completed, 1 failed", "report", "blocked"]
    assert len(drawn.findall(f"{SVG}path")) == 1
    assert "#ffebee" in picture  # what a person must see first gives a fan-out its colour


def test_names_of_nodes_cannot_leave_their_place_in_a_picture() -> None:
    builder = hf.DagBuilder("odd", registry=hf.Registry())

    @hf.action(registry=hf.Registry())
    async def job() -> None: ...

    builder.node("</text><script>alert(1)</script>", job=job)
    builder.node('"&<' + "x" * 100, job=job)
    drawn = _parsed(builder.build().graph.svg())
    assert {element.tag.removeprefix(SVG) for element in drawn.iter()} <= {
        *("svg", "defs", "marker", "path", "g", "title", "rect", "text")
    }
    boxes = [(float(box.get("x", 0)), float(box.get("width", 0))) for box in drawn.iter(f"{SVG}rect")]
    assert all(x >= 0 and x + width <= float(drawn.get("width", 0)) for x, width in boxes)


def _parsed(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)  # noqa: S314 - drawn by ourselves, a line ago


def _texts(drawn: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in drawn.iter(f"{SVG}text")]


def test_show_collapses_a_fan_out_and_sets_what_gave_up_apart(shell: Shell) -> None:
    run = shell.start("shop:batch", "50", "7")
    shell.work(run)
    lines = shell.ok("show", run).partition("\nnodes (51)\n")[2].splitlines()
    assert lines[1].split("  ")[:2] == ["[!]", "item_0 … item_49"]
    assert "49 completed, 1 failed" in lines[1]
    assert lines[2].startswith("[!]  ↳ item_7 ")
    assert lines[3].startswith("[ ]  report ")
    assert "blocked (49 of 50 since " in lines[3]
    assert lines[3].endswith("item_0 … item_49")
    every = shell.ok("show", run, "--nodes")
    assert "\n[+]  item_49 " in every
    assert "…" not in every.partition("\nnodes\n")[2].partition("\nerrors\n")[0]
    assert len(shell.json("show", run)["nodes"]) == 51


def test_i29_fork_prints_the_id_of_a_run_that_shares_what_was_completed(shell: Shell) -> None:
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    forked = shell("fork", run, "--from", "charge", "--key", "second")
    assert forked.exit_code == 0
    new = forked.stdout.strip()
    assert "no live worker" in forked.stderr
    document = shell.json("show", "Order/second")
    assert document["run"] == new
    assert [node["state"] for node in document["nodes"]] == ["completed", "ready", "pending"]
    assert f"from run {run} at node charge, sharing 1 node" in shell.ok("show", new)
    assert f"into run {new}, from node charge" in shell.ok("show", run)
    again = shell.json("fork", run, "--from", "charge")
    assert again.keys() == {"run", "workflow", "key", "status", "source", "from_node", "step"}
    assert shell("fork", run, "--from", "charge", "--key", "second").stdout.strip() == new  # asked for once more
    assert shell("fork", run, "--from", "validate", "--key", "second").exit_code == 1
    unknown = shell("fork", run, "--from", "charg")
    assert unknown.exit_code == 3
    assert "did you mean 'charge'?" in unknown.stderr
    assert shell("fork", run).exit_code == 2
    shell.forget_code()
    nameless = shell("fork", run, "--from", "charge")
    assert nameless.exit_code == 1
    assert "--app" in nameless.stderr


def test_i31_freeze_stores_the_graph_once(shell: Shell) -> None:
    run, other = shell.start("shop:Order", "order_id=1"), shell.start("shop:Order", "order_id=2")
    first, second = shell.json("freeze", run), shell.json("freeze", run)
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["signature"] == second["signature"]
    assert "was frozen already" in shell.ok("freeze", run)
    assert shell.json("show", run)["stored_graph"]
    assert not shell.json("show", other)["stored_graph"]


def test_i31_a_graph_is_exported_edited_and_imported(shell: Shell) -> None:
    run = shell.start("shop:batch", "2", "0")
    shell.work(run)
    said = shell.ok("export", run, "-o", "batch.json")
    assert said == f"3 nodes written to batch.json; after a change: holdfast import {run} batch.json\n"
    assert shell.ok("import", run, "batch.json") == f"run {run} follows this very graph already\n"
    document = json.loads(shell.ok("export", run))
    assert document == json.loads((shell.folder / "batch.json").read_text())
    assert shell.json("export", run, "-o", "batch.json") == {"run": run, "file": "batch.json", "nodes": 3}
    (bad,) = [node for node in document["nodes"].values() if node["name"] == "item_0"]
    bad["args"]["bad"] = False
    bad["name"] = "item_zero"
    (shell.folder / "batch.json").write_text(json.dumps(document))
    imported = shell.json("import", run, "batch.json")
    assert imported.keys() == {"run", "changed", "status", "signature", "nodes", "not_begun", "skipped"}
    assert imported["changed"]
    assert not shell.json("import", run, "batch.json")["changed"]
    bad["name"] = "item_nil"  # another editor, who started from the same export
    (shell.folder / "batch.json").write_text(json.dumps(document))
    refused = shell("import", run, "batch.json")
    assert refused.exit_code == 1
    assert "was changed since this document was exported" in refused.stderr
    shell.ok("resume", run)
    shell.work(run)
    shown = shell.json("show", run)
    assert shown["status"] == "completed"
    assert "item_zero" in {node["name"] for node in shown["nodes"]}
    assert "graph imported" in shell.ok("show", run)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 3, "there is no file batch.json"),
        ("{", 1, "error: "),
        ('{"version": 1, "signature": "x", "frozen_at": null, "nodes": {}}', 1, "error: "),
    ],
)
def test_a_document_that_is_no_graph_is_refused_and_changes_nothing(
    shell: Shell, text: str | None, code: int, said: str
) -> None:
    run = shell.start("shop:batch", "2")
    before = shell.json("show", run)
    if text is not None:
        (shell.folder / "batch.json").write_text(text)
    refused = shell("import", run, "batch.json")
    assert refused.exit_code == code
    assert said in refused.stderr
    assert "hint: " in refused.stderr
    assert shell.json("show", run) == before


def test_an_import_that_names_an_unknown_job_says_where_jobs_come_from(shell: Shell) -> None:
    run = shell.start("shop:batch", "2")
    shell.ok("export", run, "-o", "batch.json")
    path = shell.folder / "batch.json"
    path.write_text(path.read_text().replace('"job": "greet"', '"job": "fragile"'))
    shell.forget_code()
    refused = shell("import", run, "batch.json")
    assert refused.exit_code == 1
    assert "'fragile'" in refused.stderr
    assert "say --app with the module that defines it" in refused.stderr


def test_i28_verify_checks_every_attempt_and_is_exit_code_1_for_a_row_that_was_tampered_with(shell: Shell) -> None:
    run = shell.start("shop:batch", "3")
    shell.work(run)
    assert shell.ok("verify", run) == f"run {run} is as it was recorded: 4 attempts were checked\n"
    assert shell.json("verify", run) == {"run": run, "ok": True, "checked": 4, "first_break": None}
    db = sqlite3.connect(shell.folder / "app.db")
    with db:
        db.execute("UPDATE work SET ancestry = 'forged' WHERE run = ? AND name = 'greet'", (run,))
    db.close()
    done = shell("verify", run, "--json")
    assert done.exit_code == 1
    assert "attempt 1 of node report" in json.loads(done.stdout)["first_break"]


def test_every_fix_that_explain_offers_is_a_command_that_there_is(shell: Shell) -> None:
    """They are for pasting: of a run that a failure paused, and with --url where it was given."""
    run = shell.start("shop:Order", "order_id=13")
    shell.work(run)
    commands = [fix["command"].split() for fix in shell.json("explain", run, "--app", "shop")["fixes"]]
    assert [words[1] for words in commands] == ["resume", "skip", "show"]
    shown = shell.json("--url", shell.url, "explain", run)["fixes"]
    assert shown[0]["command"] == f"holdfast --url {shell.url} resume {run}"
    for words in reversed(commands):
        shell.ok(*words[1:])


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("paused", {"by": "ada", "reason": "lunch"}, "lunch"),
        ("reattempted", {"by": "ada", "node": "charge"}, "node charge"),
        ("skipped", {"by": "the node itself", "node": "a", "reason": "not needed"}, "node a: not needed"),
        (
            "graph changed",
            {"by": "a deploy", "signature": "22", "before": "11", "not_begun": ["x"]},
            "not begun: x; 11 -> 22",
        ),
        ("graph changed", {"signature": "22", "gone": ["x"]}, "not in it any more, though completed: x; 22"),
        ("forked", {"by": "ada", "into": "0815", "node": "a"}, "into run 0815, from node a"),
        ("finished", {"by": "node a", "reason": "enough", "skipped": 2}, "2 nodes not needed: enough"),
        ("noted", {"node": "a", "attempt": 2, "note": "halfway"}, "node a, attempt 2: halfway"),
        ("result", {"at": "#2", "name": "greet", "value": "x" * 500}, f'greet (#2) = "{"x" * 118}…'),
        ("result", {"at": "#2", "name": "notify"}, "notify (#2)"),
        ("failure", {"at": "#2", "name": "charge", "error": "CardRefused: no"}, "charge (#2): CardRefused: no"),
        ("event", {"at": "#3", "name": "wait_for(a)", "event": "a", "value": 1}, "event a = 1, for wait_for(a) (#3)"),
        ("ended", {"at": "#1", "name": "c", "source": "0815", "status": "failed"}, "run 0815 is failed, for c (#1)"),
        ("timer", {"at": "@1"}, "@1"),
        ("cancel", {"name": "ada"}, ""),
        ("continued", {"name": "poll", "value": [[2], {}]}, "as poll, with input [[2], {}]"),
        ("unheard of", {"by": "ada", "names": list("abcdefgh"), "x": 1}, "names a, b, c, d, e and 3 more, x 1"),
        ("forked", {"unreadable": "damaged"}, "unreadable damaged"),
    ],
)
def test_entries_of_the_history_are_told_in_words(kind: str, data: dict[str, object], words: str) -> None:
    assert about(kind, data) == words
