"""The page of one run: why it is as it is, what can be done about it, and what it did."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.web.browser.conftest import Api, Tab
from tests.web.browser.scene import SCRIPT

pytestmark = pytest.mark.xdist_group("browser")  # one world, which they change


def test_a_failed_run_says_why_and_a_retry_from_the_page_finishes_it(tab: Tab, api: Api) -> None:
    """Issue 10, 5: why it is stuck, the fix, and the end, from the page alone."""
    page = tab.open("failed")
    tab.status("failed")
    page.locator(".explanation .headline", has_text="charge_card gave up after 3 attempts").wait_for()
    page.locator(".causes li", has_text="run what gave up again").get_by_role(
        "button", name="Retry", exact=True
    ).click()
    page.locator("dialog[open]", has_text="What was done stays done").wait_for()
    tab.confirm("Retry")
    tab.status("completed")
    page.keyboard.press("3")
    page.locator(".history .entry", has_text="retr").first.wait_for()
    page.locator(".history .by", has_text="by http").first.wait_for()


def test_a_node_is_skipped_where_the_explanation_offers_it(tab: Tab) -> None:
    page = tab.open("restock-lamp")
    tab.status("paused")
    page.get_by_role("button", name="Skip ask_supplier", exact=True).click()
    tab.confirm("Skip it")
    tab.status("completed")
    page.locator(".node[data-node=ask_supplier][aria-label*=skipped]").wait_for()


def test_a_node_is_done_again_from_its_panel(tab: Tab) -> None:
    """The panel has the attempts with their errors, and a reattempt."""
    page = tab.open("restock-chair")
    page.locator(".node[data-node=ask_supplier]").click()
    panel = page.get_by_role("complementary", name="Node ask_supplier")
    panel.locator(".attempt", has_text="no chair left at the supplier").wait_for()
    assert "node=ask_supplier" in page.url
    panel.get_by_role("button", name="Do again").click()
    tab.confirm("Do it again")
    tab.status("completed")
    panel.locator(".attempt", has_text="Attempt 2").wait_for()
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")


def test_a_run_is_forked_from_a_node(tab: Tab) -> None:
    """A new run takes over what came before, and does the rest itself."""
    page = tab.open("order-1001", "graph", node="pack")
    page.get_by_role("button", name="Fork from here").click()
    page.locator("dialog[open]", has_text="before pack").wait_for()
    tab.confirm("Fork")
    page.get_by_role("link", name="Open the new run").click()
    page.wait_for_url(lambda url: tab.world.runs["order-1001"] not in url)
    tab.status("completed")


def test_a_run_is_paused_with_a_reason_and_resumed(tab: Tab) -> None:
    page = tab.open("onboard-Grace")
    tab.status("suspended")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator("dialog[open] input").fill("the board is on holiday")
    tab.confirm("Pause")
    tab.status("paused")
    page.locator(".explanation", has_text="the board is on holiday").wait_for()
    page.get_by_role("toolbar").get_by_role("button", name="Resume").click()
    tab.confirm("Resume")
    tab.status("suspended")


def test_a_run_is_cancelled_after_a_question(tab: Tab) -> None:
    """What cannot be taken back says so, and not now means nothing happens."""
    page = tab.open("to-cancel")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("dialog[open]", has_text="This cannot be taken back").wait_for()
    page.get_by_role("button", name="Not now").click()
    page.locator("dialog[open]").wait_for(state="detached")
    tab.status("running")
    page.get_by_role("button", name="Cancel", exact=True).click()
    tab.confirm("Cancel the run")
    tab.status("cancelled")


def test_a_run_that_waits_for_another_leads_to_it(tab: Tab) -> None:
    page = tab.open("parent")
    page.get_by_role("link", name="Open that run").first.click()
    page.locator(".crumbs", has_text="parent").wait_for()
    page.locator(".explanation", has_text=re.compile("sleep|until|timer", re.IGNORECASE)).wait_for()


def test_a_run_that_nobody_serves_names_the_command_that_helps(tab: Tab) -> None:
    """Issue 10, 5: some fixes need a terminal, and the page says which command."""
    page = tab.open("unserved")
    page.locator(".causes .command", has_text="--queue gpu").wait_for()


def test_an_event_that_a_run_waits_for_is_sent(tab: Tab) -> None:
    page = tab.open("onboard-Ada")
    page.locator(".explanation", has_text="membership-approved").wait_for()
    page.get_by_role("button", name="Send membership-approved", exact=True).click()
    page.locator("dialog[open] textarea").fill('{"by": "the board"}')
    tab.confirm("Send")
    tab.told("membership-approved was delivered")
    tab.status("completed")
    page.get_by_role("tab", name="Details").click()
    page.locator(".payload", has_text="account-ada").first.wait_for()


def test_the_dialog_says_what_the_event_carries(tab: Tab) -> None:
    """The fields of the event's type, to be filled in; and a refusal stands where it was caused."""
    tab.expected = ("422",)
    page = tab.open("onboard-Grace")
    page.get_by_role("button", name="Send membership-rejected", exact=True).click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_role("list", name="Fields of Decision").locator("li", has_text="by").wait_for()
    assert '"by": ""' in dialog.locator("textarea").input_value()
    dialog.locator("textarea").fill('{"who": "nobody"}')
    tab.confirm("Send")
    dialog.locator("[role=alert]", has_text="by").wait_for()
    page.locator(".toast").wait_for(state="detached")


def test_what_is_waited_for_is_said_once(tab: Tab) -> None:
    """Whole ids and the same wait in three places make nobody wiser."""
    page = tab.open("parent")
    page.locator(".explanation .headline", has_text="since").wait_for()
    assert page.locator(".causes li, .waits li").count() == 2
    assert tab.world.runs["parent"][:18] not in page.locator(".explanation").inner_text()


def test_show_the_error_shows_all_of_it(tab: Tab) -> None:
    page = tab.open("failed-too")
    page.get_by_role("button", name="Show the error").click()
    page.locator(".tab-details .failure pre", has_text="Traceback").wait_for()


def test_broken_json_is_not_sent(tab: Tab) -> None:
    page = tab.open("onboard-Grace")
    page.get_by_role("button", name="Send event").click()
    page.locator("dialog[open] textarea").fill('{"by": ')
    page.locator("dialog[open]", has_text="not valid JSON").wait_for()
    assert page.locator("dialog[open] button[type=submit]").is_disabled()


def test_a_question_is_answered(tab: Tab) -> None:
    """Approvals: the question and its form stand above everything else."""
    page = tab.open("agent")
    page.locator(".question", has_text="may I send this").get_by_role("button", name="yes").click()
    page.locator("dialog[open]", has_text="Answer yes?").wait_for()
    tab.confirm("Answer yes")
    tab.status("completed")
    page.locator(".question").wait_for(state="detached")


def test_a_run_that_called_nothing_says_so_and_its_long_name_stays_on_the_page(tab: Tab, api: Api) -> None:
    """It has ended: nothing is still to begin."""
    run = api.post("runs", {"workflow": "ponder" * 40})["id"]
    page = tab.go(f"/runs/{run}?tab=timeline")
    tab.status("completed")
    page.locator(".empty h2", has_text="Nothing took time").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    widest = "Math.max(...[...document.querySelectorAll('.crumbs a')].map(each => each.getBoundingClientRect().right))"
    assert page.evaluate(widest) <= 1280


def test_scripts_in_payloads_stay_text(tab: Tab) -> None:
    """Keys, tags, inputs and questions are shown, never taken as markup."""
    page = tab.open("script", "details")
    page.locator("h1", has_text="<script>").wait_for()
    assert page.locator("h1").inner_text() == SCRIPT
    page.locator(".leaf", has_text="note:").wait_for()
    assert SCRIPT in page.locator(".leaf", has_text="note:").inner_text()
    page.get_by_role("button", name="Raw").first.click()
    page.locator("pre.raw", has_text="<script>").wait_for()
    assert page.locator("main img, main script, main b").count() == 0
    assert page.title() != "owned"


def test_a_graph_has_live_states_attempts_and_the_way_that_was_taken(tab: Tab) -> None:
    page = tab.open("order-1005", "graph")
    page.locator(".node[data-node=charge_card] .badge", has_text="2").wait_for()
    assert page.locator(".node.tone-good").count() == 5
    assert page.locator(".edge.taken").count() == 5
    drawing = page.locator(".graph-drawing > g").last
    before = drawing.get_attribute("transform")
    page.get_by_role("button", name="Zoom in").click()
    assert drawing.get_attribute("transform") != before
    page.keyboard.press("0")
    page.locator(".graph-drawing").hover()
    page.mouse.wheel(0, -300)
    page.mouse.down()
    page.mouse.move(400, 500)
    page.mouse.up()
    page.locator(".graph-drawing").focus()
    moved = drawing.get_attribute("transform")
    page.keyboard.press("ArrowLeft")
    assert drawing.get_attribute("transform") != moved


def test_a_box_grows_with_what_is_written_in_it(tab: Tab, api: Api) -> None:
    """A text that comes later is not cut to the room that was there before."""
    later: list[str] = []

    def told(route: Any) -> None:
        answer = route.fetch()
        view = answer.json()
        for node in view["nodes"]:
            if later and node["id"] == "pack":
                node.update(detail=later[0], attempts=12)
        route.fulfill(response=answer, json=view)

    tab.page.route("**/api/v1/runs/*/graph*", told)
    run = api.post("runs", {"workflow": "order", "kwargs": {"number": 3}, "key": "grows", "paused": True})["id"]
    page = tab.go(f"/runs/{run}?tab=graph")
    node = page.locator(".node[data-node=pack]")
    node.wait_for()
    before = float(node.locator(".ground").get_attribute("width"))
    later.append("needs 2 of 2 boxes first")
    api.post(f"runs/{run}/resume", {})
    node.locator(".node-detail", has_text=re.compile("boxes first$")).wait_for()
    node.locator(".badge", has_text="12").wait_for()
    assert float(node.locator(".ground").get_attribute("width")) > before


def test_loops_are_drawn_as_such(tab: Tab) -> None:
    page = tab.open("agent-answered", "graph")
    page.locator(".node[data-node=think]").wait_for()
    assert page.locator(".edge.loop.taken").count() == 2
    page.locator(".node[data-node=think]").click()
    page.get_by_role("complementary").locator("summary", has_text="think@5").wait_for()


def test_a_wide_fan_out_is_one_node_that_opens(tab: Tab) -> None:
    page = tab.open("wide", "graph")
    page.locator(".node.group").click()
    panel = page.get_by_role("complementary")
    panel.locator(".members li").first.wait_for()
    # What needs somebody comes first.
    assert panel.locator(".members li").first.inner_text().startswith("import_0077")
    panel.locator(".members button").first.click()
    panel.locator(".attempt", has_text="shop 77 does not answer").wait_for()
    page.get_by_role("button", name=re.compile("^Close import_shop")).click()
    page.locator(".node.group").wait_for()


def test_five_thousand_nodes_can_be_seen_and_chosen(tab: Tab) -> None:
    """Laid out beside the page, drawn as blocks from far away, and only what is in view from near."""
    page = tab.open("huge", "graph", all="1")
    page.locator(".graph-drawing .far").first.wait_for()
    box = page.locator(".graph-drawing").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for _ in range(6):
        page.mouse.move(x, y)
        page.mouse.wheel(0, -400)
    page.locator(".node").first.wait_for()
    assert page.locator(".node").count() < 500
    # One that is in the middle of the drawing: others are drawn beyond its edge.
    middles = page.locator(".node .ground").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).map(b => [b.x + b.width / 2, b.y + b.height / 2])"
    )
    page.mouse.click(*min(middles, key=lambda middle: abs(middle[0] - x) + abs(middle[1] - y)))
    page.get_by_role("complementary").locator("h2", has_text="import_").wait_for()


def test_a_worker_that_was_killed_is_seen_in_the_timeline(tab: Tab) -> None:
    """SIGKILL in the middle of a step: one attempt lost, the next one done."""
    page = tab.open("killed", "timeline")
    lane = page.locator(".lane", has_text="count_shelves")
    lane.locator(".bar.attempt[aria-label*='attempt 1, lost']").wait_for()
    lane.locator(".bar.attempt[aria-label*='attempt 2, completed']").click()
    page.locator(".chosen-bar", has_text="attempt 2, completed").wait_for()
    shown = page.locator(".chart-axis .lane-label").inner_text()
    page.get_by_role("button", name="Zoom in").click()
    assert page.locator(".chart-axis .lane-label").inner_text() != shown
    page.keyboard.press("0")
    assert page.locator(".chart-axis .lane-label").inner_text() == shown


def test_a_retry_is_a_bar_of_its_own_and_what_runs_grows(tab: Tab) -> None:
    page = tab.open("order-1010", "timeline")
    page.locator(".lane", has_text="charge_card").locator(".bar.tone-bad").wait_for()
    # What waited for something that never came stopped waiting when the run ended.
    tab.open("failed-too", "timeline")
    page.locator(".lane", has_text="pack").locator(".bar.wait").wait_for()
    assert page.locator(".bar.open").count() == 0
    tab.open("running", "timeline")
    bar = page.locator(".bar.attempt.open")
    bar.wait_for()
    told = bar.get_attribute("aria-label")
    page.wait_for_function("told => document.querySelector('.bar.attempt.open').ariaLabel !== told", arg=told)


def test_a_moment_beside_a_long_wait_can_still_be_seen_and_hit(tab: Tab) -> None:
    """Bars have a least width: an action of 30 ms beside hours of sleep."""

    def two_hours_later(route: Any) -> None:
        answer = route.fetch()
        told = answer.json()
        told["now"] = (datetime.fromisoformat(told["now"]) + timedelta(hours=2)).isoformat()
        route.fulfill(response=answer, json=told)

    tab.page.route("**/timeline*", two_hours_later)
    page = tab.open("sleeping", "timeline")
    page.locator(".chart-axis", has_text="2 h").wait_for()
    assert min(page.locator(".lane .bar").evaluate_all("bars => bars.map(bar => bar.offsetWidth)")) >= 5


def test_history_is_readable_and_its_payloads_open(tab: Tab) -> None:
    page = tab.open("onboard-Grace", "history")
    page.locator(".history .entry").first.wait_for()
    page.locator(".history .entry button", has_text="more").first.click()
    page.locator(".entry-payload .tree").wait_for()


def test_the_state_of_a_decider_can_be_seen_after_any_event(tab: Tab) -> None:
    page = tab.open("account", "state")
    page.locator("section[aria-label=State] .leaf", has_text="cents: 5900").wait_for()
    page.get_by_role("button", name="One event back").click()
    page.locator("section[aria-label=State] .leaf", has_text="cents: 6200").wait_for()
    assert "at=2" in page.url
    page.locator(".stream li", has_text="Deposited").first.locator("button").first.click()
    page.locator("section[aria-label=State] .leaf", has_text="cents: 5000").wait_for()


def test_the_steps_of_a_state_graph_show_what_changed_and_can_be_forked(tab: Tab) -> None:
    page = tab.open("agent-answered", "state", step="2")
    page.locator(".diff th", has_text="messages").wait_for()
    page.locator(".diff .after", has_text="lamp: 40").wait_for()
    page.locator(".stream button", has_text="send_mail").click()
    page.locator(".diff .after", has_text="the 3 before stay").locator(".leaf", has_text="mail: yes").wait_for()
    page.locator(".stream button", has_text="look_up").click()
    page.get_by_role("button", name="Fork from here").click()
    tab.confirm("Fork")
    page.get_by_role("link", name="Open the new run").click()
    page.locator(".question", has_text="may I send this").wait_for()
    assert tab.world.runs["agent-answered"] not in page.url


def test_a_run_that_is_not_there_is_told_with_what_to_do(tab: Tab) -> None:
    tab.expected = ("404",)
    page = tab.go("/runs/01a1e10b-0000-7000-8000-000000000000")
    page.locator(".empty", has_text="There is no such run").wait_for()
    page.get_by_role("link", name="Search for similar ids").click()
    page.locator("h1", has_text="Runs").wait_for()


def test_a_narrow_screen_shows_a_run_without_sideways_scrolling(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 360, "height": 740})
    for name, view in (("failed-too", "graph"), ("account", "state"), ("order-1010", "timeline"), ("wide", "details")):
        page = tab.open(name, view)
        page.locator(".tab-panel").wait_for()
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 360, (name, view)
