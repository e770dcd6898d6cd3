"""`for` and `while`: a head that decides about another pass, a body, and an edge back.

The items of a `for` are computed once, when the loop is entered, and the pass in the node's address is their index:
there is no counter to store. A list that the body changes while it is walked is refused, since Python would see the
change; so is what Python would compute in between the passes, where it may fail.
"""

from __future__ import annotations

import ast

from holdfast.authoring.flow_building import End, LoopFrame, Stage
from holdfast.authoring.flow_expressions import compile_expression, compile_iterable, compile_pattern

__all__ = ["compile_for", "compile_while"]


def compile_while(stage: Stage, node: ast.While) -> None:
    """A loop with a test."""
    from holdfast.authoring.flow_effects import has_effect, value_of

    building = stage.building
    loop = building.unique("loop")
    inside = stage.at(loops=(*stage.place.loops, loop))
    otherwise: list[End] = []
    if isinstance(node.test, ast.Constant) and node.test.value:
        head = inside.emit("expression", "while", node)
        taken = building.take_ends()
    elif has_effect(stage, node.test):
        head = inside.emit("expression", "while", node)
        taken, otherwise = inside.branch(value_of(inside, node.test), node, "while_test")
    else:
        head = inside.emit("conditional", "while", node, expression=compile_expression(stage, node.test))
        building.take_ends()
        taken, otherwise = [End(head, "then")], [End(head, "else")]
    _compile_passes(stage, inside, LoopFrame(loop, head), node, taken, otherwise)


def compile_for(stage: Stage, node: ast.For) -> None:
    """A loop over items."""
    from holdfast.authoring.flow_effects import without_effects

    building = stage.building
    _refuse_late_failures(stage, node.iter)
    items = stage.hidden("items")
    walked = compile_iterable(stage, without_effects(stage, node.iter))
    stage.assign(items, ("call", "list", (walked,), ()), node.iter, "items")
    building.sequences.add(items)
    loop = building.unique("loop")
    inside = stage.at(loops=(*stage.place.loops, loop))
    head = inside.emit("conditional", "for", node, expression=("more", items))
    building.ends = [End(head, "then")]
    _check_names(stage, node.target)
    inside.assign(compile_pattern(stage, node.target), ("element", items), node.target, "next")
    taken = building.take_ends()
    _compile_passes(stage, inside, LoopFrame(loop, head), node, taken, [End(head, "else")])


def _refuse_late_failures(stage: Stage, node: ast.expr) -> None:
    """Refuse what Python computes in between the passes, and what may fail there: here all items come before them."""
    if isinstance(node, ast.GeneratorExp):
        stage.refuse(node, "a generator to walk over", "it would run in between the passes", "make it a list with [ ]")
    found = stage.source.object_named(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or not (found is enumerate or found is zip):
        return
    for keyword in node.keywords if found is zip else ():
        if not (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
            stage.refuse(
                node,
                "`zip` with strict=True to walk over",
                "it would fail in between the passes, after those for which all have an item",
                "compare the lengths first: walk over list(zip(…, strict=True))",
            )
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        _refuse_late_failures(stage, argument)


def _check_names(stage: Stage, target: ast.expr) -> None:
    from holdfast.authoring.flow_statements import refuse_exception_name

    for part in ast.walk(target):
        if isinstance(part, ast.Name):
            refuse_exception_name(stage, part)


def _compile_passes(
    stage: Stage, inside: Stage, frame: LoopFrame, node: ast.For | ast.While, taken: list[End], otherwise: list[End]
) -> None:
    from holdfast.authoring.flow_statements import compile_statements

    building = stage.building
    building.ends = taken
    compile_statements(inside.at(frames=(*stage.place.frames, frame)), node.body)
    building.connect(building.take_ends(), frame.head, frame.loop)
    building.ends = otherwise
    compile_statements(stage, node.orelse)
    building.ends += frame.breaks
