"""The benchmarks run, all of them, and say what they should: tiny sizes, so that no figure here means anything."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import page, rounds, run
from benchmarks.databases import Databases
from benchmarks.figures import BARE, Figure, Measure
from benchmarks.limits import one_commit_ms
from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.own_cells import OWN_CELLS, WORKLOADS
from benchmarks.peers import environments
from benchmarks.peers.adapters import FULL_COUNTS, PEERS, cells_of
from benchmarks.processes import CellFailed, first_words, values_said
from benchmarks.rounds import MEASURES, Failure, Kept, Plan
from benchmarks.scaling import __main__ as scaling_main
from benchmarks.sizes import QUICK
from benchmarks.slow_disk import why_not
from benchmarks.table import rendered, rendered_failures

pytestmark = pytest.mark.timeout(600)  # whole programs, one after another

STEP = Measure(name="W1", what="a step", unit="ms", quantity="W1 step_ms", limit="one_commit", targets={SQLITE: 0.5})
RATE = Measure(name="W2", what="many", unit="steps/s", quantity="W2 steps_per_second", more_is_better=True)


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases that do not wait for a disk: what is only to run need not be durable."""
    monkeypatch.setattr(rounds, "Databases", partial(Databases, fsync=False))
    monkeypatch.setattr(scaling_main, "Databases", partial(Databases, fsync=False))
    if Path("/dev/shm").is_dir():
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")


# -- every workload, and the report


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("store", [SQLITE, POSTGRES])
def test_every_workload_gives_its_figures_as_a_table_and_as_json(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "results" / "report.json"
    run.main(["--quick", "--here", "--store", store, "--json", str(report)])
    said = capsys.readouterr().out
    found = json.loads(report.read_text())
    assert found["failures"] == []
    assert found["conditions"]["complete"]
    whats = {figure["what"] for figure in found["figures"]}
    assert whats == {measure.what for measure in MEASURES.values()}
    assert all(what in said for what in whats)
    assert all(figure["median"] > 0 for figure in found["figures"] if figure["unit"] not in ("kB", "x", "MB"))


def test_a_cell_runs_in_a_process_of_its_own_beside_the_limit(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run.main(["--quick", "--store", SQLITE, "--only", "W5", "--json", str(report)])
    figures = json.loads(report.read_text())["figures"]
    assert [(figure["who"], figure["workload"]) for figure in figures] == [
        *[(BARE, "limit")] * 3,  # one row, a batch, and the interpreter alone
        *[("holdfast", "W5")] * 3,  # functions, flows and graphs
    ]


def test_a_cell_without_a_figure_is_told_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell in too short a time: it is stopped, told in the report, and the round goes on."""
    report = tmp_path / "report.json"
    run.main(["--quick", "--store", SQLITE, "--only", "W5", "--cell-seconds", "0.01", "--json", str(report)])
    found = json.loads(report.read_text())
    assert {failure["reason"] for failure in found["failures"]} == {"not done after 0 s"}
    assert len(found["failures"]) == 4, "the limit, and W5 of functions, flows and graphs"
    assert "no figure: W5 of holdfast on sqlite" in capsys.readouterr().out


def test_what_was_measured_is_saved_after_each_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stops a long run has what was measured until then, and can see that it is not all."""
    report = tmp_path / "report.json"
    seen: list[Any] = []
    save = run.write

    def watched(path: Path, content: dict[str, Any]) -> None:
        save(path, content)
        seen.append(json.loads(report.read_text()))

    monkeypatch.setattr(run, "write", watched)
    run.main(["--quick", "--here", "--store", SQLITE, "--only", "W1", "--json", str(report)])
    assert [len(each["figures"]) for each in seen] == [5, 7, 9, 9]
    assert [each["conditions"]["complete"] for each in seen] == [False, False, False, True]


def test_every_cell_names_measures_that_exist() -> None:
    assert {each.workload for each in OWN_CELLS.values()} == {"limit", *WORKLOADS}
    assert {measure.name for measure in MEASURES.values()} == {"limit", *WORKLOADS}


# -- ratios


def figure(measure: Measure, who: str, samples: dict[int, float], limits: dict[int, float] | None = None) -> Figure:
    return Figure(measure=measure, store=SQLITE, who=who, samples=samples, limits=limits or {})


def test_a_ratio_is_taken_within_rounds() -> None:
    """A machine that was slow in one round was so for both; one that was slow for one of them shows as an outlier."""
    ours = figure(STEP, "holdfast", {1: 1.0, 2: 2.0, 3: 10.0}, {1: 0.5, 2: 1.0, 3: 1.5})
    peer = figure(STEP, "peer", {1: 3.0, 2: 6.0, 3: 5.0})
    assert ours.times_the_limit == 2.0
    assert ours.better_than(peer) == pytest.approx(3.0)
    assert ours.times_the_target == 4.0


def test_a_round_that_a_peer_missed_is_left_out_of_the_ratio() -> None:
    ours = figure(RATE, "holdfast", {1: 100.0, 2: 100.0, 3: 1.0})
    assert ours.better_than(figure(RATE, "peer", {1: 50.0, 2: 50.0})) == 2.0
    assert ours.better_than(figure(RATE, "peer", {4: 50.0})) is None


def test_a_wall_time_is_compared_with_what_the_bare_database_takes_for_as_many_steps() -> None:
    """1,000 steps in 0.1 s, where the bare database completes 100,000 a second: ten times its time."""
    whole = Measure(name="W3", what="all of them", unit="s", limit="batched", steps=1000)
    assert figure(whole, "holdfast", {1: 0.1}, {1: 100_000.0}).times_the_limit == pytest.approx(10.0)


@pytest.mark.parametrize(("measure", "best"), [(STEP, "low"), (RATE, "high")])
def test_the_best_peer_is_the_best_by_the_measure_s_own_direction(measure: Measure, best: str) -> None:
    figures = [
        figure(measure, "holdfast", {1: 7.0}),
        figure(measure, BARE, {1: 0.1}),
        figure(measure, "low", {1: 5.0}),
        figure(measure, "high", {1: 9.0}),
    ]
    found = figures[0].best_peer(figures)
    assert found is not None
    assert found.who == best
    assert figures[2].best_peer(figures) is None, "peers are not compared with each other"
    assert best in rendered(figures)


def test_peers_and_limits_of_one_round_are_told_beside_ours() -> None:
    kept = Kept()
    kept.samples[SQLITE, "holdfast", "W1_FUNCTION"][1] = 0.4
    kept.samples[SQLITE, "dbos", "W1 step_ms"][1] = 2.0
    kept.bare[SQLITE, "W1", "ONE_COMMIT"][1] = 0.2
    kept.notes[SQLITE, "dbos", "W1"] = "20 instead of 100"
    ours = next(each for each in kept.figures() if each.who == "holdfast").as_json(kept.figures())
    theirs = next(each for each in kept.figures() if each.who == "dbos").as_json(kept.figures())
    assert ours["best_peer"] == "dbos"
    assert ours["times_the_best_peer"] == pytest.approx(5.0)
    assert ours["times_the_limit"] == pytest.approx(2.0)
    assert theirs["note"] == "20 instead of 100"
    assert theirs["target"] is None
    assert rendered_failures(kept.failures) == ""


# -- programs


def test_a_program_that_takes_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    with pytest.raises(CellFailed, match="not done after 1 s"):
        values_said(["sh", "-c", f"sleep 600 & echo $! > '{child}'; wait"], seconds=1)
    with suppress(psutil.NoSuchProcess):  # it is gone already, or will be in a moment
        psutil.Process(int(child.read_text())).wait(timeout=30)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit('no such table')", "exit code 1: no such table"),
        ("print('nothing of use')", "said nothing that can be read: nothing of use"),
        ("pass", "said nothing that can be read"),
    ],
)
def test_a_program_that_fails_is_told_with_its_last_words(program: str, words: str) -> None:
    with pytest.raises(CellFailed, match=words):
        values_said([sys.executable, "-c", program], seconds=60)


def test_the_first_words_of_a_program_are_timed_and_it_is_weighed() -> None:
    program = "import sys; print('Hello', flush=True); sys.stdin.read()"
    seconds, megabytes = first_words([sys.executable, "-c", program], "Hello", seconds=60)
    assert 0 < seconds < 60
    assert megabytes > 1
    with pytest.raises(CellFailed, match="said 'Hello' and not 'Goodbye'"):
        first_words([sys.executable, "-c", program], "Goodbye", seconds=60)


# -- a slow disk


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("store", [SQLITE, POSTGRES])
def test_each_commit_waits_for_the_slow_disk(store: str) -> None:
    """The delay is in the disk's sync, so a lone commit has all of it; the server's, or the program's with SQLite."""
    with Databases(store, commit_delay_ms=20) as databases:
        program = (
            "import asyncio, sys; from benchmarks.limits import one_commit_ms; import json; "
            "print(json.dumps({'values': {'ms': asyncio.run(one_commit_ms(sys.argv[1], 5))}}))"
        )
        command = [sys.executable, "-c", program, databases.fresh_url()]
        assert values_said(command, seconds=100, extra=databases.client_environment)["ms"] >= 20


def test_a_disk_without_a_delay_is_left_alone() -> None:
    with Databases(SQLITE) as databases:
        assert databases.client_environment == {}
        assert asyncio.run(one_commit_ms(databases.fresh_url(), 1)) > 0


# -- peers


@pytest.mark.parametrize("name", [name for name in PEERS if name != "prefect"])  # a minute for its server to begin
def test_a_peer_that_is_installed_is_measured(name: str) -> None:
    if not (environments.ENVIRONMENTS / name / "bin" / "python").exists():
        pytest.skip(f"{name} is not installed: python -m benchmarks.peers.environments {name}")
    peer = PEERS[name]
    with Databases(peer.stores[0]) as databases:
        (cell,) = cells_of(peer, "W1", databases.store, QUICK.peers_part)
        assert cell.measured(databases.fresh_url(), 100, {})["W1 step_ms"] > 0


def test_every_peer_has_its_versions_and_its_program() -> None:
    for peer in PEERS.values():
        assert peer.version != "unknown"
        assert Path(environments.__file__).with_name(peer.program).exists()
        for store in (SQLITE, POSTGRES):
            cells = cells_of(peer, "W9", store, 1)
            assert len(cells) == (store in peer.stores)


def test_a_smaller_count_is_noted() -> None:
    for store, note in ((SQLITE, "200 instead of 2000"), (POSTGRES, "")):
        (cell,) = cells_of(PEERS["dbos"], "W2", store, 1)
        assert cell.note.endswith(note)
        assert ("instead" in cell.note) == bool(note)


def test_a_wall_time_is_only_taken_of_as_many_as_ours() -> None:
    """Of fewer it would be multiplied, and a peer's fixed costs with it."""
    for peer in PEERS.values():
        for workload in ("W3", "W5"):
            assert peer.counts.get(workload, FULL_COUNTS[workload]) == FULL_COUNTS[workload], peer.name


def test_an_unknown_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--peers", "dbos,nobody"])
    assert "no peer is called nobody" in capsys.readouterr().err


# -- scaling


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("store", [SQLITE, POSTGRES])
def test_every_series_gives_a_point(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "scaling.json"
    scaling_main.main(["--quick", "--here", "--store", store, "--json", str(report)])
    found = json.loads(report.read_text())["series"]
    for name, points in found.items():
        assert all(point["values"] and not point["failure"] for point in points), name
    assert [name for name, points in found.items() if not points] == (["processes", "hot"] if store == SQLITE else [])
    (load,) = found["load"]
    assert load["values"]["lost"] == 0, "overload makes runs late, and loses none"
    assert "offered load" in capsys.readouterr().out


def test_a_plan_has_defaults_that_measure_everything() -> None:
    plan, path = run.plan_of([])
    assert plan == Plan(stores=[SQLITE, POSTGRES], workloads=list(WORKLOADS), peers=[], rounds=3, sizes=run.FULL)
    assert path is None
    assert run.plan_of(["--all", "--peers", "dbos,absurd"])[0].peers == ["dbos", "absurd"]


# -- the page


def report_of(*figures: Figure) -> dict[str, Any]:
    kept = Kept()
    kept.failures.append(Failure(who="prefect", workload="W1", store=SQLITE, round=1, reason="not done after 300 s"))
    plan = Plan(stores=[SQLITE], workloads=["W1"], peers=["dbos"], rounds=2, sizes=run.FULL)
    report = run.report_of(plan, run.conditions(plan), kept, complete=True)
    report["figures"] = [each.as_json(figures) for each in figures]
    return report


def test_a_remark_about_a_peer_is_told_once() -> None:
    """Without workloads if it is about all that were measured of that peer; with the store if it is about one only."""
    theirs = [
        {"who": "dbos", "workload": "W1", "store": SQLITE, "note": "its default journal"},
        {"who": "dbos", "workload": "W2", "store": SQLITE, "note": "its default journal; 200 instead of 2000"},
        {"who": "dbos", "workload": "W2", "store": POSTGRES, "note": "its default journal"},
        {"who": "dbos", "workload": "W4", "store": SQLITE, "note": "its default journal; 100 instead of 300"},
        {"who": "dbos", "workload": "W4", "store": POSTGRES, "note": "its default journal; 100 instead of 300"},
    ]
    assert page.remarks(theirs) == [
        "- dbos: its default journal",
        "- dbos, W2 on SQLite: 200 instead of 2000",
        "- dbos, W4: 100 instead of 300",
    ]


def test_a_note_is_of_one_store_only() -> None:
    """What a peer is asked for may differ: one store's note must not take the place of the other's."""
    kept = Kept()
    for store, note in ((SQLITE, "200 instead of 2000"), (POSTGRES, "")):
        kept.samples[store, "dbos", "W2 steps_per_second"][1] = 300.0
        if note:
            kept.notes[store, "dbos", "W2"] = note
    assert {each.store: each.note for each in kept.figures()} == {SQLITE: "200 instead of 2000", POSTGRES: ""}


def test_a_report_is_put_between_the_marks_of_the_page(tmp_path: Path) -> None:
    path, written = tmp_path / "page.md", tmp_path / "report.json"
    marks = "".join(f"<!-- {name}: begin -->\nlast year\n<!-- {name}: end -->\n" for name in ("figures", "peers"))
    path.write_text(f"Before.\n{marks}After.\n")
    ours = figure(STEP, "holdfast", {1: 1.0, 2: 2.0}, {1: 0.5, 2: 1.0})
    written.write_text(json.dumps(report_of(ours, figure(STEP, "dbos", {1: 3.0, 2: 6.0}))))
    page.main([str(written), "--page", str(path)])
    text = path.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert "last year" not in text
    assert "| W1: a step, ms | 1.5 | 67% | 2.0 | 3.00 |" in text
    assert "| W1: a step, ms, SQLite | 1.5 | 4.5 (3.0) |" in text
    assert "a try without a figure: W1 of prefect on SQLite: not done after 300 s" in text


def test_the_page_has_the_marks_that_tables_are_written_between() -> None:
    text = page.PAGE.read_text()
    for name in ("figures", "peers", "delayed", "profile", "prices", "scaling"):
        assert page.replaced(text, name, "x") != text
    with pytest.raises(SystemExit, match="no <!-- nothing: begin -->"):
        page.replaced(text, "nothing", "x")
