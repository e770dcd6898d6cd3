"""Which way a state graph's run has gone: for drawings, with the taken edges and the state of every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.queries import AllWork
from holdfast.core.rows import Run, Work
from holdfast.core.state_items import Item, node_of, step_of
from holdfast.graph_steps import Step, each_step
from holdfast.models.state_code import Unsealing

if TYPE_CHECKING:
    from holdfast.store.contract import Store

END: Final = ""  # of a branch; and what an entry comes from
# Of several items of one node in one step, the state that a person must know of first.
MOST_URGENT: Final = ("dead", "failed", "timed_out", "lost", "leased", "ready", "blocked", "cancelled", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOnPath:
    """A node that was reached: in how many steps, how many items it had in the last of them, and their state."""

    steps: int
    items: int
    state: str
    with_state: int

    @property
    def shown(self) -> str:
        """`completed`, `completed 3 times`, `leased 2 of 200`."""
        if self.items > 1:
            return f"{self.state} {self.with_state:,} of {self.items:,}"
        return self.state if self.steps == 1 else f"{self.state} {self.steps:,} times"


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """What a run has gone along: pairs of nodes (from "" at the start, to "" at the end of a branch), and the nodes."""

    taken: Mapping[tuple[str, str], int] = field(default_factory=dict)  # and how often
    nodes: Mapping[str, NodeOnPath] = field(default_factory=dict)


async def path_of(store: Store, run: Run, code: Unsealing) -> Path:
    """The way of a run up to now, as its checkpoints tell it."""
    taken: Counter[tuple[str, str]] = Counter()
    before: Step | None = None
    async for step in each_step(store, run, code):
        taken.update(pair for item in step.frontier for pair in _arrivals(item))
        if before is not None and before.row.step == step.row.step - 1:  # else what is between was pruned
            taken.update(_ends(before, step))
        before = step
    return Path(taken=dict(taken), nodes=_nodes(await store.rows(AllWork(run.id))))


def _arrivals(item: Item) -> list[tuple[str, str]]:
    return [(parent, item.node) for parent, _ in item.parents] or [(END, item.node)]


def _ends(before: Step, after: Step) -> list[tuple[str, str]]:
    """The nodes of a step that led nowhere."""
    led_on = {parent for item in after.frontier for parent, _ in item.parents}
    return [(item.node, END) for item in before.frontier if item.node not in led_on]


def _nodes(work: list[Work]) -> dict[str, NodeOnPath]:
    latest: dict[str, Work] = {item.node: item for item in work}  # of several attempts the last
    by_step: dict[str, dict[int, list[Work]]] = {}
    for address, item in latest.items():
        by_step.setdefault(node_of(address), {}).setdefault(step_of(address), []).append(item)
    found = {}
    for node, steps in by_step.items():
        items = steps[max(steps)]
        counted = Counter(item.status for item in items)
        state = next((each for each in MOST_URGENT if each in counted), items[0].status)
        found[node] = NodeOnPath(steps=len(steps), items=len(items), state=state, with_state=counted[state])
    return found
