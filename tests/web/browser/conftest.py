"""One world, one server and one browser for all tests of the page; a clean tab for each, which may not complain."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.web.browser.scene import Scene, scene

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE = {"width": 1280, "height": 800}


# For the package, not for the session: while Playwright is there, its loop runs in this thread, and other tests have
# loops of their own.
@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("scene")) as built:
        yield built


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed", exc_type=ImportError)
    if CHROMIUM is None:
        pytest.skip("there is no chromium: install it (apt-get install chromium), or name it in CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Tab:
    """A tab that goes to places of the page, and remembers every complaint of the browser."""

    def __init__(self, page: Any, world: Scene) -> None:
        self.page = page
        self.world = world
        self.complaints: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", self._asked)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog of the browser: {dialog.message}")
        dialog.dismiss()

    def unexpected(self) -> list[str]:
        return [each for each in self.complaints if not any(text in each for text in self.expected)]

    def go(self, place: str) -> Any:
        """To a place behind the #, from scratch."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.world.url}#{place}")
        return self.page

    def open(self, name: str, tab: str | None = None, **query: str) -> Any:
        """To a run of the world."""
        parameters = {**({"tab": tab} if tab else {}), **query}
        search = "&".join(f"{key}={quote(value, safe='')}" for key, value in parameters.items())
        return self.go(f"/runs/{self.world.runs[name]}{'?' + search if search else ''}")

    def status(self, text: str) -> None:
        """Wait until the run that is open has this status."""
        self.page.locator(".run-title .status", has_text=text).wait_for()

    def confirm(self, words: str) -> None:
        self.page.locator("dialog[open] button[type=submit]", has_text=words).click()

    def told(self, words: str) -> None:
        """Wait for a message that says this."""
        self.page.locator(".toast.good", has_text=words).first.wait_for()


@pytest.fixture
def tab(browser: Any, world: Scene) -> Iterator[Tab]:
    context = browser.new_context(viewport=WIDE, reduced_motion="reduce")
    context.set_default_timeout(20_000)  # machines are shared, and a wait costs time only where it fails
    tab = Tab(context.new_page(), world)
    yield tab
    context.close()
    assert not tab.unexpected(), tab.unexpected()


class Api:
    """The server without the page, for what happens behind a reader's back."""

    def __init__(self, url: str) -> None:
        self._base = f"{url}api/v1/"

    def get(self, path: str) -> Any:
        with urlopen(self._base + path, timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self._base + path, json.dumps(body).encode(), headers), timeout=10) as answer:  # noqa: S310
            return json.load(answer)


@pytest.fixture
def api(world: Scene) -> Api:
    return Api(world.url)
