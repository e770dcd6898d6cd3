"""The plan of a completion as pure functions of graph and rows, without any store: I17 to I23."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.authoring.flows import Flow
from holdfast.core.codec_failure import ErrorRecord
from holdfast.core.errors import UnknownNode, UsageError
from holdfast.models.flow_plan import (
    Completion,
    FrontierNode,
    InboxRead,
    InboxWrite,
    ReadinessIncrement,
    Release,
    analyse_subgraph,
    plan_completion,
    plan_start,
)
from tests.flows.actions import ShippingError, TruckBroke, add, double, fail_if, numbers, ship
from tests.flows.plans import Rows, compiled, plan, plan_failure, reached
from tests.flows.programs import function_of
from tests.flows.simulator import Failed, Overflow, Simulation, Stale

# --- analysis ----------------------------------------------------------------------------------------------------


async def branching(n: int) -> int:
    a = await add(n)
    b = a + 1
    if b > 3:
        c = await double(b)
    else:
        c = 0
    return c + n


def test_i17_the_analysis_finds_inline_nodes_and_the_frontier_whatever_the_values_are() -> None:
    made = compiled(branching)
    found = analyse_subgraph(made.graph, "add")
    assert found.inline_nodes == ("set_b", "if", "set_c", "return")
    assert found.frontier_nodes == (FrontierNode("double", "action", 1), FrontierNode("output", "output", 1))
    assert found.all_node_ids == {"set_b", "if", "set_c", "return", "double", "output"}
    assert found.inbox_reads == (InboxRead("add", "n"),)


def test_i17_an_address_with_a_pass_is_analysed_like_its_node_and_reads_its_own_inbox() -> None:
    async def looping(items: list[int]) -> int:
        total = 0
        for x in items:
            local = await add(x)
            total += await double(local) + local
        return total

    found = analyse_subgraph(compiled(looping).graph, "double@4")
    assert InboxRead("double@4", "local") in found.inbox_reads
    assert InboxRead("double", "total") in found.inbox_reads
    assert InboxRead("double", "$items", is_sequence=True) in found.inbox_reads


def test_i17_a_node_that_the_version_does_not_have_is_named() -> None:
    with pytest.raises(UnknownNode, match="flow branching has no node 'nowhere'"):
        analyse_subgraph(compiled(branching).graph, "nowhere")


# --- counts ------------------------------------------------------------------------------------------------------


def test_i17_every_frontier_node_has_an_explicit_count_and_the_join_of_branches_requires_one() -> None:
    async def joined(n: int) -> int:
        if n > 2:
            x = await add(n)
        elif n > 1:
            x = await add(n, 2)
        else:
            x = 0
        return await double(x)

    graph = compiled(joined).graph
    assert {node.id: node.required for node in graph.nodes if node.is_frontier} == {
        "add": 1, "add_2": 1, "double": 1, "output": 1,
    }  # fmt: skip
    assert len([edge for edge in graph.order if edge.target == "double"]) == 3


def test_i17_loop_back_and_exception_edges_do_not_count() -> None:
    async def looping(n: int) -> int:
        while n > 0:
            try:
                n = await add(n, -1)
            except ValueError:
                n = await double(0)
        return n

    graph = compiled(looping).graph
    assert {node.required for node in graph.nodes if node.is_frontier} == {1}


def test_i17_a_barrier_requires_its_concurrent_branches() -> None:
    async def gathering(n: int) -> list[int]:
        return await asyncio.gather(add(n), double(n), add(n, 2))

    async def spreading(n: int) -> list[int]:
        return await asyncio.gather(*[add(i) for i in range(n)])

    assert compiled(gathering).graph.node("gather").required == 3
    assert compiled(spreading).graph.node("gather").required is None


def test_i17_a_guard_that_raises_raises_at_its_line_and_no_else_is_taken() -> None:
    async def guarded(data: dict[str, int]) -> str:
        await add(1)
        if data["missing"] > 1:
            return "then"
        return "else"

    made = compiled(guarded)
    ended = plan(made, "add", 1, data={}).instance_completion
    assert ended is not None
    assert (ended.status, ended.node_id) == ("failed", "if")
    assert ended.failure is not None
    assert (ended.failure.type, ended.failure.message) == ("KeyError", "'missing'")
    assert f"line {made.graph.node('if').line}" in ended.failure.traceback


# --- the plan ----------------------------------------------------------------------------------------------------


def test_i17_a_plan_has_the_completion_its_writes_its_counts_and_the_end() -> None:
    made = compiled(branching)
    onward = plan(made, "add", 3, n=9)
    assert (onward.completed_node_id, onward.delivery_token, onward.success, onward.result) == ("add", 7, True, 3)
    (step,) = onward.readiness_increments
    assert (step.node_id, step.category, step.required_count, step.increment) == ("double", "action", 1, 1)
    assert step.call is not None
    assert (step.call.name, step.call.args) == ("double", (4,))
    assert onward.instance_completion is None
    ended = plan(made, "add", 1, n=9)
    assert reached(ended) == ["output"]
    assert ended.instance_completion is not None
    assert (ended.instance_completion.status, ended.instance_completion.result) == ("completed", 9)


def test_i19_a_value_goes_to_every_node_that_may_read_it_however_far_ahead() -> None:
    async def far(n: int) -> int:
        a = await add(n)
        b = await add(a)
        c = await add(b)
        return a + c

    made = compiled(far)
    writes = {(write.target, write.variable) for write in plan(made, "add", 5).inbox_writes}
    assert writes == {("add_3", "a")}


def test_i19_a_fresh_value_comes_before_a_stored_one() -> None:
    async def twice(n: int) -> int:
        x = await add(n)
        x = await add(x)
        return x

    made = compiled(twice)
    ended = plan(made, "add_2", 20, x=1).instance_completion
    assert ended is not None
    assert ended.result == 20


def test_i19_a_missing_argument_is_named_when_the_run_is_started() -> None:
    made = compiled(branching)
    with pytest.raises(UsageError, match="started without its input 'n'"):
        plan_start(made.graph, {}, made.environment)
    with pytest.raises(UsageError, match="no parameter 'm'"):
        plan_start(made.graph, {"n": 1, "m": 2}, made.environment)


def test_i19_a_row_that_is_missing_fails_the_run_and_is_named() -> None:
    """Not an exception of the workflow: no handler may mistake lost data for Python's UnboundLocalError."""

    async def careful(n: int) -> int:
        try:
            x = await add(n)
            return x + n
        except Exception:
            return 0

    ended = plan(compiled(careful), "add", 1).instance_completion
    assert ended is not None
    assert ended.status == "failed"
    assert ended.failure is not None
    assert ended.failure.type == "RunError"
    assert "needs 'n'" in ended.failure.message


def test_i19_the_inbox_may_say_that_it_must_be_loaded_first() -> None:
    class NotLoaded(Exception):
        pass

    class Later(Rows):
        def read(self, target: str, variable: str, index: int | None) -> Any:
            raise NotLoaded(variable)

    async def catches_everything(n: int) -> int:
        try:
            x = await add(n)
            return x + n
        except Exception:
            return 0

    made = compiled(catches_everything)
    with pytest.raises(NotLoaded, match="n"):
        plan_completion(made.graph, Completion(node_id="add", value=1), Later(), made.environment)


# --- loops -------------------------------------------------------------------------------------------------------


async def nested(n: int) -> int:
    total = 0
    for i in range(n):
        for j in range(n):
            total += await add(i, j)
        await double(total)
    return total


def test_i18_nodes_of_loops_carry_the_pass_of_every_loop() -> None:
    simulation = Simulation(compiled(nested), 3)
    assert asyncio.run(simulation.run(2)) == 4
    assert simulation.addresses == [
        "add@0.0", "add@0.1", "double@0", "add@1.0", "add@1.1", "double@1", "output",
    ]  # fmt: skip


def test_i18_every_loop_begins_with_pass_zero() -> None:
    async def one_after_the_other(n: int) -> int:
        while n < 3:
            n = await add(n)
        while n < 5:
            n = await double(n)
        return n

    simulation = Simulation(compiled(one_after_the_other))
    asyncio.run(simulation.run(1))
    assert simulation.addresses == ["add@0", "add@1", "double@0", "output"]


def test_i18_a_plan_releases_the_pass_that_is_over_and_the_loop_that_was_left() -> None:
    simulation = Simulation(compiled(nested), 3)
    asyncio.run(simulation.run(2))
    assert [made.released for made in simulation.plans] == [
        (),
        (Release(("add",), (0, 0)),),
        (Release(("add",), (0,)),),
        (Release(("add", "double"), (0,)),),
        (Release(("add",), (1, 0)),),
        (Release(("add",), (1,)),),
        (),
    ]


def test_i18_a_long_loop_stores_no_more_than_a_short_one() -> None:
    async def counting(n: int) -> int:
        total = 0
        for i in range(n):
            local = await add(i)
            await double(local)
            total += local
        return total

    made = compiled(counting)
    sizes = []
    for n in (20, 60):
        simulation = Simulation(made, n)
        asyncio.run(simulation.run(n))
        sizes.append(simulation.most_rows)
    assert sizes[0] == sizes[1]


def test_i18_values_that_nobody_came_to_read_are_not_written_for_a_pass_that_is_over() -> None:
    async def seldom(n: int) -> int:
        total = 0
        for i in range(n):
            x = await add(i)
            y = x * 2
            if y > 1000:
                await double(y)
                total += y
        return total

    simulation = Simulation(compiled(seldom))
    asyncio.run(simulation.run(30))
    assert not [key for key in simulation.rows.inbox if "@" in key[0]]


def test_i18_a_pass_reads_one_chunk_of_the_items_and_not_all_of_them() -> None:
    async def walking(items: list[int]) -> int:
        total = 0
        for x in items:
            total += await add(x)
        return total

    made = compiled(walking)
    first = plan_start(made.graph, {"items": list(range(150))}, made.environment)
    rows = [write for write in first.inbox_writes if write.variable == "$items"]
    assert [(row.index, row.value if row.index == -1 else len(row.value)) for row in rows] == [
        (-1, 150), (0, 64), (1, 64), (2, 22),
    ]  # fmt: skip

    class Chunks(Rows):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[int | None] = []

        def read(self, target: str, variable: str, index: int | None) -> Any:
            if variable == "$items":
                self.asked.append(index)
                return 150 if index == -1 else rows[(index or 0) + 1].value
            return 0

    inbox = Chunks()
    onward = plan_completion(made.graph, Completion(node_id="add@100", value=1), inbox, made.environment)
    assert inbox.asked == [-1, 1]
    assert onward.readiness_increments[0].node_id == "add@101"
    assert onward.readiness_increments[0].call is not None
    assert onward.readiness_increments[0].call.args == (101,)


def test_i18_values_of_one_pass_and_values_carried_on_have_different_places() -> None:
    async def carrying(n: int) -> int:
        kept = 0
        for i in range(n):
            here = await add(i)
            await double(here)
            kept = kept + here
        return kept

    graph = compiled(carrying).graph
    assert graph.inbox_of("double") == {"$items": 0, "here": 1, "kept": 0}


def test_i18_a_loop_without_actions_is_bounded_and_no_handler_hides_it() -> None:
    async def endless(n: int) -> int:
        await add(n)
        try:
            while True:
                n += 1
        except Exception:
            return 0

    simulation = Simulation(compiled(endless), max_passes=500)
    with pytest.raises(Failed, match="ran 500 passes without an action"):
        asyncio.run(simulation.run(1))


# --- gathers -----------------------------------------------------------------------------------------------------


async def spreading(n: int) -> list[int]:
    items = await numbers(n)
    return await asyncio.gather(double(100), *[add(i, n) for i in items])


def test_i20_the_barrier_and_all_elements_are_one_plan() -> None:
    made = compiled(spreading)
    forked = plan(made, "numbers", [5, 6], n=2)
    assert reached(forked) == ["double", "add[0]", "add[1]", "gather"]
    assert [each.increment for each in forked.readiness_increments] == [1, 1, 1, 0]
    assert forked.readiness_increments[-1] == ReadinessIncrement("gather", "barrier", 3, 0)


def test_i20_an_empty_spread_fills_its_barrier_at_once() -> None:
    async def empty(n: int) -> list[int]:
        return await asyncio.gather(*[add(i) for i in range(n)])

    made = compiled(empty)
    started = plan_start(made.graph, {"n": 0}, made.environment)
    assert started.readiness_increments == (ReadinessIncrement("gather", "barrier", 0, 0),)
    ended = plan(made, "gather", add=[]).instance_completion
    assert ended is not None
    assert ended.result == []


def test_i20_an_element_that_ends_in_whatever_way_is_a_value_of_the_barrier_and_counts_once() -> None:
    made = compiled(spreading)
    good = plan(made, "add[1]", 8)
    assert good.inbox_writes == (InboxWrite("gather", "add", 8, "add[1]", 1),)
    assert good.readiness_increments == (ReadinessIncrement("gather", "barrier", None),)
    bad = plan_failure(made, "add[0]", ValueError("no"))
    assert (bad.success, bad.instance_completion) == (False, None)
    assert reached(bad) == ["gather"]


def test_i20_elements_in_loops_have_passes_and_an_index() -> None:
    async def looping(n: int) -> int:
        total = 0
        for i in range(2):
            for _ in range(2):
                total += sum(await asyncio.gather(*[add(i, j) for j in range(n)]))
        return total

    simulation = Simulation(compiled(looping), 5)
    asyncio.run(simulation.run(2))
    assert {"add@1.0[0]", "add@1.0[1]", "gather@1.0", "gather@0.1"} <= set(simulation.addresses)


def test_i20_the_failure_with_the_lowest_index_is_raised_at_the_gathering_line() -> None:
    async def catching(n: int) -> str:
        try:
            await asyncio.gather(*[fail_if(i) for i in range(n)])
        except KeyError as e:
            return str(e)
        return "none"

    made = compiled(catching)
    failures = [plan_failure(made, f"fail_if[{i}]", KeyError(i)).inbox_writes[0].value for i in (2, 1)]
    ended = plan(made, "gather", fail_if=[0, failures[1], failures[0]]).instance_completion
    assert ended is not None
    assert ended.result == "1"


# --- exceptions --------------------------------------------------------------------------------------------------


async def handling(order: str) -> str:
    try:
        return await ship(order)
    except TruckBroke as e:
        return f"broke: {e}"
    except ShippingError:
        await double(1)
        return "other"


def test_i21_a_failure_is_a_plan_like_any_other_along_other_edges() -> None:
    made = compiled(handling)
    broke = plan_failure(made, "ship", TruckBroke("axle"))
    assert (broke.success, broke.completed_node_id) == (False, "ship")
    assert broke.instance_completion is not None
    assert broke.instance_completion.result == "broke: axle"
    other = plan_failure(made, "ship", ShippingError("x"))
    assert reached(other) == ["double"]


def test_i21_types_match_through_the_names_of_their_bases_without_the_class() -> None:
    made = compiled(handling)
    record = ErrorRecord(
        type="Unknown",
        qualified="elsewhere.Unknown",
        message="?",
        bases=("tests.flows.actions.ShippingError", "builtins.Exception"),
    )
    completion = Completion(node_id="ship", failure=record)
    taken = plan_completion(made.graph, completion, Rows(), made.environment)
    assert reached(taken) == ["double"]


def test_i21_a_main_program_and_its_module_name_the_same_class() -> None:
    made = compiled(handling)
    record = ErrorRecord(type="TruckBroke", qualified="__main__.TruckBroke", message="axle")
    completion = Completion(node_id="ship", failure=record)
    taken = plan_completion(made.graph, completion, Rows(), made.environment)
    assert taken.instance_completion is not None
    assert taken.instance_completion.result == "broke: axle"


def test_i21_a_failure_that_no_handler_takes_ends_the_run() -> None:
    ended = plan_failure(compiled(handling), "ship", ValueError("no")).instance_completion
    assert ended is not None
    assert ended.status == "failed"
    assert ended.failure is not None
    assert (ended.failure.type, ended.failure.message) == ("ValueError", "no")


# --- rows --------------------------------------------------------------------------------------------------------


def test_i23_a_completion_with_an_old_token_changes_nothing() -> None:
    simulation = Simulation(compiled(branching))
    simulation.start(5)
    with pytest.raises(Stale):
        simulation.complete(Completion(node_id="add", delivery_token=99, value=1))


def test_i23_one_predecessor_too_many_undoes_that_completion_only() -> None:
    """A barrier that was counted by hand overflows with its last element, and nothing of that element stays."""

    async def two(n: int) -> list[int]:
        return await asyncio.gather(add(n), double(n))

    simulation = Simulation(compiled(two))
    simulation.start(1)
    from dataclasses import replace

    barrier = simulation.rows.work["gather"]
    simulation.rows.work["gather"] = replace(barrier, completed=2, status="ready")
    before = (dict(simulation.rows.work), dict(simulation.rows.inbox))
    token = simulation.rows.work["add"].token
    with pytest.raises(Overflow, match="gather"):
        simulation.complete(Completion(node_id="add", delivery_token=token, value=1))
    assert before == (simulation.rows.work, simulation.rows.inbox)


def test_i23_a_plan_can_be_made_again_and_is_the_same() -> None:
    async def changing(n: int) -> list[int]:
        rows = await numbers(n)
        rows.append(1)
        await double(1)
        rows.append(2)
        await double(2)
        return rows

    made = compiled(changing)
    stored = {"rows": [0, 1]}
    first = plan(made, "double", 2, **stored)
    assert first == plan(made, "double", 2, **stored)
    assert stored == {"rows": [0, 1]}
    assert first.inbox_writes[0].value == [0, 1, 2]


def test_i17_log_lines_are_part_of_the_plan() -> None:
    from tests.flows.corpus_calls import logs

    made = compiled(logs)
    (line,) = plan(made, "add", 3).log_lines[:1]
    assert (line.logger, line.level, line.args) == ("tests.flows", "warning", ("got %s", 3))


@pytest.mark.parametrize(
    ("call", "seconds"),
    [
        ("asyncio.sleep(n)", 2.0),
        ("asyncio.sleep(delay=n + 1)", 3.0),
        ("asyncio.sleep(-5)", 0.0),
        ("hf.sleep(n)", 2.0),
        ("hf.sleep(timedelta(minutes=n))", 120.0),
        ("hf.sleep(hours=1, seconds=n)", 3602.0),
    ],
)
def test_i17_a_sleep_is_a_timer_with_its_seconds(call: str, seconds: float) -> None:
    made = sleeping(call)
    (step,) = plan_start(made.graph, {"n": 2}, made.environment).readiness_increments
    assert (step.node_id, step.category) == ("sleep", "timer")
    assert step.call is not None
    assert (step.call.args, step.call.kwargs) == ((seconds,), {})


@pytest.mark.parametrize(
    ("call", "error"),
    [('asyncio.sleep("x")', "TypeError"), ("hf.sleep(-1)", "UsageError"), ("hf.sleep(1, seconds=2)", "UsageError")],
)
def test_i22_a_time_that_is_none_is_an_exception_at_the_line_of_the_sleep(call: str, error: str) -> None:
    made = sleeping(call)
    ended = plan_start(made.graph, {"n": 2}, made.environment).instance_completion
    assert ended is not None
    assert ended.failure is not None
    assert ended.failure.type == error


def sleeping(call: str) -> Flow[..., Any]:
    imports = "import holdfast as hf\nfrom datetime import timedelta\n"
    return compiled(function_of(f"{imports}async def program(n):\n    await {call}\n    return n\n"))


@pytest.mark.parametrize("line", ["return x + await double(2)", "x += await double(2)", "return [x, await double(2)]"])
def test_i22_what_stands_left_of_an_await_raises_before_anything_is_called(line: str) -> None:
    text = f"async def program(flag):\n    if flag:\n        x = 1\n    {line}\n"
    simulation = Simulation(compiled(function_of(text)))
    with pytest.raises(Failed, match="UnboundLocalError"):
        asyncio.run(simulation.run(False))
    assert simulation.addresses == []
