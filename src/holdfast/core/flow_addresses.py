"""Where a node of a flow runs: `charge`, `charge@2.0` in loops, `charge[7]` and `charge@2.0[7]` in spreads.

A loop runs the same nodes again and again. The address carries the pass of every loop around the node, outermost
first, so that counters and inboxes of two passes never meet (I18).
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from holdfast.core.errors import UnknownNode

__all__ = ["FlowAddress", "address_text", "parse_address"]

_PLACE = re.compile(r"(?P<node>[^@\[\]]+)(?:@(?P<passes>\d+(?:\.\d+)*))?")


class FlowAddress(msgspec.Struct, frozen=True, gc=False):
    """A node, the pass of each loop around it, and its place among the elements of a spread."""

    node: str
    passes: tuple[int, ...] = ()
    index: int | None = None

    def __str__(self) -> str:
        return address_text(self.node, self.passes, self.index)


def address_text(node: str, passes: tuple[int, ...], index: int | None = None) -> str:
    """An address of these parts, as it is stored."""
    loops = "@" + ".".join(map(str, passes)) if passes else ""
    if index is not None:
        return f"{node}{loops}[{index}]"
    return node + loops if loops else node


def parse_address(text: str) -> FlowAddress:
    """The parts of an address; UnknownNode if it has not the form of one."""
    if not text.endswith("]"):
        place = _parse_place(text)
    else:  # an element: very many have one place, and each its own number
        before, _, index = text[:-1].rpartition("[")
        place = _parse_place(before) if index.isdecimal() else None
        if place is not None:
            return FlowAddress(place.node, place.passes, int(index))
    if place is None:
        raise UnknownNode(f"{text!r:.80} is no address of a flow's node", hint="an address looks like charge@2.0[7]")
    return place


@lru_cache(maxsize=4096)  # very many runs of a flow are at the same few places
def _parse_place(text: str) -> FlowAddress | None:
    found = _PLACE.fullmatch(text)
    if found is None:
        return None
    return FlowAddress(found["node"], tuple(map(int, found["passes"].split("."))) if found["passes"] else ())
