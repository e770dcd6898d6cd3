"""What operators ask for, where it meets work that is blocked, running or has given up elsewhere in the run."""

from __future__ import annotations

from holdfast.core.operations import DiscardDead, FailWork, KillWork, RetryRun, SkipNode
from tests.kernel.kernels import claim_request, complete, opened_kernel, start
from tests.support.stores import Site, every_row


def fail(run: str, node: str) -> FailWork:
    return FailWork(run=run, node=node, attempt=1, token=1, error=b"{}")


async def test_i11_a_blocked_node_that_was_skipped_is_not_run_when_its_parents_finish(site: Site) -> None:
    """It satisfies its dependents at once, and stays skipped."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r", "join", lease=True))
        await coordinator.submit(complete("r", "x"))
        assert (await coordinator.submit(SkipNode(run="r", node="sum"))).changed
        await coordinator.submit_batch([complete("r", "y"), complete("r", "z")])
        status = {work.node: work.status for work in (await every_row(store))["work"]}
        assert status == {"x": "completed", "y": "completed", "z": "completed", "sum": "skipped", "after": "ready"}
        (handed,) = await store.claim(claim_request())
        assert handed.work.node == "after"
        assert (await coordinator.submit(complete("r", "after"))).run_status == "completed"


async def test_i1_skipping_a_blocked_node_of_a_failed_run_lets_the_run_go_on(site: Site) -> None:
    """An operator's skip leaves `failed`; what becomes ready belongs to a run that is running."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r", "join", lease=True, on_failure="fail"))
        results = await coordinator.submit_batch([complete("r", "x"), complete("r", "y"), fail("r", "z")])
        assert results[-1].run_status == "failed"
        assert (await coordinator.submit(SkipNode(run="r", node="sum"))).status == "running"
        (run,) = (await every_row(store))["runs"]
        assert (run.status, run.active, run.gave_up) == ("running", 1, 1)
        # The node that gave up still counts: when nothing else is left the run fails again, until it is retried.
        await store.claim(claim_request())
        assert (await coordinator.submit(complete("r", "after"))).run_status == "failed"
        assert (await coordinator.submit(RetryRun(run="r"))).nodes == ("z",)


async def test_i11_skipping_the_only_node_that_gave_up_clears_the_error(site: Site) -> None:
    """A run that completes in the end carries no error."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r", "chain", lease=True))
        assert (await coordinator.submit(fail("r", "a"))).run_status == "failed"
        await coordinator.submit(SkipNode(run="r", node="a"))
        (run,) = (await every_row(store))["runs"]
        assert (run.status, run.error, run.reason) == ("running", None, None)


async def test_g7_discarding_a_dead_letter_leaves_nothing_that_could_still_be_claimed(site: Site) -> None:
    """The run fails at once: siblings that are ready or leased are cancelled, and their outcomes are stale."""
    async with opened_kernel(site) as (coordinator, store):
        await coordinator.submit(start("r", "join", lease=True))
        await coordinator.submit(KillWork(run="r", node="x", attempt=1, token=1, error=b"{}"))
        assert (await coordinator.submit(DiscardDead(run="r", node="x"))).status == "failed"
        assert (await coordinator.submit(complete("r", "y"))).verdict == "stale"
        rows = await every_row(store)
        assert {work.status for work in rows["work"]} == {"cancelled"}
        assert [run.active for run in rows["runs"]] == [0]
        assert await store.claim(claim_request()) == []
