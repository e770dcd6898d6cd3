"""What a batch writes of a row is chosen by what changed of it, and no change may be left out."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.rows import RUNS, WORK
from holdfast.store.shapes import (
    RUN_COUNTS,
    RUN_END,
    RUN_OPEN,
    RUN_REST,
    RUN_STEP,
    WORK_DEFINED,
    WORK_OPEN,
    WORK_OTHER,
    WORK_SETTLE,
    new_run,
    new_work,
    run_shape_of,
    run_step,
    work_shape_of,
)
from tests.store.conformance.rows import a_run, a_work

OF_RUNS = {"step": RUN_STEP, "ended": RUN_END, "input": RUN_COUNTS, "full": RUN_REST}
OF_WORK = {"settled": WORK_SETTLE, "full": WORK_OTHER, "whole": WORK_DEFINED}
NEVER_CHANGED = {
    "id",
    "workflow",
    "model",
    "key",
    "input",
    "codec",
    "input_digest",
    "on_failure",
    "parent",
    "queue",
} | {*("priority", "tags", "created", "depth")}


def another(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else "another"


@pytest.mark.parametrize(("shape", "column"), [(shape, each) for shape, names in OF_RUNS.items() for each in names])
def test_k1_no_change_of_a_run_is_left_out(shape: str, column: str) -> None:
    run = a_run()
    assert run_shape_of(run, replace(run, **{column: another(getattr(run, column))})) == shape


@pytest.mark.parametrize(("shape", "column"), [(shape, each) for shape, names in OF_WORK.items() for each in names])
def test_k1_no_change_of_an_item_is_left_out(shape: str, column: str) -> None:
    work = a_work()
    assert work_shape_of(work, replace(work, **{column: another(getattr(work, column))})) == shape


@pytest.mark.parametrize(
    ("columns", "shape"),
    [
        (("result", "version"), "ended"),
        (("base", "version"), "input"),
        (("result", "base"), "full"),
        (("reason", "version"), "full"),
    ],
)
def test_k1_a_run_that_changes_in_two_ways_has_a_shape_for_both(columns: tuple[str, ...], shape: str) -> None:
    run = a_run()
    assert run_shape_of(run, replace(run, **{each: another(getattr(run, each)) for each in columns})) == shape


def test_k1_an_item_that_is_set_anew_and_claimed_is_written_whole() -> None:
    work = a_work()
    assert work_shape_of(work, replace(work, payload=b"2", token=work.token + 1)) == "whole"


def test_every_column_that_changes_has_a_shape() -> None:
    assert {column for names in OF_RUNS.values() for column in names} == {*RUNS.columns} - NEVER_CHANGED
    assert {column for names in OF_WORK.values() for column in names} == {*WORK.columns} - {
        *WORK.key_fields,
        "workflow",
    }


def test_a_step_is_sent_in_the_order_of_its_statement() -> None:
    numbers = {column: place for place, column in enumerate(RUN_STEP)}
    run = replace(a_run(), **numbers)
    assert run_step(run) == attrgetter(*RUN_STEP)(run) == tuple(range(len(RUN_STEP)))


def test_new_rows_are_sent_in_the_order_of_their_columns() -> None:
    run_columns = [column for column in RUNS.columns if column not in RUN_OPEN]
    run = replace(a_run(), **{column: place for place, column in enumerate(run_columns)})
    assert new_run(run) == attrgetter(*run_columns)(run) == tuple(range(len(run_columns)))
    work_columns = [column for column in WORK.columns if column not in WORK_OPEN]
    work = replace(a_work(), **{column: place for place, column in enumerate(work_columns)})
    assert new_work(work) == attrgetter(*work_columns)(work) == tuple(range(len(work_columns)))


@pytest.mark.parametrize("column", RUN_OPEN)
def test_k1_nothing_that_a_new_run_does_not_leave_open_is_lost(column: str) -> None:
    assert new_run(replace(a_run(), **{column: True})) is None


@pytest.mark.parametrize("column", WORK_OPEN)
def test_k1_nothing_that_a_new_item_does_not_leave_open_is_lost(column: str) -> None:
    assert new_work(replace(a_work(), **{column: b""})) is None
