"""Edited graphs that cannot be followed and wishes that cannot be granted: refused, with every row as it was."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from tests.badinput.checks import DEADLINE_SECONDS, refused
from tests.badinput.dag_world import World, nothing_changed
from tests.worker.support import assert_sound

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def world() -> World:
    return World()


# -- an exported graph that somebody edited


def node_named(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = document["nodes"][id_of(document, name)]
    return found


def id_of(document: dict[str, Any], name: str) -> str:
    return next(node_id for node_id, node in document["nodes"].items() if node["name"] == name)


def remove(*names: str) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        for gone in [id_of(document, name) for name in names]:
            del document["nodes"][gone]
            for node in document["nodes"].values():
                node["depends_on"] = [parent for parent in node["depends_on"] if parent != gone]

    return edit


def in_ship(**changes: Any) -> Edit:
    return lambda document: node_named(document, "ship").update(changes)


def in_policy(**changes: Any) -> Edit:
    return lambda document: node_named(document, "ship")["policy"].update(changes)


def in_retry(**changes: Any) -> Edit:
    return lambda document: node_named(document, "ship")["policy"]["retry"].update(changes)


def waits_for(name: str, parent: str) -> Edit:
    return lambda document: node_named(document, name)["depends_on"].append(id_of(document, parent))


def without(*path: str) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        inner = node_named(document, "ship") if len(path) > 1 else document
        del inner[path[-1]]

    return edit


def from_another_graph(document: dict[str, Any]) -> None:
    node_named(document, "ship")["name"] = "send"
    document["signature"] = "0" * 16


def crowd(document: dict[str, Any]) -> None:
    document["nodes"] |= {f"n_{number}": {} for number in range(200_000)}


EDITS: list[tuple[Edit, str, str]] = [
    (remove("prepare"), "node prepare (n_", "keep it"),
    (remove("report"), "has completed", "keep it"),
    (lambda d: d["nodes"].pop(id_of(d, "prepare")), "is not in the graph", "known:"),
    (waits_for("prepare", "ship"), "cycle: prepare -> charge -> ship -> prepare", "remove one"),
    (waits_for("ship", "ship"), "cycle: ship -> ship", "remove one"),
    (in_ship(depends_on=["n_00000000"]), "'n_00000000'", "known:"),
    (in_ship(depends_on="charge"), 'depends_on the text "charge"', "list of node ids"),
    (in_ship(depends_on=[7]), "depends_on the number 7", "ids of nodes"),
    (in_ship(name="charge"), "two nodes are named 'charge'", "another name"),
    (in_ship(name=""), "is empty", "printable"),
    (in_ship(name="a\nb"), "cannot be printed", "printable"),
    (in_ship(job="wrok"), "'wrok'", "did you mean 'work'"),
    (in_ship(job=None, method="ship", args={}), "'ship'", "none is defined"),
    (in_ship(method="ship"), "both a job and a method", "set the other to null"),
    (in_ship(job=None), "neither a job nor a method", "name the action"),
    (in_ship(args={}), "'number'", "work(number: "),
    (in_ship(args={"number": "three"}), "'ship'", "work(number: "),
    (in_ship(args={"numbr": 3}), "'ship'", "work(number: "),
    (in_ship(args=[3]), "args a list", "by name"),
    (in_ship(state="completed"), "unknown key 'state'", "remove"),
    (in_ship(policy=None), "policy null", "retry"),
    (in_policy(timeout_seconds=-1), "timeout=-1.0", "above zero"),
    (in_policy(queue=7), "queue the number 7", "a text"),
    (in_policy(retries=3), "unknown key 'retries'", "did you mean 'retry'"),
    (in_retry(attempts=0), "attempts=0", "executions"),
    (in_retry(attempts=2**31), "2147483648", "reached"),
    (in_retry(base="soon"), 'base the text "soon"', "seconds"),
    (without("ship", "args"), "no key 'args'", "add it"),
    (without("ship", "policy"), "no key 'policy'", "add it"),
    (without("version"), '"version"', '"version": 1'),
    (without("nodes"), "no key 'nodes'", "add it"),
    (lambda d: d.update(version=2), "version 2", "upgrade"),
    (lambda d: d.update(nodes={}), "no nodes", "at least one"),
    (lambda d: d.update(nodes=[]), "nodes a list", "by id"),
    (lambda d: d.update(state={}), "unknown key 'state'", "remove"),
    (lambda d: d.update(frozen_at="yesterday"), "'yesterday'", "ISO"),
    (from_another_graph, "was changed since", "export it again"),
    (lambda d: d["nodes"].update({"": node_named(d, "ship")}), "''", "printable"),
    (crowd, "200,004", "several runs"),
]

TEXTS: list[tuple[Callable[[str], Any], type[hf.HoldfastError], str, str]] = [
    (lambda text: text[:-3], hf.DagError, "not JSON", "correct that place"),
    (lambda text: "", hf.DagError, "not JSON", "not the name of a file"),
    (lambda text: "graph.json", hf.DagError, "not JSON", "not the name of a file"),
    (lambda text: f"[{text}]", hf.DagError, "a list, not an object", "export_dag()"),
    (lambda text: text.replace('"timeout_seconds": null', '"timeout_seconds": NaN', 1), hf.DagError, "NaN", "null"),
    (lambda text: text.replace('"version": 1', '"version": 1, "version": 1'), hf.DagError, "'version' twice", "keep"),
    (lambda text: text.replace('"frozen_at"', '"x' + "[" * 200_000 + '"', 1), hf.DagError, "unknown key", "remove"),
    (lambda text: "[" * 200_000, hf.DagError, "cannot be read", "export"),
    (json.loads, hf.UsageError, "dict", "export_dag()"),
    (str.encode, hf.UsageError, "bytes", "export_dag()"),
]


async def test_i31_an_edited_graph_that_cannot_be_followed_is_refused_and_the_run_is_as_before(
    url: str, world: World
) -> None:
    """Every way to break the JSON. Afterwards the run goes on with the graph that it had."""
    async with world.engine(url) as engine, engine.worker():
        handle = await world.paused(engine)
        text = await handle.export_dag()
        async with nothing_changed(engine):
            for edit, named, fix in EDITS:
                document = copy.deepcopy(json.loads(text))
                edit(document)
                with refused(hf.DagError, named, fix=fix):
                    await handle.import_dag(json.dumps(document))
            for change, kind, named, fix in TEXTS:
                with refused(kind, named, fix=fix):
                    await handle.import_dag(change(text))
        await handle.skip("charge")
        await handle.result(DEADLINE_SECONDS)


async def test_i31_an_edited_graph_cannot_lose_a_node_that_is_running(url: str, world: World) -> None:
    dag = hf.DagBuilder("slow", registry=world.registry)
    dag.node("first", job=world.hold)
    dag.node("last", job=world.work, args={"number": 1})
    async with world.engine(url) as engine, engine.worker():
        handle = await engine.start(dag.build())
        await world.running.wait()
        document = json.loads(await handle.export_dag())
        remove("first")(document)
        async with nothing_changed(engine):
            with refused(hf.DagError, "node first (n_", handle.id, "is running", fix="keep it"):
                await handle.import_dag(json.dumps(document))
        world.may_end.set()
        await handle.result(DEADLINE_SECONDS)


# -- what people ask for


async def test_i29_a_node_that_did_not_give_up_is_not_attempted_again(url: str, world: World) -> None:
    """Running, completed, skipped, not begun, unknown: each is told apart, and nothing is written."""
    dag = hf.DagBuilder("slow", registry=world.registry)
    dag.node("done", job=world.work, args={"number": 1})
    dag.node("held", job=world.hold)
    dag.node("last", job=world.work, args={"number": 2})
    dag.node("unwanted", job=world.work, args={"number": 3})
    async with world.engine(url) as engine, engine.worker():
        handle = await engine.start(dag.build())
        await world.running.wait()
        await handle.skip("unwanted")
        async with nothing_changed(engine):
            with refused(hf.ReattemptRefused, "held", handle.id, "is running", fix="holdfast explain"):
                await handle.reattempt("held")
            with refused(hf.ReattemptRefused, "done", "has completed", fix=f"holdfast fork {handle.id} --from done"):
                await handle.reattempt("done")
            with refused(hf.ReattemptRefused, "last", "has not begun", fix="holdfast explain"):
                await handle.reattempt("last")
            with refused(hf.ReattemptRefused, "unwanted", "was skipped", fix="holdfast fork"):
                await handle.reattempt("unwanted")
            with refused(hf.UnknownNode, handle.id, "'heldd'", fix="did you mean 'held'"):
                await handle.reattempt("heldd")
        world.may_end.set()
        await handle.result(DEADLINE_SECONDS)


async def test_i29_a_node_is_not_attempted_again_after_something_that_depends_on_it_was_done(
    url: str, world: World
) -> None:
    """An import let `ship` go first, another put it back behind `charge`: it must not find out later."""
    async with world.engine(url) as engine, engine.worker():
        handle = await world.paused(engine)
        document = json.loads(await handle.export_dag())
        node_named(document, "ship")["depends_on"] = []
        await handle.import_dag(json.dumps(document))
        await handle.resume()
        with pytest.raises(hf.RunPaused):
            await handle.result(DEADLINE_SECONDS)
        document = json.loads(await handle.export_dag())
        node_named(document, "ship")["depends_on"] = [id_of(document, "charge")]
        await handle.import_dag(json.dumps(document))
        async with nothing_changed(engine):
            with refused(hf.ReattemptRefused, "charge", "ship", "has completed", fix="holdfast fork"):
                await handle.reattempt("charge")


async def test_i11_a_node_that_runs_or_has_completed_is_not_skipped(url: str, world: World) -> None:
    dag = hf.DagBuilder("slow", registry=world.registry)
    dag.node("done", job=world.work, args={"number": 1})
    dag.node("held", job=world.hold)
    async with world.engine(url) as engine, engine.worker():
        handle = await engine.start(dag.build())
        await world.running.wait()
        async with nothing_changed(engine):
            with refused(hf.UsageError, "done", handle.id, "has completed", fix="leave it"):
                await handle.skip("done")
            with refused(hf.UsageError, "held", handle.id, "is running", fix="holdfast explain"):
                await handle.skip("held")
            with refused(hf.UnknownNode, handle.id, "'dnoe'", fix="did you mean 'done'"):
                await handle.skip("dnoe")
        world.may_end.set()
        await handle.result(DEADLINE_SECONDS)


async def test_i29_a_fork_from_nowhere_is_refused_and_no_run_is_made(url: str, world: World) -> None:
    async with world.engine(url) as engine, engine.worker():
        handle = await world.paused(engine)
        await engine.start(world.builder("order").build(), key="taken", paused=True)
        async with nothing_changed(engine):
            with refused(hf.UnknownNode, handle.id, "'chrage'", fix="did you mean 'charge'"):
                await engine.fork(handle, from_node="chrage")
            with refused(hf.UnknownWorkflow, "nowhere", fix="holdfast runs"):
                await engine.fork("nowhere", from_node="charge")
            with refused(hf.KeyConflict, "'taken'", fix="another key"):
                await engine.fork(handle, from_node="charge", key="taken")
            with refused(hf.UsageError, "from_node", fix="text"):
                await engine.fork(handle, from_node="")


async def test_g7_a_run_that_completed_or_was_cancelled_grants_no_wish(url: str, world: World) -> None:
    async with world.engine(url) as engine, engine.worker():
        completed = await engine.start(world.builder().build())
        text = await completed.export_dag()
        await completed.result(DEADLINE_SECONDS)
        cancelled = await engine.start(world.builder().build(), paused=True)
        await cancelled.cancel()
        async with nothing_changed(engine):
            for handle, status in ((completed, "completed"), (cancelled, "cancelled")):
                with refused(hf.ReattemptRefused, "second", handle.id, status, fix="holdfast fork"):
                    await handle.reattempt("second")
                with refused(hf.UsageError, "second", handle.id, status, fix="not ended"):
                    await handle.skip("second")
                with refused(hf.UsageError, handle.id, status, fix="never changes"):
                    await handle.retry()
                with refused(hf.UsageError, handle.id, status, fix="fork"):
                    await handle.import_dag(text)


async def test_i31_an_action_on_its_own_has_no_dag_that_could_be_stored(url: str, world: World) -> None:
    """Its arguments are the run's, and not a node's: with a stored graph it would be called without them."""
    async with world.engine(url) as engine, engine.worker():
        handle = await engine.start(world.work, 7, paused=True)
        exported = await handle.export_dag()
        async with nothing_changed(engine):
            with refused(hf.DagError, handle.id, "an action on its own", fix="start another run"):
                await handle.freeze_dag()
            with refused(hf.DagError, handle.id, "an action on its own", fix="start another run"):
                await handle.import_dag(exported)
        await handle.resume()
        await handle.result(DEADLINE_SECONDS)


# -- two operators


async def test_i29_two_operators_who_attempt_a_node_again_at_once_make_one_attempt(
    database_url: str, world: World
) -> None:
    """Each has an engine of their own, as on two hosts. Neither is told off, for both got what they asked for."""
    async with world.engine(database_url) as one, world.engine(database_url) as other:
        async with one.worker():
            handle = await world.paused(one)
        same = other.get(handle.id)
        await asyncio.gather(*(each.reattempt("charge", by=f"{n}") for n, each in enumerate([handle, same] * 5)))
        assert [attempt.state for attempt in await handle.step_executions("charge")] == ["failed", "ready"]
        assert [entry.kind for entry in await handle.history()].count("reattempted") == 1
        await assert_sound(one)


async def test_i31_of_two_operators_who_change_a_graph_at_once_the_second_is_refused(
    database_url: str, world: World
) -> None:
    """The second edited what is no longer there, and would undo the change of the first without knowing."""
    async with world.engine(database_url) as one, world.engine(database_url) as other:
        async with one.worker():
            handle = await world.paused(one)
        texts = []
        for name in ("deliver", "send"):
            document = json.loads(await handle.export_dag())
            node_named(document, "ship")["name"] = name
            texts.append(json.dumps(document))
        answers = await asyncio.gather(
            handle.import_dag(texts[0], by="Ada"),
            other.get(handle.id).import_dag(texts[1], by="Grace"),
            return_exceptions=True,
        )
        [lost] = [answer for answer in answers if answer is not None]
        with refused(hf.DagError, handle.id, "was changed since", fix="export it again"):
            raise lost
        assert [entry.kind for entry in await handle.history()].count("graph imported") == 1
        winner = ("deliver", "send")[answers.index(None)]
        for engine in (one, other):
            assert winner in [node.name for node in await engine.get(handle.id).nodes_with_state()]


@pytest.mark.parametrize("skips_first", [True, False])
async def test_i11_two_operators_who_skip_and_attempt_again_at_once_leave_a_sound_run(
    database_url: str, world: World, skips_first: bool
) -> None:
    """One of the two orders holds: skipped after a new attempt was granted, or skipped and not granted."""
    async with world.engine(database_url) as one, world.engine(database_url) as other:
        async with one.worker():
            handle = await world.paused(one)
        wishes = {"skip": handle.skip("charge"), "reattempt": other.get(handle.id).reattempt("charge")}
        order = list(wishes) if skips_first else list(reversed(wishes))
        answers = dict(
            zip(order, await asyncio.gather(*(wishes[wish] for wish in order), return_exceptions=True), strict=True)
        )
        attempts = [attempt.state for attempt in await handle.step_executions("charge")]
        assert answers["skip"] is None
        if answers["reattempt"] is None:
            assert attempts == ["failed", "skipped"]
        else:
            assert isinstance(answers["reattempt"], hf.ReattemptRefused)
            assert attempts == ["skipped"]
        await assert_sound(one)
        async with one.worker():
            await handle.result(DEADLINE_SECONDS)
