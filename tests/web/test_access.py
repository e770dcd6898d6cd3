"""Who may do what: every route against every role, as a table that is compared with the one in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.errors import UsageError
from holdfast.web import Caller, Role, create_app
from holdfast.web.access import MOST_SESSIONS, SESSION_SECONDS, Access
from holdfast.web.routes import ROUTES, Route
from tests.web.client import API, Client
from tests.web.world import TOKENS, registry

GOLDEN = Path(__file__).parent / "golden" / "access.txt"
CALLERS = {
    "nobody": None,
    "wrong": "wrong-token",
    "read": "read-token",
    "operate": "operate-token",
    "admin": "admin-token",
}


def _address(route: Route) -> str:
    return re.sub(r"\{\w+\}", "thing", route.shown_path)


async def _asked(client: Client, route: Route) -> int:
    if route.serves == "live":
        async with client.listening(_address(route)) as ear:
            return ear.status
    if route.method == "POST":
        return (await client.post(_address(route), b"")).status
    return (await client.request(route.method, _address(route))).status


async def test_every_route_is_in_the_table_and_answers_each_role_as_the_table_says() -> None:
    """Deny by default: a route that is missing here, or that lets somebody else in, fails this test."""
    lines = []
    async with hf.Engine("memory://", registry=registry) as engine:
        app = create_app(engine, tokens=TOKENS)
        for route in ROUTES:
            cells = []
            for token in CALLERS.values():
                status = await _asked(Client(app).with_token(token), route)
                cells.append(str(status) if status in (401, 403) else "in")
            lines.append(
                f"{route.method:<7}{route.shown_path:<42}{route.role.word:<9}" + " ".join(f"{c:<4}" for c in cells)
            )
        await app.state.holdfast.close()
    table = "\n".join(line.rstrip() for line in lines) + "\n"
    assert table == GOLDEN.read_text(), f"the table is now:\n{table}"


def test_the_application_has_no_route_that_the_table_does_not_know() -> None:
    """What Starlette routes is made of the table, and nothing was added beside it."""
    app = create_app(hf.Engine("memory://"))
    served = {(method, route.path) for route in app.routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
    assert served == {(route.method, route.path) for route in ROUTES}
    assert all((route.handler is None) == bool(route.serves) for route in ROUTES)
    assert all(route.method == "GET" or route.role > Role.READ or route.serves for route in ROUTES)


async def test_a_path_that_ends_like_a_public_one_is_not_public() -> None:
    """Exempt are routes, not words in addresses."""
    async with hf.Engine("memory://", registry=registry) as engine:
        app = create_app(engine, tokens=TOKENS)
        for path in (
            f"{API}/runs/healthz",
            f"{API}/x/healthz",
            "/healthz/",
            "/x/readyz",
            "//healthz",
            "/metrics/healthz",
        ):
            assert (await Client(app).get(path)).status == 401, path
        assert (
            await Client(app).request("POST", "/healthz", headers={"content-type": "application/json"})
        ).status == 405
        assert (await Client(app).with_token("admin-token").get("/x/readyz")).status == 404


async def test_without_a_token_only_this_machine_is_let_in() -> None:
    """The default is loopback, whatever else can reach the socket."""
    async with hf.Engine("memory://", registry=registry) as engine:
        app = create_app(engine)
        assert (await Client(app).get(f"{API}/me")).json()["role"] == "admin"
        assert (await Client(app, address="::1").get(f"{API}/me")).status == 200
        for address in ("10.0.0.7", "192.168.1.2", "testclient", "::ffff:10.0.0.7"):
            assert (await Client(app, address=address).get(f"{API}/me")).status == 401
        # A wrong token is wrong, also where none is needed.
        assert (await Client(app).with_token("something").get(f"{API}/me")).status == 401


@pytest.mark.parametrize("hosts", [["example.org"], ["localhost", "10.0.0.7"]])
def test_an_application_that_others_can_reach_needs_a_token(hosts: list[str]) -> None:
    """Refused when it is made, not when somebody has found it."""
    with pytest.raises(UsageError, match="everybody there"):
        create_app(hf.Engine("memory://"), allowed_hosts=hosts)
    create_app(hf.Engine("memory://"), allowed_hosts=hosts, token="long-enough-token")


def test_a_token_comes_from_the_environment_if_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never from the command line, which others can read."""
    monkeypatch.setenv("HOLDFAST_UI_TOKEN", "of-the-environment")
    access = create_app(hf.Engine("memory://")).state.holdfast.access
    assert access.by_token("of-the-environment") == Caller("admin", Role.ADMIN)
    assert (
        create_app(hf.Engine("memory://"), token="another-token").state.holdfast.access.by_token("of-the-environment")
        is None
    )


@pytest.mark.parametrize(
    "tokens", [{"short": "read"}, {"with a space": "read"}, {"long-enough": "owner"}, {"long-enough": "public"}]
)
def test_tokens_and_roles_that_make_no_sense_are_refused(tokens: dict[str, Any]) -> None:
    """And the token itself is in no message."""
    with pytest.raises(UsageError) as caught:
        create_app(hf.Engine("memory://"), tokens=tokens)
    assert all(token not in str(caught.value) for token in tokens)


async def test_a_session_carries_the_role_of_its_token_in_a_cookie_that_scripts_cannot_read() -> None:
    """The page signs in once; the cookie goes to this site alone."""
    async with hf.Engine("memory://", registry=registry) as engine:
        app = create_app(engine, tokens=TOKENS)
        client = Client(app)
        assert (await client.post("/session", {"token": "wrong-token"})).status == 401
        opened = await client.post("/session", {"token": "operate-token"})
        assert opened.status == 200
        cookie = opened.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
        assert "operate-token" not in cookie
        session = {"cookie": cookie.partition(";")[0]}
        assert (await client.get(f"{API}/me", headers=session)).json()["role"] == "operate"
        assert (await client.get(f"{API}/me", headers={"cookie": "holdfast_session=made-up"})).status == 401
        closed = await client.request("DELETE", "/session", headers=session)
        assert closed.json()["done"]
        assert (await client.get(f"{API}/me", headers=session)).status == 401


async def test_guessing_tokens_is_slow() -> None:
    """An address that is wrong too often is refused for a while, whatever it sends."""
    async with hf.Engine("memory://", registry=registry) as engine:
        app = create_app(engine, tokens=TOKENS)
        statuses = [(await Client(app).post("/session", {"token": f"guess-{n}"})).status for n in range(25)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        assert (await Client(app).post("/session", {"token": "read-token"})).status == 429
        assert (await Client(app, address="10.1.1.1").post("/session", {"token": "read-token"})).status == 200


async def test_guessing_tokens_in_headers_is_as_slow_as_at_the_sign_in() -> None:
    """Both count together; a session that is open goes on, and so does what is public."""
    async with hf.Engine("memory://", registry=registry) as engine:
        client = Client(create_app(engine, tokens=TOKENS))
        cookie = (await client.post("/session", {"token": "read-token"})).headers["set-cookie"].partition(";")[0]
        statuses = [(await client.with_token(f"guess-{n}").get(f"{API}/me")).status for n in range(25)]
        assert statuses == [401] * 21 + [429] * 4
        assert (await client.with_token("read-token").get(f"{API}/nothing")).status == 429
        assert (await client.post("/session", {"token": "read-token"})).status == 429
        assert (await client.get(f"{API}/me", headers={"cookie": cookie})).status == 200
        assert (await client.get("/healthz")).status == 200


async def test_one_wrong_token_that_is_repeated_locks_nobody_out() -> None:
    """A program with a token of yesterday may stand behind the same proxy as everybody else."""
    async with hf.Engine("memory://", registry=registry) as engine:
        client = Client(create_app(engine, tokens=TOKENS))
        assert {(await client.with_token("of-yesterday").get(f"{API}/me")).status for _ in range(50)} == {401}
        assert (await client.with_token("read-token").get(f"{API}/me")).status == 200


def test_sessions_end_and_the_oldest_makes_room() -> None:
    """A process keeps so many, for so long."""
    now = [0.0]
    access = Access({"long-enough": "read"}, now=lambda: now[0])
    caller = Caller("ada", Role.READ)
    first = access.open_session(caller)
    assert access.by_session(first) == caller
    now[0] = SESSION_SECONDS - 1
    assert access.by_session(first) == caller
    now[0] = SESSION_SECONDS
    assert access.by_session(first) is None
    names = [access.open_session(caller) for _ in range(MOST_SESSIONS + 1)]
    assert access.by_session(names[0]) is None
    assert access.by_session(names[1]) == access.by_session(names[-1]) == caller
