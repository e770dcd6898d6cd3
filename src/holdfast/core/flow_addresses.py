"""Where a node of a flow runs: `charge`, `charge@2.0` in loops, `charge[7]` and `charge@2.0[7]` in spreads.

A loop runs the same nodes again and again. The address carries the pass of every loop around the node, outermost
first, so that counters and inboxes of two passes never meet (I18).
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from holdfast.core.errors import UnknownNode

__all__ = ["FlowAddress", "parse_address"]

_FORM = re.compile(r"(?P<node>[^@\[\]]+)(?:@(?P<passes>\d+(?:\.\d+)*))?(?:\[(?P<index>\d+)\])?")


class FlowAddress(msgspec.Struct, frozen=True, gc=False):
    """A node, the pass of each loop around it, and its place among the elements of a spread."""

    node: str
    passes: tuple[int, ...] = ()
    index: int | None = None

    def __str__(self) -> str:
        loops = "@" + ".".join(map(str, self.passes)) if self.passes else ""
        element = "" if self.index is None else f"[{self.index}]"
        return f"{self.node}{loops}{element}"


@lru_cache(maxsize=4096)  # very many runs of a flow are at the same few addresses
def parse_address(text: str) -> FlowAddress:
    """The parts of an address; UnknownNode if it has not the form of one."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise UnknownNode(f"{text!r:.80} is no address of a flow's node", hint="an address looks like charge@2.0[7]")
    passes = tuple(map(int, found["passes"].split("."))) if found["passes"] else ()
    return FlowAddress(found["node"], passes, None if found["index"] is None else int(found["index"]))
