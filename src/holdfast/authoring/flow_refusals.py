"""What a flow may be written with, by class of Python's syntax tree, and how a refusal is told.

A refusal names the file, the line and the construct, points at it, says why it can't be a graph and what to write
instead. Being refused is always correct; being compiled to something else than Python means never is (I24).

The table names every class that `ast` has in any version of Python we run on; a test fails when a new one appears, so
that nobody forgets to decide. Some classes that are supported are refused in places: those messages are where the
compiler finds them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Final

from holdfast.authoring.flow_source import FlowSource
from holdfast.core.errors import FlowNotSupported

__all__ = ["SYNTAX", "Refused", "refusal", "refuse_syntax"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A construct that is never compiled: its name, why not, what to write instead."""

    construct: str
    why: str
    instead: str


_NO_NESTED_CODE: Final = "a flow is one graph, and code of its own inside of it would have no place there"
_ONE_STEP: Final = "everything between two actions is computed in one step, so there is nothing to yield to"
_SCOPE: Final = "a flow's variables are rows in a database, which no other code can see"
_MATCH: Final = Refused("`match`", "patterns are not compiled yet", "write if/elif/else with isinstance and ==")
_TYPES: Final = Refused("a type parameter", "types are not values of a flow", "define it outside of the flow")
_TEMPLATE: Final = Refused("a template string", "templates are not values of a flow", "use an f-string")

SYNTAX: Final[dict[str, Refused | None]] = {
    # statements
    "AsyncFunctionDef": None,  # the flow itself; a nested one is refused where it is met
    "FunctionDef": Refused("a nested function", _NO_NESTED_CODE, "move it out of the flow and mark it @hf.pure"),
    "ClassDef": Refused("a nested class", _NO_NESTED_CODE, "define the class outside of the flow"),
    "Return": None,
    "Delete": None,
    "Assign": None,
    "AugAssign": None,
    "AnnAssign": None,
    "TypeAlias": _TYPES,
    "For": None,
    "AsyncFor": Refused(
        "`async for`", "what it reads from would have to survive a crash", "fetch the items in an action and use `for`"
    ),
    "While": None,
    "If": None,
    "With": Refused(
        "`with`", "a block that a crash may interrupt can't promise to leave", "open and close it inside of one action"
    ),
    "AsyncWith": None,  # of asyncio.TaskGroup; any other is refused where it is met
    "Match": _MATCH,
    "Raise": None,
    "Try": None,
    "TryStar": Refused(
        "`except*`",
        "it runs several handlers for one failure",
        "use `except ExceptionGroup as group` and look at group.exceptions",
    ),
    "Assert": None,
    "Import": Refused("`import`", "names are looked up when the flow is compiled", "import at the top of the module"),
    "ImportFrom": Refused(
        "`import`", "names are looked up when the flow is compiled", "import at the top of the module"
    ),
    "Global": Refused("`global`", _SCOPE, "return the value, or let an action store it"),
    "Nonlocal": Refused("`nonlocal`", _SCOPE, "return the value, or let an action store it"),
    "Expr": None,
    "Pass": None,
    "Break": None,
    "Continue": None,
    # expressions
    "BoolOp": None,
    "NamedExpr": Refused(
        "`:=`", "an assignment in the middle of an expression has no node of its own", "assign in a line before"
    ),
    "BinOp": None,
    "UnaryOp": None,
    "Lambda": None,
    "IfExp": None,
    "Dict": None,
    "Set": None,
    "ListComp": None,
    "SetComp": None,
    "DictComp": None,
    "GeneratorExp": None,
    "Await": None,
    "Yield": Refused("`yield`", _ONE_STEP, "collect the items in a list and return it"),
    "YieldFrom": Refused("`yield from`", _ONE_STEP, "collect the items in a list and return it"),
    "Compare": None,
    "Call": None,
    "FormattedValue": None,
    "JoinedStr": None,
    "TemplateStr": _TEMPLATE,
    "Interpolation": _TEMPLATE,
    "Constant": None,
    "Attribute": None,
    "Subscript": None,
    "Starred": None,
    "Name": None,
    "List": None,
    "Tuple": None,
    "Slice": None,
    # parts
    "comprehension": None,
    "ExceptHandler": None,
    "arguments": None,
    "arg": None,
    "keyword": None,
    "alias": None,
    "withitem": None,
    "match_case": _MATCH,
    "MatchValue": _MATCH,
    "MatchSingleton": _MATCH,
    "MatchSequence": _MATCH,
    "MatchMapping": _MATCH,
    "MatchClass": _MATCH,
    "MatchStar": _MATCH,
    "MatchAs": _MATCH,
    "MatchOr": _MATCH,
    "TypeIgnore": None,
    "TypeVar": _TYPES,
    "ParamSpec": _TYPES,
    "TypeVarTuple": _TYPES,
    # contexts and operators
    **dict.fromkeys(("Load", "Store", "Del", "And", "Or", "Add", "Sub", "Mult", "Div", "Mod", "Pow"), None),
    **dict.fromkeys(("LShift", "RShift", "BitOr", "BitXor", "BitAnd", "FloorDiv", "Invert", "Not"), None),
    **dict.fromkeys(("UAdd", "USub", "Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "Is", "IsNot", "In", "NotIn"), None),
    "MatMult": Refused("`@`", "matrices are not values of a flow", "multiply them in an action"),
    # whole modules and what older versions had; a function never holds them
    **dict.fromkeys(("Module", "Interactive", "Expression", "FunctionType", "Suite", "AugLoad", "AugStore"), None),
    **dict.fromkeys(("Param", "Index", "ExtSlice", "Num", "Str", "Bytes", "NameConstant", "Ellipsis"), None),
    # abstract
    **dict.fromkeys(("AST", "mod", "stmt", "expr", "expr_context", "boolop", "operator", "unaryop", "cmpop"), None),
    **dict.fromkeys(("excepthandler", "pattern", "type_ignore", "type_param", "slice"), None),
}


def refuse_syntax(source: FlowSource) -> None:
    """FlowNotSupported at the first construct of the function that is never compiled."""
    if isinstance(source.tree, ast.FunctionDef):
        raise refusal(source, source.tree, "a plain def", "it can't await actions", "make it an async def")
    first = [*source.tree.args.posonlyargs, *source.tree.args.args][:1]
    if first and first[0].arg in ("self", "cls"):
        why = "a flow is no method: there is no instance that it could be called on"
        instead = "make it a function of its module and pass what it needs as arguments"
        raise refusal(source, first[0], f"the parameter `{first[0].arg}`", why, instead)
    for statement in source.tree.body:
        for node in ast.walk(statement):
            name = type(node).__name__
            refused = SYNTAX.get(name, Refused(f"`{name}`", "this version does not know it", "write it without"))
            if isinstance(node, ast.AsyncFunctionDef):
                refused = SYNTAX["FunctionDef"]
            if refused is not None:
                raise refusal(source, node, refused.construct, refused.why, refused.instead)


def refusal(source: FlowSource, node: ast.AST, construct: str, why: str, instead: str) -> FlowNotSupported:
    """The refusal of a construct, with its place and a caret under it."""
    place = f'  File "{source.file}", line {source.line_of(node)}\n'
    number = getattr(node, "lineno", 1)
    text = source.lines[number - 1] if number <= len(source.lines) else ""
    start = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", number) == number else len(text)
    # Offsets count bytes of UTF-8.
    encoded = text.encode()
    before = len(encoded[:start].decode(errors="replace"))
    width = max(1, len(encoded[start : end or start + 1].decode(errors="replace").rstrip()))
    stripped = text.lstrip()
    shift = len(text) - len(stripped)
    pointer = " " * max(0, before - shift) + "^" * width
    return FlowNotSupported(
        f"flow {source.name} can't be compiled: {construct} is not supported here\n"
        f"{place}    {stripped}\n    {pointer}\n{why[0].upper()}{why[1:]}",
        hint=instead,
    )
