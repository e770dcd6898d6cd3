"""From declarations to edges: the chain of steps, and what PREVIOUS means in it.

I25: the chain starts with the unpositioned steps in definition order. Positioned ones are then
inserted in definition order, directly before or after their target, so of two steps after the same
target the later one ends up nearer to it. A target may itself be positioned: steps are inserted
level by level, those that hang on an unpositioned step first, which keeps that rule for every target.

I26: `depends_on` says what a step waits for and never moves it; the next step's PREVIOUS is still
that step. Tasks are not in the chain at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.authoring.actions import UNSET
from holdfast.authoring.dag_nodes import DeclaredNode, Dependency, Previous
from holdfast.core.errors import DagError
from holdfast.core.graph import known_names

__all__ = ["ResolvedNode", "chain_of", "resolved"]


class ResolvedNode(msgspec.Struct, frozen=True):
    """A declared node with its final name and the names of what it waits for."""

    name: str
    node: DeclaredNode
    depends_on: tuple[str, ...]


def resolved(nodes: Sequence[DeclaredNode]) -> tuple[ResolvedNode, ...]:
    """Every node in definition order with its dependencies by name; DagError names node and choices."""
    by_name = _by_name(nodes)
    chain = chain_of(by_name)
    previous = dict(zip(chain[1:], chain, strict=False))
    return tuple(
        ResolvedNode(name, node, _dependencies(name, node, by_name, previous)) for name, node in by_name.items()
    )


def chain_of(by_name: Mapping[str, DeclaredNode]) -> list[str]:
    """The names of all steps in the order of the chain."""
    steps = {name: node for name, node in by_name.items() if node.declaration.kind == "step"}
    targets = {name: _target(name, node, by_name) for name, node in steps.items()}
    chain = [name for name, target in targets.items() if target is None]
    waiting = {name: target for name, target in targets.items() if target is not None}
    placed = set(chain)
    while waiting:
        level = [name for name, target in waiting.items() if target in placed]
        if not level:
            raise _circular(waiting)
        for name in level:
            position = chain.index(waiting.pop(name))
            chain.insert(position + (steps[name].declaration.after_step is not None), name)
        placed.update(level)
    return chain


def _by_name(nodes: Sequence[DeclaredNode]) -> dict[str, DeclaredNode]:
    by_name: dict[str, DeclaredNode] = {}
    for node in nodes:
        other = by_name.setdefault(node.node_name, node)
        if other is not node:
            raise DagError(
                f"the name {node.node_name!r} is used twice, by {other.attribute} and by {node.attribute}",
                hint="give one of them another name=",
            )
    return by_name


def _target(name: str, node: DeclaredNode, by_name: Mapping[str, DeclaredNode]) -> str | None:
    declaration = node.declaration
    if declaration.after_step is not None and declaration.before_step is not None:
        raise DagError(
            f"step {name!r} has both after_step={_name_of(declaration.after_step)!r} and "
            f"before_step={_name_of(declaration.before_step)!r}",
            hint="keep one: each alone says where in the chain it stands",
        )
    option = "after_step" if declaration.after_step is not None else "before_step"
    wanted = declaration.after_step if declaration.after_step is not None else declaration.before_step
    if wanted is None:
        return None
    if isinstance(wanted, Previous):
        raise DagError(
            f"step {name!r} has {option}=PREVIOUS, but its place decides what PREVIOUS is", hint="name a step"
        )
    steps = [known for known, other in by_name.items() if other.declaration.kind == "step" and known != name]
    target = _name_of(wanted)
    if target in by_name and by_name[target].declaration.kind == "task":
        raise DagError(
            f"step {name!r} has {option}={target!r}, which is a task and not in the chain",
            hint=f"use depends_on={target!r} to wait for it, or name a step: {known_names(target, steps)}",
        )
    if target == name:
        raise DagError(
            f"step {name!r} has {option}={target!r}, which is itself",
            hint=f"name another step, or leave {option} out; {known_names(target, steps)}",
        )
    if target not in by_name:
        raise DagError(
            f"step {name!r} has {option}={target!r}, and there is no such step",
            hint=_method_hint(target, by_name) or known_names(target, steps),
        )
    return target


def _circular(waiting: Mapping[str, str]) -> DagError:
    path = [next(iter(waiting))]
    while (following := waiting[path[-1]]) not in path:
        path.append(following)
    circle = [*path[path.index(following) :], following]
    return DagError(
        f"the positions of steps form a cycle: {' -> '.join(circle)} (each is placed by the next)",
        hint=f"leave out after_step or before_step of one of them, such as {circle[0]!r}",
    )


def _dependencies(
    name: str, node: DeclaredNode, by_name: Mapping[str, DeclaredNode], previous: Mapping[str, str]
) -> tuple[str, ...]:
    declaration = node.declaration
    wanted: tuple[Dependency, ...]
    if declaration.depends_on is not UNSET:
        wanted = declaration.depends_on
    else:
        wanted = (Previous.PREVIOUS,) if declaration.kind == "step" else ()
    found: dict[str, None] = {}
    for dependency in (*wanted, *declaration.also_depends_on):
        if isinstance(dependency, Previous):
            if declaration.kind == "task":
                raise DagError(
                    f"task {name!r} depends on PREVIOUS, but a task is not in the chain",
                    hint="name what it waits for, or make it a step",
                )
            # The first step of the chain has no step before it: PREVIOUS adds nothing there.
            if name in previous:
                found[previous[name]] = None
            continue
        target = _name_of(dependency)
        if target not in by_name:
            others = [known for known in by_name if known != name]
            raise DagError(
                f"{declaration.kind} {name!r} depends on {target!r}, and there is no such step or task",
                hint=_method_hint(target, by_name) or known_names(target, others),
            )
        found[target] = None
    return tuple(found)


def _name_of(dependency: Dependency) -> str:
    return dependency.node_name if isinstance(dependency, DeclaredNode) else str(dependency)


def _method_hint(target: str, by_name: Mapping[str, DeclaredNode]) -> str | None:
    for name, node in by_name.items():
        if node.attribute == target:
            return f"{target!r} is the attribute of the node that is named {name!r}: write {name!r}"
    return None
