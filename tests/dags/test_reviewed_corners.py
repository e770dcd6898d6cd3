"""Corners that a second reader of the DAG code found broken: each was seen to fail before it was mended.

Most are played on the kernel alone, where one can stand between two operations; what people see, on an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.errors import DagError, UnknownNode
from holdfast.core.graph import Graph
from holdfast.core.operations import (
    CancelRun,
    CompleteWork,
    FailWork,
    KillWork,
    PauseRun,
    ReleaseWork,
    ReshapeRun,
    SkipNode,
    SteerWork,
)
from holdfast.core.rows import BLOCKED, CANCELLED, COMPLETED, FAILED, LEASED, PAUSED, READY, RUNNING, SKIPPED, Work
from tests.dags.deploy_kernel import ERROR, RUN, Deploys, at, graph, lapse
from tests.support.stores import KINDS, Site, VirtualClock, site_for
from tests.worker.support import assert_sound, engine_on, statuses, until


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    databases = request.getfixturevalue("databases") if request.param == "postgresql" else None
    with site_for(request.param, databases, tmp_path) as made:
        yield made


@asynccontextmanager
async def started(
    site: Site, first: Graph, on_failure: str = "pause"
) -> AsyncIterator[tuple[Deploys, dict[str, Work]]]:
    """A run whose entry points are leased, by node."""
    clock = VirtualClock()
    async with site.opened(clock) as store:
        deploys = Deploys(store, clock, first)
        await deploys.start(on_failure)
        yield deploys, {work.node: work for work in await deploys.claim(deploys.newest)}
        assert not (wrong := await deploys.wrong()), "\n".join(wrong)
        await deploys.close()


# --- a node that a deploy removed while it ran -----------------------------------------------------------------------


@pytest.mark.parametrize("end", ["lapse", "release", "retry", "fail", "kill", "reattempt"])
async def test_i31_a_node_that_was_removed_while_it_ran_counts_for_nothing_however_it_ends(
    site: Site, end: str
) -> None:
    """It is not tried again, which nobody could: the run would wait an hour for code that is gone, and then pause."""
    async with started(site, graph(a="", b="")) as (deploys, leased):
        after = deploys.deploy(graph(a=""))
        await deploys.say(after, ReshapeRun(run=RUN))
        await deploys.say(after, CompleteWork(**at(leased["a"])))
        assert (await deploys.run()).status == RUNNING, "b is let finish"
        ends = {
            "lapse": lapse(leased["b"]),
            "release": ReleaseWork(**at(leased["b"])),
            "retry": FailWork(**at(leased["b"]), error=ERROR, retryable=True, attempts=3),
            "fail": FailWork(**at(leased["b"]), error=ERROR),
            "kill": KillWork(**at(leased["b"]), error=ERROR),
            "reattempt": SteerWork(**at(leased["b"]), wish="reattempt"),
        }
        await deploys.say(after, ends[end])
        assert await deploys.states() == {"a": COMPLETED, "b": SKIPPED}
        run = await deploys.run()
        assert (run.status, run.gave_up, run.reason) == (COMPLETED, 0, None)


async def test_i31_a_removed_node_that_older_code_gives_back_is_left_to_the_newer(site: Site) -> None:
    """A worker of before the deploy cannot know that the node is gone. It says so, and who has the code drops it."""
    async with started(site, graph(a="", b="")) as (deploys, leased):
        before, after = deploys.newest, deploys.deploy(graph(a=""))
        await deploys.say(after, ReshapeRun(run=RUN))
        await deploys.say(after, CompleteWork(**at(leased["a"])))
        await deploys.say(before, ReleaseWork(**at(leased["b"])))
        run = await deploys.run()
        assert (run.status, run.signature) == (RUNNING, None)
        await deploys.say(after, ReshapeRun(run=RUN))
        assert (await deploys.run()).status == COMPLETED


async def test_i31_a_removed_node_is_taken_up_again_when_the_deploy_is_rolled_back(site: Site) -> None:
    async with started(site, graph(a="", b="")) as (deploys, leased):
        after = deploys.deploy(graph(a=""))
        await deploys.say(after, ReshapeRun(run=RUN))
        await deploys.say(after, lapse(leased["b"]))
        assert (await deploys.states())["b"] == SKIPPED
        again = deploys.deploy(graph(a="", b=""))
        await deploys.say(again, ReshapeRun(run=RUN))
        (b,) = await deploys.claim(again)
        assert (b.node, b.token) == ("b", leased["b"].token + 1)
        assert not (wrong := await deploys.wrong()), wrong


# --- a step that a deploy put before one that ran --------------------------------------------------------------------


@pytest.mark.parametrize("end", ["lapse", "release", "retry", "reattempt"])
async def test_g4_what_is_tried_again_waits_for_what_a_deploy_put_before_it(site: Site, end: str) -> None:
    """Also if it ran when the deploy came: only the attempt that had begun goes on without the new step."""
    async with started(site, graph(b="")) as (deploys, leased):
        after = deploys.deploy(graph(a="", b="a"))
        await deploys.say(after, ReshapeRun(run=RUN))
        ends = {
            "lapse": lapse(leased["b"]),
            "release": ReleaseWork(**at(leased["b"])),
            "retry": FailWork(**at(leased["b"]), error=ERROR, retryable=True, attempts=3),
            "reattempt": SteerWork(**at(leased["b"]), wish="reattempt"),
        }
        await deploys.say(after, ends[end])
        assert await deploys.states() == {"a": READY, "b": BLOCKED}
        assert not (wrong := await deploys.wrong()), wrong
        (a,) = await deploys.claim(after)
        await deploys.say(after, CompleteWork(**at(a)))
        (b,) = await deploys.claim(after)
        await deploys.say(after, CompleteWork(**at(b)))
        assert (await deploys.run()).status == COMPLETED


async def test_i17_a_retry_that_waits_anew_is_still_counted_right_after_the_next_deploy(site: Site) -> None:
    """The second deploy made it ready at once, and left its count at the first: the last parent could not complete."""
    async with started(site, graph(b="")) as (deploys, leased):
        await deploys.say(deploys.newest, lapse(leased["b"]))
        second = deploys.deploy(graph(a="", b="a"))
        await deploys.say(second, ReshapeRun(run=RUN))
        third = deploys.deploy(graph(a="", c="", b="ac"))
        await deploys.say(third, ReshapeRun(run=RUN))
        assert (await deploys.states())["b"] == BLOCKED
        assert not (wrong := await deploys.wrong()), wrong
        for work in await deploys.claim(third):
            await deploys.say(third, CompleteWork(**at(work)))
        (b,) = await deploys.claim(third)
        await deploys.say(third, CompleteWork(**at(b)))
        assert (await deploys.run()).status == COMPLETED


async def test_g9_a_run_is_not_left_running_when_its_last_attempt_waits_for_what_gave_up(site: Site) -> None:
    async with started(site, graph(b="")) as (deploys, leased):
        after = deploys.deploy(graph(a="", b="a"))
        await deploys.say(after, ReshapeRun(run=RUN))
        (a,) = await deploys.claim(after)
        await deploys.say(after, FailWork(**at(a), error=ERROR))
        await deploys.say(after, lapse(leased["b"]))
        run = await deploys.run()
        assert run.status == PAUSED
        assert run.reason is not None
        assert "node a gave up after 1 attempt" in run.reason


# --- nodes that wait for other runs ----------------------------------------------------------------------------------


async def waiting_for_another(deploys: Deploys, work: Work) -> None:
    await deploys.start_other("other")
    await deploys.say(deploys.newest, SteerWork(**at(work), wish="reattempt", after_runs=("other",)))
    assert [wait.address for wait in await deploys.waits()] == [work.node]


async def test_i55_a_deploy_does_not_start_a_node_that_waits_for_another_run(site: Site) -> None:
    async with started(site, graph(a="", b="")) as (deploys, leased):
        await waiting_for_another(deploys, leased["a"])
        after = deploys.deploy(graph(a="", b="", c="b"))
        await deploys.say(after, ReshapeRun(run=RUN))
        assert await deploys.states() == {"a": BLOCKED, "b": LEASED}
        await deploys.say(after, CancelRun(run="other"))
        assert await deploys.states() == {"a": READY, "b": LEASED}


async def test_i55_a_node_that_waits_for_another_run_and_for_a_new_parent_waits_for_both(site: Site) -> None:
    for run_first in (True, False):
        async with started(site, graph(b="")) as (deploys, leased):
            await waiting_for_another(deploys, leased["b"])
            after = deploys.deploy(graph(a="", b="a"))
            await deploys.say(after, ReshapeRun(run=RUN))
            (a,) = await deploys.claim(after)
            both = [CancelRun(run="other"), CompleteWork(**at(a))]
            await deploys.say(after, both[0 if run_first else 1])
            assert (await deploys.states())["b"] == BLOCKED
            await deploys.say(after, both[1 if run_first else 0])
            assert (await deploys.states())["b"] == READY
        site._memory.clear()
        if site.kind != "memory":
            break


async def test_g9_a_node_that_was_skipped_while_it_waited_for_another_run_holds_nothing_up(site: Site) -> None:
    """Its wait outlived it, and a run that waits for another one is never settled: it looked busy for ever."""
    async with started(site, graph(a="", b="")) as (deploys, leased):
        await waiting_for_another(deploys, leased["a"])
        await deploys.say(deploys.newest, SkipNode(run=RUN, node="a"))
        assert await deploys.waits() == []
        await deploys.say(deploys.newest, FailWork(**at(leased["b"]), error=ERROR))
        assert (await deploys.run()).status == PAUSED


async def test_g9_the_end_of_another_run_settles_a_run_that_it_cannot_move(site: Site) -> None:
    """What waited for it waits for a node that gave up as well."""
    async with started(site, graph(b="")) as (deploys, leased):
        await waiting_for_another(deploys, leased["b"])
        after = deploys.deploy(graph(a="", b="a"))
        await deploys.say(after, ReshapeRun(run=RUN))
        (a,) = await deploys.claim(after)
        await deploys.say(after, FailWork(**at(a), error=ERROR))
        assert (await deploys.run()).status == RUNNING
        await deploys.say(after, CancelRun(run="other"))
        assert (await deploys.run()).status == PAUSED


async def test_i55_a_run_that_finishes_early_waits_for_no_other(site: Site) -> None:
    async with started(site, graph(a="", b="")) as (deploys, leased):
        await waiting_for_another(deploys, leased["a"])
        await deploys.say(deploys.newest, SteerWork(**at(leased["b"]), wish="finish"))
        assert await deploys.waits() == []
        assert (await deploys.run()).status == COMPLETED


# --- reasons, letters, two editors -----------------------------------------------------------------------------------


async def test_g9_a_failed_run_says_why_also_after_another_of_its_nodes_was_skipped(site: Site) -> None:
    async with started(site, graph(a="", b="a"), "fail") as (deploys, leased):
        await deploys.say(deploys.newest, FailWork(**at(leased["a"]), error=ERROR))
        before = await deploys.run()
        await deploys.say(deploys.newest, SkipNode(run=RUN, node="b"))
        after = await deploys.run()
        assert (after.status, after.reason) == (FAILED, before.reason)


async def test_g9_a_paused_run_keeps_its_reason_when_a_node_is_skipped_for_failing(site: Site) -> None:
    async with started(site, graph(a="", b="a"), "skip") as (deploys, leased):
        await deploys.say(deploys.newest, PauseRun(run=RUN, by="Ada", reason="the warehouse is closed"))
        await deploys.say(deploys.newest, FailWork(**at(leased["a"]), error=ERROR))
        run = await deploys.run()
        assert (run.status, run.reason) == (PAUSED, "paused by Ada: the warehouse is closed")


@pytest.mark.parametrize("status", [FAILED, CANCELLED])
@pytest.mark.parametrize("paused_by", ["Ada", "node c"])
async def test_i30_a_run_that_was_paused_after_a_failure_ends_with_the_reason_of_the_failure(
    site: Site, status: str, paused_by: str
) -> None:
    on_failure = {FAILED: "fail", CANCELLED: "cancel"}[status]
    async with started(site, graph(a="", b="a", c=""), on_failure) as (deploys, leased):
        await deploys.say(deploys.newest, FailWork(**at(leased["a"]), error=ERROR))
        failure = (await deploys.run()).reason
        by_itself = paused_by == "node c"
        pause = SteerWork(**at(leased["c"]), wish="pause", reason="look")
        await deploys.say(deploys.newest, pause if by_itself else PauseRun(run=RUN, by="Ada", reason="look"))
        run = await deploys.run()
        assert (run.status, run.reason) == (PAUSED, f"paused by {paused_by}: look; {failure}")
        last = SkipNode(run=RUN, node="c") if by_itself else CompleteWork(**at(leased["c"]))
        await deploys.say(deploys.newest, last)
        run = await deploys.run()
        assert (run.status, run.reason) == (status, failure)


async def test_i30_of_two_failures_the_one_that_stands_is_told_at_the_end_of_a_paused_run(site: Site) -> None:
    async with started(site, graph(a="", b="", c=""), "fail") as (deploys, leased):
        await deploys.say(deploys.newest, FailWork(**at(leased["a"]), error=ERROR))
        await deploys.say(deploys.newest, FailWork(**at(leased["b"]), error=ERROR))
        await deploys.say(deploys.newest, PauseRun(run=RUN, by="Ada"))
        await deploys.say(deploys.newest, SkipNode(run=RUN, node="a"))
        run = await deploys.run()
        assert str(run.reason).startswith("paused by Ada; node b gave up after 1 attempt")
        await deploys.say(deploys.newest, CompleteWork(**at(leased["c"])))
        run = await deploys.run()
        assert run.status == FAILED
        assert str(run.reason).startswith("node b gave up after 1 attempt")


async def test_i30_a_pause_is_told_alone_when_what_had_failed_is_not_in_the_graph_any_more(site: Site) -> None:
    async with started(site, graph(a="", b="")) as (deploys, leased):
        await deploys.say(deploys.newest, FailWork(**at(leased["a"]), error=ERROR))
        await deploys.say(deploys.newest, PauseRun(run=RUN, by="Ada"))
        after = deploys.deploy(graph(b="", c="b"))
        await deploys.say(after, CompleteWork(**at(leased["b"])))
        run = await deploys.run()
        assert (run.status, run.gave_up, run.reason) == (PAUSED, 0, "paused by Ada")


async def test_g9_a_run_does_not_blame_a_node_that_its_graph_has_lost(site: Site) -> None:
    """a gave up, and a deploy removed it; when c gives up later, it is c that is told of."""
    async with started(site, graph(a="", b="", c="b")) as (deploys, leased):
        await deploys.say(deploys.newest, FailWork(**at(leased["a"]), error=ERROR))
        after = deploys.deploy(graph(b="", c="b"))
        await deploys.say(after, ReshapeRun(run=RUN))
        run = await deploys.run()
        assert (run.gave_up, run.error, run.reason) == (0, None, None)
        await deploys.say(after, CompleteWork(**at(leased["b"])))
        (c,) = await deploys.claim(after)
        await deploys.say(after, FailWork(**at(c), error=ERROR))
        assert str((await deploys.run()).reason).startswith("node c gave up after 1 attempt")


async def test_i30_of_two_nodes_that_gave_up_the_second_is_described_as_the_first_was(site: Site) -> None:
    """I30: its path and what it holds up, also when it is told of because the first was skipped."""
    async with started(site, graph(a="", b="", c="ab")) as (deploys, leased):
        for node in "ab":
            await deploys.say(deploys.newest, FailWork(**at(leased[node]), error=ERROR))
        assert str((await deploys.run()).reason).endswith("; 1 node blocked by it")
        await deploys.say(deploys.newest, SkipNode(run=RUN, node="a"))
        reason = str((await deploys.run()).reason)
        assert reason.startswith("node b gave up")
        assert reason.endswith("; 1 node blocked by it")


async def test_i9_a_run_that_finishes_early_leaves_no_dead_letter(site: Site) -> None:
    """Nobody could replay it: the run has completed."""
    async with started(site, graph(a="", b="")) as (deploys, leased):
        await deploys.say(deploys.newest, KillWork(**at(leased["a"]), error=ERROR))
        assert len(await deploys.store.dead(10)) == 1
        await deploys.say(deploys.newest, SteerWork(**at(leased["b"]), wish="finish"))
        assert await deploys.store.dead(10) == []


async def test_i31_of_two_people_who_edit_the_graph_of_a_failed_run_the_second_is_told(site: Site) -> None:
    async with started(site, graph(a="", b="a"), "fail") as (deploys, leased):
        exported = (await deploys.run()).signature
        await deploys.say(deploys.newest, FailWork(**at(leased["a"]), error=ERROR))
        mine = deploys.import_of(graph(a="", b="a", c="b"), exported)
        assert (await deploys.say(deploys.newest, mine)).changed
        assert not (await deploys.say(deploys.newest, mine)).changed, "K8"
        answer = await deploys.say(deploys.newest, deploys.import_of(graph(a="", b="a", d="b"), exported))
        assert isinstance(answer, DagError)
        assert "was changed since this document was exported" in answer.message


# --- what people see -------------------------------------------------------------------------------------------------


async def test_i31_a_run_is_shown_whole_after_somebody_without_its_code_skipped_a_node(shared_url: str) -> None:
    """Looking needs no code, also while it is not decided yet what follows."""
    registry = hf.Registry()

    class Order(hf.Dag, registry=registry):
        @hf.step
        async def charge(self) -> None:
            raise ValueError("no funds")

        @hf.step
        async def ship(self) -> None: ...

    async with engine_on(shared_url, registry) as engine, engine.worker():
        handle = await engine.start(Order())
        with pytest.raises(hf.RunPaused):
            await handle.result(timeout=10)
    async with engine_on(shared_url, hf.Registry()) as shell:
        looked_at = shell.get(handle.id)
        await looked_at.skip("charge")
        states = [(node.name, node.state) for node in await looked_at.nodes_with_state()]
        assert states == [("charge", "skipped"), ("ship", "pending")]
        with pytest.raises(UnknownNode, match="lacks the code of Order, which may have more nodes"):
            await looked_at.skip("ship")
    async with engine_on(shared_url, registry) as engine, engine.worker():
        await engine.get(handle.id).result(timeout=10)
        await assert_sound(engine)


async def test_i31_a_worker_stopped_during_a_deploy_does_not_leave_a_removed_step_behind(shared_url: str) -> None:
    """The whole way: the old worker runs a step, the new one has it no more, the old one is stopped before its end."""
    before, after, gate = hf.Registry(), hf.Registry(), asyncio.Event()

    class Yesterday(hf.Dag, registry=before, name="Order"):
        @hf.task
        async def audit(self) -> None:
            await gate.wait()

        @hf.task
        async def ship(self) -> None: ...

    class Today(hf.Dag, registry=after, name="Order"):
        @hf.task
        async def ship(self) -> None: ...

    async with engine_on(shared_url, before, shutdown_seconds=0.05) as old:
        async with old.worker():
            handle = await old.start(Yesterday())
            await until(lambda: _is_done(old, handle.id, "ship"), "the other step is done")
            async with engine_on(shared_url, after) as new, new.worker():
                pass  # it has seen to the run: the step is running, and counts for nothing
        gate.set()
    async with engine_on(shared_url, after) as new, new.worker():
        await new.get(handle.id).result(timeout=10)
        assert Today.compiled_dag().by_id.keys() == {"ship"}
        await assert_sound(new)


async def _is_done(engine: hf.Engine, run: str, node: str) -> bool:
    return await statuses(engine, run, node) == [COMPLETED]
