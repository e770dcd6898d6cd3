"""Who else could see a change: the check behind every statement that changes a value in place.

In Python two variables may hold one object, and a change through one shows in the other. A flow stores its variables
apart, so it makes changed copies instead; that is the same only while nobody else holds the object. This file finds
out who might, and refuses the statement rather than mean something else by it.

`shares(e)` is a set of (variable, its depth, depth in e): the object that far inside of the variable may be the one
that far inside of the value of `e`; deeper parts follow. An assignment of `e` to a variable links the two. A change of
what is `m` levels inside of a variable is refused if a link at most that deep was made at a node from which the change
can be reached without the variable being assigned a new value in between. Arguments and results of actions are
copies, so they link nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.authoring.flow_building import Building
from holdfast.authoring.flow_dataflow import Control
from holdfast.authoring.flow_refusals import refusal
from holdfast.core.flow_expression_reading import free_variables, pattern_names
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_graph import FlowNode

__all__ = ["with_owners"]

Share = tuple[str, int, int]
Shares = frozenset[Share]

_NONE: Shares = frozenset()
_DEEPEST = 4
# Their results are new values that hold nothing of their arguments.
_NEW_VALUES = frozenset(
    (
        "abs",
        "all",
        "any",
        "ascii",
        "bin",
        "bool",
        "bytes",
        "chr",
        "divmod",
        "float",
        "format",
        "hex",
        "int",
        "len",
        "oct",
    )
) | {"ord", "pow", "range", "repr", "round", "str"}
_SHALLOW = frozenset({"dict", "frozenset", "list", "reversed", "set", "sorted", "tuple"})
_PICKING = frozenset({"max", "min"})
_ELEMENT_METHODS = frozenset({"get"})
_SHALLOW_METHODS = frozenset(
    ("copy", "difference", "intersection", "symmetric_difference", "union", "keys", "values", "items")
)
# What these methods are given is an item afterwards, or its items are.
_ENTERING = frozenset({"append", "insert", "setdefault"})
_WITH_KEY = frozenset({"insert", "setdefault"})
_ENTERING_ITEMS = frozenset({"extend", "update", "symmetric_difference_update"})
_SCALAR_OPERATIONS = frozenset(
    ("const", "value", "unary", "compare", "format", "isinstance", "type_name", "matches", "more", "unbound", "slice")
)


class _Link(NamedTuple):
    """Made by a node: `variable` at `depth` may be what `other` has at some depth."""

    node: str
    variable: str
    depth: int
    other: str


class _Change(NamedTuple):
    """Made by a node to what is `level` deep in a variable; a hard one is refused, a soft one left to the run."""

    node: str
    variable: str
    level: int
    soft: bool


def with_owners(building: Building, control: Control, nodes: dict[str, FlowNode]) -> dict[str, FlowNode]:
    """The nodes, with every `+=` told whether it owns its list; FlowNotSupported for a change others could see."""
    changes = [change for node in nodes.values() for change in _changes(node)]
    if not changes:
        return nodes
    elements = _elements(nodes)
    links: dict[str, list[_Link]] = {}
    for node in nodes.values():
        for link in _links(node, elements):
            links.setdefault(link.variable, []).append(link)
    walked = _walked(nodes)
    made = dict(nodes)
    for change in changes:
        blame = _seen_by(control, change, links, elements) or _walked_over(nodes, change, walked)
        if blame is None:
            if change.soft:
                made[change.node] = _owning(made[change.node])
        elif not change.soft:
            source, syntax = building.syntax[change.node]
            raise refusal(
                source,
                syntax,
                f"changing `{_shown(change.variable)}` in place",
                f"{blame} could see the change in Python, but not in a flow, which stores each variable by itself",
                "make a new value instead: `rows = rows + [x]`, `d = {**d, key: value}`, or change a copy",
            )
    return made


def _shown(variable: str) -> str:
    return variable.rpartition("/")[2]


# --- changes -----------------------------------------------------------------------------------------------------


def _changes(node: FlowNode) -> Iterator[_Change]:
    expression = node.expression
    if expression is None:
        return
    if expression[0] == "augment":
        yield _Change(node.id, node.target, 0, True)
    elif expression[0] in ("mutated", "mutated_with"):
        _, root, path, change = expression
        yield _Change(node.id, root, len(path), False)
        if change[0] == "augment":
            yield _Change(node.id, root, len(path) + 1, True)


def _owning(node: FlowNode) -> FlowNode:
    expression = node.expression
    if expression[0] == "augment":
        return msgspec.structs.replace(node, expression=(*expression[:4], True))
    change = (*expression[3][:4], True)
    return msgspec.structs.replace(node, expression=(*expression[:3], change))


def _seen_by(
    control: Control, change: _Change, links: Mapping[str, list[_Link]], elements: Mapping[str, Shares]
) -> str | None:
    near = [link for link in links.get(change.variable, ()) if link.depth <= change.level]
    if not near:
        return None
    holding = _holding(control, change, elements)
    for link in near:
        if link.node in holding:
            if link.other == change.variable or link.other[0] in "$*":
                return f"something else that holds a part of `{_shown(change.variable)}`"
            return f"`{_shown(link.other)}`"
    return None


def _holding(control: Control, change: _Change, elements: Mapping[str, Shares]) -> set[str]:
    """The nodes from which control can go to the change while the variable keeps its object."""
    found: set[str] = set()
    passed: set[str] = set()
    waiting = [change.node]
    while waiting:
        for name, failing in control.before.get(waiting.pop(), ()):
            found.add(name)
            node = control.nodes[name]
            rebinds = change.variable in node.assigns and not _keeps_object(node, change.variable, elements)
            # A node that fails has assigned nothing.
            if name not in passed and (failing or not rebinds):
                passed.add(name)
                waiting.append(name)
    return found


def _keeps_object(node: FlowNode, variable: str, elements: Mapping[str, Shares]) -> bool:
    """Whether the variable may still hold a part of what it held before: `a = a`, `a = a or b`, `a += b`."""
    expression = node.expression
    if expression is None or node.is_frontier:
        return False
    if expression[0] in ("mutated", "mutated_with"):
        return bool(expression[1] == variable)
    return any(name == variable for name, _, _ in _shares(expression, {}, elements))


# --- lists that are walked while they change ---------------------------------------------------------------------


def _walked(nodes: Mapping[str, FlowNode]) -> dict[str, frozenset[str]]:
    """For every loop the variables that Python would walk over live."""
    sources = {node.target: node.expression for node in nodes.values() if isinstance(node.target, str)}
    found: dict[str, frozenset[str]] = {}
    for node in nodes.values():
        if node.expression is not None and node.expression[0] == "more":
            items = sources.get(node.expression[1])
            found[node.loops[-1]] = frozenset() if items is None else _live(items[2][0])
    return found


def _live(expression: Expression) -> frozenset[str]:
    head = expression[0]
    if head == "var":
        return frozenset({expression[1]})
    if head in ("item", "attr"):
        return _live(expression[1])
    if head == "method" and expression[1] in ("items", "keys", "values", "get"):
        return _live(expression[2])
    if head == "call" and expression[1] in ("enumerate", "reversed", "zip"):
        return frozenset(name for argument in expression[2] for name in _live(argument))
    if head in ("if", "and", "or", "star"):
        return frozenset(name for part in expression[1:] for name in _live(part))
    return frozenset()


def _walked_over(nodes: Mapping[str, FlowNode], change: _Change, walked: Mapping[str, frozenset[str]]) -> str | None:
    for loop in nodes[change.node].loops:
        if change.variable in walked.get(loop, ()):
            return f"the loop over `{_shown(change.variable)}`"
    return None


# --- links -------------------------------------------------------------------------------------------------------


def _elements(nodes: Mapping[str, FlowNode]) -> dict[str, Shares]:
    """What the items of a loop's sequence share."""
    return {
        node.target: _shares(node.expression, {}, {})
        for node in nodes.values()
        if isinstance(node.target, str) and node.expression is not None and node.target.startswith("$items")
    }


def _links(node: FlowNode, elements: Mapping[str, Shares]) -> Iterator[_Link]:
    expression = node.expression
    if expression is None or node.target is None or node.is_frontier:
        return
    if expression[0] in ("mutated", "mutated_with"):
        yield from _links_of_change(node, elements)
        return
    yield from _links_of_pattern(node.id, node.target, expression, elements)


def _links_of_pattern(
    node: str, pattern: Any, expression: Expression, elements: Mapping[str, Shares]
) -> Iterator[_Link]:
    if not isinstance(pattern, str) and expression[0] == "tuple" and len(pattern) == len(expression):
        plain = all(isinstance(part, str) or part[0] != "rest" for part in pattern[1:])
        if plain and all(part[0] != "star" for part in expression[1:]):
            for target, part in zip(pattern[1:], expression[1:], strict=True):
                yield from _links_of_pattern(node, target, part, elements)
            return
    yield from _bind(node, pattern, _shares(expression, {}, elements))


def _bind(node: str, pattern: Any, shared: Shares) -> Iterator[_Link]:
    for name, part in _bound(pattern, shared):
        for other, other_depth, depth in part:
            if other == name and other_depth == depth:
                continue
            yield _Link(node, name, depth, other)
            if other != "*":
                yield _Link(node, other, other_depth, name)


def _bound(pattern: Any, shared: Shares) -> Iterator[tuple[str, Shares]]:
    if isinstance(pattern, str):
        yield pattern, shared
    elif pattern[0] == "rest":
        yield from _bound(pattern[1], _inside_new(shared))
    else:
        for target in pattern[1:]:
            yield from _bound(target, _part_of(shared))


def _links_of_change(node: FlowNode, elements: Mapping[str, Shares]) -> Iterator[_Link]:
    """What enters a container is inside of it from now on; what a method gives back came out of it."""
    _, root, path, change = node.expression
    level = len(path)
    shared, given = _NONE, _NONE
    if change[0] == "set":
        shared = _inside_new(_shares(change[2], {}, elements))
    elif change[0] == "augment":
        shared = _inside_new(_inside_new(_part_of(_shares(change[3], {}, elements))))
    elif change[0] == "call":
        # A key or an index holds nothing that could be changed: what can be hashed can't.
        args = change[2][1:] if change[1] in _WITH_KEY else change[2]
        parts = [part[1] if part[0] == "star" else part for part in args] + [part[2] for part in change[3]]
        given = _union(_shares(part, {}, elements) for part in parts if part[0] != "lambda")
        if change[1] in _ENTERING:
            shared = _inside_new(given)
        elif change[1] in _ENTERING_ITEMS:
            items = _part_of(given)
            shared = _inside_new(given) | _inside_new(items) | _inside_new(_part_of(items))
    for other, other_depth, depth in shared:
        yield _Link(node.id, root, level + depth, other)
        if other != "*":
            yield _Link(node.id, other, other_depth, root)
    if node.expression[0] == "mutated_with":
        result = pattern_names(node.target)[1]
        taken = frozenset({(root, level + 1, 0), (root, level + 1, 1)}) | given
        yield from _bind(node.id, result, taken)


# --- what an expression shares -----------------------------------------------------------------------------------


def _shares(expression: Expression, names: Mapping[str, Shares], elements: Mapping[str, Shares]) -> Shares:
    """`names` are those of comprehensions around the expression."""
    head = expression[0]
    if head in _SCALAR_OPERATIONS:
        return _NONE
    if head == "var":
        name = expression[1]
        return names[name] if name in names else frozenset({(name, 0, 0)})
    if head == "element":
        return _part_of(elements.get(expression[1], _NONE))
    if head in ("list", "tuple", "set", "dict"):
        return _display(expression[1:], names, elements)
    if head == "make":
        return _display(expression[2], names, elements) | _display(expression[3], names, elements)
    if head in ("binary", "augment"):
        return _operator(expression, names, elements)
    if head in ("and", "or"):
        return _union(_shares(part, names, elements) for part in expression[1:])
    if head == "if":
        return _shares(expression[2], names, elements) | _shares(expression[3], names, elements)
    if head == "item":
        whole = _shares(expression[1], names, elements)
        return _inside_new(_part_of(whole)) if expression[2][0] == "slice" else _part_of(whole)
    if head == "attr":
        return _part_of(_shares(expression[1], names, elements))
    if head == "call":
        return _function(expression, names, elements)
    if head == "method":
        return _method(expression, names, elements)
    if head == "comprehension":
        return _comprehension(expression, names, elements)
    return _anything([expression], names, elements)


def _union(parts: Iterator[Shares]) -> Shares:
    return frozenset().union(*parts)


def _part_of(shared: Shares) -> Shares:
    """What any item of the value shares."""
    return frozenset((name, depth + 1, 0) if here == 0 else (name, depth, here - 1) for name, depth, here in shared)


def _inside_new(shared: Shares) -> Shares:
    """What a new container shares whose items share this."""
    return frozenset((name, depth, here + 1) for name, depth, here in shared if here < _DEEPEST)


def _display(parts: tuple[Expression, ...], names: Mapping[str, Shares], elements: Mapping[str, Shares]) -> Shares:
    found: Shares = _NONE
    for part in parts:
        if part[0] == "star":
            found |= _inside_new(_part_of(_shares(part[1], names, elements)))
        elif part[0] in ("pair", "keyword"):
            found |= _inside_new(_shares(part[2], names, elements))
        else:
            found |= _inside_new(_shares(part, names, elements))
    return found


def _operator(expression: Expression, names: Mapping[str, Shares], elements: Mapping[str, Shares]) -> Shares:
    _, symbol, left, right = expression[:4]
    both = _shares(left, names, elements) | _shares(right, names, elements)
    if symbol == "*":
        # [[]] * 3 is one list three times.
        return _inside_new(_part_of(both)) | frozenset({("*", 0, 1)})
    kept = _inside_new(_part_of(both)) if symbol in ("+", "|", "&", "-", "^") else _NONE
    if expression[0] == "augment":
        kept |= _shares(left, names, elements)
    return kept


def _function(expression: Expression, names: Mapping[str, Shares], elements: Mapping[str, Shares]) -> Shares:
    _, name, args, keywords = expression
    if name in _NEW_VALUES or name.startswith("math."):
        return _NONE
    whole = _union(_shares(part[1] if part[0] == "star" else part, names, elements) for part in args)
    if name in _SHALLOW:
        found = _inside_new(_part_of(whole))
        if name == "dict":  # dict(pairs): keys and values are items of the pairs
            found |= _inside_new(_part_of(_part_of(whole)))
            found |= _display(keywords, names, elements)
        return found
    if name in _PICKING:
        return whole | _part_of(whole) | _union(_shares(part[2], names, elements) for part in keywords)
    if name in ("enumerate", "zip"):
        return _inside_new(_inside_new(_part_of(whole)))
    return _anything([*args, *(part[2] for part in keywords)], names, elements)


def _method(expression: Expression, names: Mapping[str, Shares], elements: Mapping[str, Shares]) -> Shares:
    _, name, receiver, args, _ = expression
    whole = _shares(receiver, names, elements)
    if name in _ELEMENT_METHODS:
        return _part_of(whole) | _union(_shares(part, names, elements) for part in args)
    if name in _SHALLOW_METHODS:
        found = _inside_new(_part_of(whole))
        if name == "items":
            found |= _inside_new(found)
        return found | _union(_inside_new(_part_of(_shares(part, names, elements))) for part in args)
    return _NONE  # the other methods belong to texts, numbers and dates, or give numbers


def _comprehension(expression: Expression, names: Mapping[str, Shares], elements: Mapping[str, Shares]) -> Shares:
    _, kind, element, clauses = expression
    inner = dict(names)
    for target, items, _ in clauses:
        part = _part_of(_shares(items, inner, elements))
        inner.update(_bound(target, part))
    if kind == "dict":
        return _inside_new(_shares(element[0], inner, elements) | _shares(element[1], inner, elements))
    return _inside_new(_shares(element, inner, elements))


def _anything(parts: list[Expression], names: Mapping[str, Shares], elements: Mapping[str, Shares]) -> Shares:
    """The worst case: any part of the result may be any part of what goes in."""
    found: set[Share] = set()
    for part in parts:
        for name in free_variables(part):
            roots = {share[0] for share in names[name]} if name in names else {name}
            found |= {(root, depth, here) for root in roots for depth in range(_DEEPEST) for here in range(_DEEPEST)}
    return frozenset(found)
