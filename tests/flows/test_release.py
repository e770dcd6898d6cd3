"""I18: rows of passes that are over are found by their keys, and by all of them, without going through the run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from holdfast.authoring.flows import flow
from holdfast.core.flow_addresses import parse_address
from holdfast.core.queries import AllWork, ValuesOf
from holdfast.core.rows import Run
from holdfast.core.view import View
from holdfast.models import flow as machine
from holdfast.models.flow_code import FlowCode
from holdfast.models.flow_release import release_rows
from holdfast.models.flow_steps import Release
from tests.flows.by_hand import registry_with_actions
from tests.flows.chaos import World
from tests.flows.corpus import all_cases
from tests.support.stores import site_for

TOGETHER = 20


def covered(view: View, run: str, release: Release) -> list[Any]:
    """What the release is about, by going through everything that the run has stored."""
    rows = [*view.find(AllWork(run)), *view.find(ValuesOf(run))]
    return [row for row in rows if release.covers(parse_address(row.node))]


async def test_i18_the_rows_of_a_pass_that_is_over_are_all_found_by_their_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """I18: every loop of the corpus; a search through all rows finds nothing that the keys did not name, nor less."""
    releases = rows = 0
    wrong: list[str] = []

    def checked(view: View, run: Run, completed: str, release: Release, code: FlowCode) -> Run:
        nonlocal releases, rows
        before = len(view.find(AllWork(run.id))) + len(view.find(ValuesOf(run.id)))
        found = len(covered(view, run.id, release))
        after_release = release_rows(view, run, completed, release, code)
        left = covered(view, run.id, release)
        if left:
            wrong.append(f"{run.workflow} at {completed} leaves {left}")
        now = len(view.find(AllWork(run.id))) + len(view.find(ValuesOf(run.id)))
        if now != before - found:
            wrong.append(f"{run.workflow} at {completed} deletes rows that it needs")
        releases, rows = releases + 1, rows + found
        return after_release

    monkeypatch.setattr(machine, "release_rows", checked)
    registry = registry_with_actions()
    cases = all_cases()
    made = {function: flow(registry=registry)(function) for function in {case.function for case in cases}}
    looping = [case for case in cases if any(node.loops for node in made[case.function].graph.nodes)]
    for first in range(0, len(looping), TOGETHER):
        some = looping[first : first + TOGETHER]
        with site_for("memory", None, tmp_path) as site:
            world = World(site, registry, f"release {first}")
            engine = await world.begin()
            handles = [await engine.start(made[case.function], *copy.deepcopy(case.args)) for case in some]
            await world.play([handle.id for handle in handles])
    print(f"{len(looping)} cases, {releases} releases of {rows} rows")
    assert not wrong, wrong[:3]
    assert releases > 300
