"""What other sites, other names and clumsy clients try, and what they get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.web import create_app
from holdfast.web.guards import BODY_LIMIT_BYTES
from holdfast.web.pages import Manifest
from holdfast.web.redaction import HIDDEN, Redaction, pattern_of
from tests.web.client import API, Client
from tests.web.world import populated, registry, world


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "10.0.0.7", "[::2]:80"]
)
async def test_a_name_that_was_pointed_at_this_machine_is_refused(host: str) -> None:
    """DNS rebinding: the browser believes that the page of evil.example talks to evil.example."""
    async with hf.Engine("memory://", registry=registry) as engine:
        answer = await Client(create_app(engine)).get(f"{API}/me", headers={"host": host})
        assert (answer.status, answer.error["type"]) == (421, "WrongHost")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8787", "127.0.0.1:1", "[::1]:8787", "127.0.0.1"])
async def test_names_of_this_machine_are_served(host: str) -> None:
    """With any port, in any case."""
    async with hf.Engine("memory://", registry=registry) as engine:
        assert (await Client(create_app(engine)).get(f"{API}/me", headers={"host": host})).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"origin": "http://localhost:8787", "sec-fetch-site": "same-origin"}, 201),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:8787@evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 201),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/json; charset=utf-8"}, 201),
        ({"content-type": ""}, 415),
    ],
    ids=str,
)
async def test_what_another_site_makes_a_browser_send_changes_nothing(headers: dict[str, str], status: int) -> None:
    """Forged requests, from forms, scripts and frames."""
    async with hf.Engine("memory://", registry=registry) as engine:
        client = Client(create_app(engine), {"host": "localhost:8787"})
        answer = await client.post(f"{API}/runs", {"workflow": "add", "args": [1]}, headers=headers)
        assert answer.status == status
        assert len(await engine.find()) == (1 if status == 201 else 0)


async def test_other_sites_may_link_to_the_page_and_embed_nothing() -> None:
    """A link opens it; a script of another site gets no answer, and no permission to read one."""
    async with hf.Engine("memory://", registry=registry) as engine:
        client = Client(create_app(engine))
        linked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert (await client.get("/", headers=linked)).status == 200
        fetched = await client.get(f"{API}/runs", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"})
        assert fetched.status == 403
        asked = await client.request("OPTIONS", f"{API}/runs", headers={"origin": "http://evil.example"})
        assert asked.status in (403, 405)
        for answer in (fetched, asked, await client.get(f"{API}/runs")):
            assert not any(name.startswith("access-control") for name in answer.headers)


async def test_every_answer_carries_the_headers_that_protect_the_page() -> None:
    """Refusals and files too."""
    async with hf.Engine("memory://", registry=registry) as engine:
        client = Client(create_app(engine))
        for path in ("/", f"{API}/me", f"{API}/nothing", "/healthz", "/openapi.json"):
            headers = (await client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "server" not in headers


@pytest.mark.parametrize(("more", "status"), [(-1, 201), (0, 201), (1, 413)])
async def test_a_body_may_have_four_megabytes_and_no_more(more: int, status: int) -> None:
    """The limit itself is allowed; one byte more is not, with or without a length that says so."""
    body = json.dumps({"workflow": "add", "args": [1]}).encode()
    padded = body + b" " * (BODY_LIMIT_BYTES + more - len(body))
    async with hf.Engine("memory://", registry=registry) as engine:
        client = Client(create_app(engine))
        assert (await client.post(f"{API}/runs", padded)).status == status
        told = {"content-length": str(len(padded))}
        assert (await client.post(f"{API}/runs", padded, headers=told)).status == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"[]", 422),
        (b'{"workflow": "\xff"}', 400),
        (b"[" * 100_000, 422),
        (b'{"workflow":"add","args":' + b"[" * 5_000 + b"]" * 5_000 + b"}", 400),
        (b'{"workflow":"add","kwargs":{"a":1e999}}', 422),
        (b'{"workflow":"\\u0000"}', 404),
        (b'{"workflow":"add","key":"\\u0000"}', 400),
        (b'{"workflow":"add","key":""}', 422),
        (b'{"workflow":"add","priority":2147483648}', 422),
        (b'{"workflow":"add","tags":{"a":""}}', 400),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_bodies_that_make_no_sense_are_refused_with_a_reason(body: bytes, status: int) -> None:
    """No traceback, and nothing that looks like one."""
    async with hf.Engine("memory://", registry=registry) as engine:
        answer = await Client(create_app(engine)).post(f"{API}/runs", body)
        assert answer.status in (status, 400 if status == 422 else status), answer.body
        assert b"Traceback" not in answer.body
        assert answer.error["message"]


@pytest.mark.parametrize(
    ("limit", "status"), [("0", 422), ("1", 200), ("500", 200), ("501", 422), ("x", 422), ("", 200)]
)
async def test_a_page_has_one_to_five_hundred_lines(limit: str, status: int) -> None:
    """At the limits, and beside them."""
    async with hf.Engine("memory://", registry=registry) as engine:
        client = Client(create_app(engine))
        assert (await client.get(f"{API}/runs", limit=limit)).status == status


@pytest.mark.parametrize(
    "query",
    [
        "staus=failed",
        "status=lost",
        "model=x",
        "tag=nocolon",
        "since=yesterday",
        "since=2020-01-01T00:00:00",
        "cursor=x",
    ],
)
async def test_a_filter_that_means_nothing_is_refused(query: str) -> None:
    """A misspelt filter would show everything, and a bulk operation would do it to everything."""
    async with hf.Engine("memory://", registry=registry) as engine:
        assert (await Client(create_app(engine)).get(f"{API}/runs?{query}")).status in (400, 422)


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../index.html",
        "/assets/..%2f..%2f__init__.py",
        "/assets/%2e%2e/app.py",
        "/assets/..\\..\\app.py",
        "/assets/\x00",
        "/assets/index.html\x00.js",
        "/../../../etc/passwd",
        "/assets//etc/passwd",
        "/assets/",
        "/_ui/index.html",
        "/static/../app.py",
    ],
)
async def test_no_address_leads_out_of_the_manifest(path: str) -> None:
    """Files are served by name from a list, so that there is no path to go up."""
    async with hf.Engine("memory://", registry=registry) as engine:
        answer = await Client(create_app(engine)).get(path)
        assert answer.status == 404
        assert b"import" not in answer.body


def test_the_manifest_holds_files_and_follows_no_link_out_of_its_folder(tmp_path: Path) -> None:
    """What is not in the list when the server starts does not exist."""
    secret = tmp_path / "secret.txt"
    secret.write_text("canary")
    folder = tmp_path / "_ui"
    (folder / "assets" / "deep").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>" + "x" * 1000)
    (folder / "assets" / "main.js").write_text("export {}")
    (folder / "assets" / "deep" / "more.js").write_text("export {}")
    (folder / "assets" / "link.js").symlink_to(secret)
    manifest = Manifest(folder)
    assert set(manifest.assets) == {"main.js"}
    assert manifest.assets["main.js"].media.startswith("text/javascript")
    assert manifest.index.packed is not None
    assert not Manifest(tmp_path / "none").has_page


async def test_scripts_in_payloads_come_back_as_text_in_json() -> None:
    """Whatever a payload holds, no answer is HTML."""
    markup = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\u2028"
    async with world("memory://") as here:
        body = {"workflow": "fragile", "args": [markup], "key": "k<b>", "tags": {"<i>": markup[:20]}}
        run = (await here.client.post(f"{API}/runs", body)).json()["id"]
        await here.engine.settle(timeout=10)
        for path in (f"/runs/{run}", "/runs", f"/runs/{run}/nodes", f"/runs/{run}/history"):
            answer = await here.client.get(API + path)
            assert answer.headers["content-type"] == "application/json"
        shown = (await here.client.get(f"{API}/runs/{run}")).json()
        assert markup in json.dumps(shown["input"], ensure_ascii=False)
        assert shown["result"] == f"{markup} holds"


async def test_values_of_fields_that_are_called_secret_are_not_shown() -> None:
    """A canary in a payload reaches no answer, on any route that shows payloads."""
    async with populated("memory://") as here:
        for name, run in here.runs.items():
            for part in ("", "/nodes", "/graph", "/timeline", "/history", "/state", "/events", "/checkpoints"):
                answer = await here.client.get(f"{API}/runs/{run}{part}")
                assert answer.status == 200
                assert b"canary" not in answer.body, (name, part)
        signed = (await here.client.get(f"{API}/runs/{here.runs['signed']}")).json()
        assert signed["result"]["session"] == {"api_key": HIDDEN, "name": "ada"}
        open_app = create_app(here.engine, redact=False)
        assert b"canary-9" in (await Client(open_app).get(f"{API}/runs/{here.runs['signed']}")).body
        assert (await Client(open_app).get(f"{API}/me")).json()["redacted"] is False


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("password", True),
        ("db_password", True),
        ("dbPassword", True),
        ("X-Api-Key", True),
        ("apikey", True),
        ("Authorization", True),
        ("tokens", True),
        ("access_token", True),
        ("tokenizer", False),
        ("passwordless", False),
        ("name", False),
        ("", False),
    ],
)
def test_names_are_read_in_whole_words(name: str, hidden: bool) -> None:
    """In any style of writing, and no word that only begins alike."""
    assert Redaction().hides(name) is hidden


@pytest.mark.parametrize(
    ("rule", "name", "hidden"),
    [
        ("card_*", "card_number", True),
        ("card_*", "cardNumber", True),
        ("card_*", "card", False),
        ("cardNumber", "card-number", True),
        ("a.b", "a_b", False),
        ("*", "anything", True),
    ],
)
def test_a_star_in_a_name_stands_for_any_text(rule: str, name: str, hidden: bool) -> None:
    """On the command line rules are names: nothing else in them has a meaning of its own."""
    assert Redaction([pattern_of(rule)]).hides(name) is hidden


async def test_a_rule_for_everything_leaves_our_own_answers_readable() -> None:
    """Rules are for payloads: a run keeps its id and its status, whatever is hidden of what it holds."""
    async with populated("memory://") as here:
        client = Client(create_app(here.engine, redact=[pattern_of("*")]))
        shown = (await client.get(f"{API}/runs/{here.runs['signed']}")).json()
        assert (shown["id"], shown["status"]) == (here.runs["signed"], "completed")
        assert set(shown["result"].values()) == {HIDDEN}
        counts = (await client.get(f"{API}/stats")).json()["runs"]
        assert all(isinstance(number, int) for number in counts.values())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Login(user='ada', password='x y')", "Login(user='ada', password=[redacted])"),
        ('{"api_key": "a\\"b", "n": 1}', '{"api_key": [redacted], "n": 1}'),
        ("token: abc, name: ada", "token: [redacted], name: ada"),
        ("the token is gone", "the token is gone"),
    ],
)
def test_texts_that_quote_a_secret_by_its_name_are_shown_without_it(text: str, shown: str) -> None:
    """What an action returned or raised is told in words, and words can quote."""
    assert Redaction().shown({"message": text, "key": text}) == {"message": shown, "key": text}


def test_no_field_of_our_own_answers_would_be_hidden() -> None:
    """The rules are for payloads: a name of ours that they match would vanish from every answer."""
    from holdfast.web.openapi import document
    from holdfast.web.routes import ROUTES

    def names(schema: Any) -> list[str]:
        if isinstance(schema, dict):
            own = list(schema.get("properties", {}))
            return own + [name for each in schema.values() for name in names(each)]
        return [name for each in schema for name in names(each)] if isinstance(schema, list) else []

    answers = {name: each for name, each in document(ROUTES)["components"]["schemas"].items() if name != "SessionBody"}
    assert [name for name in names(answers) if Redaction().hides(name)] == []
