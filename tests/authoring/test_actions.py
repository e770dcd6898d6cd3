"""Actions: how they are called, what their decoration refuses, how options and bind behave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from holdfast.authoring.actions import Action, action
from holdfast.authoring.context import Context, NodeInfo, current, entered
from holdfast.authoring.registry import Registry
from holdfast.core.errors import PayloadRefused, PayloadTooLarge, UsageError
from holdfast.core.retry import Retry

registry = Registry()


@action(registry=registry)
async def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


@action(registry=registry, timeout=30, queue="payments", retry=Retry(attempts=3))
def thread_name(wanted: str = "") -> str:
    return wanted or threading.current_thread().name


@action(registry=registry)
async def whoami() -> Context:
    return current()


@action(registry=registry)
def whoami_in_a_thread() -> Context:
    return current()


@action(registry=registry)
async def whoami_through_another() -> tuple[Context, Context]:
    return current(), await whoami()


@action(registry=registry, transactional=True)
async def debit() -> object:
    return current().tx


@action(registry=registry, isolation="process")
def crunch() -> int:
    return 1


def running(**more: Any) -> Context:
    return Context(
        run_id="r1", workflow_name="w", node=NodeInfo(id="n", name="outer", attempt=1), idempotency_key="k", **more
    )


async def test_calling_gives_a_coroutine_for_async_and_plain_functions() -> None:
    for call in (greet("Ada"), thread_name("t")):
        assert asyncio.iscoroutine(call)
        await call
    assert await greet("Ada") == "Hello, Ada!"


async def test_a_plain_function_runs_in_a_thread() -> None:
    assert await thread_name() != threading.current_thread().name


async def test_outside_a_run_an_action_gets_a_stand_in_context() -> None:
    assert (await whoami()).node.name == "whoami"
    assert (await whoami_in_a_thread()).node.name == "whoami_in_a_thread"
    with pytest.raises(UsageError):
        current()


async def test_inside_another_action_it_runs_as_part_of_that() -> None:
    outer, inner = await whoami_through_another()
    assert (inner.run_id, inner.workflow_name, inner.node) == (outer.run_id, outer.workflow_name, outer.node)
    tx: Any = object()
    with entered(running(tx=tx, worker="w1")) as context:
        for seen in (await whoami(), await whoami_in_a_thread()):
            assert (seen.run_id, seen.node, seen.worker) == ("r1", context.node, "w1")
            assert seen.tx is tx


async def test_i13_inside_another_action_it_has_an_idempotency_key_of_its_own() -> None:
    outer, inner = await whoami_through_another()
    assert inner.idempotency_key == f"{outer.idempotency_key}/whoami#1"
    with entered(running()):
        calls = [await whoami(), await whoami_in_a_thread(), await whoami()]
    assert [seen.idempotency_key for seen in calls] == ["k/whoami#1", "k/whoami_in_a_thread#1", "k/whoami#2"]


def test_fn_is_the_plain_function_and_the_wrapper_looks_like_it() -> None:
    assert thread_name.fn("x") == "x"
    assert (greet.__name__, greet.__doc__, greet.name) == ("greet", "Say hello.", "greet")
    assert greet.is_async
    assert not thread_name.is_async
    assert "greet" in repr(greet)


def test_options_override_for_one_call_and_leave_the_action_alone() -> None:
    quick = thread_name.options(timeout=5, queue=None)
    assert (quick.policy.timeout_seconds, quick.policy.queue, quick.policy.retry.attempts) == (5.0, None, 3)
    assert (thread_name.policy.timeout_seconds, thread_name.policy.queue) == (30.0, "payments")
    assert thread_name.options(timeout=None).policy.timeout_seconds is None
    assert quick.name == "thread_name"
    assert registry.action("thread_name") is thread_name


async def test_a_copy_with_options_is_called_like_the_action() -> None:
    assert await greet.options(timeout=5)("Ada") == "Hello, Ada!"


def test_an_unknown_option_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'timeout'"):
        greet.options(timout=5)  # type: ignore[arg-type]


def test_i3_bad_policies_are_refused_at_decoration_with_the_value() -> None:
    with pytest.raises(UsageError, match=r"timeout=-1 of action .*refused"):

        @action(registry=Registry(), timeout=-1)
        async def refused() -> None: ...

    with pytest.raises(UsageError, match="retry=3"):
        action(registry=Registry(), retry=3)(greet.fn)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="queue"):
        action(registry=Registry(), queue="")(greet.fn)


def test_i4_an_action_runs_once_without_timeout_by_default() -> None:
    assert greet.policy.retry.attempts == 1
    assert greet.policy.timeout_seconds is None
    assert greet.policy.queue is None


def test_bind_checks_the_arguments_and_shows_the_signature() -> None:
    bound = greet.bind(name="Ada")
    assert (bound.target, bound.args, dict(bound.kwargs)) == (greet, (), {"name": "Ada"})
    with pytest.raises(UsageError, match=r"greet\(name: 'str'\)"):
        greet.bind(nme="Ada")  # type: ignore[call-arg]


def test_arguments_and_results_go_through_the_codec() -> None:
    assert greet.call.decode_call(greet.call.encode_call(("Ada",), {})) in ((("Ada",), {}), ((), {"name": "Ada"}))
    assert greet.call is greet.options(timeout=1).call


def test_annotations_may_name_what_is_defined_later() -> None:
    assert later.call.encode_result([Later(1)])


@action(registry=registry)
async def later() -> list[Later]:
    return []


@dataclass
class Later:
    number: int


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Shop:
    def sell(self) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        (Shop, "a type"),
        (greet, "is an action already"),
        (len, "builtin"),
        (Shop.sell, "is a method"),
        (staticmethod(generator), "staticmethod"),
    ],
)
def test_what_is_no_plain_function_is_refused_at_decoration(wrong: Callable[..., Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        action(registry=Registry())(wrong)


def test_process_isolation_is_for_plain_functions_that_can_be_imported() -> None:
    assert crunch.isolation == "process"

    async def on_the_loop() -> None: ...
    def nested() -> None: ...

    with pytest.raises(UsageError, match="async def with isolation='process'"):
        action(registry=Registry(), isolation="process")(on_the_loop)
    with pytest.raises(UsageError, match="nested in a function"):
        action(registry=Registry(), isolation="process")(nested)
    with pytest.raises(UsageError, match="lambda"):
        action(registry=Registry(), isolation="process", name="l")(lambda: None)
    with pytest.raises(UsageError, match="isolation='fibre'"):
        action(registry=Registry(), isolation="fibre")(nested)  # type: ignore[call-overload]


def test_a_transactional_plain_function_is_refused() -> None:
    with pytest.raises(UsageError, match="make it an async def"):

        @action(registry=Registry(), transactional=True)
        def debit_in_a_thread() -> None: ...


async def test_g3_a_transactional_action_never_runs_without_its_transaction() -> None:
    with pytest.raises(UsageError, match="outside a run"):
        await debit()
    with entered(running()), pytest.raises(UsageError, match="inside outer, which has no transaction"):
        await debit()
    tx: Any = object()
    with entered(running(tx=tx)):
        assert await debit() is tx


def test_the_bare_decorator_registers_process_wide() -> None:
    @action
    async def tests_bare_decorator() -> None: ...

    assert isinstance(tests_bare_decorator, Action)
    assert tests_bare_decorator.name == "tests_bare_decorator"


# --- arguments by name, for documents ----------------------------------------------------------------------------


@action(registry=registry)
async def typed(day: date, level: int = 1, *, tags: tuple[str, ...] = ()) -> None: ...


@action(registry=registry)
async def untyped(a, b=2, **more): ...  # type: ignore[no-untyped-def]


def test_arguments_by_name_decode_to_the_same_values_as_a_call() -> None:
    args = {"tags": ("x",), "day": date(2031, 5, 4)}
    data = typed.encode_keywords(args)
    assert data == b'[[],{"day":"2031-05-04","tags":["x"]}]'
    assert typed.call.decode_call(data, "json") == ((), args)
    data = untyped.encode_keywords({"z": [1.0], "a": 1})
    assert data == b'[[],{"a":1,"z":[1.0]}]'
    assert untyped.call.decode_call(data, "json") == ((), {"a": 1, "z": [1.0]})
    assert greet.call.decode_call(greet.encode_keywords({"name": "Ada"}) or b"", "json") == ((), {"name": "Ada"})


def test_arguments_by_name_have_one_form_whatever_their_order() -> None:
    assert untyped.encode_keywords({"y": 1, "b": 2, "a": 3}) == untyped.encode_keywords({"a": 3, "b": 2, "y": 1})
    assert untyped.encode_keywords({"a": 3, "x": 1}) != untyped.encode_keywords({"a": 3, "y": 1})


def test_no_arguments_by_name_are_none() -> None:
    assert thread_name.encode_keywords({}) is None


def test_arguments_by_name_are_refused_like_those_of_a_call() -> None:
    with pytest.raises(UsageError, match="action greet cannot be called like this"):
        greet.encode_keywords({"nam": "Ada"})
    with pytest.raises(UsageError, match="action greet cannot be called like this"):
        greet.encode_keywords({})
    with pytest.raises(PayloadRefused, match="argument 'level' of action typed"):
        typed.encode_keywords({"day": date(2031, 5, 4), "level": "x"})
    with pytest.raises(PayloadRefused, match=r"argument 'a' of action untyped: .* is a tuple"):
        untyped.encode_keywords({"a": (1,)})
    with pytest.raises(PayloadTooLarge, match="over the limit of 5"):
        greet.encode_keywords({"name": "Ada"}, limit=5)


def test_a_function_with_no_end_of_names_does_not_fill_the_memory() -> None:
    for number in range(600):
        untyped.encode_keywords({"a": 1, f"x{number}": 1})
    assert len(untyped._orders) <= 256
