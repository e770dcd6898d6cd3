"""Entries of a run's history in words. JSON keeps them as they are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

NAMES_SHOWN: Final = 5
VALUE_WIDTH: Final = 120

Data = Mapping[str, Any]


def about(kind: str, data: Data) -> str:
    """What an entry is about, for a person; who did it has a column of its own."""
    write = _WORDS.get(kind)
    try:
        return _plain(data) if write is None else write(data)
    except (KeyError, TypeError, AttributeError):  # a row that was damaged, or is newer than this program
        return _plain(data)


def who(kind: str, data: Data) -> str:
    """Who did it, if it was somebody."""
    return str(data.get("by") or (data.get("name", "") if kind == "cancel" else ""))


def _plain(data: Data) -> str:
    told = {name: value for name, value in data.items() if name != "by" and value not in ("", None, [])}
    return ", ".join(f"{name} {_listed(value) if isinstance(value, list) else value}" for name, value in told.items())


def _listed(names: Sequence[Any]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(str(name) for name in names[:NAMES_SHOWN]) + more


def _with_reason(text: str, data: Data) -> str:
    return f"{text}: {data['reason']}" if data.get("reason") else text


def _of_node(data: Data) -> str:
    return _with_reason(f"node {data['node']}", data)


def _answered(data: Data) -> str:
    answer = f": {_value(data['answer'])}" if "answer" in data else ""
    return f"node {data['node']}{answer}"


def _again(data: Data) -> str:
    """Of a decider it is an effect or a timer by its place in the stream, which is no node to anybody."""
    kind, slash, place = str(data["node"]).partition("/")
    if slash and kind in ("effect", "timer"):
        return _with_reason(f"{kind} {place}", data)
    return _of_node(data)


def _reason(data: Data) -> str:
    return str(data.get("reason") or "")


def _graph_changed(data: Data) -> str:
    parts = []
    for key, words in (
        ("not_begun", "not begun: {}"),
        ("skipped", "not in it any more, skipped: {}"),
        ("gone", "not in it any more, though completed: {}"),
        ("rewired", "begun under other dependencies: {}"),
    ):
        if data.get(key):
            parts.append(words.format(_listed(data[key])))
    parts.append(_versions(data))
    return "; ".join(part for part in parts if part)


def _versions(data: Data) -> str:
    if data.get("before") and data["before"] != data["signature"]:
        return f"{data['before']} -> {data['signature']}"
    return str(data["signature"])


def _forked(data: Data) -> str:
    if "step" in data:  # of a state graph
        return (
            f"into run {data['into']}, after step {data['step']}"
            if "into" in data
            else (f"from run {data['source']} after step {data['step']}")
        )
    if "into" in data:
        return f"into run {data['into']}, from node {data['node']}"
    shared = data["shared"]
    return f"from run {data['source']} at node {data['node']}, sharing {shared} node{'' if shared == 1 else 's'}"


def _follows_others(data: Data) -> str:
    return f"attempt {data['attempt']} of node {data['node']} follows other attempts of its parents than the one before"


def _finished(data: Data) -> str:
    count = data["skipped"]
    return _with_reason(f"{count} node{'' if count == 1 else 's'} not needed", data)


def _noted(data: Data) -> str:
    return f"node {data['node']}, attempt {data['attempt']}: {data['note']}"


# Entries of a function: what was asked for, where in its code, and what came of it.


def _value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"


def _asked(data: Data) -> str:
    return f"{data['name']} ({data['at']})" if data.get("name") else str(data["at"])


def _result(data: Data) -> str:
    return f"{_asked(data)} = {_value(data['value'])}" if "value" in data else _asked(data)


def _failure(data: Data) -> str:
    return f"{_asked(data)}: {data['error']}"


def _event(data: Data) -> str:
    carries = f" = {_value(data['value'])}" if "value" in data else ""
    return f"event {data['event']}{carries}, for {_asked(data)}"


def _ended_run(data: Data) -> str:
    return f"run {data['source']} is {data['status']}, for {_asked(data)}"


def _continued(data: Data) -> str:
    return f"as {data['name']}, with input {_value(data.get('value'))}"


_WORDS: Final[Mapping[str, Callable[[Data], str]]] = {
    "answered": _answered,
    "asked a person": _of_node,
    "cancel": lambda data: "",
    "cancel requested": _reason,
    "continued": _continued,
    "dead letter discarded": _again,
    "ended": _ended_run,
    "event": _event,
    "failure": _failure,
    "finished": _finished,
    "follows other attempts": _follows_others,
    "forgotten": _failure,
    "forked": _forked,
    "graph changed": _graph_changed,
    "graph frozen": _versions,
    "graph imported": _versions,
    "noted": _noted,
    "patch": lambda data: str(data["name"]),
    "paused": _reason,
    "reattempted": _again,
    "refused": _event,
    "result": _result,
    "resumed": _reason,
    "retried": _reason,
    "rollbacks": lambda data: f"kept for the next call: {data['name']}",
    "skipped": _of_node,
    "timer": _asked,
}
