"""`try`, `except`, `else`, `finally`.

Every node knows the one node that a failure of it leads to. For a `try` that is a chain of conditionals, one for each
`except`, with a node at its end that raises the failure again, to whatever is around the `try`.

A `finally` is compiled once. However it is entered, a number is stored first: 0 for the normal way, 1 for a failure,
and one for each of return, break and continue that has to pass it. At its end the number decides where to go on.
"""

from __future__ import annotations

import ast

from holdfast.authoring.flow_building import End, FinallyFrame, Stage
from holdfast.authoring.flow_constants import type_references
from holdfast.core.flow_expressions import Expression

__all__ = ["compile_try"]

NORMALLY, BY_FAILURE = 0, 1


def compile_try(stage: Stage, node: ast.Try) -> None:
    """A try statement with any of its parts."""
    if node.finalbody:
        _with_finally(stage, node)
    else:
        _with_handlers(stage, node)


def _with_finally(stage: Stage, node: ast.Try) -> None:
    from holdfast.authoring.flow_statements import compile_statements, jump

    building = stage.building
    failure, frame = stage.hidden("failure"), FinallyFrame(stage.hidden("route"))
    # Made before the body, since the body's nodes lead to it; reached by them only.
    failing = building.unique(f"{stage.prefix}failing")
    stage.make(
        failing,
        "assignment",
        node,
        label="finally",
        expression=("const", BY_FAILURE),
        target=frame.route,
        catches=failure,
    )
    guarded = stage.at(on_error=failing, frames=(*stage.place.frames, frame))
    if node.handlers:
        _with_handlers(guarded, node)
    else:
        compile_statements(guarded, node.body)
    if building.ends:
        guarded.assign(frame.route, ("const", NORMALLY), node.finalbody[0], "finally")
    building.ends += [*frame.ends, End(failing)]
    compile_statements(stage, node.finalbody)
    if not building.ends:
        return
    normal, _ = _routed(stage, node, frame.route, NORMALLY)
    again, _ = _routed(stage, node, frame.route, BY_FAILURE)
    others = building.take_ends()
    building.ends = again
    _raise_again(stage, node, failure)
    building.ends = others
    for kind, number in frame.jumps.items():
        leaving, _ = _routed(stage, node, frame.route, number)
        others = building.take_ends()
        building.ends = leaving
        jump(stage, kind, node)
        building.ends = others
    # Every number has been looked at: what is left over cannot happen.
    building.ends = normal


def _routed(stage: Stage, node: ast.Try, route: str, number: int) -> tuple[list[End], list[End]]:
    """Split off the way with this number; the loose ends are then all other ways."""
    test: Expression = ("compare", ("var", route), ("==", ("const", number)))
    taken, otherwise = stage.branch(test, node, "route")
    stage.building.ends = otherwise
    return taken, otherwise


def _with_handlers(stage: Stage, node: ast.Try) -> None:
    from holdfast.authoring.flow_statements import compile_statements

    building = stage.building
    failure = stage.hidden("failure")
    first = building.unique(f"{stage.prefix}except")
    compile_statements(stage.at(on_error=first), node.body)
    compile_statements(stage, node.orelse)
    after = building.take_ends()
    names = [first, *(building.unique(f"{stage.prefix}except") for _ in node.handlers[1:])]
    for position, (name, handler) in enumerate(zip(names, node.handlers, strict=True)):
        catches = failure if position == 0 else None
        test = _test(stage, handler, failure)
        stage.make(name, "conditional", handler, expression=test, catches=catches)
        building.connect(building.take_ends(), name)
        building.ends = [End(name, "then")]
        compile_statements(_inside(stage, handler, failure), handler.body)
        after += building.take_ends()
        building.ends = [End(name, "else")]
    _raise_again(stage, node, failure)
    building.ends = after


def _test(stage: Stage, handler: ast.ExceptHandler, failure: str) -> Expression:
    if handler.type is None:
        return ("const", True)
    return ("matches", failure, type_references(stage, handler.type))


def _inside(stage: Stage, handler: ast.ExceptHandler, failure: str) -> Stage:
    names = stage.place.exceptions
    if handler.name is not None:
        if any(handler.name == known for known, _ in names):
            stage.refuse(
                handler,
                f"the name `{handler.name}` for a failure inside of another of that name",
                "Python forgets the outer one at the end of the inner block",
                "use another name",
            )
        names = (*names, (handler.name, failure))
    return stage.at(handled=failure, exceptions=names)


def _raise_again(stage: Stage, node: ast.Try, failure: str) -> None:
    stage.emit("expression", "raise_again", node, label="raise again", expression=("raise", ("var", failure), None))
    stage.building.ends = []
