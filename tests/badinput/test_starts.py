"""Calls that cannot be meant are refused on every store, before a row is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypedDict

import pytest

import holdfast as hf
from tests.badinput.checks import DEADLINE_SECONDS, nothing_written, refused

registry = hf.Registry()


@hf.action(registry=registry)
async def echo(value: Any) -> Any:
    return value


@hf.action(registry=registry)
async def count(upto: int) -> int:
    return upto


@hf.action(registry=registry)
async def stumble(value: int) -> None:
    raise ValueError("stumbled")


@hf.action(registry=registry, isolation="process")
def inflate(size: int) -> str:
    return "x" * size


class Parcel(hf.Dag, registry=registry):
    weight: int

    @hf.step
    async def pack(self) -> None: ...

    @hf.step
    async def ship(self) -> None: ...


def engine(url: str, **settings: Any) -> hf.Engine:
    return hf.Engine(url, registry=registry, **({"poll_seconds": 0.05} | settings))


NOT_STARTABLE: list[tuple[Callable[[], Any], type[hf.HoldfastError], str, str]] = [
    (lambda: "parcle", hf.UnknownWorkflow, "'parcle'", "import the module"),
    (lambda: "ecko", hf.UnknownWorkflow, "'ecko'", "did you mean 'echo'"),
    (lambda: Parcel, hf.UsageError, "Parcel", "Parcel(weight=…)"),
    (lambda: echo("x"), hf.UsageError, "echo", "action.bind"),
    (lambda: echo.fn, hf.UsageError, "echo", "@hf.action"),
    (lambda: hf.Dag, hf.DagError, "hf.Dag", "subclass"),
    (lambda: 7, hf.UsageError, "7", "action"),
    (lambda: None, hf.UsageError, "None", "action"),
]


@pytest.mark.parametrize(("thing", "kind", "named", "fix"), NOT_STARTABLE)
async def test_what_cannot_be_started_is_refused_with_what_can(
    thing: Callable[[], Any], kind: type[hf.HoldfastError], named: str, fix: str
) -> None:
    async with engine("memory://") as opened, nothing_written(opened):
        with refused(kind, named, fix=fix):
            await opened.start(thing())


class Basket(TypedDict, total=False):
    xs: list[int]


basket = hf.StateGraph(Basket, name="basket", registry=registry)
basket.node(name="count")(lambda state: None)
basket.start_at("count")
basket.finish("count")


@pytest.mark.parametrize(
    ("thing", "given", "fix"),
    [
        (echo, {"priorty": 1}, "did you mean 'priority'? known: 'at', "),
        (echo, {"value": 1}, "for keywords start echo.bind(value=…)"),
        (echo, {"countdown": 3}, "known: 'at', 'if_exists', "),
        (echo, {"timeout": 3}, "its own options are given before: start(echo.options(timeout=…), …)"),
        (basket, {"xs": []}, 'a state graph is started with its state: start(graph, {"xs": …})'),
        (basket, {"kye": "k"}, "did you mean 'key'?"),
        ("echo", {"value": 1}, "are not given as keywords of start; of its options known: 'at', "),
    ],
)
async def test_a_keyword_that_start_does_not_have_is_refused_with_what_fits(thing: Any, given: Any, fix: str) -> None:
    async with engine("memory://") as opened, nothing_written(opened):
        with refused(hf.UsageError, f"start has no option {next(iter(given))}", fix=fix):
            await opened.start(thing, **given)


async def test_an_action_of_another_registry_is_refused() -> None:
    """No worker of this engine could ever run it."""

    @hf.action(registry=hf.Registry())
    async def stranger() -> None: ...

    async with engine("memory://") as opened, nothing_written(opened):
        with refused(hf.UnknownWorkflow, "stranger", fix="registry="):
            await opened.start(stranger)


@pytest.mark.parametrize(
    ("arguments", "kind", "named"),
    [((), hf.UsageError, "upto"), ((1, 2), hf.UsageError, "count"), (("many",), hf.PayloadRefused, "'upto'")],
)
async def test_arguments_that_do_not_fit_the_signature_show_it(
    arguments: tuple[Any, ...], kind: type[hf.HoldfastError], named: str
) -> None:
    async with engine("memory://") as opened, nothing_written(opened):
        with refused(kind, named, "count"):
            await opened.start(count, *arguments)


BAD_OPTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"key": "k" * 10_000}, "key is 'kkkk", "255 bytes"),
    ({"key": "é" * 128}, "256 bytes", "255 bytes"),
    ({"key": ""}, "key is empty", "255 bytes"),
    ({"key": "a\nb"}, r"'a\nb'", "printable"),
    ({"key": "a\0b"}, r"'a\x00b'", "printable"),
    ({"key": "a\ud800"}, "key", "printable"),
    ({"key": 17}, "key is 17, a int", "text"),
    ({"queue": ""}, "queue", "text"),
    ({"queue": 7}, "queue is 7", "text"),
    ({"priority": 2**31}, str(2**31), "32 bits"),
    ({"priority": "1"}, "'1'", "integer"),
    ({"priority": True}, "True", "integer"),
    ({"tags": {"tenant": 7}}, "tag tenant is 7", "text"),
    ({"tags": {7: "acme"}}, "7", "text"),
    ({"tags": {"tenant": ""}}, "tag tenant", "text"),
    ({"tags": ["tenant"]}, "['tenant']", "tenant"),
    ({"tags": {str(n): "x" for n in range(101)}}, "101", "at most 100"),
    ({"at": datetime(2030, 1, 1)}, "datetime.datetime(2030, 1, 1", "aware"),
    ({"at": 1893456000}, "1893456000", "aware"),
    ({"paused": "no"}, "'no'", "True or False"),
    ({"if_exists": "replace"}, "'replace'", '"restart"'),
]


@pytest.mark.parametrize(("options", "named", "fix"), BAD_OPTIONS)
async def test_a_bad_option_of_start_is_refused_and_quoted(options: dict[str, Any], named: str, fix: str) -> None:
    async with engine("memory://") as opened, nothing_written(opened):
        with refused(hf.UsageError, named, fix=fix):
            await opened.start(echo, 1, **options)


async def test_i12_a_key_used_with_another_input_conflicts_whatever_the_status_of_its_run(url: str) -> None:
    """Pending, paused, completed, failed and cancelled: the key keeps its input."""
    async with engine(url) as opened:
        pending = await opened.start(count, 1, key="pending", queue="nobody")
        await opened.start(count, 1, key="paused", paused=True)
        await (await opened.start(count, 1, key="cancelled", paused=True)).cancel()
        async with opened.worker():
            await (await opened.start(count, 1, key="completed")).result(DEADLINE_SECONDS)
            failed = await opened.start(stumble, 1, key="failed")
            with pytest.raises(hf.RunFailed):
                await failed.result(DEADLINE_SECONDS)
        async with nothing_written(opened):
            for key in ("pending", "paused", "cancelled", "completed"):
                with refused(hf.KeyConflict, repr(key), "count"):
                    await opened.start(count, 2, key=key, queue="nobody")
            with refused(hf.KeyConflict, "'failed'", "stumble"):
                await opened.start(stumble, 2, key="failed")
            assert (await opened.start(count, 1, key="pending", queue="nobody")).id == pending.id


async def test_an_unknown_run_is_an_error_for_every_question_and_nobody_waits_for_it(url: str) -> None:
    async with engine(url) as opened, nothing_written(opened):
        nobody = opened.get("no-such-run")
        for ask in (
            *(nobody.status, nobody.result, nobody.cancel, nobody.pause, nobody.resume, nobody.retry),
            *(nobody.history, nobody.explain, nobody.waits, nobody.step_executions, nobody.nodes_with_state),
        ):
            with refused(hf.UnknownWorkflow, "no-such-run", fix="holdfast runs"):
                await ask()
        with refused(hf.UnknownWorkflow, "no-such-run"):
            await opened.replay_dead("no-such-run", "pack")
        with refused(hf.UnknownWorkflow, "no-such-run"):
            await nobody


@pytest.mark.parametrize("run_id", [7, None, "", "a\0b", "a\ud800"])
def test_a_run_id_that_cannot_be_one_is_refused(run_id: Any) -> None:
    with refused(hf.UsageError, "run id"):
        engine("memory://").get(run_id)


async def test_an_unknown_node_is_refused_with_its_run(url: str) -> None:
    async with engine(url) as opened:
        handle = await opened.start(Parcel(weight=1), paused=True)
        async with nothing_written(opened):
            with refused(hf.UnknownNode, handle.id, "'shp'"):
                await handle.skip("shp")
            with refused(hf.UnknownNode, handle.id, "'shp'"):
                await handle.reattempt("shp")
            with refused(hf.ReattemptRefused, handle.id, "pack"):
                await handle.reattempt("pack")
            with refused(hf.UsageError, handle.id):
                await handle.retry()


BAD_QUESTIONS: list[tuple[dict[str, Any], str]] = [
    ({"status": "done"}, "'done'"),
    ({"limit": 0}, "0"),
    ({"limit": "5"}, "'5'"),
    ({"tags": {"tenant": 7}}, "tenant"),
    ({"since": datetime(2030, 1, 1)}, "2030"),
    ({"workflow": 3}, "3"),
    ({"workflow": "a\0b"}, "workflow"),
    ({"after": "a\0b"}, "after"),
]


@pytest.mark.parametrize(("question", "named"), BAD_QUESTIONS)
async def test_a_bad_question_to_find_is_refused(question: dict[str, Any], named: str) -> None:
    async with engine("memory://") as opened:
        with refused(hf.UsageError, named):
            await opened.find(**question)


@pytest.mark.parametrize("age", [-1, math.nan, math.inf])
async def test_pruning_takes_an_age_and_nothing_else(age: float) -> None:
    async with engine("memory://") as opened:
        with refused(hf.UsageError, str(age)):
            await opened.prune(older_than_seconds=age)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": 1.5}, "concurrency is 1.5"),
        ({"concurrency": True}, "concurrency is True"),
        ({"queues": "default"}, "'default'"),
        ({"queues": []}, "empty"),
        ({"queues": [7]}, "7"),
    ],
)
async def test_a_worker_that_could_serve_nothing_is_refused(options: dict[str, Any], named: str) -> None:
    async with engine("memory://") as opened:
        with refused(hf.UsageError, named):
            opened.worker(**options)


@pytest.mark.parametrize("settings", [{}, {"payload_limit_bytes": 1000}])
async def test_i14_too_big_an_input_is_refused_with_both_sizes(settings: dict[str, Any]) -> None:
    """Also one byte over; and just under the limit it passes. For actions and for classes."""
    limit = settings.get("payload_limit_bytes", 2 * 1024 * 1024)
    room = limit - len(b'[[""],{}]')

    class Big(hf.Dag, registry=hf.Registry()):
        text: str

        @hf.step
        async def look(self) -> None: ...

    async with engine("memory://", **settings) as opened:
        async with nothing_written(opened):
            with refused(hf.PayloadTooLarge, "echo", f"{limit + 1:,}", f"{limit:,}", fix="payload_limit_bytes"):
                await opened.start(echo, "x" * (room + 1))
        await opened.start(echo, "x" * room)
    async with hf.Engine("memory://", registry=Big.__dag__.registry, **settings) as opened:
        async with nothing_written(opened):
            with refused(hf.PayloadTooLarge, "Big", f"{limit:,}", fix="payload_limit_bytes"):
                await opened.start(Big(text="x" * limit))
        await opened.start(Big(text="x" * (limit - len(b'{"text":""}'))))


async def test_i14_a_raised_limit_lets_larger_payloads_through_and_back() -> None:
    """The limit is the engine's: inputs, results and those of other processes."""
    text = "x" * 3_000_000
    async with engine("memory://", payload_limit_bytes=4_000_000) as opened, opened.worker():
        assert await opened.run(echo, text, timeout=DEADLINE_SECONDS) == text


async def test_i14_too_big_a_result_fails_its_run_and_the_worker_goes_on(url: str) -> None:
    mine = hf.Registry()

    @hf.action(registry=mine)
    async def swell(size: int) -> str:
        return "x" * size

    async with hf.Engine(url, registry=mine, payload_limit_bytes=1000) as opened, opened.worker():
        with pytest.raises(hf.RunFailed) as failed:
            await opened.run(swell, 1000, timeout=DEADLINE_SECONDS)
        cause = failed.value.__cause__
        assert isinstance(cause, hf.PayloadTooLarge)
        assert "swell" in cause.message
        assert "1,002" in cause.message
        assert await opened.run(swell, 10, timeout=DEADLINE_SECONDS) == "x" * 10


async def test_i14_the_limit_holds_for_results_of_other_processes() -> None:
    async with engine("memory://", payload_limit_bytes=1000) as opened, opened.worker():
        with pytest.raises(hf.RunFailed) as failed:
            await opened.run(inflate, 1000, timeout=DEADLINE_SECONDS)
        assert isinstance(failed.value.__cause__, hf.PayloadTooLarge)
        assert await opened.run(inflate, 10, timeout=DEADLINE_SECONDS) == "x" * 10


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


UNSTORABLE: list[tuple[Callable[[], Any], str]] = [
    (lambda: math.nan, "nan"),
    (lambda: {"a": [1.0, math.inf]}, "$.a[1]"),
    (lambda: ["a\ud800"], "lone surrogate"),
    (lambda: {"a\ud800": 1}, "lone surrogate"),
    (lambda: {"n": 2**63}, "64 bits"),
    (lambda: nested(101), "100 levels"),
    (lambda: nested(100_000), "100 levels"),
    (lambda: object(), "object"),
    (lambda: (1, 2), "tuple"),
    (lambda: {1: 2}, "key 1"),
    (lambda: b"bytes", "bytes"),
    (lambda: datetime.now(UTC), "datetime"),
]


@pytest.mark.parametrize(("make", "named"), UNSTORABLE)
async def test_i14_a_value_that_would_not_come_back_equal_is_refused_as_an_input(
    make: Callable[[], Any], named: str
) -> None:
    async with engine("memory://") as opened, nothing_written(opened):
        with refused(hf.PayloadRefused, "echo", "'value'", named):
            await opened.start(echo, make())


@pytest.mark.parametrize(("make", "named"), UNSTORABLE)
async def test_i14_a_value_that_would_not_come_back_equal_is_refused_as_a_result(
    make: Callable[[], Any], named: str
) -> None:
    """The run fails with the reason, and the worker goes on with other work."""
    mine = hf.Registry()

    @hf.action(registry=mine)
    async def produce(bad: bool) -> Any:
        return make() if bad else "fine"

    async with hf.Engine("memory://", registry=mine) as opened, opened.worker():
        with pytest.raises(hf.RunFailed) as failed:
            await opened.run(produce, True, timeout=DEADLINE_SECONDS)
        assert isinstance(failed.value.__cause__, hf.PayloadRefused)
        assert named in str(failed.value.__cause__)
        assert await opened.run(produce, False, timeout=DEADLINE_SECONDS) == "fine"


async def test_i14_odd_values_that_json_can_hold_come_back_as_they_were(url: str) -> None:
    odd = {
        "nul": "a\0b",
        "": "",
        "big": [2**63 - 1, -(2**63)],
        "deep": nested(99),
        "text": "é\u2028\U0001f600",
        "zero": -0.0,
    }
    async with engine(url) as opened, opened.worker():
        assert await opened.run(echo, odd, timeout=DEADLINE_SECONDS) == odd


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_transaction_of_the_callers_is_for_postgresql_only(store: str, sqlite_url: str) -> None:
    async with engine("memory://" if store == "memory" else sqlite_url) as opened, nothing_written(opened):
        with refused(hf.UsageError, "tx=", store):
            await opened.start(echo, 1, tx=object())


async def test_a_connection_without_an_open_transaction_is_refused_before_a_row_is_written(postgres_url: str) -> None:
    """Each statement would commit by itself, so a failure between two would leave half a run."""
    import asyncpg

    async with engine(postgres_url) as opened:
        connection = await asyncpg.connect(postgres_url)
        try:
            async with nothing_written(opened):
                with refused(hf.UsageError, "tx=", "no open transaction", fix="connection.transaction()"):
                    await opened.start(echo, 1, tx=connection)
                with refused(hf.UsageError, "tx=", "object", fix="asyncpg"):
                    await opened.start(echo, 1, tx=object())
            async with connection.transaction():
                handle = await opened.start(echo, 1, tx=connection)
                with refused(hf.UnknownWorkflow, handle.id, fix="commit"):
                    await handle.result(DEADLINE_SECONDS)
        finally:
            await connection.close()
        async with opened.worker():
            assert await handle.result(DEADLINE_SECONDS) == 1


async def test_a_transactional_action_never_runs_on_memory_and_the_error_says_where_it_works() -> None:
    mine, calls = hf.Registry(), []

    @hf.action(registry=mine, transactional=True, retry=hf.Retry(attempts=5, base=60.0))
    async def debit() -> int:
        calls.append("debit")
        return 1

    @hf.action(registry=mine)
    async def plain() -> int:
        return 2

    @hf.workflow(registry=mine)
    async def pay() -> int:
        return await debit()

    async with hf.Engine("memory://", registry=mine) as opened, opened.worker():
        for start in (debit, debit.bind(), "debit"):
            with refused(hf.UsageError, "debit", fix="SQLite"):
                await opened.start(start)
        assert await opened.find() == []
        with pytest.raises(hf.RunFailed, match="debit") as failed:
            await opened.run(pay, timeout=DEADLINE_SECONDS)
        cause = failed.value.__cause__
        assert isinstance(cause, hf.UsageError)
        assert "memory://" in cause.message
        assert "SQLite" in cause.hint
        assert await opened.run(plain, timeout=DEADLINE_SECONDS) == 2
    assert calls == []


async def test_maintenance_for_a_workflow_and_a_queue_at_once_is_refused() -> None:
    async with engine("memory://") as opened, nothing_written(opened):
        with refused(hf.UsageError, "workflow or a queue"):
            await opened.maintenance(True, workflow="echo", queue="default")
