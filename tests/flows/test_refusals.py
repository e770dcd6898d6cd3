"""I24: what can't be compiled is refused when decorating, with its place, the reason and an alternative."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.authoring.flow_refusals import SYNTAX
from holdfast.authoring.flows import flow
from holdfast.authoring.pure import pure
from holdfast.authoring.registry import Registry
from holdfast.core.errors import FlowNotSupported, UsageError
from tests.flows import mistakes
from tests.flows.actions import double
from tests.flows.parity import ending_of_flow, ending_of_plain

HERE = Path(__file__).parent
GOLDEN = HERE / "mistakes.txt"


def told() -> dict[str, str]:
    """Every mistake with its message; the folder is left out, since a clone may be anywhere."""
    messages: dict[str, str] = {}
    for name, function in vars(mistakes).items():
        if not inspect.iscoroutinefunction(function) or function.__module__ != mistakes.__name__ or name == "coroutine":
            continue
        with pytest.raises(FlowNotSupported) as refused:
            flow(registry=Registry())(function)
        messages[name] = str(refused.value).replace(str(HERE) + "/", "")
    return messages


def test_i24_typical_mistakes_get_the_messages_in_the_repository() -> None:
    messages = told()
    assert len(messages) >= 10
    text = "\n\n".join(messages.values()) + "\n"
    assert text == GOLDEN.read_text(encoding="utf-8"), "mistakes.txt differs; if the new messages are better, keep them"


def test_i24_every_message_has_file_line_caret_reason_and_fix() -> None:
    for name, message in told().items():
        lines = message.splitlines()
        function = getattr(mistakes, name)
        first = function.__code__.co_firstlineno
        length = len(inspect.getsource(function).splitlines())
        assert lines[0].startswith(f"flow {name} can't be compiled: ")
        file, _, line = lines[1].strip().rpartition(", line ")
        assert file == 'File "mistakes.py"'
        assert first <= int(line) < first + length
        assert set(lines[3].strip()) == {"^"}
        source = inspect.getsource(mistakes).splitlines()[int(line) - 1].strip()
        assert lines[2].strip() == source
        assert ". Fix: " in message


async def yields(n: int) -> AsyncIterator[int]:
    yield n


def plain(n: int) -> int:
    return n


class Shop:
    async def sells(self, n: int) -> int:
        return n


@pytest.mark.parametrize(
    ("function", "construct", "line"),
    [(yields, "`yield`", 1), (plain, "a plain def", 0), (Shop.sells, "the parameter `self`", 0)],
)
def test_i24_functions_of_another_kind_are_refused_with_file_and_line_too(
    function: Callable[..., Any], construct: str, line: int
) -> None:
    with pytest.raises(FlowNotSupported) as refused:
        flow(registry=Registry())(function)
    told = str(refused.value).splitlines()
    assert told[0] == f"flow {function.__name__} can't be compiled: {construct} is not supported here"
    assert told[1] == f'  File "{__file__}", line {function.__code__.co_firstlineno + line}'
    assert set(told[3].strip()) == {"^"}


def test_i24_a_lambda_is_refused_with_file_and_line() -> None:
    made = lambda n: n  # noqa: E731
    with pytest.raises(FlowNotSupported, match=f'File "{__file__}", line {made.__code__.co_firstlineno}'):
        flow(registry=Registry())(made)


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any) -> Any:
        return 2 * await function(*args)

    return wrapper


@doubled
async def wrapped(n: int) -> int:
    return await double(n)


def test_i24_a_function_inside_of_another_decorator_is_refused() -> None:
    """Its text is that of the function inside, and the wrapper would be left out."""
    for function in (wrapped, doubled(wrapped)):
        with pytest.raises(FlowNotSupported, match="no other decorator below it") as refused:
            flow(registry=Registry())(function)
        told = str(refused.value).splitlines()
        assert told[0] == "flow wrapped can't be compiled: another decorator around the function is not supported here"
        assert told[1].startswith(f'  File "{__file__}", line ')
        assert told[2].strip() == "@doubled"
        assert told[3].strip() == "^^^^^^^"


def tripled(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return 3 * function(*args)

    return wrapper


@pure
@tripled
def next_of(n: int) -> int:
    return n + 1


async def calls_a_wrapped_helper(n: int) -> int:
    return next_of(await double(n))  # type: ignore[no-any-return]


async def test_i24_a_pure_helper_inside_of_another_decorator_is_called_with_it() -> None:
    assert await ending_of_flow(calls_a_wrapped_helper, (5,)) == await ending_of_plain(calls_a_wrapped_helper, (5,))


@doubled
@flow(registry=Registry())
async def wraps_a_flow(n: int) -> int:
    return await double(n)


async def calls_a_wrapper(n: int) -> int:
    return await wraps_a_flow(n)


def test_i24_a_wrapper_around_a_flow_is_not_taken_for_the_flow() -> None:
    with pytest.raises(FlowNotSupported, match="ordinary coroutine"):
        flow(registry=Registry())(calls_a_wrapper)


@pytest.mark.parametrize("thing", [functools.partial(plain, 1), Shop(), Shop().sells])
def test_i24_what_is_no_function_is_refused(thing: Any) -> None:
    with pytest.raises(UsageError):
        flow(registry=Registry())(thing)


HALF = "\ud800"


async def names_half_a_character() -> str:
    return HALF


async def has_half_a_character(text: str = HALF) -> str:
    return text


async def sorts_halves(text: str) -> bool:
    return text in {"\ud800"}


@pytest.mark.parametrize("function", [names_half_a_character, has_half_a_character, sorts_halves])
def test_i24_texts_that_cannot_be_stored_are_refused_wherever_they_are(function: Callable[..., Any]) -> None:
    with pytest.raises(FlowNotSupported, match=f'File "{__file__}", line '):
        flow(registry=Registry())(function)


def test_i24_the_table_decides_about_every_class_of_the_syntax_tree() -> None:
    """A new Python with new syntax fails here, not in somebody's flow."""
    classes = {name for name, thing in vars(ast).items() if isinstance(thing, type) and issubclass(thing, ast.AST)}
    undecided = {name for name in classes if not name.startswith("_")} - SYNTAX.keys()
    assert not undecided, f"supported or refused? {sorted(undecided)}"


SNIPPETS = {
    "FunctionDef": "def inner(): pass",
    "AsyncFunctionDef": "async def inner(): pass",
    "ClassDef": "class Inner: pass",
    "AsyncFor": "async for x in n: pass",
    "With": "with n: pass",
    "AsyncWith": "async with n: pass",
    "Match": "match n:\n        case 1: pass",
    "TryStar": "try: pass\n    except* ValueError: pass",
    "Import": "import os",
    "ImportFrom": "from os import path",
    "Global": "global n2",
    "NamedExpr": "(m := n)",
    "MatMult": "n @ n",
    "Nonlocal": "nonlocal outer_name",
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_i24_refused_syntax_is_refused_wherever_it_stands(name: str) -> None:
    from tests.flows.programs import function_of

    text = f"async def program(n):\n    if n:\n        pass\n    {SNIPPETS[name]}\n"
    if name == "Nonlocal":
        text = "def around():\n    outer_name = 1\n" + "".join(f"    {line}\n" for line in text.splitlines())
        text += "    return program\nprogram = around()\n"
    with pytest.raises(FlowNotSupported, match="is not supported here"):
        flow(registry=Registry())(function_of(text))


def test_i24_yield_is_refused() -> None:
    async def generator(n: int):  # type: ignore[no-untyped-def]
        yield n

    with pytest.raises(UsageError, match="generator"):
        flow(registry=Registry())(generator)


def test_i24_a_function_without_source_is_refused() -> None:
    names: dict[str, object] = {}
    exec("async def nowhere(): pass", names)  # noqa: S102
    with pytest.raises(FlowNotSupported, match="source of flow nowhere can't be read"):
        flow(registry=Registry())(names["nowhere"])  # type: ignore[arg-type]


def test_i24_a_plain_def_is_refused() -> None:
    def plain(n: int) -> int:
        return n

    with pytest.raises(UsageError, match="plain def"):
        flow(registry=Registry())(plain)  # type: ignore[arg-type]
