"""Taking effects out of expressions: awaits, and methods that change a value, become nodes of their own.

Python computes the parts of an expression from left to right. What stands left of an effect is therefore computed into
a hidden variable first, so that an error in it comes before the effect, as it does in Python. Parts that run
conditionally (`and`, `or`, `if … else`) become branches; comprehensions that await become loops.
"""

from __future__ import annotations

import ast
import copy
from typing import Any, cast

from holdfast.authoring.flow_awaits import compile_await
from holdfast.authoring.flow_building import Stage
from holdfast.authoring.flow_expressions import compile_expression
from holdfast.authoring.flow_mutations import compile_mutator, is_mutator
from holdfast.authoring.flow_source import NOTHING
from holdfast.core.flow_expressions import Expression

__all__ = ["check_bound", "has_effect", "locate", "parts_replaced", "value_of", "without_effects"]


def has_effect(stage: Stage, node: ast.AST) -> bool:
    """Whether something is awaited or changed in this part of the source."""
    return any(isinstance(part, ast.Await) or is_mutator(stage, part) for part in ast.walk(node))


def value_of(stage: Stage, node: ast.expr) -> Expression:
    """The expression as data, after the nodes of its effects have been made."""
    return compile_expression(stage, without_effects(stage, node))


def without_effects(stage: Stage, node: ast.expr) -> ast.expr:
    """The same expression with hidden variables in place of its effects, which are nodes now."""
    if not has_effect(stage, node):
        return node
    if isinstance(node, ast.Await):
        return _name(stage, compile_await(stage, node, None), node)
    if isinstance(node, ast.IfExp):
        return _choice(stage, node)
    if isinstance(node, ast.BoolOp):
        return _short_circuit(stage, node)
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
        return _comprehension(stage, node)
    if isinstance(node, ast.Lambda | ast.GeneratorExp):
        stage.refuse(
            node,
            "an effect inside of a generator or lambda",
            "its parts run later, or never",
            "use a list comprehension or a loop",
        )
    if isinstance(node, ast.Compare) and any(has_effect(stage, part) for part in node.comparators[1:]):
        stage.refuse(node, "an effect in a chain of comparisons", "its later parts may not run", "split it with `and`")
    made = parts_replaced(stage, node)
    if isinstance(made, ast.Call) and is_mutator(stage, made):
        result = stage.hidden("taken")
        compile_mutator(stage, made, result)
        return _name(stage, result, node)
    return made


def parts_replaced(stage: Stage, node: ast.expr) -> ast.expr:
    """The expression with the effects of its parts taken out; an effect of its own stays."""
    made = copy.copy(node)
    places = _places(stage, made)
    if is_mutator(stage, made):
        places = _places_after_receiver(stage, made, places)
    last = max((i for i, place in enumerate(places) if has_effect(stage, _get(place))), default=-1)
    for position, place in enumerate(places[: last + 1]):
        part = _get(place)
        if has_effect(stage, part):
            part = without_effects(stage, part)
        _put(place, _pinned(stage, part) if position < last else part)
    return made


Holder = tuple[Any, Any]


def _places_after_receiver(stage: Stage, call: Any, places: list[Holder]) -> list[Holder]:
    """The arguments of a changing method. What it changes stays in place; it is only looked up before them."""
    receiver = _get(places[0])
    if has_effect(stage, receiver):
        stage.refuse(
            receiver, "an effect in the place that is changed", "its order is unclear", "assign it to a variable first"
        )
    if any(has_effect(stage, _get(place)) for place in places[1:]):
        if isinstance(receiver, ast.Name):
            check_bound(stage, receiver)
        else:
            stage.emit("expression", "check_item", receiver, expression=compile_expression(stage, receiver))
    return places[1:]


def _places(stage: Stage, node: Any) -> list[Holder]:
    """The parts of an expression in the order in which Python computes them. Copies the lists it hands out."""
    match node:
        case ast.BinOp():
            return [(node, "left"), (node, "right")]
        case ast.UnaryOp():
            return [(node, "operand")]
        case ast.Compare():
            node.comparators = list(node.comparators)
            return [(node, "left"), *((node.comparators, i) for i in range(len(node.comparators)))]
        case ast.Subscript():
            return [(node, "value"), (node, "slice")]
        case ast.Attribute() | ast.Starred() | ast.FormattedValue():
            return [(node, "value")]
        case ast.List() | ast.Tuple() | ast.Set():
            node.elts = list(node.elts)
            return [(node.elts, i) for i in range(len(node.elts))]
        case ast.JoinedStr():
            node.values = list(node.values)
            return [(node.values, i) for i in range(len(node.values))]
        case ast.Slice():
            return [(node, name) for name in ("lower", "upper", "step") if getattr(node, name) is not None]
        case ast.Dict():
            node.keys, node.values = list(node.keys), list(node.values)
            pairs = zip(range(len(node.keys)), node.keys, strict=True)
            keyed = [([(node.keys, i)] if key is not None else []) + [(node.values, i)] for i, key in pairs]
            return [place for both in keyed for place in both]
        case ast.Call():
            return _call_places(stage, node)
        case _:
            stage.refuse(node, f"an effect inside of `{ast.unparse(node)}`", "its order is unclear", "write it before")


def _call_places(stage: Stage, node: Any) -> list[Holder]:
    node.args = list(node.args)
    node.keywords = [copy.copy(each) for each in node.keywords]
    places: list[Holder] = []
    if isinstance(node.func, ast.Attribute) and stage.source.object_named(node.func) is NOTHING:
        node.func = copy.copy(node.func)
        places.append((node.func, "value"))
    places += [(node.args, i) for i in range(len(node.args))]
    return places + [(each, "value") for each in node.keywords]


def _get(place: Holder) -> ast.expr:
    holder, key = place
    return cast("ast.expr", holder[key] if isinstance(holder, list) else getattr(holder, key))


def _put(place: Holder, part: ast.expr) -> None:
    holder, key = place
    if isinstance(holder, list):
        holder[key] = part
    else:
        setattr(holder, key, part)


def _pinned(stage: Stage, node: ast.expr) -> ast.expr:
    """The part, computed before what follows it."""
    if isinstance(node, ast.Constant):
        return node
    if isinstance(node, ast.Name):
        if stage.source.object_named(node) is NOTHING:
            check_bound(stage, node)
        return node
    made: Any
    if isinstance(node, ast.Starred):
        made = ast.Starred(value=_pinned(stage, node.value), ctx=node.ctx)
        return cast("ast.expr", ast.copy_location(made, node))
    if isinstance(node, ast.FormattedValue):
        whole = ast.copy_location(ast.JoinedStr(values=[node]), node)
        made = ast.FormattedValue(value=_pinned(stage, whole), conversion=-1, format_spec=None)
        return cast("ast.expr", ast.copy_location(made, node))
    if isinstance(node, ast.Slice):
        lower, upper, step = (part and _pinned(stage, part) for part in (node.lower, node.upper, node.step))
        made = ast.Slice(lower=lower, upper=upper, step=step)
        return cast("ast.expr", ast.copy_location(made, node))
    hidden = stage.hidden("part")
    stage.assign(hidden, compile_expression(stage, node), node)
    return _name(stage, hidden, node)


def check_bound(stage: Stage, node: ast.Name) -> None:
    """A node that raises if the variable has no value. Removed again where it always has one."""
    stage.emit("expression", f"check_{node.id.lstrip('$')}", node, expression=compile_expression(stage, node))


def _name(stage: Stage, variable: str, node: ast.expr) -> ast.expr:
    # A hidden variable is found under its own name, whatever function the expression is in.
    return ast.copy_location(ast.Name(id=variable, ctx=ast.Load()), node)


def _choice(stage: Stage, node: ast.IfExp) -> ast.expr:
    building = stage.building
    chosen = stage.hidden("chosen")
    taken, otherwise = stage.branch(value_of(stage, node.test), node, "if")
    building.ends = taken
    stage.assign(chosen, value_of(stage, node.body), node.body)
    after = building.take_ends()
    building.ends = otherwise
    stage.assign(chosen, value_of(stage, node.orelse), node.orelse)
    building.ends += after
    return _name(stage, chosen, node)


def _short_circuit(stage: Stage, node: ast.BoolOp) -> ast.expr:
    building = stage.building
    result = stage.hidden("decided")
    after = []
    for position, part in enumerate(node.values):
        stage.assign(result, value_of(stage, part), part)
        if position < len(node.values) - 1:
            taken, otherwise = stage.branch(("var", result), part, "if")
            going_on, stopping = (taken, otherwise) if isinstance(node.op, ast.And) else (otherwise, taken)
            after += stopping
            building.ends = going_on
    building.ends += after
    return _name(stage, result, node)


def _comprehension(stage: Stage, node: Any) -> ast.expr:
    """A comprehension with effects is a loop that fills a hidden variable; its names are hidden as well."""
    from holdfast.authoring.flow_statements import compile_statements  # statements and expressions hold each other

    first = node.generators[0]
    rest = [
        *first.ifs,
        *node.generators[1:],
        *([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]),
    ]
    if not any(has_effect(stage, part) for part in rest):
        made = copy.copy(node)
        made.generators = [copy.copy(first), *node.generators[1:]]
        made.generators[0].iter = without_effects(stage, first.iter)
        return cast("ast.expr", made)
    names = {part.id for each in node.generators for part in ast.walk(each.target) if isinstance(part, ast.Name)}
    renamed = {name: stage.hidden(name) for name in sorted(names)}
    node = _Renamed(stage, renamed).visit(copy.deepcopy(node))
    filled = stage.hidden("filled")
    kinds = {ast.ListComp: "list", ast.SetComp: "set", ast.DictComp: "dict"}
    stage.assign(filled, (kinds[type(node)],), node)
    holder = ast.Name(id=filled, ctx=ast.Load())
    body: list[ast.stmt]
    if isinstance(node, ast.DictComp):
        key, value = (
            ast.Name(id=stage.hidden("key"), ctx=ast.Store()),
            ast.Name(id=stage.hidden("value"), ctx=ast.Store()),
        )
        place = ast.Subscript(value=holder, slice=ast.Name(id=key.id, ctx=ast.Load()), ctx=ast.Store())
        body = [
            ast.Assign(targets=[key], value=node.key),
            ast.Assign(targets=[value], value=node.value),
            ast.Assign(targets=[place], value=ast.Name(id=value.id, ctx=ast.Load())),
        ]
    else:
        method = ast.Attribute(value=holder, attr="append" if isinstance(node, ast.ListComp) else "add", ctx=ast.Load())
        body = [ast.Expr(ast.Call(func=method, args=[node.elt], keywords=[]))]
    for clause in reversed(node.generators):
        if clause.is_async:
            stage.refuse(clause.iter, "`async for`", "what it reads would have to survive a crash", "use `for`")
        for test in reversed(clause.ifs):
            body = [ast.If(test=test, body=body, orelse=[])]
        body = [ast.For(target=clause.target, iter=clause.iter, body=body, orelse=[])]
    for statement in body:
        locate(statement, node)
    compile_statements(stage, body)
    return _name(stage, filled, node)


def locate(root: ast.AST, place: ast.AST) -> None:
    """Give the parts that the compiler made up the place of what they stand for."""
    for part in ast.walk(root):
        if "lineno" in part._attributes and not hasattr(part, "lineno"):
            ast.copy_location(part, place)


class _Renamed(ast.NodeTransformer):
    """Gives the names of a comprehension other names, and refuses where that would be ambiguous."""

    def __init__(self, stage: Stage, names: dict[str, str]) -> None:
        self._stage = stage
        self._names = names
        self._depth = 0

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node

    def _inner(self, node: Any) -> Any:
        self._depth += 1
        if self._depth > 1:
            bound = {
                part.id for each in node.generators for part in ast.walk(each.target) if isinstance(part, ast.Name)
            }
            if bound & self._names.keys():
                self._stage.refuse(
                    node, "a name of two comprehensions", "they would be hard to tell apart", "use different names"
                )
        self.generic_visit(node)
        self._depth -= 1
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _inner

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        if {argument.arg for argument in node.args.args} & self._names.keys():
            self._stage.refuse(
                node,
                "a name of a lambda and a comprehension",
                "they would be hard to tell apart",
                "use different names",
            )
        self.generic_visit(node)
        return node
