"""DAGs that cannot be right are refused where they are written or started, with every row as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from tests.badinput.checks import DEADLINE_SECONDS, refused
from tests.badinput.dag_world import World, nothing_changed


@pytest.fixture
def world() -> World:
    return World()


# -- what a builder is given


def plain(number: int) -> None: ...


BAD_NODES: list[tuple[str, Callable[[World], dict[str, Any]], type[hf.HoldfastError], str, str]] = [
    ("first", lambda w: {"job": w.stumble}, hf.DagError, "'first'", "names are unique"),
    ("", lambda w: {"job": w.stumble}, hf.UsageError, "''", "printable"),
    ("a\nb", lambda w: {"job": w.stumble}, hf.UsageError, r"'a\nb'", "printable"),
    ("x", lambda w: {"job": w.stumble, "depends_on": "frist"}, hf.DagError, "'frist'", "did you mean 'first'"),
    ("x", lambda w: {"job": w.stumble, "depends_on": "later"}, hf.DagError, "'later'", "define it first"),
    ("x", lambda w: {"job": w.stumble, "depends_on": ["first", "x"]}, hf.DagError, "itself", "leave it out"),
    ("x", lambda w: {"job": w.stumble, "depends_on": 7}, hf.DagError, "7, a int", "names of nodes"),
    ("x", lambda w: {"job": w.stumble, "depends_on": {"first": 1}}, hf.DagError, "a dict", "names of nodes"),
    ("x", lambda w: {"job": plain}, hf.DagError, "not an action", "@hf.action"),
    ("x", lambda w: {"job": hf.Dag}, hf.DagError, "not an action", "@hf.action"),
    ("x", lambda w: {"job": "wrok"}, hf.DagError, "'wrok'", "did you mean 'work'"),
    ("x", lambda w: {"job": w.work}, hf.UsageError, "'number'", "work(number: "),
    ("x", lambda w: {"job": w.work, "args": {"numbr": 1}}, hf.UsageError, "work", "work(number: "),
    ("x", lambda w: {"job": w.work, "args": {"number": "1"}}, hf.PayloadRefused, "'number'", "annotated type"),
    ("x", lambda w: {"job": w.work, "args": [1]}, hf.DagError, "[1]", "by name"),
    ("x", lambda w: {"job": w.stumble, "retry": 3}, hf.UsageError, "retry=3", "hf.Retry(attempts=3)"),
    ("x", lambda w: {"job": w.stumble, "retry": hf.Retry(retry_on=OSError)}, hf.DagError, "retry_on", "on the action"),
    ("x", lambda w: {"job": w.stumble, "timeout": 0}, hf.UsageError, "timeout=0", "above zero"),
    ("x", lambda w: {"job": w.stumble, "queue": ""}, hf.UsageError, "queue", "printable"),
]


@pytest.mark.parametrize(("name", "options", "kind", "named", "fix"), BAD_NODES)
def test_i27_a_node_that_cannot_be_is_refused_and_the_builder_is_as_before(
    world: World,
    name: str,
    options: Callable[[World], dict[str, Any]],
    kind: type[hf.HoldfastError],
    named: str,
    fix: str,
) -> None:
    dag = world.builder()
    with refused(kind, named, fix=fix):
        dag.node(name, **options(world))
    assert dag.build() == world.builder().build()


def test_i27_a_node_of_another_builder_is_refused_with_both_builders(world: World) -> None:
    stranger = world.builder("other").node("third", job=world.stumble)
    with refused(hf.DagError, "'batch'", "'x'", "'third'", "other", fix="one builder"):
        world.builder().node("x", job=world.stumble, depends_on=stranger)


BAD_FAN_OUTS: list[tuple[dict[str, Any], str, str]] = [
    ({"items": "abc", "name": str}, "'abc', a str", "give a list"),
    ({"items": 5, "name": str}, "5, a int", "give a list"),
    ({"items": [1], "name": "item"}, "name='item'", "function of the item"),
    ({"items": [1, 2, 1], "name": str}, "'1'", "tells the items apart"),
    ({"items": ["new", "second"], "name": str}, "'second'", "names are unique"),
]


@pytest.mark.parametrize(("options", "named", "fix"), BAD_FAN_OUTS)
def test_i27_a_fan_out_adds_all_of_its_nodes_or_none(
    world: World, options: dict[str, Any], named: str, fix: str
) -> None:
    """What the next node would follow is as before, too."""
    dag = world.builder()
    with refused(hf.DagError, "'batch'", named, fix=fix):
        dag.fan_out(job=world.work, args={"number": 1}, **options)
    expected = world.builder()
    assert dag.node("third", job=world.stumble).id == expected.node("third", job=world.stumble).id
    assert dag.build() == expected.build()


def test_i27_two_hundred_thousand_nodes_are_refused_with_both_numbers(world: World) -> None:
    """The number that was asked for if it can be known, and what to do instead."""
    dag = world.builder()
    with refused(hf.DagError, "200,002", "100,000", fix="several runs"):
        dag.fan_out(range(200_000), name=str, job=world.stumble)
    with refused(hf.DagError, "100,001", "100,000", fix="several runs"):
        dag.fan_out(itertools.count(), name=str, job=world.stumble)
    assert len(dag) == 2


def test_i27_a_million_edges_between_two_groups_are_refused_with_a_way_round(world: World) -> None:
    dag = hf.DagBuilder("square", registry=world.registry)
    for group in ("left", "right"):
        dag.fan_out(range(1_001), name=lambda item, group=group: f"{group}_{item}", job=world.stumble)
    with refused(hf.DagError, "1,002,001", "1,000,000", "'right_0'", fix="between the groups"):
        dag.build()


# -- what a class says


def test_i25_a_node_under_the_name_of_a_field_or_of_a_method_of_dag_is_refused() -> None:
    with refused(hf.DagError, "Collision", "'ship' is both a field and a step", fix="rename"):

        class Collision(hf.Dag, registry=hf.Registry()):
            ship: int

            @hf.step  # type: ignore[no-redef]
            async def ship(self) -> None: ...

    class Base(hf.Dag, registry=hf.Registry()):
        ship: int

    with refused(hf.DagError, "Inherited", "'ship' is both a field and a task", fix="rename"):

        class Inherited(Base):
            @hf.task
            async def ship(self) -> None: ...  # type: ignore[override]

    with refused(hf.DagError, "Reserved", "'mermaid'", "hf.Dag", fix="name='mermaid'"):

        class Reserved(hf.Dag, registry=hf.Registry()):
            @hf.step
            async def mermaid(self) -> None: ...  # type: ignore[override]


def test_i25_a_job_of_a_class_that_is_no_action_or_whose_args_do_not_fit_is_refused_with_its_node(
    world: World,
) -> None:
    """When the class is made: one that was accepted would keep every engine of its registry from opening."""
    with refused(hf.DagError, "not an action", "plain", fix="@hf.action"):
        hf.task(job=plain)  # type: ignore[call-overload]
    with refused(hf.PayloadRefused, "Order", "'tell'", "'number'", "int", fix="annotated type"):

        class Order(hf.Dag, registry=world.registry):
            tell = hf.task(job=world.work, args={"number": "one"})

    assert "Order" not in world.registry.workflows


def test_i25_positions_that_lead_nowhere_are_refused_with_the_steps_there_are() -> None:
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"after_step": "valdate"}, "'valdate'", "did you mean 'validate'"),
        ({"after_step": "moved"}, "itself", "name another step"),
        ({"before_step": "aside"}, "is a task", "depends_on='aside'"),
        ({"before_step": hf.PREVIOUS}, "PREVIOUS", "name a step"),
    ]
    for position, named, fix in wrong:
        with refused(hf.DagError, "Order", "'moved'", named, fix=fix):

            class Order(hf.Dag, registry=hf.Registry()):
                @hf.step
                async def validate(self) -> None: ...

                @hf.task
                async def aside(self) -> None: ...

                @hf.step(**position)
                async def moved(self) -> None: ...


# -- what is started


async def test_i27_a_dag_of_zero_nodes_is_refused_and_nothing_is_written(url: str, world: World) -> None:
    class Empty(hf.Dag, registry=world.registry):
        number: int = 1

    @hf.dag_template(registry=world.registry)
    def nothing(items: list[int]) -> hf.DagBuilder:
        dag = hf.DagBuilder("nothing", registry=world.registry)
        dag.fan_out(items, name=str, job=world.stumble)
        return dag

    async with world.engine(url) as engine, nothing_changed(engine):
        with refused(hf.DagError, "'none'", "no nodes", fix="node(…)"):
            hf.DagBuilder("none", registry=world.registry).build()
        with refused(hf.DagError, "Empty", "no nodes", fix="@hf.step"):
            await engine.start(Empty())
        with refused(hf.DagError, "'nothing'", "no nodes", fix="node(…)"):
            await engine.start(nothing.bind([]))


async def test_i27_what_is_not_a_finished_dag_is_refused_and_nothing_is_written(url: str, world: World) -> None:
    """A builder, a name that is taken, arguments too many, jobs of elsewhere, a template that gives something else."""

    @hf.dag_template(registry=world.registry)
    def odd(count: int) -> Any:
        return count

    @hf.action(registry=hf.Registry())
    async def stranger() -> None: ...

    elsewhere = hf.DagBuilder("elsewhere", registry=world.registry)
    elsewhere.node("x", job=stranger)
    async with world.engine(url) as engine, nothing_changed(engine):
        with refused(hf.DagError, "batch", "not built", fix="build()"):
            await engine.start(world.builder())  # type: ignore[call-overload]
        with refused(hf.UsageError, "batch", "1 arguments", fix="dag_template"):
            await engine.start(world.builder().build(), 7)  # type: ignore[call-overload]
        with refused(hf.DagError, "'work'", "registered", fix="another name"):
            await engine.start(world.builder("work").build())
        with refused(hf.DagError, "'x'", "'stranger'", fix="registry="):
            await engine.start(elsewhere.build())
        with refused(hf.UsageError, "odd", "'count'", fix="odd(count: "):
            await engine.start(odd)  # type: ignore[call-overload]
        with refused(hf.PayloadRefused, "odd", "'count'"):
            await engine.start("odd", "many")
        with refused(hf.DagError, "odd", "7, a int", fix="DagBuilder"):
            await engine.start("odd", 7)


def test_a_template_that_would_wait_is_refused_where_it_is_written() -> None:
    with refused(hf.UsageError, "nightly", "async def", fix="before the start"):

        @hf.dag_template(registry=hf.Registry())
        async def nightly() -> None: ...  # type: ignore[arg-type]


async def test_i25_fields_of_the_wrong_type_are_refused_when_a_class_is_started_by_name(url: str, world: World) -> None:
    class Order(hf.Dag, registry=world.registry):
        number: int

        @hf.step
        async def validate(self) -> None: ...

    async with world.engine(url) as engine, nothing_changed(engine):
        for given, named in [({"number": "x"}, "'number'"), ({}, "'number'"), ({"number": 1, "nmber": 1}, "'nmber'")]:
            with refused(hf.UsageError, "Order", named):
                await engine.start("Order", given)


async def test_i12_a_key_used_with_another_graph_conflicts(url: str, world: World) -> None:
    async with world.engine(url) as engine:
        handle = await engine.start(world.builder().build(), key="may", paused=True)
        larger = world.builder()
        larger.node("third", job=world.stumble)
        async with nothing_changed(engine):
            assert (await engine.start(world.builder().build(), key="may")).id == handle.id
            with refused(hf.KeyConflict, "may", handle.id):
                await engine.start(larger.build(), key="may")


# -- what a node says about itself


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), "soon", True])
async def test_a_node_that_asks_for_an_impossible_delay_fails_with_what_to_write(world: World, after: Any) -> None:
    @hf.action(registry=world.registry)
    async def again() -> None:
        hf.current().reattempt(after=after)

    async with world.engine("memory://") as engine, engine.worker():
        with pytest.raises(hf.RunFailed) as failed:
            await engine.run(again, timeout=DEADLINE_SECONDS)
        with refused(hf.UsageError, "again", f"after={after!r}", fix="seconds"):
            assert failed.value.__cause__ is not None
            raise failed.value.__cause__
