"""Random graphs, the same for the same seed: as the kernel's value, as a built DAG and as a class."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import holdfast as hf
from holdfast.core.graph import Graph, Node

LARGEST = 300
Shape = dict[str, tuple[str, ...]]
"""Names with the names of what they depend on, in an order in which parents come first."""


def random_size(chance: random.Random) -> int:
    """Mostly small, because a small DAG has the same joins and takes no time; now and then the largest."""
    low, high = chance.choices([(1, 12), (13, 60), (61, 150), (LARGEST, LARGEST)], [8, 7, 4, 1])[0]
    return chance.randint(low, high)


def random_shape(chance: random.Random, size: int) -> Shape:
    """One of several kinds of graph, with this many nodes."""
    names = [f"n{number}" for number in range(size)]
    kind = chance.choice([_sparse, _dense_layers, _fan_out_and_in, _ladder, _forest])
    return kind(chance, names)


def _sparse(chance: random.Random, names: list[str]) -> Shape:
    """Each node waits for up to three of the last twenty before it."""
    return {
        name: tuple(chance.sample(names[max(0, at - 20) : at], min(at, chance.randint(0, 3))))
        for at, name in enumerate(names)
    }


def _dense_layers(chance: random.Random, names: list[str]) -> Shape:
    """Layers, each node waiting for most of the layer before."""
    shape: Shape = {}
    before: list[str] = []
    rest = list(names)
    while rest:
        width = chance.randint(1, 12)
        layer, rest = rest[:width], rest[width:]
        for name in layer:
            shape[name] = tuple(parent for parent in before if chance.random() < 0.8) or tuple(before[:1])
        before = layer
    return shape


def _fan_out_and_in(chance: random.Random, names: list[str]) -> Shape:
    """One, then very many, then one that waits for them all, and so on."""
    shape: Shape = {}
    before: tuple[str, ...] = ()
    rest = list(names)
    while rest:
        shape[rest[0]] = before
        first, rest = rest[0], rest[1:]
        width = chance.randint(1, 100)
        many, rest = rest[:width], rest[width:]
        shape |= {name: (first,) for name in many}
        before = tuple(many) or (first,)
    return shape


def _ladder(chance: random.Random, names: list[str]) -> Shape:
    """Two chains with rungs between them: diamonds upon diamonds."""
    shape: Shape = {}
    for at, name in enumerate(names):
        parents = [names[at - 2]] if at > 1 else []
        if at % 2 and chance.random() < 0.5:
            parents.append(names[at - 1])
        shape[name] = tuple(parents)
    return shape


def _forest(chance: random.Random, names: list[str]) -> Shape:
    """Trees: nobody waits for more than one."""
    return {
        name: () if chance.random() < 0.1 or not at else (chance.choice(names[:at]),) for at, name in enumerate(names)
    }


def as_graph(shape: Shape, *, job: str | None = None) -> Graph:
    """The kernel's value: of a class (nodes are methods), or with `job` of a built DAG."""
    return Graph(
        tuple(
            Node(id=name, name=name, job=job, method=None if job else name, depends_on=parents)
            for name, parents in shape.items()
        )
    )


def as_built(shape: Shape, name: str, job: hf.Action[..., Any], registry: hf.Registry, **args: Any) -> hf.BuiltDag:
    """The same as a person would build it; every node runs the job with these arguments."""
    builder = hf.DagBuilder(name, registry=registry)
    for node, parents in shape.items():
        builder.node(node, job=job, args=args, depends_on=parents)
    return builder.build()


def as_class(shape: Shape, name: str, body: Callable[[Any], Any], registry: hf.Registry, **policy: Any) -> type[hf.Dag]:
    """The same as a class whose steps all do `body(self)`; its one field is `journal`."""

    def fill(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = {"journal": str}
        namespace["__module__"] = __name__
        for node, parents in shape.items():
            namespace[node] = hf.step(depends_on=list(parents), **policy)(_method(node, body))

    made: type[hf.Dag] = types.new_class(name, (hf.Dag,), {"registry": registry}, fill)
    return made


def _method(node: str, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def method(self: Any) -> None:
        await body(self)

    method.__name__ = method.__qualname__ = node
    return method
