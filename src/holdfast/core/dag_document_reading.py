"""Reading a DAG document that a person may have edited: nothing in it is trusted, and errors name their place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Never

from holdfast.core.codec import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES
from holdfast.core.dag_document import MAX_DEFINITION_BYTES, VERSION, call_of, frozen_policy
from holdfast.core.errors import DagError, HoldfastError, UsageError
from holdfast.core.graph import MAX_NODES, Graph, Node, NodePolicy, known_names, too_many_nodes
from holdfast.core.retry import Retry

__all__ = ["parse_document"]

LONGEST_TEXT: Final = 255

_DOCUMENT_KEYS: Final = {"version": True, "nodes": True, "signature": False, "frozen_at": False}
_NODE_KEYS: Final = {"name": True, "job": False, "method": False, "args": True, "depends_on": True, "policy": True}
_PLAIN_KEYS: Final = _NODE_KEYS | {"policy": False}  # of a document that has no policies at all
_DEFAULT_POLICY: Final = frozen_policy(NodePolicy())
_POLICY_KEYS: Final = {"retry": True, "timeout_seconds": True, "queue": True}
_RETRY_KEYS: Final = {"attempts": True, "base": True, "cap": True}


def parse_document(text: str) -> tuple[Graph, str | None]:
    """The graph of an exported document, and the signature it says it was exported from.

    DagError names the node and the field of the first thing that is wrong. Every field of a node has to be there
    (only of `job` and `method` may one be left out): a line deleted by accident must not become a default. A document
    without any `policy` was written so, and its nodes have the default one.
    """
    top = _loaded(text)
    _check_version(top)
    _check_keys(top, _DOCUMENT_KEYS, "the document")
    signature = top.get("signature")
    if signature is not None and not isinstance(signature, str):
        _refuse_type("the document", "signature", signature, "the text that was exported, or null")
    _check_frozen_at(top.get("frozen_at"))
    nodes = top["nodes"]
    if not isinstance(nodes, dict):
        _refuse_type("the document", "nodes", nodes, "an object of nodes by id")
    if not nodes:
        raise DagError("the document has no nodes", hint="a DAG has at least one: export it again")
    if len(nodes) > MAX_NODES:
        raise too_many_nodes(len(nodes))
    policies: dict[str, NodePolicy] = {}
    keys = _NODE_KEYS if any(isinstance(value, dict) and "policy" in value for value in nodes.values()) else _PLAIN_KEYS
    return Graph(tuple(_parsed_node(node_id, value, keys, policies) for node_id, value in nodes.items())), signature


class _Repeating(dict[str, Any]):
    """A JSON object that gave one of its keys twice: `key`. Which of the two was meant, nobody can know."""

    key = ""


def _loaded(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise UsageError(
            f"a DAG document is a {type(text).__name__}, not a text",
            hint="give the JSON text that export_dag() returned",
        )
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_DEFINITION_BYTES:
        raise DagError(
            f"the DAG document has {size:,} bytes, and at most {MAX_DEFINITION_BYTES:,} can be stored",
            hint="split it into several runs, or keep large arguments elsewhere and pass references to them",
        )
    repeated = []

    def collected(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            found = _Repeating(found)
            found.key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            repeated.append(found)
        return found

    try:
        top = json.loads(text, object_pairs_hook=collected, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        whole = text.lstrip().startswith("{")
        raise DagError(
            f"the DAG document is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            hint="correct that place, or export the DAG again"
            if whole
            else "give the text of the export itself, not the name of a file that holds it",
        ) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of levels
        raise DagError(f"the DAG document cannot be read: {error}", hint="export the DAG again") from None
    if not isinstance(top, dict):
        raise DagError(
            f"the DAG document is {_shown(top)}, not an object", hint="give the JSON text that export_dag() returned"
        )
    for each in repeated:
        place = next((path for path, value in _walk(top, ()) if value is each), None)
        if place is None:
            continue  # it is in the value of a key that is there twice itself, and was dropped for the other
        raise DagError(f"{_place(place)} has the key {each.key!r} twice", hint="keep the one that is meant")
    return top


def _refuse_constant(name: str) -> Never:
    raise DagError(f"the DAG document holds {name}, which is no JSON", hint="give a number, or null")


def _walk(value: Any, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any]]:
    waiting = [(path, value)]
    while waiting:
        here, found = waiting.pop()
        yield here, found
        if isinstance(found, dict):
            waiting += [((*here, key), member) for key, member in found.items()]
        elif isinstance(found, list):
            waiting += [((*here, str(index)), member) for index, member in enumerate(found)]


def _place(path: tuple[str, ...]) -> str:
    if path[:1] != ("nodes",) or len(path) < 2:
        return ".".join(path) or "the document"
    return f"node {path[1]!r}" + (f", {'.'.join(path[2:])}," if path[2:] else "")


def _check_version(top: Mapping[str, Any]) -> None:
    version = top.get("version")
    if "version" not in top:
        raise DagError('the document has no key "version"', hint=f'add "version": {VERSION}, or export the DAG again')
    if isinstance(version, bool) or version != VERSION:
        shown = _shown(version).removeprefix("the number ")
        raise DagError(
            f"the document has version {shown}, and this process reads version {VERSION}",
            hint="upgrade holdfast here, or export the DAG again from this version",
        )


def _check_keys(value: Mapping[str, Any], known: Mapping[str, bool], place: str) -> None:
    for key in value:
        if key not in known:
            raise DagError(
                f"{place} has the unknown key {key!r}", hint=f"remove or correct it; {known_names(key, known)}"
            )
    for key, required in known.items():
        if required and key not in value:
            raise DagError(f"{place} has no key {key!r}", hint="add it, or export the DAG again and edit that")


def _check_frozen_at(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        _refuse_type("the document", "frozen_at", value, "a time in ISO form, or null")
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise DagError(
            f"the document has frozen_at {value!r:.80}, which is no time",
            hint='give ISO form, such as "2031-05-04T03:02:01Z", or null',
        ) from None


def _parsed_node(node_id: str, value: object, keys: Mapping[str, bool], policies: dict[str, NodePolicy]) -> Node:
    _check_text(node_id, f"the node id {node_id!r:.80}")
    place = f"node {node_id!r}"
    if not isinstance(value, dict):
        raise DagError(f"{place} is {_shown(value)}, not an object", hint=f"give it the keys {', '.join(_NODE_KEYS)}")
    _check_keys(value, keys, place)
    name = _text_field(value, "name", place)
    place = f"{place} ({name})"
    job = None if value.get("job") is None else _text_field(value, "job", place)
    method = None if value.get("method") is None else _text_field(value, "method", place)
    if (job is None) == (method is None):
        given = "both a job and a method" if job is not None else "neither a job nor a method"
        fix = "set the other to null" if job is not None else "name the action as job, or the step as method"
        raise DagError(f"{place} has {given}", hint=f"a node runs exactly one of the two: {fix}")
    return Node(
        id=node_id,
        name=name,
        job=job,
        method=method,
        args=_parsed_args(value["args"], place, method),
        depends_on=_parsed_dependencies(value["depends_on"], place),
        policy=_parsed_policy(value["policy"], place, policies) if "policy" in value else _DEFAULT_POLICY,
    )


def _parsed_args(args: object, place: str, method: str | None) -> bytes | None:
    if not isinstance(args, dict):
        _refuse_type(place, "args", args, "an object of arguments by name, {} for none")
    if not args:
        return None
    if method is not None:
        raise DagError(f"{place} has args and runs a method, which takes none", hint='write "args": {}')
    try:
        return call_of(DEFAULT_CODECS.encode(args, where=f"args of {place}", limit=DEFAULT_LIMIT_BYTES).data)
    except UsageError as error:
        raise DagError(error.message, hint=error.hint) from error


def _parsed_dependencies(given: object, place: str) -> tuple[str, ...]:
    if not isinstance(given, list):
        _refuse_type(place, "depends_on", given, "a list of node ids, [] for none")
    for member in given:
        if not isinstance(member, str):
            _refuse_type(place, "depends_on", member, "the ids of nodes in it, as texts")
    return tuple(given)


def _parsed_policy(given: object, place: str, seen: dict[str, NodePolicy]) -> NodePolicy:
    if not isinstance(given, dict):
        _refuse_type(place, "policy", given, f"an object with {', '.join(_POLICY_KEYS)}")
    # Equal policies become one value: a graph of thousands has few, and signatures describe each once.
    text = json.dumps(given, sort_keys=True)
    policy = seen.get(text)
    if policy is None:
        policy = seen[text] = _checked_policy(given, f"{place}, policy,")
    return policy


def _checked_policy(given: Mapping[str, Any], place: str) -> NodePolicy:
    _check_keys(given, _POLICY_KEYS, place)
    retry = given["retry"]
    if not isinstance(retry, dict):
        _refuse_type(place, "retry", retry, f"an object with {', '.join(_RETRY_KEYS)}")
    _check_keys(retry, _RETRY_KEYS, f"{place} retry")
    if isinstance(retry["attempts"], bool) or not isinstance(retry["attempts"], int):
        _refuse_type(f"{place} retry", "attempts", retry["attempts"], "a whole number of at least 1")
    timeout = given["timeout_seconds"]
    try:
        return frozen_policy(
            NodePolicy(
                retry=Retry(
                    attempts=retry["attempts"],
                    base=_seconds(retry["base"], f"{place} retry", "base"),
                    cap=_seconds(retry["cap"], f"{place} retry", "cap"),
                ),
                timeout_seconds=None if timeout is None else _seconds(timeout, place, "timeout_seconds"),
                queue=None if given["queue"] is None else _text_field(given, "queue", place),
            )
        )
    except HoldfastError as error:
        known = error.message.startswith("node ")
        raise DagError(error.message if known else f"{place} {error.message}", hint=error.hint) from None


def _seconds(value: object, place: str, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse_type(place, field, value, "a number of seconds")
    try:
        return float(value)
    except OverflowError:
        raise DagError(f"{place} has a {field} of hundreds of digits", hint="give a number of seconds") from None


def _text_field(value: Mapping[str, Any], field: str, place: str) -> str:
    text = value[field]
    if not isinstance(text, str):
        _refuse_type(place, field, text, "a text")
    _check_text(text, f"the {field} {text!r:.80} of {place}")
    return text


def _check_text(text: str, what: str) -> None:
    fix = f"give 1 to {LONGEST_TEXT} printable characters"
    if not text or text.isspace():
        raise DagError(f"{what} is empty", hint=fix)
    if len(text) > LONGEST_TEXT:
        raise DagError(f"{what}… has {len(text):,} characters", hint=fix)
    if not text.isprintable():
        raise DagError(f"{what} holds a character that cannot be printed", hint=fix)


def _refuse_type(place: str, field: str, value: object, wanted: str) -> Never:
    raise DagError(f"{place} has {field} {_shown(value)}", hint=f"give {wanted}")


def _shown(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "the text", bool: "the value", type(None): "null"}
    kind = names.get(type(value), "the number")
    if isinstance(value, dict | list) or value is None:
        return kind
    return f"{kind} {json.dumps(value)[:80]}"
