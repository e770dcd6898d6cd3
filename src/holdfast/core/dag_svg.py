"""A graph as an SVG picture, drawn here and needing nothing else: boxes level by level, and lines from parent to child.

Siblings with the same parents, children and job are one box, as in the drawing for terminals: a fan-out of thousands
stays a picture that can be looked at. Text in it comes from users, so all of it is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from holdfast.core.dag_drawing import COLOURS, NOT_REACHED, alike, levels_of, printable

if TYPE_CHECKING:  # a graph draws itself with this module
    from holdfast.core.graph import Graph, Node

__all__ = ["svg"]

FONT: Final = 13
CHARACTER: Final = 7.9  # of a monospaced font of that size: nothing here can measure text
LONGEST: Final = 40
PADDING: Final = 12
LINE: Final = 18
BOX: Final = 46
ACROSS: Final = 24
DOWN: Final = 44
MARGIN: Final = 16
PLAIN: Final = {"fill": "#f7f9fb", "stroke": "#607d8b", "color": "#1b1f23"}


class _Box:
    """A group of nodes with its place in the picture."""

    def __init__(self, group: Sequence[Node], states: Mapping[str, str] | None) -> None:
        self.group = group
        self.title = _label(group)
        self.state, self.status = _state(group, states)
        longest = max(len(_cut(self.title)), len(_cut(self.state)))
        self.width = longest * CHARACTER + 2 * PADDING
        self.x = 0.0
        self.y = 0.0

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def svg(graph: Graph, states: Mapping[str, str] | None) -> str:
    """A picture of the graph; a node in `states` shows its status, in that status's colour."""
    boxes = [_Box(group, states) for group in alike(graph)]
    box_of = {node.id: box for box in boxes for node in box.group}
    parents = {box: [*dict.fromkeys(box_of[each] for each in box.group[0].depends_on)] for box in boxes}
    width, height = _place(boxes, parents, levels_of(graph))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{FONT}">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#78909c"/></marker></defs>',
    ]
    lines += [_edge(parent, box) for box in boxes for parent in parents[box]]
    lines += [_drawn(box) for box in boxes]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _place(
    boxes: Sequence[_Box], parents: Mapping[_Box, Sequence[_Box]], levels: Mapping[str, int]
) -> tuple[float, float]:
    """Give every box its place, beside its level's others and below what it waits for; the size of the picture."""
    rows: dict[int, list[_Box]] = {}
    for box in boxes:
        rows.setdefault(levels[box.group[0].id], []).append(box)
    widest = max(sum(box.width for box in row) + ACROSS * (len(row) - 1) for row in rows.values())
    for number, level in enumerate(sorted(rows)):
        row = rows[level]
        # Near its parents, so that lines cross less; sorting is stable, and the definition decides the rest.
        row.sort(key=lambda box: _mean([parent.middle for parent in parents[box]]))
        x = MARGIN + (widest - sum(box.width for box in row) - ACROSS * (len(row) - 1)) / 2
        for box in row:
            box.x, box.y = x, MARGIN + number * (BOX + DOWN)
            x += box.width + ACROSS
    return widest + 2 * MARGIN, len(rows) * (BOX + DOWN) - DOWN + 2 * MARGIN


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _edge(parent: _Box, child: _Box) -> str:
    top, bottom = parent.y + BOX, child.y - 2
    bend = (bottom - top) / 2
    path = (
        f"M{parent.middle:.1f} {top:.1f}C{parent.middle:.1f} {top + bend:.1f} "
        f"{child.middle:.1f} {bottom - bend:.1f} {child.middle:.1f} {bottom:.1f}"
    )
    return f'<path d="{path}" fill="none" stroke="#78909c" marker-end="url(#tip)"/>'


def _drawn(box: _Box) -> str:
    look = PLAIN | dict(part.split(":") for part in COLOURS.get(box.status, "").split(",") if part)
    shape = (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{BOX}" rx="6" '
        f'fill="{look["fill"]}" stroke="{look["stroke"]}"/>'
    )
    if len(box.group) > 1:  # a second edge behind it: there is more than one
        shape = (
            f'<rect x="{box.x + 4:.1f}" y="{box.y + 4:.1f}" width="{box.width:.1f}" height="{BOX}" rx="6" '
            f'fill="{look["fill"]}" stroke="{look["stroke"]}"/>{shape}'
        )
    first = box.y + BOX / 2 + (FONT / 3 if not box.state else FONT / 3 - LINE / 2)
    texts = _text(box, first, box.title, look["color"])
    if box.state:
        texts += _text(box, first + LINE, box.state, look["color"], opacity=0.75)
    hover = escape(f"{box.title}: {box.state}" if box.state else box.title)
    return f"<g><title>{hover}</title>{shape}{texts}</g>"


def _text(box: _Box, y: float, text: str, colour: str, opacity: float = 1.0) -> str:
    faint = "" if opacity == 1.0 else f' opacity="{opacity}"'
    place = f'x="{box.middle:.1f}" y="{y:.1f}" text-anchor="middle"'
    return f'<text {place} fill="{colour}"{faint}>{escape(_cut(text))}</text>'


def _label(group: Sequence[Node]) -> str:
    first = printable(group[0].name)
    return first if len(group) == 1 else f"{first} … {printable(group[-1].name)}"


def _state(group: Sequence[Node], states: Mapping[str, str] | None) -> tuple[str, str]:
    """What the box says below its name, and the status that colours it: of several, what a person must see first."""
    if len(group) == 1:
        state = printable((states or {}).get(group[0].id) or "")
        return state, state.partition(" ")[0]
    if states is None:
        return f"{len(group):,} nodes", ""
    counted = Counter((states.get(node.id) or NOT_REACHED).partition(" (")[0] for node in group)
    urgent = ("dead", "failed", "timed_out", "lost", "leased", "ready", "blocked", "cancelled", "skipped", "completed")
    shown = ", ".join(f"{count:,} {printable(state)}" for state, count in counted.most_common())
    return shown, next((state for state in urgent if state in counted), "")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
