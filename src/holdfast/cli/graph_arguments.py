"""The state that a state graph begins with, from words on a command line: a JSON object, or FIELD=VALUE for each."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.failures import USAGE, Failure
from holdfast.cli.inputs import read_input

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph

STDIN: Final = "-"
FIELDS_SHOWN: Final = 3


def state_of_words(graph: StateGraph[Any], words: Sequence[str]) -> dict[str, Any]:
    """The fields that were given; whether they fit the state is for the graph to say."""
    if len(words) == 1 and (words[0] == STDIN or words[0].lstrip().startswith(("{", "[", '"'))):
        text = sys.stdin.read() if words[0] == STDIN else words[0]
        whose = f"the state of {graph.name}"
        return graph.state_type.from_json(read_input(text, whose, example_of(graph)), whose)
    return _named(graph, words)


def update_of(text: str, name: str) -> dict[str, Any]:
    """The fields that a fork is to begin with."""
    return read_input(text, f"the update of {name}", '{"question": "…"}')


def example_of(graph: StateGraph[Any]) -> str:
    """A state as it is written in a shell, with its first fields."""
    names = [*graph.state_type.fields][:FIELDS_SHOWN]
    return json.dumps(dict.fromkeys(names, "…"), ensure_ascii=False)


def _named(graph: StateGraph[Any], words: Sequence[str]) -> dict[str, Any]:
    from holdfast.cli.arguments import parse_word

    fields = graph.state_type.fields
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise Failure(
                f"{word!r} is neither a JSON object nor written as FIELD=VALUE",
                hint=f"give the state of {graph.name} in single quotes: '{example_of(graph)}'",
                code=USAGE,
            )
        if name in given:
            raise Failure(f"the field {name!r} is given twice", hint="give it once", code=USAGE)
        known = fields.get(name)
        given[name] = parse_word(value, Any if known is None else known.annotation, name)
    return given


__all__ = ["example_of", "state_of_words", "update_of"]
