"""Where a graph goes after a step. Pure: the same outcomes and the same state give the same items in the same order."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import NoProgress
from holdfast.core.state_items import Item, edge_path, entry_path, in_merge_order, join_path
from holdfast.core.state_outcomes import Fields, Outcome
from holdfast.models.state_code import GraphCode

Settled = tuple[Item, Outcome]


def first_items(code: GraphCode) -> tuple[Item, ...]:
    return tuple(in_merge_order(Item(node=node, path=entry_path(node)) for node in code.entries))


def next_items(code: GraphCode, settled: Sequence[Settled], state: Fields) -> tuple[Item, ...]:
    """The frontier after a step, in merge order; empty when the run is complete.

    I40: all edges whose condition holds are taken; what a node answered takes their place. A branch may end at a node
    in `finish` only. I41: a node that several edges led to is one item; each sent item is one of its own.
    """
    if any(outcome.stop for _, outcome in settled):
        return ()
    arrivals: dict[str, list[tuple[Item, int]]] = {}
    items: list[Item] = []
    for item, outcome in settled:
        if outcome.route is None:
            edges = code.taken(item.node, state)
            if not edges and item.node not in code.finish:
                raise NoProgress(
                    f"node {item.node} of graph {code.name} finished, none of its edges was taken, and it is not in "
                    "finish",
                    hint=f"let one of its edges hold always, or say g.finish({item.node!r})",
                )
            for edge, target in edges:
                arrivals.setdefault(target, []).append((item, edge))
            continue
        if not outcome.route and item.node not in code.finish:
            raise NoProgress(
                f"node {item.node} of graph {code.name} answered with an empty list of nodes to go to, and it is not "
                "in finish",
                hint=f"say g.finish({item.node!r}) if its branch may end there, or return None to follow its edges",
            )
        for edge, route in enumerate(outcome.route):
            target = code.route_to(route)
            if route.sent is None:
                arrivals.setdefault(target, []).append((item, edge))
            else:
                path = edge_path(item.path, target, edge)
                items.append(Item(node=target, path=path, parents=((item.node, edge),), sent=route.sent))
    items += [_arrived(target, by) for target, by in arrivals.items()]
    return tuple(in_merge_order(items))


def _arrived(target: str, by: list[tuple[Item, int]]) -> Item:
    if len(by) == 1:
        ((parent, edge),) = by
        return Item(node=target, path=edge_path(parent.path, target, edge), parents=((parent.node, edge),))
    path = join_path(target, [(parent.path, edge) for parent, edge in by])
    return Item(node=target, path=path, parents=tuple(sorted((parent.node, edge) for parent, edge in by)))
