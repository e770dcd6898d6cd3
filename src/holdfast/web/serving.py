"""Serving the application on a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import UsageError
from holdfast.engine import Engine
from holdfast.web.access import Caller, Role, is_loopback
from holdfast.web.app import TOKEN_VARIABLE, create_app
from holdfast.web.guards import ANY_ADDRESS, LOOPBACK_HOSTS

try:
    import uvicorn
except ImportError as error:  # an extra, since most processes are workers
    raise UsageError(
        f"the HTTP server needs a package that is not installed: {error.name}", hint="pip install 'holdfast[ui]'"
    ) from error

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - told apart, not bound to
CLOSING_SECONDS = 5


async def serve(
    engine: Engine | str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    token: str | None = None,
    tokens: Mapping[str, str | Role | Caller] | None = None,
    token_file: str | Path | None = None,
    allowed_hosts: Iterable[str] = (),
    redact: Iterable[str] | bool | None = None,
    readonly: bool | str = False,
    ready: Callable[[str], None] = lambda address: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve the page and the HTTP interface until `stop` is set or the task is cancelled.

    `ready` is called with the address once requests are taken; with port 0 that says which port it became. An address
    that is not this machine's own is refused without a token: `token`, `tokens`, a file with one in its first line, or
    the environment's HOLDFAST_UI_TOKEN.
    """
    given = dict(tokens or {})
    if token_file is not None:
        given[read_token(token_file)] = Role.ADMIN
    if token is None and not given:
        token = os.environ.get(TOKEN_VARIABLE) or None
    if not is_loopback(host) and token is None and not given:
        raise UsageError(
            f"{host} can be reached from other machines, and there is no token to tell people apart",
            hint=f"set {TOKEN_VARIABLE}, or name a file with --token-file; or serve 127.0.0.1",
        )
    app = create_app(
        engine,
        token=token,
        tokens=given,
        allowed_hosts=[*_names_of(host), *allowed_hosts],
        redact=redact,
        readonly=readonly,
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        date_header=True,
        proxy_headers=False,  # whoever is behind one says so with allowed_hosts
        timeout_graceful_shutdown=CLOSING_SECONDS,
        ws="none",
    )
    server = _Server(config)
    listening = _bound(host, port)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]), name="holdfast-http")
    stopped = asyncio.get_running_loop().create_task((stop or asyncio.Event()).wait(), name="holdfast-http-stop")
    try:
        begun = asyncio.get_running_loop().create_task(server.begun.wait(), name="holdfast-http-begun")
        await asyncio.wait([task, begun], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if server.started:
            ready(_address(host, listening))
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        await app.state.holdfast.live.close()  # or open streams would hold the shutdown up
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await task
        listening.close()


def read_token(file: str | Path) -> str:
    """The token in the first line of a file."""
    try:
        lines = Path(file).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token file {file} cannot be read: {error}", hint="name a file with one token") from error
    if not lines:
        raise UsageError(f"the token file {file} is empty", hint="write one token into it")
    return lines[0]


class _Server(uvicorn.Server):
    """Signals are for whoever runs this: it is a part of their program."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def _names_of(host: str) -> list[str]:
    """What a client may call the server that is bound to this address."""
    if is_loopback(host):
        return [*LOOPBACK_HOSTS, host]
    named = [*LOOPBACK_HOSTS, host, socket.gethostname()]
    return [*named, ANY_ADDRESS] if host in WILDCARDS else named


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio sends at once (TCP_NODELAY) only where it can see it, and answers would be late.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise UsageError(
            f"{host}:{port} cannot be used: {error}", hint="name another port: `holdfast ui --port 8788`, or 0 for any"
        ) from error
    listening.listen(2048)
    listening.setblocking(False)
    return listening


def _address(host: str, listening: socket.socket) -> str:
    shown = "127.0.0.1" if host in WILDCARDS else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}/"
