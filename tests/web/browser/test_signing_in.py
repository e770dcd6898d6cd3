"""A server with tokens: the page asks for one, keeps it out of reach of scripts, and offers only what a role may do."""

from __future__ import annotations

import pytest

from tests.web.browser.conftest import Tab

pytestmark = pytest.mark.xdist_group("browser")  # one world, which they change


def test_the_page_asks_for_a_token_and_keeps_none(tab: Tab) -> None:
    """Deny by default: without a token there is a form and nothing else; the cookie cannot be read by a script."""
    tab.expected = ("401",)
    page = tab.page
    page.goto(tab.world.locked_url)
    page.get_by_label("Token").fill("a-wrong-one")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").filter(has_text="does not know this token").wait_for()
    page.get_by_label("Token").fill("let-me-in")
    page.get_by_role("button", name="Sign in").click()
    page.locator("table.runs tbody tr").first.wait_for()
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})") == "{}"
    assert "let-me-in" not in page.url
    page.keyboard.type("gs")
    page.locator("dd", has_text="admin").first.wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    page.reload()
    page.get_by_label("Token").wait_for()


def test_who_may_only_look_is_offered_nothing_to_press(tab: Tab) -> None:
    """The buttons are there, cannot be pressed, and say why."""
    tab.expected = ("401",)
    page = tab.page
    page.goto(f"{tab.world.locked_url}#/runs/{tab.world.runs['sleeping']}")
    page.get_by_label("Token").fill("look-and-do-not-touch")
    page.get_by_role("button", name="Sign in").click()
    cancel = page.get_by_role("button", name="Cancel", exact=True)
    cancel.wait_for()
    assert cancel.is_disabled()
    assert 'needs the role "operate"' in (cancel.get_attribute("title") or "")
