"""The application: a Starlette app for one engine, alone or mounted into a user's own.

Every request goes the same way: is it for this host, is it from this origin, who is asking, may they, does what they
sent fit; then the handler of its route, and the answer without secrets. The order matters: nothing that was sent is
read before it is known who sent it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.errors import EngineClosed, HoldfastError, UsageError
from holdfast.engine import Engine
from holdfast.runtime.stores import sqlite_path
from holdfast.web import guards, openapi
from holdfast.web.access import Access, Caller, Role, is_loopback
from holdfast.web.answers import Done, Health
from holdfast.web.calls import Call
from holdfast.web.live import MOST_CLIENTS, Live
from holdfast.web.metrics import Requests, metrics_text
from holdfast.web.pages import File, Manifest
from holdfast.web.redaction import Redaction, redaction_of
from holdfast.web.refusals import ErrorAnswer, Refused, refusal_of
from holdfast.web.routes import ROUTES, Route

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route as StarletteRoute
except ImportError as error:  # an extra, since most processes are workers
    raise UsageError(
        f"the HTTP server needs a package that is not installed: {error.name}", hint="pip install 'holdfast[ui]'"
    ) from error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("holdfast.web")

TOKEN_VARIABLE: Final = "HOLDFAST_UI_TOKEN"
COOKIE: Final = "holdfast_session"
READY_SECONDS: Final = 2.0
WRONG_TOKENS: Final = 20  # different ones of one address in a minute
KEY_BYTES: Final = 255
NO_STORE: Final = {"cache-control": "no-store"}


def create_app(
    engine: Engine | str | None = None,
    *,
    token: str | None = None,
    tokens: Mapping[str, str | Role | Caller] | None = None,
    allowed_hosts: Iterable[str] | None = None,
    redact: Iterable[str] | bool | None = None,
    readonly: bool | str = False,
    most_clients: int = MOST_CLIENTS,
) -> Starlette:
    """The HTTP interface and the page for an engine, as an ASGI application.

    An `Engine` stays its owner's to open and close; of a URL one is opened at the first request, without changing its
    schema. `token` is an admin's; `tokens` maps tokens to roles (read, operate, admin) or to `Caller`s with names.
    Without any, the environment's HOLDFAST_UI_TOKEN counts, and without that one only this machine is let in, as an
    admin. `allowed_hosts` are the names that it is reached by. `redact` are patterns of names of fields whose values
    are hidden. `readonly` refuses all that changes anything; a text says why.
    """
    known: dict[str, str | Role | Caller] = dict(tokens or {})
    if token is not None:
        known[token] = Role.ADMIN
    if not known and os.environ.get(TOKEN_VARIABLE):
        known[os.environ[TOKEN_VARIABLE]] = Role.ADMIN
    hosts = frozenset(host.strip().strip("[]").lower() for host in (allowed_hosts or guards.LOOPBACK_HOSTS))
    if not known and any(host == guards.ANY_ADDRESS or not is_loopback(host) for host in hosts):
        raise UsageError(
            "the server would be reached from other machines, and everybody there could do everything",
            hint=f"give a token: token=…, tokens={{…}}, or {TOKEN_VARIABLE}; or allow loopback hosts only",
        )
    server = Server(
        engine,
        access=Access(known, now=time.monotonic),
        hosts=hosts,
        redaction=redaction_of(redact),
        readonly_reason=(readonly or None) if isinstance(readonly, str) else ("read-only" if readonly else None),
        most_clients=most_clients,
    )
    app = Starlette(routes=server.routes(), lifespan=server.lifespan, exception_handlers={HTTPException: _not_this_way})
    app.state.holdfast = server
    app.router.default = server.nothing_there
    app.router.redirect_slashes = False
    app.add_middleware(_Guarded, server=server)
    return app


class Server:
    """What the routes of one application share."""

    def __init__(
        self,
        engine: Engine | str | None,
        *,
        access: Access,
        hosts: Collection[str],
        redaction: Redaction,
        readonly_reason: str | None,
        most_clients: int,
    ) -> None:
        self._given = engine if isinstance(engine, Engine) else None
        self._url = None if isinstance(engine, Engine) else engine
        self._own: Engine | None = None
        self._opening = asyncio.Lock()
        self._heard_by: Engine | None = None
        self.access = access
        self.hosts = hosts
        self.redaction = redaction
        self.readonly_reason = readonly_reason
        self.requests = Requests()
        self.live = Live(self._open_engine, epoch=secrets.token_hex(4), most_clients=most_clients)
        self.manifest = Manifest()
        self._wrong: dict[str, dict[int, float]] = {}
        self._document: dict[str, bytes] = {}
        self._stopping: list[Callable[[], None]] = []

    # -- the engine

    def _open_engine(self) -> Engine:
        engine = self._given or self._own
        if engine is None:
            raise UsageError("the engine is not open yet", hint="ask again")
        return engine

    async def engine(self) -> Engine:
        """The engine, opened if it is ours and nobody has opened it."""
        if self._given is None and self._own is None:
            async with self._opening:
                if self._own is None:
                    self._own = await _opened(self._url)
        engine = self._open_engine()
        if self._heard_by is not engine or engine.coordinator is not self._observed:
            self._observed = engine.coordinator
            self._heard_by = engine
            engine.coordinator.observers.append(self.live.hint)
            engine.listeners.append(self.live.hint)
        return engine

    _observed: Any = None

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """A server that cannot reach its store still starts: it says so, and goes on when it can."""
        try:
            await self.engine()
        except HoldfastError as error:
            log.warning("the store cannot be reached yet: %s", error)
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """End live streams, and close the engine if it is ours."""
        await self.live.close()
        if self._heard_by is not None:
            for listeners in (self._heard_by.listeners, self._observed.observers):
                if self.live.hint in listeners:
                    listeners.remove(self.live.hint)
            self._heard_by = None
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    # -- routes

    def routes(self) -> list[StarletteRoute]:
        return [
            StarletteRoute(route.path, self._endpoint(route), methods=[route.method], name=route.name)
            for route in ROUTES
        ]

    def _endpoint(self, route: Route) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            request.scope["holdfast.route"] = route
            caller = self._authorised(request, route)
            if route.serves:
                own: Callable[[Request, Route, Caller | None], Any] = getattr(self, f"_{route.serves}")
                answer: Response = await own(request, route, caller)
                return answer
            return await self._handled(request, route, caller)

        return endpoint

    async def nothing_there(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What no route serves. Somebody who is not known is not even told that."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 4404})
            return
        request = Request(scope, receive)
        try:
            if self.known(request) is None:
                raise _unknown_caller()
            raise Refused(404, "NotFound", f"there is nothing at {request.url.path[:200]}", "see openapi.json")
        except Refused as refused:
            await _refusal(refused)(scope, receive, send)

    # -- who is asking

    def known(self, request: Request) -> Caller | None:
        """Who it is, by a token, by a session, or because the machine is theirs."""
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, token = header.partition(" ")
            return self._by_token(request, token.strip()) if scheme.lower() == "bearer" else None
        session = request.cookies.get(COOKIE)
        if session is not None and (found := self.access.by_session(session)) is not None:
            return found
        return self.access.by_address(request.client.host if request.client is not None else None)

    def _by_token(self, request: Request, token: str) -> Caller | None:
        """Who has this token. Guessing is slow: an address that gave many wrong ones waits, whatever it gives.

        Only different ones count: a program with a token of yesterday, which asks again and again, locks nobody out who
        comes from the same address. And what is refused here does not count: the wait is over after a minute.
        """
        if self.access.is_open:
            return self.access.by_token(token)
        host, now = request.client.host if request.client else "", time.monotonic()
        recent = {wrong: at for wrong, at in self._wrong.get(host, {}).items() if now - at < 60}
        if len(recent) > WRONG_TOKENS:
            raise Refused(429, "TooManyTries", "too many wrong tokens came from this address", "wait a minute")
        found = self.access.by_token(token)
        if found is None:
            if len(self._wrong) > 10_000:
                self._wrong.clear()
            self._wrong[host] = recent | {hash(token): now}
        return found

    def _authorised(self, request: Request, route: Route) -> Caller | None:
        if route.role is Role.PUBLIC:
            return None
        caller = self.known(request)
        if caller is None:
            raise _unknown_caller()
        if caller.role < route.role:
            raise Refused(
                403,
                "Forbidden",
                f"this needs the role {route.role.word}, and {caller.name} has {caller.role.word}",
                f"use a token of the role {route.role.word}",
            )
        if route.changes_something and self.readonly_reason is not None:
            raise Refused(
                403, "ReadOnly", f"this server changes nothing: {self.readonly_reason}", "use the command line"
            )
        return caller

    # -- serving a handler

    async def _handled(self, request: Request, route: Route, caller: Caller | None) -> Response:
        if route.handler is None or caller is None:
            raise UsageError(f"{route.path} has no handler", hint="every route of the table needs one")
        query = None if route.query is None else query_of(request, route.query)
        body = None if route.body is None else await body_of(request, route.body)
        began = time.perf_counter()
        engine = await self.engine()
        call = Call(
            engine=engine,
            caller=caller,
            redaction=self.redaction,
            path=request.path_params,
            query=query,
            body=body,
            key=_idempotency_key(request) if route.takes_key else None,
            readonly_reason=self.readonly_reason,
        )
        answer = await route.handler(call)
        if route.changes_something:  # an audit line: who did what to which, and no payload
            told = " ".join(f"{name}={_word(value)}" for name, value in {**request.path_params, **call.targets}.items())
            spent = (time.perf_counter() - began) * 1000
            log.info("%s %s %s by %s in %.0f ms", route.method, route.shown_path, told, call.by, spent)
        status = 200 if route.status == 201 and not getattr(answer, "created", True) else route.status
        return _json(self.redaction.shown(answer), status)

    # -- what the server serves itself

    async def _live(self, request: Request, route: Route, caller: Caller | None) -> Response:
        query = query_of(request, route.query) if route.query is not None else None
        await self.engine()
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        stream = self.live.stream(getattr(query, "run", None), request.headers.get("last-event-id"))
        first = await anext(stream)  # a refusal is an answer, not the end of a stream

        async def events() -> AsyncIterator[bytes]:
            try:
                yield first
                async for event in stream:
                    yield event
            finally:
                await stream.aclose()  # type: ignore[attr-defined]

        return StreamingResponse(events(), media_type="text/event-stream", headers=headers)

    async def _metrics(self, request: Request, route: Route, caller: Caller | None) -> Response:
        text = await metrics_text(await self.engine(), self.requests, self.live.clients)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8", headers=NO_STORE)

    async def _openapi(self, request: Request, route: Route, caller: Caller | None) -> Response:
        root = request.scope.get("root_path", "")
        if root not in self._document:
            self._document[root] = msgspec.json.encode(openapi.document(ROUTES, root=root))
        return Response(self._document[root], media_type="application/json")

    async def _health(self, request: Request, route: Route, caller: Caller | None) -> Response:
        return _json(msgspec.to_builtins(Health(status="ok")))

    async def _readiness(self, request: Request, route: Route, caller: Caller | None) -> Response:
        from holdfast.core.queries import Holds

        try:
            async with asyncio.timeout(READY_SECONDS):
                engine = await self.engine()
                await engine.store.rows(Holds())
        except EngineClosed as error:
            raise Refused(503, "NotReady", error.message, "whoever made this application opens it") from error
        except (Exception, TimeoutError) as error:
            raise Refused(503, "NotReady", "the store does not answer", "see the server's log") from error
        return _json(msgspec.to_builtins(Health(status="ready")))

    async def _open_session(self, request: Request, route: Route, caller: Caller | None) -> Response:
        if route.body is None:
            raise UsageError("the route has no body", hint="declare one")
        body = await body_of(request, route.body)
        found = self._by_token(request, getattr(body, "token", ""))
        if found is None:
            raise Refused(401, "Unauthorized", "this token is not known", "ask whoever runs this server for one")
        answer = _json(msgspec.to_builtins(Done(done=True, message=f"signed in as {found.name}")))
        answer.set_cookie(
            COOKIE,
            self.access.open_session(found),
            path=request.scope.get("root_path", "") or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def _close_session(self, request: Request, route: Route, caller: Caller | None) -> Response:
        session = request.cookies.get(COOKIE)
        if session is not None:
            self.access.close_session(session)
        answer = _json(msgspec.to_builtins(Done(done=session is not None, message="signed out")))
        answer.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/", httponly=True, samesite="strict")
        return answer

    async def _page(self, request: Request, route: Route, caller: Caller | None) -> Response:
        if not request.url.path.endswith("/"):  # its addresses are relative to this one
            return RedirectResponse(f"{request.url.path}/")
        return _file(request, self.manifest.index, "no-cache")

    async def _asset(self, request: Request, route: Route, caller: Caller | None) -> Response:
        found = self.manifest.assets.get(request.path_params["file"])
        if found is None:
            raise Refused(404, "NotFound", "the page has no such file", "open the page itself")
        return _file(request, found, "public, max-age=31536000, immutable")


class _Guarded:
    """Around all routes: the host, the origin, how errors are told, headers, and counting."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = False, 500

        async def sending(message: Message) -> None:
            nonlocal begun, status
            if message["type"] == "http.response.start":
                begun, status = True, message["status"]
                message = {**message, "headers": [*message["headers"], *guards.SECURITY_HEADERS]}
            await send(message)

        request = Request(scope, receive)
        try:
            guards.check_host(request.headers.get("host", ""), self._server.hosts)
            guards.check_origin(request.method, request.headers)
            if request.method == "POST":
                guards.check_json(request.headers)
            await self._app(scope, receive, sending)
        except Exception as error:
            refused = refusal_of(error)
            if refused.status == 500:
                log.exception("%s failed", scope.get("path"))
            if begun:
                raise
            await _refusal(refused)(scope, receive, sending)
        finally:
            route: Route | None = scope.get("holdfast.route")
            self._server.requests.count(request.method, "none" if route is None else route.shown_path, status)


def query_of(request: Request, form: type[msgspec.Struct]) -> Any:
    """The parameters of an address, in their form; ValidationError if they do not have it."""
    given: dict[str, Any] = {}
    repeated = {field.name for field in msgspec.structs.fields(form) if field.default_factory is list}
    for name in request.query_params:
        values = [value for value in request.query_params.getlist(name) if value]
        if values:  # a parameter without a value is one that is not given
            given[name] = values if name in repeated else values[-1]
        elif name not in {field.name for field in msgspec.structs.fields(form)}:
            given[name] = ""  # refused below
    return msgspec.convert(given, form, strict=False)


async def body_of(request: Request, form: type[msgspec.Struct]) -> Any:
    """The body, in its form. None at all is an empty object."""
    data = await guards.read_body(request.receive, request.headers)
    return msgspec.json.decode(data or b"{}", type=form)


def _word(value: object) -> str:
    """A value in a line of the log: names of others must not look like further words, or like further lines."""
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not key or len(key) > KEY_BYTES or not (key.isascii() and key.isprintable()):
        raise Refused(
            422, "Unfit", "the header Idempotency-Key is too long or not plain text", f"use 1 to {KEY_BYTES} characters"
        )
    return key


def _json(document: Any, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(document), status_code=status, media_type="application/json", headers=dict(NO_STORE)
    )


def _refusal(refused: Refused) -> Response:
    answer = _json(msgspec.to_builtins(ErrorAnswer(error=refused.view)), refused.status)
    if refused.status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    elif refused.status in (429, 503):
        answer.headers["retry-after"] = "2"
    return answer


async def _not_this_way(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: a method that a route does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 400
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    hint = f"use {headers['Allow']}" if "Allow" in headers else "see openapi.json"
    answer = _refusal(Refused(status, "NotAllowed", f"{request.method} does not work here", hint))
    answer.headers.update(headers)
    return answer


def _unknown_caller() -> Refused:
    return Refused(
        401,
        "Unauthorized",
        "this server does not know who is asking",
        "send Authorization: Bearer TOKEN, or sign in on the page",
    )


def _file(request: Request, file: File, caching: str) -> Response:
    headers = {"cache-control": caching, "etag": file.tag, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    packs = "gzip" in request.headers.get("accept-encoding", "")
    if packs and file.packed is not None:
        return Response(file.packed, media_type=file.media, headers={**headers, "content-encoding": "gzip"})
    return Response(file.data, media_type=file.media, headers=headers)


async def _opened(url: str | None) -> Engine:
    engine = Engine(url)
    path = sqlite_path(engine.url)
    if path is not None and not path.exists():
        raise UsageError(f"there is no database {path}", hint="`holdfast migrate` or a worker makes it")
    await engine.open(migrate=False)
    return engine
