"""Put measured tables into docs/performance.md: `python -m benchmarks.page [REPORT] [--delayed D] [--scaling S]`.

Text between `<!-- NAME: begin -->` and `<!-- NAME: end -->` is replaced and the rest of the page left alone, so that
nobody copies figures by hand. With --prices it counts anew, which needs no quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.databases import Databases
from benchmarks.figures import BARE, OURS
from benchmarks.measures import POSTGRES, SQLITE
from benchmarks.prices import WORKLOADS, price_of
from benchmarks.scaling.series import SERIES
from benchmarks.table import number

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
STORES = {SQLITE: "SQLite", POSTGRES: "PostgreSQL"}
VERSIONS = {"python": "Python", "sqlite": "SQLite", "postgresql": "PostgreSQL", "commit": "Holdfast"}
Found = dict[str, Any]


def replaced(page: str, name: str, text: str) -> str:
    """The page with another text between the marks of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, also_found, after = rest.partition(end)
    if not found or not also_found:
        raise SystemExit(f"{PAGE.name} has no {begin} … {end} to write between; put the marks where the table belongs")
    return f"{before}{begin}\n{text}\n{end}{after}"


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def conditions(report: Found) -> str:
    about = report["conditions"]
    parts = [
        ", ".join(f"{name} {about[key]}" for key, name in VERSIONS.items() if about.get(key)),
        f"{about['cores']} cores, load {about['load_before']} before" + _if(" and {} after", about.get("load_now")),
        *_if("{} rounds", about.get("rounds")).splitlines(),
    ]
    if about.get("commit_delay_ms"):
        parts.append(f"each sync of the disk {about['commit_delay_ms']:g} ms longer")
    if about["quick"]:
        parts.append("**tiny sizes: no figure means anything**")
    if not about.get("complete", True):
        parts.append("**stopped before its end**")
    return "; ".join(parts) + "."


def _if(words: str, value: object) -> str:
    return "" if value is None else words.format(value)


def figures(report: Found) -> str:
    """Ours, beside the targets and the limit."""
    rows = [["", "SQLite", "spread", "x limit", "x target", "PostgreSQL", "spread", "x limit", "x target", "targets"]]
    ours = [figure for figure in report["figures"] if figure["who"] in (OURS, BARE)]
    for (workload, what), both in _grouped(ours, lambda figure: (figure["workload"], figure["what"])):
        cells = []
        targets = []
        for store in STORES:
            figure = next((each for each in both if each["store"] == store), None)
            cells += _our_cells(figure)
            if figure is not None and figure["target"] is not None:
                targets.append(number(figure["target"]))
        name = f"{workload}: {what}, {both[0]['unit']}"
        rows.append([name, *cells, ", ".join(dict.fromkeys(targets))])
    return table(rows)


def _our_cells(figure: Found | None) -> list[str]:
    if figure is None:
        return ["", "", "", ""]
    return [
        number(figure["median"]),
        f"{figure['spread']:.0%}",
        "" if figure["times_the_limit"] is None else f"{figure['times_the_limit']:.1f}",
        "" if figure["times_the_target"] is None else f"{figure['times_the_target']:.2f}",
    ]


def peers(report: Found) -> str:
    """Ours beside the others, in the quantities that both have; in brackets how many times better ours is."""
    theirs = [figure for figure in report["figures"] if figure["who"] not in (OURS, BARE)]
    names = list(dict.fromkeys(figure["who"] for figure in theirs))
    rows = [["", "ours", *names]]
    for (store, workload, what), ours in _grouped(
        [figure for figure in report["figures"] if figure["who"] == OURS and figure["best_peer"]],
        lambda figure: (figure["store"], figure["workload"], figure["what"]),
    ):
        of_ours = ours[0]
        cells = []
        for name in names:
            figure = next((each for each in theirs if each["who"] == name and _same(each, of_ours)), None)
            cells.append("" if figure is None else f"{number(figure['median'])} ({_ratio(_better(of_ours, figure))})")
        rows.append([f"{workload}: {what}, {of_ours['unit']}, {STORES[store]}", number(of_ours["median"]), *cells])
    text = [table(rows)]
    versions = ", ".join(f"{name} {version}" for name, version in report["peers"].items())
    text.append(f"Versions: {versions}.")
    text += remarks(theirs)
    failed = dict.fromkeys(
        f"- a try without a figure: {each['workload']} of {each['who']} on {STORES[each['store']]}: {each['reason']}"
        for each in report["failures"]
    )
    return "\n".join([text[0], "", text[1], "", *text[2:], *failed])


def remarks(theirs: Sequence[Found]) -> list[str]:
    """How each peer was measured, every remark once; with what it is about, unless that is all of that peer's."""
    told: dict[tuple[str, str], set[tuple[str, str]]] = {}
    measured: dict[str, set[tuple[str, str]]] = {}
    for figure in theirs:
        place = (figure["workload"], figure["store"])
        measured.setdefault(figure["who"], set()).add(place)
        for remark in filter(None, figure["note"].split("; ")):
            told.setdefault((figure["who"], remark), set()).add(place)
    return [f"- {who}{_about(among, measured[who])}: {remark}" for (who, remark), among in told.items()]


def _about(among: set[tuple[str, str]], measured: set[tuple[str, str]]) -> str:
    """Workloads, with the store where it was measured on both and the remark is about one."""
    if among == measured:
        return ""
    whole = {workload for workload, _ in among if {place for place in measured if place[0] == workload} <= among}
    return "".join(
        f", {workload}" if workload in whole else f", {workload} on {STORES[store]}"
        for workload, store in sorted({(workload, "" if workload in whole else store) for workload, store in among})
    )


def _ratio(times: float) -> str:
    return f"{times:.1f}" if times < 100 else f"{times:,.0f}"


def _same(figure: Found, other: Found) -> bool:
    return bool(figure["store"] == other["store"] and figure["quantity"] == other["quantity"])


def _better(ours: Found, theirs: Found) -> float:
    """As in the report: the median of the ratios within the rounds that have both."""
    both = [(ours["samples"][each], theirs["samples"][each]) for each in ours["samples"] if each in theirs["samples"]]
    ratios = [float(a / b if ours["more_is_better"] else b / a) for a, b in both if a and b]
    return statistics.median(ratios) if ratios else float("nan")


def scaling(report: Found) -> str:
    """A table for each series."""
    text = []
    for name, points in report["series"].items():
        if not points:
            continue
        heads = list(dict.fromkeys(head for point in points for head in point["values"]))
        rows = [["", *heads]]
        for point in points:
            values = [number(point["values"][head]) if head in point["values"] else "" for head in heads]
            if point["failure"]:
                values = [f"no figure: {point['failure'][:80]}", *values[1:]]
            rows.append([f"{point['size']:,}, {STORES[point['store']]}", *values])
        text.append(f"**{SERIES[name].what.capitalize()}**\n\n{table(rows)}")
    return "\n\n".join(text)


def prices() -> str:
    """Counted now."""
    rows = [["for each step", "statements", "commits", "log, bytes"]]
    for store, name in STORES.items():
        with Databases(store) as databases:
            for workload, priced in WORKLOADS.items():
                price = asyncio.run(price_of(databases.fresh_url(), priced))
                row = [f"{price.statements:.2f}", f"{price.commits:.2f}", f"{price.wal_bytes:,.0f}"]
                rows.append([f"{workload}, {name}", *row])
    return table(rows)


def _grouped(found: Iterable[Found], key: Any) -> list[tuple[Any, list[Found]]]:
    """In the order of the first of each group."""
    groups: dict[Any, list[Found]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return list(groups.items())


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("report", type=Path, nargs="?", help="a report of python -m benchmarks")
    parser.add_argument("--delayed", type=Path, help="a report with --commit-delay")
    parser.add_argument("--scaling", type=Path, help="a report of python -m benchmarks.scaling")
    parser.add_argument("--prices", action="store_true", help="count statements, commits and bytes anew")
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args(words)
    page = given.page.read_text(encoding="utf-8")
    if given.report is not None:
        report = _read(given.report)
        page = replaced(page, "figures", f"{conditions(report)}\n\n{figures(report)}")
        if report["peers"]:  # else it is a run of ours alone, and the others stay as they were measured
            page = replaced(page, "peers", peers(report))
    if given.delayed is not None:
        report = _read(given.delayed)
        page = replaced(page, "delayed", f"{conditions(report)}\n\n{figures(report)}\n\n{peers(report)}")
    if given.scaling is not None:
        report = _read(given.scaling)
        page = replaced(page, "scaling", f"{conditions(report)}\n\n{scaling(report)}")
    if given.prices:
        page = replaced(page, "prices", prices())
    given.page.write_text(page, encoding="utf-8")


def _read(path: Path) -> Found:
    found: Found = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()
