"""I44, I47: long runs store what changed, states put together from any step are right, and nothing grows with steps."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.authoring.state_fields import CANONICAL
from holdfast.core.queries import CheckpointsOf
from holdfast.core.state_items import state_digest
from holdfast.core.state_outcomes import joined, split
from holdfast.core.state_patch import difference, patched
from tests.graphs.worlds import LATEST
from tests.support.stores import every_row
from tests.worker.support import assert_sound, engine_on

SECONDS = 120.0
STEPS = int(os.environ.get("GRAPH_STEPS", "1500"))

# -- patches

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    leaves | texts, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=8
)
objects = st.dictionaries(texts, values | st.text("ab", min_size=100, max_size=200), max_size=12)
"""Large enough at times that only their changed keys are stored."""
fields = st.sampled_from(["a", "b", "c", 'q"uote', "ü"])


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """States that follow each other as they do in runs: little changes, lists grow, objects get keys, or anything."""
    state: dict[str, Any] = draw(st.dictionaries(fields, values | objects, max_size=4))
    found = [dict(state)]
    for _ in range(draw(st.integers(1, 8))):
        name = draw(fields)
        old = state.get(name)
        match draw(st.integers(0, 3)):
            case 0 if isinstance(old, list):
                state[name] = [*old, *draw(st.lists(values, max_size=3))]
            case 1 if isinstance(old, dict):
                state[name] = {**old, **draw(st.dictionaries(texts, values, max_size=3))}
            case 2 if isinstance(old, list) and old:
                state[name] = old[:-1]
            case _:
                state[name] = draw(values | objects)
        found.append(dict(state))
    return found


def encoded(state: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: CANONICAL.default.encode(value) for name, value in state.items()}


@given(histories())
@settings(max_examples=200)
def test_i44_a_chain_of_patches_makes_every_state_again_to_the_byte(history: list[dict[str, Any]]) -> None:
    """I44: whatever changed, and however often it was patched; the digest is that of the state itself."""
    states = [encoded(state) for state in history]
    made: Mapping[str, bytes] = states[0]
    for old, new in itertools.pairwise(states):
        made = patched(made, difference(old, new))
        assert made == new
        assert state_digest(made) == state_digest(new)
        assert split(joined(made)) == made


@pytest.mark.parametrize(
    ("old", "new"),
    [([1], [12]), ([1], [1.5]), ([-1], [-10, 2]), ([[1]], [[1], 2]), ([[1]], [[1, 2]]), ([], [[]]), ([""], ["", ""])],
)
def test_i44_a_list_that_only_looks_as_if_it_grew_is_made_again_too(old: list[Any], new: list[Any]) -> None:
    """I44: the bytes of one list begin those of the other, and it is another list."""
    before, after = encoded({"a": old}), encoded({"a": new})
    assert patched(before, difference(before, after)) == after


def test_i44_a_patch_of_a_large_state_that_changed_little_is_small() -> None:
    """I44: a tail for a list that grew, keys for an object, nothing for what stayed."""
    old = encoded({"log": ["x" * 50] * 1000, "table": {f"k{n}": "y" * 50 for n in range(1000)}, "same": "z" * 50_000})
    new = encoded(
        {
            "log": [*(["x" * 50] * 1000), "new"],
            "table": {f"k{n}": "y" * 50 for n in range(1000)} | {"k7": "changed", "k2000": "added"},
            "same": "z" * 50_000,
        }
    )
    patch = difference(old, new)
    assert len(patch) < 200
    assert patched(old, patch) == new
    assert len(difference(new, new)) < 5
    shrunk = {**new, "log": b"[]"}
    assert patched(new, difference(new, shrunk)) == shrunk


# -- runs


class Long(TypedDict):
    turn: int
    log: Annotated[list[str], hf.reducers.append]
    table: Annotated[dict[str, str], hf.reducers.merge_dicts]
    blob: str


def looping(registry: hf.Registry, steps: int, **options: Any) -> hf.StateGraph[Long]:
    graph = hf.StateGraph(Long, name="long", registry=registry, max_steps=10**9, **options)

    @graph.node
    async def turn(state: Long, ctx: hf.NodeContext) -> Any:
        number = state["turn"] + 1
        given: dict[str, Any] = {"turn": number, "table": {f"k{number % 50}": f"turn {number}"}}
        if number % 10 == 0:
            given["log"] = [f"line {number}"]
        return given

    graph.start_at("turn")
    graph.edge("turn", "turn", when=lambda state: state["turn"] < steps)
    graph.finish("turn")
    return graph


def beginning(kilobytes: int) -> Long:
    return {
        "turn": 0,
        "log": [],
        "table": {f"k{n}": "x" * 400 for n in range(50)},
        "blob": "y" * (kilobytes * 1000 - 20_000),
    }


async def test_i44_a_thousand_steps_of_a_state_of_100_kb_store_less_than_5_mb(sqlite_url: str) -> None:
    """I44: whole states now and then, what changed in between; any step can be read, and is what it was."""
    registry = hf.Registry()
    graph = looping(registry, 1000)
    async with engine_on(sqlite_url, registry) as engine:
        async with engine.worker():
            handle = await engine.start(graph, beginning(100))
            await handle.result(timeout=SECONDS)
        rows = await engine.store.rows(CheckpointsOf(handle.id, LATEST, 2000))
        assert len(rows) == 1001
        assert sum(len(row.state) + len(row.frontier) for row in rows) < 5_000_000
        wholes = sorted(row.step for row in rows if row.whole)
        assert len(wholes) > 3
        assert max(after - before for before, after in zip(wholes, [*wholes[1:], 1001], strict=True)) <= 256
        digests = {row.step: row.digest for row in rows}
        for step in (0, 1, 255, 256, 257, 500, 999, 1000, *wholes[1:3], *(whole - 1 for whole in wholes[1:3])):
            found = await handle.checkpoint(step=step)
            assert found.state["turn"] == step
            assert found.state["log"] == [f"line {number}" for number in range(10, step + 1, 10)]
            assert found.state_digest == digests[step] == state_digest(encoded(found.state))
        every = await handle.checkpoints()
        assert [(each.step_id, each.state["turn"]) for each in every] == [(step, step) for step in range(1001)]
        report = await engine.replay(handle.id)
        assert (report.ok, report.steps) == (True, 1000)
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    assert path.stat().st_size < 8_000_000, "work and indexes included"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_i47_what_is_remembered_of_a_run_does_not_grow_with_its_steps(
    request: pytest.FixtureRequest, store: str
) -> None:
    """I47: rows and states in this process, in the middle and at the end of a long run. GRAPH_STEPS=10000 for more."""
    url = "memory://" if store == "memory" else str(request.getfixturevalue("sqlite_url"))
    steps = STEPS if store == "memory" else STEPS // 3
    registry = hf.Registry()
    graph = looping(registry, steps)
    seen: list[tuple[int, int, int]] = []
    async with engine_on(url, registry) as engine:
        states, cache = engine.definitions.states, engine.coordinator.cache

        def look(_: Any) -> None:
            seen.append((len(states._known), states._bytes, sum(map(len, cache.runs.values()))))

        engine.coordinator.observers.append(look)
        async with engine.worker():
            handle = await engine.start(graph, beginning(30))
            await handle.result(timeout=SECONDS)
    assert len(seen) >= steps
    for early, late in zip(*(_largest(part) for part in (seen[: steps // 5], seen[-steps // 5 :])), strict=True):
        assert late <= early * 1.5, f"grew from {early} to {late}"
    remembered, size, rows = _largest(seen)
    assert remembered < 20
    assert size < 20 * 40_000
    assert rows < 100


def _largest(seen: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    return max(a for a, _, _ in seen), max(b for _, b, _ in seen), max(c for _, _, c in seen)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_i44_a_graph_may_keep_its_latest_checkpoints_only(request: pytest.FixtureRequest, store: str) -> None:
    """I44: older ones go with their items and records, labelled ones stay; what is left can be read, replayed and
    forked, and what is gone says so."""
    url = "memory://" if store == "memory" else str(request.getfixturevalue(f"{store}_url"))
    registry = hf.Registry()
    graph = hf.StateGraph(Long, name="short", registry=registry, keep_checkpoints=10)

    @graph.node(recordable=True)
    async def turn(state: Long, ctx: hf.NodeContext) -> Any:
        number = await ctx.record("next", {"after": state["turn"]}, lambda: state["turn"] + 1)
        return hf.Goto("mark" if number == 7 else "turn" if number < 100 else "end", {"turn": number})

    graph.node(name="mark", label="seventh", goes_to=("turn",))(lambda state: hf.Goto("turn", {"log": ["seven"]}))
    graph.node(name="end", goes_to=())(lambda state: hf.Stop({"log": ["end"]}))
    graph.start_at("turn")
    graph.finish("end")
    async with engine_on(url, registry) as engine, engine.worker():
        handle = await engine.start(graph, beginning(30))
        result = await handle.result(timeout=SECONDS)
        assert (result["turn"], result["log"]) == (100, ["seven", "end"])
        left = [each.step_id for each in await handle.checkpoints()]
        assert left[-1] == 102
        assert len(left) <= 3 * 10 + 1, "they go several at a time"
        assert set(range(93, 103)) <= set(left), "the latest ten"
        marked = await handle.checkpoint(label="seventh")
        assert (marked.step_id, marked.state["turn"]) == (8, 7)
        stored = await every_row(engine.store)
        steps = {int(row.node.rpartition("@")[2]) for row in (*stored["work"], *stored["recorded"])}
        assert min(steps) >= min(each for each in left if each > 8), "items of what is gone are gone"
        report = await engine.replay(handle.id)
        assert report.ok
        assert report.state == result
        fork = await engine.fork(handle.id, step=95, update={"turn": 98})
        assert (await fork.result(timeout=SECONDS))["turn"] == 100
        early = await engine.fork(handle.id, label="seventh", update={"turn": 97})
        assert (await early.result(timeout=SECONDS))["turn"] == 100
        with pytest.raises(hf.HoldfastError, match="30"):
            await handle.checkpoint(step=30)
        with pytest.raises(hf.HoldfastError, match="checkpoint 30"):
            await engine.fork(handle.id, step=30)
        for asked in (handle.checkpoint(step=30), engine.fork(handle.id, step=30)):
            with pytest.raises(
                hf.UsageError, match=r"deleted, as its keep_checkpoints says: its latest is 102"
            ) as refused:
                await asked
            assert f"take a step that is there: 8, {left[1]} to 102;" in refused.value.hint
        await assert_sound(engine)
        assert await engine.prune(older_than_seconds=0) == 3
        gone = await every_row(engine.store)
        assert not any(gone[table] for table in ("runs", "work", "checkpoints", "recorded", "history"))


def test_i47_exported_documents_have_a_version_and_can_be_json() -> None:
    """I47: the fields are fixed by `test_seed_examples.py`; here: that nothing in them is more than JSON."""
    from holdfast.graph_documents import WorkItem

    item = WorkItem(step_id=1, order_key="f" * 16, node_id="n", state={"a": 1})
    document = item.document()
    assert document["version"] == 1
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


@dataclasses.dataclass
class Page:
    words: frozenset[str]


class Typed(TypedDict, total=False):
    tags: set[str]
    at: dt.datetime
    page: Page


@dataclasses.dataclass
class Data:
    tags: set[str] = dataclasses.field(default_factory=set)
    at: dt.datetime | None = None
    page: Page | None = None


@pytest.mark.parametrize("state", [Typed, Data])
async def test_i47_documents_of_states_with_sets_times_and_classes_are_json(state: Any) -> None:
    """I47: whatever the class of the state, and the same text in every process."""
    graph: hf.StateGraph[Any] = hf.StateGraph(state, name="exported", registry=hf.Registry())

    @graph.node(goes_to=("rest",))
    async def write(state: Any) -> Any:
        now = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
        return hf.Goto("rest", {"tags": {"b", "a"}, "at": now, "page": Page(frozenset({"y", "x"}))})

    graph.node(name="rest")(lambda state: None)
    graph.start_at("write")
    graph.finish("rest")
    expected = {"tags": ["a", "b"], "at": "2026-01-02T00:00:00Z", "page": {"words": ["x", "y"]}}
    async with engine_on("memory://", graph.registry) as engine, engine.worker():
        handle = await engine.start(graph, {})
        await handle.result(timeout=SECONDS)
        for each in await handle.checkpoints():
            document = each.document()
            assert json.loads(json.dumps(document)) == document
            if each.step_id == 1:
                assert document["state"] == document["frontier"][0]["state"] == expected
