"""The server as a whole: health, numbers, a store that goes away, mounting, and a socket of its own."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.errors import StoreUnavailable, UsageError
from holdfast.store.memory import MemoryStore
from holdfast.web import create_app, serve
from holdfast.web.metrics import _labels
from tests.web.client import API, Client
from tests.web.world import TOKENS, populated, registry, world


async def test_health_needs_no_store_and_readiness_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that answers is alive; one whose store does not answer gets no requests until it does."""

    class Away(MemoryStore):
        away = False

        async def rows(self, need: Any) -> list[Any]:
            self._check()
            return await super().rows(need)

        async def list_runs(self, ask: Any) -> list[Any]:
            self._check()
            return await super().list_runs(ask)

        def _check(self) -> None:
            if self.away:
                raise StoreUnavailable("the database is gone")

    async with hf.Engine("memory://", registry=registry) as plain:
        store = Away(plain.system.clock)
    async with hf.Engine("memory://", registry=registry, store=store) as engine:
        client = Client(create_app(engine))
        assert (await client.get("/readyz")).status == 200
        store.away = True
        assert (await client.get("/healthz")).status == 200
        refused = await client.get("/readyz")
        assert refused.status == 503
        assert "gone" not in refused.error["message"]
        listed = await client.get(f"{API}/runs")
        assert (listed.status, listed.error["type"]) == (503, "StoreUnavailable")
        assert listed.headers["retry-after"]
        store.away = False
        assert (await client.get("/readyz")).status == 200
        assert (await client.get(f"{API}/runs")).status == 200


async def test_a_database_that_is_restarted_is_found_again(postgres: Any) -> None:
    """503 while it is away, and answers when it is back, without a restart of ours."""
    url = postgres.create_database("web_restarts")
    async with hf.Engine(url, registry=registry, store_timeout_seconds=2.0) as engine:
        client = Client(create_app(engine))
        assert (await client.get(f"{API}/runs")).status == 200
        postgres.stop()
        try:
            assert (await client.get(f"{API}/runs")).status == 503
            assert (await client.get("/readyz")).status == 503
            assert (await client.get("/healthz")).status == 200
        finally:
            postgres.start()
        statuses = [(await client.get(f"{API}/runs")).status for _ in range(5)]
        assert statuses[-1] == 200


async def test_what_nobody_expected_says_nothing_about_itself(caplog: pytest.LogCaptureFixture) -> None:
    """A traceback is for the log of the server, not for whoever asked."""

    class Damaged(MemoryStore):
        async def list_runs(self, ask: Any) -> list[Any]:
            raise ZeroDivisionError("canary of the inside")

    async with hf.Engine("memory://", registry=registry) as plain:
        store = Damaged(plain.system.clock)
    async with hf.Engine("memory://", registry=registry, store=store) as engine:
        answer = await Client(create_app(engine)).get(f"{API}/runs")
        assert (answer.status, answer.error["type"]) == (500, "InternalError")
        assert b"canary" not in answer.body
        assert "canary of the inside" in caplog.text


async def test_numbers_are_in_the_form_that_prometheus_reads(store_url: str) -> None:
    """Every line is a comment or a sample, and what matters is among them."""
    async with populated(store_url) as here:
        await here.client.get(f"{API}/nothing")
        text = (await here.client.get("/metrics")).body.decode()
        sample = re.compile(r'holdfast_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? -?\d+(\.\d+)?(e[+-]?\d+)?')
        for line in text.splitlines():
            assert line.startswith("# ") or sample.fullmatch(line), line
        assert 'holdfast_runs{status="paused"} 2' in text
        assert 'holdfast_queue_delayed{queue="default"}' in text
        assert "holdfast_workers 1" in text
        assert 'holdfast_http_requests_total{method="GET",route="none",status="404"} 1' in text


async def test_methods_that_nobody_knows_are_counted_as_one() -> None:
    """Whoever asks without a token must not be able to fill the memory."""
    async with world("memory://") as here:
        for number in range(30):
            await here.client.request(f"MADE-UP-{number}", "/healthz")
        counted = here.client.app.state.holdfast.requests.counted
        assert [(method, count) for (method, *_), count in counted.items()] == [("OTHER", 30)]


def test_labels_of_numbers_cannot_break_out_of_their_quotes() -> None:
    """A queue may have any name."""
    assert _labels({"queue": 'a"b\\c\nd'}) == '{queue="a\\"b\\\\c\\nd"}'


async def test_the_application_can_be_mounted_into_another_one() -> None:
    """Under a prefix, with an engine that its owner opened; addresses and cookies follow."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    async with hf.Engine("memory://", registry=registry) as engine:
        inner = create_app(engine, tokens=TOKENS, allowed_hosts=["shop.example"])
        outer = Starlette(routes=[Mount("/ops", app=inner)])
        client = Client(outer, {"host": "shop.example"})
        assert (await client.get("/ops/healthz")).status == 200
        assert (await client.get(f"/ops{API}/me")).status == 401
        assert (await client.with_token("read-token").get(f"/ops{API}/me")).json()["role"] == "read"
        opened = await client.post("/ops/session", {"token": "read-token"})
        assert "Path=/ops" in opened.headers["set-cookie"]
        document = (await client.with_token("read-token").get("/ops/openapi.json")).json()
        assert document["servers"] == [{"url": "/ops"}]
        page = await client.get("/ops/")
        assert page.status == 200
        await inner.state.holdfast.close()


async def test_an_engine_that_nobody_has_opened_is_told_as_what_is_not_ready() -> None:
    """The store would answer, if somebody had asked it."""
    client = Client(create_app(hf.Engine("memory://", registry=registry)))
    refused = await client.get("/readyz")
    assert (refused.status, refused.error["message"]) == (503, "the engine is not open")


async def test_an_engine_of_ones_own_is_opened_at_the_first_request(sqlite_url: str) -> None:
    """Also where no lifespan is run, as in a mounted application; a database that is not there is not made."""
    app = create_app(sqlite_url)
    refused = await Client(app).get(f"{API}/runs")
    assert refused.status == 400
    assert "no database" in refused.error["message"]
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()
    async with hf.Engine(sqlite_url, registry=registry) as engine:
        await engine.start("add", 1)
    answers = await asyncio.gather(*(Client(app).get(f"{API}/runs") for _ in range(5)))
    assert [len(answer.json()["runs"]) for answer in answers] == [1] * 5
    await app.state.holdfast.close()


async def test_a_server_listens_on_this_machine_and_stops_with_open_streams(sqlite_url: str) -> None:
    """A real socket: a request, a stream, and a stop that does not wait for the stream."""
    async with hf.Engine(sqlite_url, registry=registry) as engine:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        task = asyncio.create_task(serve(engine, port=0, ready=address.set_result, stop=stop))
        url = await asyncio.wait_for(address, 10)
        assert url.startswith("http://127.0.0.1:")
        port = int(url.rstrip("/").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {API}/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"retry: 2000"), 10)
        assert b"200 OK" in head
        assert b"\r\nserver:" not in head.lower()
        stop.set()
        await asyncio.wait_for(task, 3)
        await asyncio.wait_for(reader.read(), 3)
        writer.close()
        # What was bound is free again.
        again: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(engine, port=port, ready=again.set_result))
        await asyncio.wait_for(again, 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])  # noqa: S104
async def test_another_address_is_refused_without_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is bound."""
    monkeypatch.delenv("HOLDFAST_UI_TOKEN", raising=False)
    with pytest.raises(UsageError, match="no token"):
        await serve("memory://", host=host, port=0)


async def test_a_token_is_read_from_a_file(tmp_path: Path) -> None:
    """So that it is in no list of processes."""
    file = tmp_path / "token"
    file.write_text("of-a-file-token\n")
    async with hf.Engine("memory://", registry=registry) as engine:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(engine, host="0.0.0.0", port=0, token_file=file, ready=address.set_result))  # noqa: S104
        port = (await asyncio.wait_for(address, 10)).rstrip("/").rpartition(":")[2]

        async def status(token: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            lines = [f"GET {API}/me HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}", "Connection: close"]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            return answer.split(b"\r\n")[0]

        assert b"200" in await status("of-a-file-token")
        assert b"401" in await status("of-another-token")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    file.write_text("")
    with pytest.raises(UsageError, match="is empty"):
        await serve("memory://", token_file=file)
    with pytest.raises(UsageError, match="cannot be read"):
        await serve("memory://", token_file=tmp_path / "none")
