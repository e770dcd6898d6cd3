"""The page of all runs: counted, narrowed down, kept current, and operated many at a time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.browser.conftest import Api, Tab

pytestmark = pytest.mark.xdist_group("browser")  # one world, which they change

ROWS = "table.runs tbody tr"


def test_every_status_has_a_chip_with_its_number(tab: Tab, api: Api) -> None:
    """Issue 10: status counts. The numbers are the server's."""
    page = tab.go("/runs")
    page.locator(ROWS).first.wait_for()
    counts = api.get("runs/counts")["counts"]
    for status in ("pending", "suspended", "cancelling", "cancelled"):
        page.locator(".chip", has_text=f"{status} {counts[status]}").wait_for()


def test_a_chip_narrows_the_list_and_the_address_keeps_it(tab: Tab) -> None:
    """Filters are saved in the address bar: whoever opens it sees the same."""
    page = tab.go("/runs")
    page.locator(".chip", has_text="pending").click()
    page.locator(f"{ROWS} .status", has_text="pending").first.wait_for()
    page.locator(f"{ROWS} .status", has_text="completed").first.wait_for(state="detached")
    assert "status=pending" in page.url
    page.reload()
    page.locator(f"{ROWS} .status", has_text="pending").first.wait_for()
    assert page.locator(".chip[aria-pressed=true]").inner_text().startswith("pending")
    page.go_back()
    page.locator(f"{ROWS} .status", has_text="suspended").first.wait_for()


@pytest.mark.parametrize(
    ("query", "only"),
    [
        ("workflow=negotiate", "negotiate"),
        ("model=decider", "account"),
        ("tag=plan:family", "onboard"),
        ("q=order-1001", "order"),
        ("status=paused&workflow=restock", "restock"),
    ],
)
def test_each_filter_in_the_address_is_applied(tab: Tab, query: str, only: str) -> None:
    page = tab.go(f"/runs?{query}")
    page.locator(ROWS).first.wait_for()
    assert {text for text in page.locator(f"{ROWS} .c-workflow a").all_inner_texts()} == {only}


def test_typing_searches_and_a_tag_can_be_clicked(tab: Tab) -> None:
    page = tab.go("/runs")
    page.locator(ROWS).nth(1).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("onboard-Gr")
    page.locator(ROWS).nth(1).wait_for(state="detached")
    assert "q=onboard-Gr" in page.url
    page.locator(f"{ROWS} .tag", has_text="plan:family").click()
    assert "tag=plan%3Afamily" in page.url


def test_enter_opens_the_only_hit(tab: Tab) -> None:
    page = tab.go("/runs")
    page.locator(ROWS).first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("order-1004")
    page.keyboard.press("Enter")
    page.locator(".run-title", has_text="order-1004").wait_for()


def test_a_field_keeps_its_spaces_while_the_list_is_narrowed_down(tab: Tab) -> None:
    page = tab.go("/runs")
    page.locator(ROWS).first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("two ")
    page.wait_for_url("**q=two")
    page.keyboard.type("words")
    page.wait_for_url("**q=two+words")


TYPE_AFTER_THE_ADDRESS = """() => new Promise(done => {
  const field = document.querySelector("[data-search]")
  const type = text => { field.value = text; field.dispatchEvent(new Event("input", {bubbles: true})) }
  addEventListener("hashchange", () => {
    const next = new MessageChannel()  // a task of its own before the page is painted, as a key would be
    next.port1.onmessage = () => {
      type("order")
      setTimeout(() => done(field.value), 200)
    }
    next.port2.postMessage("")
  }, {once: true})
  type("ord")
})"""


def test_a_letter_that_meets_the_change_of_the_address_is_kept(tab: Tab) -> None:
    """A slow machine and slow typing once took letters back, and Enter then found more than the one run."""
    page = tab.go("/runs")
    page.locator(ROWS).first.wait_for()
    assert page.evaluate(TYPE_AFTER_THE_ADDRESS) == "order"


def test_rows_say_why_a_run_stands_still(tab: Tab, api: Api) -> None:
    """Who is to do something about it sees it without opening each."""
    page = tab.go("/runs?status=failed")
    row = page.locator(f"tr[data-run='{tab.world.runs['failed-too']}']")
    row.locator(".why", has_text="charge_card: BankBusy").wait_for()
    tab.go("/runs?status=suspended")
    waiting = {run["id"]: run.get("waits_for") for run in api.get("runs?status=suspended")["runs"]}
    for run, words in waiting.items():
        if words:
            page.locator(f"tr[data-run='{run}'] .why", has_text=words).wait_for()


def test_only_what_fits_the_selection_is_offered(tab: Tab) -> None:
    page = tab.go("/runs?status=failed")
    page.locator(f"tr[data-run='{tab.world.runs['failed-bulk']}'] input[type=checkbox]").check()
    bar = page.get_by_role("toolbar", name="Actions for the selected runs")
    assert bar.locator(".bulk-actions button").all_inner_texts() == ["Retry"]
    bar.get_by_role("button", name="Retry").click()
    tab.confirm("Retry")
    tab.told("1 run retried")
    page.locator(".toast").get_by_role("link", name="Open it").click()
    page.locator(".run-title", has_text="order-1213").wait_for()


def test_a_list_without_a_match_says_what_to_do(tab: Tab) -> None:
    """Empty states tell what to do."""
    page = tab.go("/runs?q=there-is-none&status=failed")
    page.locator(".empty", has_text="No run matches").wait_for()
    page.get_by_role("link", name="Show all runs").click()
    page.locator(ROWS).first.wait_for()


def test_older_runs_are_loaded_on_request(tab: Tab, api: Api) -> None:
    """Cursor pagination: a page at a time, none twice."""
    page = tab.go("/runs")
    page.locator(ROWS).first.wait_for()
    assert page.locator(ROWS).count() == 50
    page.get_by_role("button", name="Load older runs").click()
    page.locator(ROWS).nth(50).wait_for()
    ids = page.locator(ROWS).evaluate_all("rows => rows.map(row => row.dataset.run)")
    assert len(ids) == len(set(ids)) > 50


def test_new_runs_do_not_move_rows_under_the_mouse(tab: Tab, api: Api) -> None:
    """Live, without a jump: what came waits behind a button while the list is in use."""
    page = tab.go("/runs?workflow=ping")
    first = page.locator(ROWS).first
    first.wait_for()
    before = first.get_attribute("data-run")
    first.hover()
    for number in (1, 2):
        api.post("runs", {"workflow": "ping", "kwargs": {"number": number}})
    button = page.get_by_role("button", name="2 new")
    button.wait_for()
    assert first.get_attribute("data-run") == before
    button.click()
    page.locator(f"{ROWS}:not([data-run='{before}'])").first.wait_for()
    page.wait_for_function("id => document.querySelector('table.runs tbody tr').dataset.run !== id", arg=before)


def test_the_status_of_a_row_changes_by_itself(tab: Tab, api: Api) -> None:
    """Live: nobody reloads."""
    run = api.post("runs", {"workflow": "ping", "kwargs": {"number": 7}, "key": "live-ping", "paused": True})["id"]
    page = tab.go("/runs?q=live-ping")
    page.locator(f"tr[data-run='{run}'] .status", has_text="paused").wait_for()
    api.post(f"runs/{run}/resume", {})
    page.locator(f"tr[data-run='{run}'] .status", has_text="completed").wait_for()


def test_selected_runs_are_resumed_together(tab: Tab, api: Api) -> None:
    """Bulk actions ask first, then say how many they were."""
    page = tab.go("/runs?tag=batch:b1&status=paused")
    page.locator(ROWS).nth(1).wait_for()
    for name in ("paused-bulk-1", "paused-bulk-2"):
        page.locator(f"tr[data-run='{tab.world.runs[name]}'] input[type=checkbox]").check()
    page.get_by_role("toolbar", name="Actions for the selected runs").get_by_role("button", name="Resume").click()
    page.locator("dialog[open]", has_text="Resume 2 runs?").wait_for()
    tab.confirm("Resume")
    tab.told("2 runs resumed")
    tab.open("paused-bulk-1")
    tab.status("completed")
    assert api.get(f"runs/{tab.world.runs['paused']}")["status"] == "paused"


def test_all_runs_that_match_can_be_meant_beyond_those_that_are_shown(tab: Tab, api: Api) -> None:
    """Bulk actions by filter. Runs for which an action makes no sense are left alone, and counted."""
    for number in range(25):
        api.post("runs", {"workflow": "ping", "kwargs": {"number": number}})
    page = tab.go("/runs?workflow=ping")
    page.get_by_role("button", name="Load older runs").wait_for()
    page.get_by_label("Select all runs that are shown").check()
    page.get_by_role("button", name="select all that match").click()
    page.locator(".bulk").get_by_role("button", name="Resume").click()
    page.locator("dialog[open]", has_text="all runs that match the filters").wait_for()
    tab.confirm("Resume all")
    tab.told("0 runs resumed")


def test_the_keyboard_is_enough(tab: Tab) -> None:
    """j and k move, x selects, Enter opens, ? explains, Escape closes, g goes."""
    page = tab.go("/runs?workflow=order")
    page.locator(ROWS).first.wait_for()
    page.keyboard.press("?")
    page.locator("dialog[open]", has_text="Keys and shapes").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="detached")
    for key in "jjk":
        page.keyboard.press(key)
    marked = page.locator(f"{ROWS}.marked")
    assert marked.get_attribute("data-run") == page.locator(ROWS).first.get_attribute("data-run")
    page.keyboard.press("x")
    page.locator(".bulk", has_text="1 selected").wait_for()
    page.keyboard.press("Escape")
    page.locator(".bulk").wait_for(state="detached")
    page.keyboard.press("Enter")
    page.locator(".run-title").wait_for()
    for keys, title in (("gq", "Queues"), ("gt", "Timers"), ("gd", "Dead letters"), ("gr", "Runs")):
        page.keyboard.type(keys)
        page.locator("h1", has_text=title).wait_for()


def test_keys_work_after_a_box_was_ticked_with_the_mouse(tab: Tab) -> None:
    """A box takes no text, so nobody types into it."""
    page = tab.go("/runs?workflow=order")
    page.locator(f"{ROWS} input[type=checkbox]").first.click()
    page.locator(".bulk", has_text="1 selected").wait_for()
    page.keyboard.type("gq")
    page.locator("h1", has_text="Queues").wait_for()


def test_a_narrow_screen_shows_the_list_without_sideways_scrolling(tab: Tab) -> None:
    """360 px: rows become cards, and neither the page nor a table in it is wider than the screen."""
    tab.page.set_viewport_size({"width": 360, "height": 740})
    for place in ("/runs", "/queues", "/timers", "/dead", "/projections", "/definitions", "/settings"):
        page: Any = tab.go(place)
        page.locator("h1").wait_for()
        page.locator(".loading").first.wait_for(state="detached")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 360, place
        wide = (
            "[...document.querySelectorAll('.table-wrap')].filter(each => each.scrollWidth > each.clientWidth).length"
        )
        assert page.evaluate(wide) == 0, place
