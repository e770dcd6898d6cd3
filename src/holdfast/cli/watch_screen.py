"""Parts of a screen, each of a known number of lines: nothing wraps unless it is a sentence, and that is cut."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.output import GAP, STYLES, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

NARROWEST: Final = 20


def styled(text: str, status: str | None = None, style: str = "") -> Text:
    """One line of text in the colour of a status; what others wrote cannot move the cursor."""
    from rich.text import Text

    flat = printable(text.replace("\n", " "))
    return Text(flat, style=STYLES.get(status or "", style), no_wrap=True, overflow="ellipsis")


def cell(value: str) -> Text:
    """A text in the colour of the status that it carries, if any."""
    return styled(value, getattr(value, "status", None))


def heading(text: str) -> Text:
    """The name of a part."""
    return styled(text, style="bold")


def dim(text: str) -> Text:
    """A remark."""
    return styled(text, style="dim")


def sentence(text: str, width: int, most: int, status: str | None = None) -> list[Text]:
    """A text in at most so many lines, broken between words."""
    lines = textwrap.wrap(
        printable(" ".join(text.split())), max(NARROWEST, width), max_lines=most or None, placeholder=" …"
    )
    return [styled(line, status) for line in lines]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, cut: int) -> list[Text]:
    """Aligned lines, the first with the names of the columns. Column number `cut` gives way where room is short."""
    from rich.cells import cell_len
    from rich.text import Text

    cells = [[cell(value) for value in row] for row in rows]
    widths = [
        max(cell_len(line[at].plain) for line in [[styled(h) for h in headers], *cells]) for at in range(len(headers))
    ]
    others = sum(size + GAP for at, size in enumerate(widths) if at != cut)
    widths[cut] = min(widths[cut], max(NARROWEST // 2, width - others))
    lines = []
    for line in [[dim(header) for header in headers], *cells]:
        whole = Text(no_wrap=True, overflow="ellipsis")
        for at, part in enumerate(line):
            part.truncate(widths[at], overflow="ellipsis", pad=at < len(line) - 1)
            whole.append_text(part)
            whole.append(" " * GAP if at < len(line) - 1 else "")
        whole.rstrip()
        whole.truncate(width, overflow="ellipsis")
        lines.append(whole)
    return lines


def stacked(lines: Sequence[Text], height: int, footer: Sequence[Text] = ()) -> RenderableType:
    """The lines from the top and the footer at the bottom, in so many lines; with height 0, whole."""
    from rich.console import Group
    from rich.text import Text

    if not height:
        return Group(*lines)
    room = max(0, height - len(footer))
    shown = list(lines[:room])
    return Group(*shown, *(Text("") for _ in range(room - len(shown))), *footer[: height - len(shown)])


__all__ = ["cell", "dim", "heading", "sentence", "stacked", "styled", "table"]
