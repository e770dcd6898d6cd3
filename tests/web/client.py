"""A client that speaks to the application directly, without a socket: requests, and streams of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

API = "/api/v1"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, str]:
        error: dict[str, str] = self.json()["error"]
        return error


@dataclass(slots=True)
class Event:
    """A server-sent event."""

    id: str = ""
    name: str = ""
    data: Any = None


@dataclass(slots=True)
class Client:
    """Somebody who asks: with these headers, from this address."""

    app: Any
    headers: dict[str, str] = field(default_factory=dict)
    address: str = "127.0.0.1"
    root: str = ""

    def with_token(self, token: str | None) -> Client:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return Client(self.app, self.headers | headers, self.address, self.root)

    async def get(self, path: str, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        return await self.request("GET", path, headers=headers, query=query)

    async def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        sent = {"content-type": "application/json"} | dict(headers or {})
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return await self.request("POST", path, body=data, headers=sent)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Answer:
        started: dict[str, Any] = {}
        parts: list[bytes] = []
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if given:
                return given.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                parts.append(message.get("body", b""))

        await self.app(self._scope(method, path, headers, query), receive, send)
        return Answer(started["status"], _headers(started), b"".join(parts))

    @asynccontextmanager
    async def listening(self, path: str, headers: Mapping[str, str] | None = None, **query: Any) -> AsyncIterator[Ear]:
        """A stream of events, until the context ends: then the client is gone."""
        ear, gone = Ear(), asyncio.Event()
        asked = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if asked:
                return asked.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            ear.hear(message)

        task = asyncio.create_task(self.app(self._scope("GET", path, headers, query), receive, send))
        try:
            await asyncio.wait_for(ear.opened.wait(), 10)
            yield ear
        finally:
            gone.set()
            await asyncio.wait_for(task, 10)

    def _scope(
        self, method: str, path: str, headers: Mapping[str, str] | None, query: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        sent = {"host": "localhost"} | self.headers | dict(headers or {})
        raw, _, inline = path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": raw,
            "raw_path": quote(raw).encode(),
            "root_path": self.root,
            "query_string": (inline or urlencode(query or {}, doseq=True)).encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": (self.address, 40000),
            "server": ("localhost", 80),
            "state": {},
        }


class Ear:
    """What a stream has said so far."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.ended = asyncio.Event()
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.comments: asyncio.Queue[str] = asyncio.Queue()
        self.body = b""

    def hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], _headers(message)
            self.opened.set()
            return
        self.body += message.get("body", b"")
        if not message.get("more_body", False):
            self.ended.set()
        while b"\n\n" in self.body:
            block, _, self.body = self.body.partition(b"\n\n")
            self._read(block.decode())

    def _read(self, block: str) -> None:
        event = Event()
        for line in block.splitlines():
            name, _, value = line.partition(":")
            if name == "":
                self.comments.put_nowait(value.strip())
            elif name == "data":
                event.data = json.loads(value)
            elif name == "id":
                event.id = value.strip()
            elif name == "event":
                event.name = value.strip()
        if event.name:
            self.events.put_nowait(event)

    async def next(self, seconds: float = 10) -> Event:
        return await asyncio.wait_for(self.events.get(), seconds)


def _headers(message: Mapping[str, Any]) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
