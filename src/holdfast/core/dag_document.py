"""The frozen JSON of a graph: what a store keeps, and what people export, edit and import.

It is purely structural (I27): names, jobs, methods, arguments, edges and numbers, and nothing that
happened. Code is never in it: the `retry_on` of a policy comes from the action or the method when
the node runs, so a graph is first made `frozen`, which drops it.

A job's arguments are given by name, so the document needs no signature to be read, and a node's
`args` bytes hold the very same text inside the call `[[], {…}]`. Reading and writing a graph of a
hundred thousand nodes is therefore one pass, and exact to the byte.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.core.errors import DagError
from holdfast.core.graph import Graph, Node, NodePolicy
from holdfast.core.retry import Retry
from holdfast.core.stored import UNREADABLE

__all__ = [
    "MAX_DEFINITION_BYTES",
    "VERSION",
    "call_of",
    "document",
    "frozen",
    "frozen_policy",
    "graph_of_nodes",
    "stored_nodes",
]

VERSION: Final = 1
MAX_DEFINITION_BYTES: Final = 64 * 1024 * 1024

# Retries are counted in 32 bits by every store.
MOST_ATTEMPTS: Final = 2**31 - 1

_BEFORE, _AFTER, _NO_ARGUMENTS = b"[[],", b"]", b"{}"


class _Retry(msgspec.Struct, frozen=True, gc=False):
    attempts: int
    base: float
    cap: float


class _Policy(msgspec.Struct, frozen=True, gc=False):
    retry: _Retry
    timeout_seconds: float | None
    queue: str | None


class _StoredNode(msgspec.Struct, frozen=True, gc=False):
    # Arguments stay text both ways; of policies there are few, so each text is read once.
    name: str
    job: str | None
    method: str | None
    args: msgspec.Raw
    depends_on: tuple[str, ...]
    policy: msgspec.Raw


_encode: Final = msgspec.json.Encoder().encode
_decode_nodes: Final = msgspec.json.Decoder(dict[str, _StoredNode]).decode
_decode_policy: Final = msgspec.json.Decoder(_Policy).decode


def frozen(graph: Graph) -> Graph:
    """The graph as its JSON can hold it: without `retry_on`, numbers of seconds as floats, `{}` as no arguments."""
    policies: dict[int, NodePolicy] = {}
    nodes = []
    for node in graph.nodes:
        policy = policies.get(id(node.policy))
        if policy is None:
            policy = policies[id(node.policy)] = frozen_policy(node.policy)
        args = None if _keywords(node) == _NO_ARGUMENTS else node.args
        nodes.append(node if policy is node.policy and args is node.args else replace(node, policy=policy, args=args))
    unchanged = all(new is old for new, old in zip(nodes, graph.nodes, strict=True))
    return graph if unchanged else Graph(tuple(nodes))


def stored_nodes(graph: Graph) -> bytes:
    """The JSON of the graph's nodes by id, the same bytes for the same graph; DagError if it is over the limit."""
    policies: dict[int, msgspec.Raw] = {}
    mapping = {}
    for node in graph.nodes:
        policy = policies.get(id(node.policy))
        if policy is None:
            policy = policies[id(node.policy)] = msgspec.Raw(_encode(_policy_value(node.policy)))
        mapping[node.id] = _StoredNode(
            node.name, node.job, node.method, msgspec.Raw(_keywords(node)), node.depends_on, policy
        )
    data = _encode(mapping)
    _check_size(len(data), len(graph))
    return data


def graph_of_nodes(data: bytes) -> Graph:
    """The graph whose `stored_nodes` are these; DagError if they are damaged."""
    policies: dict[bytes, NodePolicy] = {}
    try:
        nodes = []
        for node_id, stored in _decode_nodes(data).items():
            text = bytes(stored.policy)
            policy = policies.get(text)
            if policy is None:
                policy = policies[text] = _policy_of(_decode_policy(text))
            nodes.append(
                Node(
                    id=node_id,
                    name=stored.name,
                    job=stored.job,
                    method=stored.method,
                    args=call_of(bytes(stored.args)),
                    depends_on=stored.depends_on,
                    policy=policy,
                )
            )
    except (msgspec.MsgspecError, *UNREADABLE) as error:
        raise DagError(
            f"a stored DAG cannot be read: {error}",
            hint="it was damaged, or changed by something other than import_dag: restore it, or fork the run",
        ) from error
    return Graph(tuple(nodes))


def node_names(data: bytes) -> dict[str, str]:
    """The names of the nodes whose `stored_nodes` are these, by id; none if they cannot be read."""
    try:
        return {node_id: node.name for node_id, node in _decode_nodes(data).items()}
    except (msgspec.MsgspecError, *UNREADABLE):
        return {}


def document(graph: Graph, frozen_at: str | None) -> dict[str, Any]:
    """The graph as plain data for export: version, signature, when it was frozen (ISO text or None), and nodes."""
    return {
        "version": VERSION,
        "signature": graph.signature,
        "frozen_at": frozen_at,
        "nodes": msgspec.json.decode(stored_nodes(graph)),
    }


def call_of(keywords: bytes) -> bytes | None:
    """A node's `args` from the JSON object of its keyword arguments."""
    return None if keywords == _NO_ARGUMENTS else _BEFORE + keywords + _AFTER


def _check_size(size: int, nodes: int) -> None:
    """DagError if a definition of this many bytes cannot be stored."""
    if size > MAX_DEFINITION_BYTES:
        raise DagError(
            f"the definition of {nodes:,} nodes has {size:,} bytes, and at most {MAX_DEFINITION_BYTES:,} can be stored",
            hint="split it into several runs, or keep large arguments elsewhere and pass references to them",
        )


def _keywords(node: Node) -> bytes:
    """The JSON object of a node's keyword arguments, cut out of its encoded call."""
    if not node.args:
        return _NO_ARGUMENTS
    if not node.args.startswith(_BEFORE):
        raise DagError(
            f"node {node.name!r} has positional arguments, which have no names to be stored under",
            hint="give a job in a DAG its arguments by name: args={…}",
        )
    return node.args[len(_BEFORE) : -len(_AFTER)]


def frozen_policy(policy: NodePolicy) -> NodePolicy:
    """The policy as its JSON can hold it."""
    retry = Retry(attempts=policy.retry.attempts, base=float(policy.retry.base), cap=float(policy.retry.cap))
    if retry.attempts > MOST_ATTEMPTS:
        raise DagError(
            f"a node has Retry(attempts={retry.attempts}), and at most {MOST_ATTEMPTS:,} can be counted",
            hint="choose a number that can be reached",
        )
    return policy if _same(retry, policy.retry) else replace(policy, retry=retry)


def _same(new: Retry, old: Retry) -> bool:
    # 1 and 1.0 are equal, but not in JSON.
    return new == old and type(old.base) is float and type(old.cap) is float


def _policy_value(policy: NodePolicy) -> _Policy:
    retry = policy.retry
    return _Policy(_Retry(retry.attempts, retry.base, retry.cap), policy.timeout_seconds, policy.queue)


def _policy_of(value: _Policy) -> NodePolicy:
    retry = Retry(attempts=value.retry.attempts, base=value.retry.base, cap=value.retry.cap)
    return NodePolicy(retry=retry, timeout_seconds=value.timeout_seconds, queue=value.queue)
