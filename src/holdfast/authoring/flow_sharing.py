"""What the value of an expression may share with variables: the objects that both could reach.

`shares(e)` is a set of (variable, its depth, depth in e): the object that far inside of the variable may be the one
that far inside of the value of `e`; deeper parts follow. Values that can't be changed share nothing worth knowing, so
variables that surely hold numbers, texts and the like (`scalars`) are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.core.flow_expression_reading import free_variables, pattern_names
from holdfast.core.flow_expressions import Expression
from holdfast.core.flow_graph import FlowNode
from holdfast.core.flow_operations import METHODS

__all__ = ["NOTHING_SHARED", "Known", "Shares", "bound_shares", "inside_new", "known_of", "part_of", "shares", "union"]

Share = tuple[str, int, int]
Shares = frozenset[Share]

NOTHING_SHARED: Shares = frozenset()
_DEEPEST = 4
# Their results are new values that hold nothing of their arguments.
_NEW_VALUES = frozenset(
    ("abs", "all", "any", "ascii", "bin", "bool", "bytes", "chr", "copy.deepcopy", "divmod", "float", "format", "hex")
) | {"int", "len", "oct", "ord", "pow", "range", "repr", "round", "str"}
_SHALLOW = frozenset({"copy.copy", "dict", "frozenset", "list", "reversed", "set", "sorted", "tuple"})
_PICKING = frozenset({"max", "min"})
_ELEMENT_METHODS = frozenset({"get"})
_SHALLOW_METHODS = frozenset(
    ("copy", "difference", "intersection", "symmetric_difference", "union", "keys", "values", "items")
)
_SCALAR_OPERATIONS = frozenset(
    ("const", "value", "unary", "compare", "format", "isinstance", "type_name", "matches", "more", "unbound", "slice")
)


class Known(NamedTuple):
    """What was found out about variables before: what the items of loops share, and who holds scalars only."""

    elements: Mapping[str, Shares]
    scalars: frozenset[str]


def known_of(nodes: Collection[FlowNode], parameters: Mapping[str, bool], results: Collection[str]) -> Known:
    """What is known of variables. Annotations say which parameters, and the results of which nodes, are scalars."""
    scalars = _scalars(nodes, parameters, results)
    elements = {
        node.target: shares(node.expression, {}, Known({}, scalars))
        for node in nodes
        if isinstance(node.target, str) and node.expression is not None and node.target.startswith("$items")
    }
    return Known(elements, scalars)


# --- scalars -----------------------------------------------------------------------------------------------------

# Their results can be changed, or hold what can.
_GIVING_CONTAINERS = frozenset(("copy", "get", "items", "keys", "rsplit", "split", "splitlines", "values"))
_SCALAR_METHODS = (
    frozenset(name for kind, names in METHODS.items() if kind not in (dict, set, frozenset) for name in names)
    - _GIVING_CONTAINERS
    - METHODS[set]
)


def _scalars(nodes: Collection[FlowNode], parameters: Mapping[str, bool], results: Collection[str]) -> frozenset[str]:
    """Variables whose every assignment is a number, a text, or another value that can't be changed."""
    sources = {node.target: node.expression for node in nodes if isinstance(node.target, str)}
    found = {name for node in nodes for name in node.assigns} | parameters.keys()
    found -= {name for name, is_scalar in parameters.items() if not is_scalar}
    while True:
        wrong = set()
        for node in nodes:
            for name, is_scalar in _assigned(node, results, found, sources):
                if name in found and not is_scalar:
                    wrong.add(name)
        if not wrong:
            return frozenset(found)
        found -= wrong


def _assigned(
    node: FlowNode, results: Collection[str], found: Collection[str], sources: Mapping[Any, Any]
) -> Iterator[tuple[str, bool]]:
    pattern, expression = node.target, node.expression
    if node.is_frontier:
        yield from ((name, node.id in results) for name in node.assigns)
    elif expression is None or pattern is None:
        return
    elif isinstance(pattern, str):
        yield pattern, _is_scalar(expression, found, sources)
    elif expression[0] == "tuple" and len(expression) == len(pattern):
        for target, part in zip(pattern[1:], expression[1:], strict=True):
            if isinstance(target, str) and part[0] != "star":
                yield target, _is_scalar(part, found, sources)
            else:
                yield from ((name, False) for name in pattern_names(target))
    elif expression[0] == "unbound":
        yield from ((name, True) for name in node.assigns)
    else:
        counted = expression[0] == "element" and _is_call(_walked(expression, sources), "enumerate")
        for position, target in enumerate(pattern[1:]):
            yield from ((name, counted and position == 0 and name == target) for name in pattern_names(target))


def _walked(element: Expression, sources: Mapping[Any, Any]) -> Any:
    """What a loop walks over: its items are `list(…)` of it."""
    items = sources.get(element[1])
    return items[2][0] if items is not None and _is_call(items, "list") and items[2] else None


def _is_call(expression: Any, name: str) -> bool:
    return expression is not None and expression[0] == "call" and expression[1] == name


def _is_scalar(expression: Expression, found: Collection[str], sources: Mapping[Any, Any]) -> bool:
    head = expression[0]
    if head == "var":
        return expression[1] in found
    if head in _SCALAR_OPERATIONS:
        return True
    if head in ("binary", "augment"):
        return all(_is_scalar(part, found, sources) for part in expression[2:4])
    if head in ("and", "or"):
        return all(_is_scalar(part, found, sources) for part in expression[1:])
    if head == "if":
        return all(_is_scalar(part, found, sources) for part in expression[2:])
    if head == "call":
        name: str = expression[1]
        return (name in _NEW_VALUES and name != "copy.deepcopy") or name.startswith("math.")
    if head == "method":
        return expression[1] in _SCALAR_METHODS
    return head == "element" and _is_call(_walked(expression, sources), "range")


# --- sharing -----------------------------------------------------------------------------------------------------


def shares(expression: Expression, names: Mapping[str, Shares], known: Known) -> Shares:
    """`names` are those of comprehensions around the expression."""
    head = expression[0]
    if head in _SCALAR_OPERATIONS:
        return NOTHING_SHARED
    if head == "var":
        name = expression[1]
        if name in names:
            return names[name]
        return NOTHING_SHARED if name in known.scalars else frozenset({(name, 0, 0)})
    if head == "element":
        return part_of(known.elements.get(expression[1], NOTHING_SHARED))
    if head in ("list", "tuple", "set", "dict"):
        return _display(expression[1:], names, known)
    if head == "make":
        return _display(expression[2], names, known) | _display(expression[3], names, known)
    if head in ("binary", "augment"):
        return _operator(expression, names, known)
    if head in ("and", "or"):
        return union(shares(part, names, known) for part in expression[1:])
    if head == "if":
        return shares(expression[2], names, known) | shares(expression[3], names, known)
    if head == "item":
        whole = shares(expression[1], names, known)
        return inside_new(part_of(whole)) if expression[2][0] == "slice" else part_of(whole)
    if head == "attr":
        return part_of(shares(expression[1], names, known))
    if head == "call":
        return _function(expression, names, known)
    if head == "method":
        return _method(expression, names, known)
    if head == "comprehension":
        return _comprehension(expression, names, known)
    return _anything([expression], names, known)


def union(parts: Iterable[Shares]) -> Shares:
    """All of them together."""
    return frozenset().union(*parts)


def part_of(shared: Shares) -> Shares:
    """What any item of the value shares."""
    return frozenset((name, depth + 1, 0) if here == 0 else (name, depth, here - 1) for name, depth, here in shared)


def inside_new(shared: Shares) -> Shares:
    """What a new container shares whose items share this."""
    return frozenset((name, depth, here + 1) for name, depth, here in shared if here < _DEEPEST)


def _display(parts: tuple[Expression, ...], names: Mapping[str, Shares], known: Known) -> Shares:
    found: Shares = NOTHING_SHARED
    for part in parts:
        if part[0] == "star":
            found |= inside_new(part_of(shares(part[1], names, known)))
        elif part[0] in ("pair", "keyword"):
            found |= inside_new(shares(part[2], names, known))
        else:
            found |= inside_new(shares(part, names, known))
    return found


def _operator(expression: Expression, names: Mapping[str, Shares], known: Known) -> Shares:
    _, symbol, left, right = expression[:4]
    both = shares(left, names, known) | shares(right, names, known)
    if symbol == "*":
        # [[]] * 3 is one list three times.
        return inside_new(part_of(both)) | frozenset({("*", 0, 1)})
    kept = inside_new(part_of(both)) if symbol in ("+", "|", "&", "-", "^") else NOTHING_SHARED
    if expression[0] == "augment":
        kept |= shares(left, names, known)
    return kept


def _function(expression: Expression, names: Mapping[str, Shares], known: Known) -> Shares:
    _, name, args, keywords = expression
    if name in _NEW_VALUES or name.startswith("math."):
        return NOTHING_SHARED
    whole = union(shares(part[1] if part[0] == "star" else part, names, known) for part in args)
    if name in _SHALLOW:
        found = inside_new(part_of(whole))
        if name == "dict":  # dict(pairs): keys and values are items of the pairs
            found |= inside_new(part_of(part_of(whole)))
            found |= _display(keywords, names, known)
        return found
    if name in _PICKING:
        return whole | part_of(whole) | union(shares(part[2], names, known) for part in keywords)
    if name in ("enumerate", "zip"):
        return inside_new(inside_new(part_of(whole)))
    return _anything([*args, *(part[2] for part in keywords)], names, known)


def _method(expression: Expression, names: Mapping[str, Shares], known: Known) -> Shares:
    _, name, receiver, args, _ = expression
    whole = shares(receiver, names, known)
    if name in _ELEMENT_METHODS:
        return part_of(whole) | union(shares(part, names, known) for part in args)
    if name in _SHALLOW_METHODS:
        found = inside_new(part_of(whole))
        if name == "items":
            found |= inside_new(found)
        return found | union(inside_new(part_of(shares(part, names, known))) for part in args)
    return NOTHING_SHARED  # the other methods belong to texts, numbers and dates, or give numbers


def _comprehension(expression: Expression, names: Mapping[str, Shares], known: Known) -> Shares:
    _, kind, element, clauses = expression
    inner = dict(names)
    for target, items, _ in clauses:
        part = part_of(shares(items, inner, known))
        inner.update(bound_shares(target, part))
    if kind == "dict":
        return inside_new(shares(element[0], inner, known) | shares(element[1], inner, known))
    return inside_new(shares(element, inner, known))


def _anything(parts: list[Expression], names: Mapping[str, Shares], known: Known) -> Shares:
    """The worst case: any part of the result may be any part of what goes in."""
    found: set[Share] = set()
    for part in parts:
        for name in free_variables(part) - known.scalars:
            roots = {share[0] for share in names[name]} if name in names else {name}
            found |= {(root, depth, here) for root in roots for depth in range(_DEEPEST) for here in range(_DEEPEST)}
    return frozenset(found)


def bound_shares(pattern: Any, shared: Shares) -> Iterator[tuple[str, Shares]]:
    """What each name of a pattern shares that is assigned a value that shares this."""
    if isinstance(pattern, str):
        yield pattern, shared
    elif pattern[0] == "rest":
        yield from bound_shares(pattern[1], inside_new(shared))
    else:
        for target in pattern[1:]:
            yield from bound_shares(target, part_of(shared))
