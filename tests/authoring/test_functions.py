"""Workflows: what decorating refuses, what a call means where, and how one is started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

import holdfast as hf
from holdfast.authoring.context import entered, stand_in_context
from holdfast.authoring.function_calls import ActionCall, ChildCall
from holdfast.authoring.startable import resolve_start
from tests.authoring.recorded_run import RecordedRun, inside

registry = hf.Registry()
done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@dataclass
class Order:
    id: int


@hf.action(registry=registry, timeout=30)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@hf.action(registry=registry)
async def greet_twice(name: str) -> str:
    return await greet(name) + await greet(name)


@hf.action(registry=registry)
def undo(what: str) -> None:
    done.append(what)


@hf.action(registry=registry)
async def fail_to_undo() -> None:
    raise OSError("gone")


@hf.workflow(registry=registry)
async def hello(name: str) -> str:
    """Greet somebody."""
    return await greet(name) + " Welcome back."


@hf.workflow(registry=registry, name="check-out", aliases=("checkout", "buy"), queue="orders")
async def check_out(order: Order, *, gift: bool = False) -> str:
    return f"{order.id} {gift}"


# --- decorating


def plain(name: str) -> None: ...


async def items() -> AsyncIterator[int]:
    yield 1


class Class:
    async def method(self) -> None: ...

    @classmethod
    async def of_class(cls) -> None: ...


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (plain, "workflow plain is a plain def.*make it an async def"),
        (items, "items is a generator"),
        (Class.method, "Class.method is a method.*function of its module"),
        (Class.__dict__["of_class"], "a classmethod"),
        (Class, "@hf.workflow was given .*Class.*decorate a function"),
        (lambda: 1, "plain def"),
        (3, "@hf.workflow was given 3, a int"),
        (greet, "greet, which is an action already"),
        (hello, "hello, which is a workflow already"),
    ],
)
def test_what_cannot_be_a_workflow_is_refused_when_it_is_decorated(given: Any, says: str) -> None:
    with pytest.raises(hf.UsageError, match=says):
        hf.workflow(registry=hf.Registry())(given)


def test_a_workflow_looks_like_its_function_and_has_its_name() -> None:
    assert (hello.__name__, hello.__doc__, hello.name, hello.queue) == ("hello", "Greet somebody.", "hello", None)
    assert "workflow hello" in repr(hello)
    assert (check_out.name, check_out.queue) == ("check-out", "orders")
    assert registry.workflow("buy") is check_out


def test_i15_a_second_workflow_under_a_name_names_both_places() -> None:
    async def greet_again() -> None: ...

    with pytest.raises(hf.UsageError, match=r"'greet' is defined twice: by action .*:greet .* and by workflow .*again"):
        hf.workflow(registry=registry, name="greet")(greet_again)


def test_options_give_another_queue_and_nothing_else() -> None:
    assert hello.options(queue="slow").queue == "slow"
    assert check_out.options(queue=None).queue is None
    assert hello.queue is None
    with pytest.raises(hf.UsageError, match=r"no option 'timeout'.*belong to actions"):
        hello.options(timeout=5)  # type: ignore[arg-type]
    with pytest.raises(hf.UsageError, match="the queue of workflow hello is empty"):
        hello.options(queue="")


def test_bind_refuses_wrong_arguments_and_shows_the_signature() -> None:
    assert dict(hello.bind(name="Ada").kwargs) == {"name": "Ada"}
    with pytest.raises(hf.UsageError, match=r"hello\(name: 'str'\)"):
        hello.bind(nme="Ada")  # type: ignore[call-arg]


# --- starting


def test_i12_a_start_has_the_input_as_bytes_and_a_digest_of_it() -> None:
    spec = resolve_start(check_out.bind(Order(1), gift=True), (), registry)
    assert (spec.workflow, spec.model, spec.source, spec.on_failure) == ("check-out", "function", "function", "fail")
    assert (spec.graph, spec.queue, spec.document) == (None, "orders", b"")
    assert check_out.call.decode_call(spec.input) == ((Order(1),), {"gift": True})
    assert (
        resolve_start(hello, ("Ada",), registry).input_digest == resolve_start("hello", ("Ada",), registry).input_digest
    )
    assert (
        resolve_start(hello, ("Ada",), registry).input_digest != resolve_start(hello, ("Bob",), registry).input_digest
    )
    assert resolve_start(hello.options(queue="slow"), ("Ada",), registry).queue == "slow"


@pytest.mark.parametrize(
    ("start", "kind", "says"),
    [
        (lambda: resolve_start(hello, (), registry), hf.UsageError, r"cannot be called like this.*hello\(name"),
        (lambda: resolve_start(hello, (7,), registry), hf.PayloadRefused, "'name' of workflow hello"),
        (lambda: resolve_start(hello, ("Ada",), hf.Registry()), hf.UnknownWorkflow, "'hello' is not in this engine's"),
        (
            lambda: resolve_start(hello.bind("Ada"), ("Bob",), registry),
            hf.UsageError,
            "workflow hello was bound to its arguments and started with 1 more",
        ),
        (
            lambda: resolve_start(hello("Ada"), (), registry),
            hf.UsageError,
            "workflow hello was called already.*engine.start",
        ),
        (lambda: resolve_start(hello.fn, ("Ada",), registry), hf.UsageError, "hello is a plain function.*@hf.workflow"),
    ],
)
def test_a_wrong_start_is_refused(start: Callable[[], Any], kind: type[hf.HoldfastError], says: str) -> None:
    with pytest.raises(kind, match=says):
        start()


# --- calling


async def test_inside_a_workflow_an_action_is_a_request_and_is_not_run() -> None:
    """I49: what is called is recorded first, so that a replay finds it."""
    run = RecordedRun(registry, answer=lambda request: f"recorded for {request.args[0]}")
    with inside(run):
        assert await hello.fn("Ada") == "recorded for Ada Welcome back."
        assert await greet.options(timeout=5, queue="slow")("Bob") == "recorded for Bob"
    first, second = run.requests
    assert isinstance(first, ActionCall)
    assert (first.kind, first.name, first.args, first.action.policy.timeout_seconds) == (
        "action",
        "greet",
        ("Ada",),
        30,
    )
    assert (second.name, second.action.policy.timeout_seconds, second.action.policy.queue) == ("greet", 5, "slow")


async def test_an_action_called_by_an_action_is_part_of_it_also_in_the_process_of_a_workflow() -> None:
    """The context of the action wins: two requests with one place in the history would be recorded for it otherwise."""
    run = RecordedRun(registry)
    with inside(run), entered(stand_in_context("greet_twice")):
        assert await greet_twice("Ada") == "Hello, Ada!Hello, Ada!"
    assert run.requests == []


async def test_code_of_a_workflow_is_recorded_although_an_action_opened_the_engine() -> None:
    """Tasks inherit the context of whoever started them, and it would make every call a direct one."""
    run = RecordedRun(registry)
    with entered(stand_in_context("opener")), inside(run):
        await greet("Ada")
    assert [request.name for request in run.requests] == ["greet"]


async def test_inside_a_workflow_another_one_is_a_child_run() -> None:
    run = RecordedRun(registry, answer=lambda request: "bought")
    with inside(run):
        assert await check_out(Order(1)) == "bought"
        await check_out.options(queue="slow")(Order(1), gift=True)
    first, second = run.requests
    assert isinstance(first, ChildCall)
    assert (first.name, first.awaits, first.detached, first.queue) == ("check-out", True, False, "orders")
    assert resolve_start(first.startable, first.args, registry).input_digest == first.input_digest
    assert resolve_start(second.startable, second.args, registry).input_digest == second.input_digest
    assert second.queue == "slow"
    assert first.digest() != second.digest()


async def test_a_child_with_an_argument_that_cannot_be_stored_is_refused_at_the_call() -> None:
    run = RecordedRun(registry)
    with inside(run), pytest.raises(hf.PayloadRefused, match="'order' of workflow check-out"):
        check_out({"id": 1})  # type: ignore[arg-type,unused-coroutine]
    assert run.requests == []


async def test_a_workflow_called_inside_an_action_is_refused() -> None:
    """Nothing of it would be recorded, and it would look durable."""

    @hf.action(registry=hf.Registry())
    async def calls_a_workflow() -> str:
        return await hello("Ada")

    with pytest.raises(hf.UsageError, match=r"workflow hello was called inside calls_a_workflow.*engine.start"):
        await calls_a_workflow()


# --- plain asyncio


async def test_outside_a_run_a_workflow_is_plain_asyncio() -> None:
    @hf.workflow(registry=registry)
    async def plainly(name: str) -> list[Any]:
        await hf.sleep(seconds=0)
        both = await asyncio.gather(greet(name), hello(name))
        return [*both, await hf.side_effect(lambda: 7), hf.patched("new"), hf.current().workflow_name]

    hello_ada = "Hello, Ada!"
    assert await plainly("Ada") == [hello_ada, f"{hello_ada} Welcome back.", 7, True, "plainly"]


async def test_outside_a_run_rollbacks_run_in_reverse_when_the_workflow_fails() -> None:
    @hf.workflow(registry=registry)
    async def books(fails: bool) -> None:
        hf.on_rollback(undo, "flight")
        hf.on_rollback(fail_to_undo)
        hf.on_rollback(undo.bind(what="hotel"))
        if fails:
            raise LookupError("no car")

    await books(False)
    assert done == []
    with pytest.raises(LookupError, match="no car") as failure:
        await books(True)
    assert done == ["hotel", "flight"]
    assert failure.value.__notes__ == ["its rollback fail_to_undo failed: OSError: gone"]


async def test_outside_a_run_continue_as_goes_on_with_the_new_arguments() -> None:
    @hf.workflow(registry=registry)
    async def counts(n: int, seen: list[int]) -> list[int]:
        if n:
            try:
                hf.continue_as(counts, n - 1, [*seen, n])
            except Exception:  # no error, so that this does not catch it
                return []
        return seen

    assert await counts(3, []) == [3, 2, 1]


async def test_outside_a_run_what_needs_an_engine_is_refused_with_the_way_to_one() -> None:
    @hf.workflow(registry=registry)
    async def tries(which: str) -> None:
        match which:
            case "wait":
                await hf.wait_for("approved")
            case "send":
                await hf.send("approved", to="run-2")
            case "broadcast":
                await hf.broadcast("approved")
            case "execute":
                await hf.execute("order", 1)
            case _:
                await hf.start_child(hello, "Ada")

    for which in ("wait", "send", "broadcast", "execute", "child"):
        with pytest.raises(hf.UsageError, match=r"outside a run.*engine.start") as refused:
            await tries(which)
        assert which in refused.value.message


async def test_a_plain_call_that_is_closed_puts_nothing_into_another_context() -> None:
    """A coroutine may be closed by whoever finds it, in a context that is not its own."""

    @hf.workflow(registry=registry)
    async def waits() -> None:
        hf.on_rollback(undo, "nothing")
        await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    coroutine = task.get_coro()
    assert coroutine is not None
    coroutine.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert done == []


# --- what the code knows of itself


async def test_the_context_of_a_workflow_names_its_run_and_is_silent_in_a_replay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was logged before the crash is not logged again."""
    run = RecordedRun(registry)
    with inside(run), caplog.at_level(logging.INFO, "holdfast.workflows"):
        context = hf.current()
        assert (context.run_id, context.workflow_name, context.attempt) == ("run-1", "onboard", 1)
        context.logger.info("live")
        run.replaying = True
        context.logger.info("again")
        hf.current().logger.error("and again")
    assert [record.message for record in caplog.records] == ["live"]
    assert vars(caplog.records[0])["run"] == "run-1"


async def test_the_code_of_a_workflow_is_no_node_that_could_be_skipped() -> None:
    with inside(RecordedRun(registry)):
        for verb in ("skip", "pause", "cancel", "reattempt", "finish"):
            with pytest.raises(hf.UsageError, match=r"onboard said what should become of a node.*in an action"):
                getattr(hf.current(), verb)()


async def test_i10_outside_a_run_what_was_registered_before_continue_as_is_undone_too() -> None:
    """A plain call does what the run would do."""
    registry, undone = hf.Registry(), list[int]()

    @hf.action(registry=registry)
    async def undo(number: int) -> None:
        undone.append(number)

    @hf.workflow(registry=registry)
    async def books(left: int) -> None:
        hf.on_rollback(undo, left)
        if left:
            hf.continue_as(books, left - 1)
        raise LookupError("no room")

    with pytest.raises(LookupError):
        await books(2)
    assert undone == [0, 1, 2]
