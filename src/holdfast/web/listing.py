"""The table of routes for the documentation: `python -m holdfast.web.listing docs/http.md` writes it anew."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from holdfast.web.routes import ROUTES, Route

BEGIN: Final = "<!-- routes: begin -->"
END: Final = "<!-- routes: end -->"


def listed(routes: Iterable[Route]) -> str:
    """The table in Markdown, between its marks."""
    lines = ["| method | address | role | what it does |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {route.method} | `{route.shown_path}` | {route.role.word} | {route.summary} |"
        for route in sorted(routes, key=lambda route: not route.path.startswith("/api"))
    ]
    return "\n".join([BEGIN, *lines, END])


def rewritten(page: str) -> str:
    """A page with the table of today in the place of the one that it had."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + listed(ROUTES) + after


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
