"""Queues, timers, dead letters, projections, definitions, settings: each shows what is there and does what it says."""

from __future__ import annotations

import re

import pytest

from tests.web.browser.conftest import Api, Tab

pytestmark = pytest.mark.xdist_group("browser")  # one world, which they change


def test_queues_say_what_waits_and_which_nobody_serves(tab: Tab) -> None:
    """Depth, oldest, and the workers with their leases."""
    page = tab.go("/queues")
    page.locator("tr", has_text="gpu").locator("td", has_text="nobody serves it").wait_for()
    page.locator("tr", has_text="alive").locator("td", has_text=re.compile(r"\d+ of 100")).wait_for()
    page.locator("tr", has_text="alive").locator("td", has_text=re.compile("^in ")).wait_for()


def test_queues_lead_to_their_runs_and_to_the_worker_that_is_missing(tab: Tab) -> None:
    """What waits can be opened, what runs is named, and what is missing is a command."""
    page = tab.go("/queues")
    page.locator(".command", has_text="--queue gpu").wait_for()
    page.locator(".doing").get_by_role("link", name="watch", exact=True).wait_for()
    page.locator("tr", has_text="gpu").locator("td[data-label=Ready] a").first.click()
    page.locator("table.runs td.c-key", has_text="render-240").wait_for()
    assert page.locator("table.runs tbody tr").count() == 1
    page.get_by_role("button", name="queue gpu").click()
    page.locator("table.runs tbody tr").nth(1).wait_for()


def test_what_waits_for_a_person_is_counted_beside_its_page(tab: Tab, api: Api) -> None:
    letters = len(api.get("dead")["letters"])
    page = tab.go("/runs")
    page.locator(".navigation a", has_text="Dead letters").locator(".count-badge", has_text=str(letters)).wait_for()


def test_timers_are_listed_with_their_runs(tab: Tab) -> None:
    page = tab.go("/timers")
    row = page.locator(f"tr:has(a[title='{tab.world.runs['sleeping']}'])")
    row.locator("td", has_text=re.compile("^in [23] h")).wait_for()
    row.locator(f"a[title='{tab.world.runs['sleeping']}']").click()
    page.locator(".run-title", has_text="remind-Linus").wait_for()


def test_a_dead_letter_is_replayed(tab: Tab, api: Api) -> None:
    """The effect that was given up is tried again, and this time it works."""
    page = tab.go("/dead")
    letter = page.locator(".letter", has_text="the printer is on fire")
    letter.get_by_role("button", name=re.compile("Show the error")).click()
    letter.locator(".failure strong", has_text="NonRetryable").wait_for()
    letter.get_by_role("button", name="Replay").click()
    page.locator("dialog[open]", has_text="comes back here").wait_for()
    tab.confirm("Replay")
    # The card stays, and says what became of it.
    told = page.locator(".letter.replayed", has_text="account.Letter")
    told.locator(".letter-outcome", has_text="replayed: worked").wait_for()
    told.get_by_role("link", name="run grace").click()
    page.locator(".run-title", has_text="grace").wait_for()
    page.locator(".toast").wait_for(state="detached")


def test_a_dead_letter_that_dies_again_says_so_and_is_discarded(tab: Tab) -> None:
    """Nothing was repaired, so the event cannot be read this time either."""
    page = tab.go("/dead")
    letter = page.locator(".letter", has_text="membership-approved")
    letter.locator(".leaf", has_text='who: "nobody"').wait_for()
    letter.get_by_role("button", name="Replay").click()
    tab.confirm("Replay")
    letter.locator(".letter-outcome", has_text="replayed: failed again").wait_for()
    letter.get_by_role("button", name="Discard").click()
    page.locator("dialog[open]", has_text="for good").wait_for()
    tab.confirm("Discard")
    letter.wait_for(state="detached")


def test_a_projection_that_stopped_says_why_and_can_skip_the_event(tab: Tab) -> None:
    page = tab.go("/projections")
    page.locator(".row-error", has_text="has no column").wait_for()
    row = page.locator("tr", has_text="refusals").first
    row.get_by_role("button", name="Skip the event").click()
    page.locator("dialog[open]", has_text="is missing from it until it is rebuilt").wait_for()
    tab.confirm("Skip the event")
    row.locator("td", has_text="up to date").wait_for()
    page.locator(".row-error").wait_for(state="detached")


def test_a_projection_is_paused_resumed_and_rebuilt(tab: Tab) -> None:
    page = tab.go("/projections")
    row = page.locator("tr", has_text="balances")
    for word, status in (("Pause", "paused"), ("Resume", "running")):
        row.get_by_role("button", name=word).click()
        tab.confirm(word)
        row.locator(".status", has_text=status).wait_for()
    row.get_by_role("button", name="Rebuild").click()
    tab.confirm("Rebuild")
    page.locator(".toast.good").nth(2).wait_for()
    row.locator("td", has_text="up to date").wait_for()


def test_a_definition_shows_its_graph_before_it_runs_and_starts(tab: Tab) -> None:
    """One field for each parameter; what is given is what the run gets."""
    page = tab.go("/definitions")
    page.locator("[data-search]").fill("basket")
    page.locator(".card", has_text="order").click()
    page.locator(".node", has_text="charge_card").wait_for()
    assert page.locator(".node.stateless").count() == 5
    start = page.get_by_role("button", name="Start")
    assert start.is_disabled()
    page.get_by_label("number").fill("42")
    page.get_by_label("note").fill("7")  # a text, since the parameter is one
    page.get_by_role("textbox", name="Key").fill("from-the-page")
    page.get_by_label("Tags").fill("from:page")
    start.click()
    page.locator(".run-title", has_text="from-the-page").wait_for()
    tab.status("completed")
    page.get_by_role("tab", name="Details").click()
    page.locator(".leaf", has_text='note: "7"').wait_for()
    page.locator(".facts .tag", has_text="from:page").wait_for()


def test_numbers_beyond_those_of_javascript_are_sent_and_shown_as_they_are(tab: Tab, api: Api) -> None:
    """2**53 + 1 has no double: a page that took it for one would send and show its neighbour."""
    page = tab.go("/definitions/ping")
    page.get_by_label("number").fill("9007199254740993")
    page.locator(".json-input", has_text="sent as number").wait_for()
    page.get_by_role("button", name="Start").click()
    tab.status("completed")
    assert api.get(f"runs/{page.url.rpartition('/')[2].partition('?')[0]}")["result"] == 2**53 + 1
    page.get_by_role("tab", name="Details").click()
    page.locator(".payload", has_text="Result").locator(".value.number", has_text="9007199254740993").wait_for()


def test_an_argument_that_does_not_fit_is_told_in_the_form(tab: Tab) -> None:
    """What was typed stays, and the refusal stands beside it."""
    tab.expected = ("422", "400")
    page = tab.go("/definitions/order")
    page.get_by_label("number").fill("abc")
    page.get_by_role("button", name="Start").click()
    page.locator(".start-form [role=alert]", has_text="number").wait_for()
    assert page.get_by_label("number").input_value() == "abc"


def test_a_decider_is_given_an_input(tab: Tab, api: Api) -> None:
    """The input's class and its fields; a new instance begins with the first one."""
    page = tab.go("/definitions/account")
    page.get_by_label("Input").select_option("Deposit")
    execute = page.get_by_role("button", name="Execute")
    page.get_by_label("Fields").fill("[1]")
    assert execute.is_disabled()
    page.get_by_label("Fields").fill('{"owner": "bea", "cents": 250}')
    execute.click()
    tab.told("Deposit was applied")
    page.get_by_role("link", name="See its instances").click()
    page.locator("table.runs td.c-key", has_text="bea").click()
    page.locator("section[aria-label=State] .leaf", has_text="cents: 250").wait_for()


def test_what_cannot_be_started_says_why(tab: Tab) -> None:
    page = tab.go("/definitions/projection%3Abalances")
    page.locator(".start", has_text="runs by itself").wait_for()
    tab.expected = ("404",)
    tab.go("/definitions/there_is_none")
    page.locator(".empty", has_text="not known here").wait_for()


def test_colours_follow_the_system_until_somebody_chooses(tab: Tab) -> None:
    page = tab.go("/settings")
    page.locator("h1", has_text="Settings").wait_for()
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.get_by_role("radio", name="Light").check()
    assert page.evaluate(ground) == light
    page.reload()
    page.locator("h1", has_text="Settings").wait_for()
    assert page.evaluate(ground) == light
    page.get_by_role("radio", name="As the system").check()
    assert page.evaluate(ground) == dark


def test_a_server_that_went_away_is_told_with_the_command_that_starts_it(tab: Tab) -> None:
    """Error states tell what to do, and the page goes on when the server is back."""
    tab.expected = ("Failed to load resource", "net::ERR")
    page = tab.go("/queues")
    page.locator("tr", has_text="gpu").first.wait_for()
    page.route("**/api/v1/**", lambda route: route.abort())
    page.keyboard.type("gt")
    page.locator(".trouble", has_text="does not answer").first.wait_for()
    page.locator(".trouble .command", has_text="holdfast ui").first.wait_for()
    page.unroute("**/api/v1/**")
    page.get_by_role("button", name="Try again").first.click()
    page.locator("table").wait_for()
