"""Counters, gauges and distributions."""

from __future__ import annotations

import json
import random
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.runtime import telemetry
from holdfast.runtime.telemetry import BOUNDS, MEANINGS, Metrics, Recorder


def test_counters_add_up_and_gauges_keep_the_last_value() -> None:
    recorder = Recorder()
    metrics: Metrics = recorder
    metrics.count(telemetry.CLAIMS)
    metrics.count(telemetry.CLAIMED_ITEMS, 25)
    metrics.count(telemetry.CLAIMED_ITEMS, 5)
    metrics.gauge(telemetry.RUNNING_ACTIONS, 7)
    metrics.gauge(telemetry.RUNNING_ACTIONS, 3)
    snapshot = recorder.snapshot()
    assert snapshot["counters"] == {"claims": 1, "claimed_items": 30}
    assert snapshot["gauges"] == {"running_actions": 3}


def test_no_count_of_any_thread_is_lost() -> None:
    recorder = Recorder()

    def count(_: int) -> None:
        for _ in range(2_000):
            recorder.count("claims")
            recorder.observe("commit_seconds", 0.001)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    snapshot = recorder.snapshot()
    assert snapshot["counters"]["claims"] == 16_000
    assert snapshot["distributions"]["commit_seconds"]["count"] == 16_000


@pytest.mark.parametrize("seed", range(5))
def test_estimated_quantiles_are_within_a_quarter_of_the_exact_ones(seed: int) -> None:
    source = random.Random(seed)
    values = [source.lognormvariate(-6, 1.0) for _ in range(5_000)]
    recorder = Recorder()
    for value in values:
        recorder.observe("commit_seconds", value)
    told = recorder.snapshot()["distributions"]["commit_seconds"]
    values.sort()
    assert told["count"] == len(values)
    assert told["sum"] == pytest.approx(sum(values))
    assert (told["min"], told["max"]) == (values[0], values[-1])
    assert told["p50"] == pytest.approx(values[2_500], rel=0.25)
    assert told["p99"] == pytest.approx(values[4_950], rel=0.25)


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.001, 3.0, 10_000.0, 1e9])
def test_quantiles_of_equal_values_are_that_value_also_outside_the_buckets(value: float) -> None:
    recorder = Recorder()
    for _ in range(3):
        recorder.observe("batch_size", value)
    told = recorder.snapshot()["distributions"]["batch_size"]
    assert told["p50"] == told["p99"] == value


def test_a_snapshot_is_json_and_does_not_change_afterwards() -> None:
    recorder = Recorder()
    recorder.count("claims")
    recorder.observe("commit_seconds", 0.5)
    recorder.gauge("running_actions", 1)
    before = json.dumps(recorder.snapshot())
    kept = recorder.snapshot()
    recorder.count("claims")
    recorder.observe("commit_seconds", 0.5)
    recorder.gauge("running_actions", 2)
    assert json.dumps(kept) == before


def test_prometheus_text_has_types_helps_and_cumulative_buckets() -> None:
    recorder = Recorder()
    recorder.count(telemetry.STALE_COMPLETIONS, 2)
    recorder.count("odd name/here")
    recorder.gauge(telemetry.RUNNING_ACTIONS, 1.5)
    for value in (0.001, 0.0011, 0.4, 99_999.0):
        recorder.observe(telemetry.COMMIT_SECONDS, value)
    text = recorder.prometheus()
    lines = text.splitlines()
    assert f"# HELP holdfast_stale_completions_total {MEANINGS['stale_completions']}" in lines
    assert "# TYPE holdfast_stale_completions_total counter" in lines
    assert "holdfast_stale_completions_total 2" in lines
    assert "holdfast_odd_name_here_total 1" in lines
    assert "holdfast_running_actions 1.5" in lines
    assert 'holdfast_commit_seconds_bucket{le="0.001"} 1' in lines
    assert 'holdfast_commit_seconds_bucket{le="0.0015"} 2' in lines
    assert 'holdfast_commit_seconds_bucket{le="10000"} 3' in lines
    assert 'holdfast_commit_seconds_bucket{le="+Inf"} 4' in lines
    assert "holdfast_commit_seconds_count 4" in lines
    buckets = [int(n) for n in re.findall(r"commit_seconds_bucket\{[^}]*\} (\d+)", text)]
    assert buckets == sorted(buckets)
    assert len(buckets) == len(BOUNDS) + 1
    assert text.endswith("\n")


def test_every_name_the_engine_uses_has_a_meaning() -> None:
    """A number nobody can explain is noise."""
    own = {
        value
        for constant, value in vars(telemetry).items()
        if constant.isupper() and isinstance(value, str) and not constant.startswith("_")
    }
    assert own == set(MEANINGS)


def test_bounds_grow_strictly() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
