"""What the first visit costs."""

from __future__ import annotations

import hashlib
import json
from importlib import resources

import pytest

from tests.web.browser.conftest import Tab

pytestmark = pytest.mark.xdist_group("browser")  # one world, which they change

MOST_BYTES = 150_000
MEANT_BYTES = 60_000  # what it is today, with room: a new dependency should be noticed
SOURCE = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"


def test_the_first_page_is_light_and_all_of_it_comes_from_the_server(tab: Tab) -> None:
    """Issue 10, 4: below 150 kB, compressed, in total; no CDN, no web font, nothing inline."""
    page = tab.go("/runs")
    page.locator("table.runs tbody tr").first.wait_for()
    loaded = page.evaluate(f"{SOURCE}.map(each => [each.name, each.encodedBodySize])")
    assert all(name.startswith(tab.world.url) for name, _ in loaded)
    files = {name.rpartition("/")[2].partition("?")[0]: size for name, size in loaded if "/api/" not in name}
    assert sum(files.values()) < MEANT_BYTES < MOST_BYTES, files
    assert sum(size for _, size in loaded) < MOST_BYTES
    assert page.locator("script:not([src]), style, [onclick]").count() == 0


def test_the_page_that_is_installed_is_the_one_that_was_built() -> None:
    """Every file fits the manifest, and there is none beside it; `tools/check_ui.py` holds it against ui/."""
    folder = resources.files("holdfast.web") / "_ui"
    told = json.loads((folder / "manifest.json").read_text())["files"]
    found = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in [
            *(f"assets/{each.name}" for each in (folder / "assets").iterdir()),
            *(each.name for each in folder.iterdir() if each.is_file() and each.name != "manifest.json"),
        ]
    }
    assert found == {name: each["sha256"] for name, each in told.items()}


@pytest.mark.timing
def test_the_first_page_is_there_within_a_second(tab: Tab) -> None:
    """Issue 10, 4: under 1 s, from nothing to rows."""
    times = []
    for _ in range(3):
        page = tab.go("/runs")
        page.locator("table.runs tbody tr").first.wait_for()
        times.append(page.evaluate("performance.now()"))
    assert min(times) < 1_000, times
