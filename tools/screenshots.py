"""Make the pictures of the page in docs/images, of the world that its tests use: `python tools/screenshots.py`.

Each is 1280 by 800, light and dark. Needs a Chromium and the package playwright.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.web.browser.conftest import ARGUMENTS, CHROMIUM, WIDE  # noqa: E402
from tests.web.browser.scene import Scene, scene  # noqa: E402

IMAGES = ROOT / "docs" / "images"
# Name, place, and what must be there before the picture is taken. {name} is the id of a run of the scene.
PICTURES = (
    ("runs", "/runs", "table.runs tbody tr"),
    ("run-failed", "/runs/{failed}?tab=graph&node=charge_card", ".attempt"),
    ("run-fan-out", "/runs/{wide}?tab=graph", ".node.group"),
    ("run-timeline", "/runs/{failed}?tab=timeline", ".bar"),
    ("run-waiting", "/runs/{onboard-Ada}?tab=graph", ".node"),
    ("run-question", "/runs/{agent}?tab=graph", ".node"),
    ("run-loop", "/runs/{flow}?tab=graph", ".node"),
    ("run-state", "/runs/{account}?tab=state", ".stream li"),
    ("run-steps", "/runs/{agent-answered}?tab=state", ".diff"),
    ("queues", "/queues", "table"),
    ("dead-letters", "/dead", ".letter"),
    ("projections", "/projections", ".row-error"),
    ("definition", "/definitions/order", ".node"),
)


def take(browser: Any, world: Scene, scheme: str) -> None:
    """All pictures in one colour scheme."""
    context = browser.new_context(viewport=WIDE, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    for name, place, sight in PICTURES:
        page.goto("about:blank")
        page.goto(f"{world.url}#{_filled(place, world)}")
        page.locator(sight).first.wait_for()
        page.locator(".live-mark.open").wait_for()
        page.wait_for_load_state("load")
        page.evaluate("new Promise(done => setTimeout(done, 300))")
        page.screenshot(path=IMAGES / f"{name}-{scheme}.png")
    context.close()


def _filled(place: str, world: Scene) -> str:
    for name, run in world.runs.items():
        place = place.replace(f"{{{name}}}", quote(run, safe=""))
    return place


def main() -> None:
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        raise SystemExit("there is no chromium: install it (apt-get install chromium), or name it in CHROMIUM")
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        scene(Path(folder)) as world,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for scheme in ("light", "dark"):
            take(browser, world, scheme)
        browser.close()
    print(f"{2 * len(PICTURES)} pictures in {IMAGES.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
