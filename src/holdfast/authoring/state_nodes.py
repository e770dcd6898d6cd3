"""The parts of a state graph: nodes with their policies, and edges."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.authoring.actions import check_function
from holdfast.authoring.registry import validated_name
from holdfast.core.errors import GraphError
from holdfast.core.graph import validated_timeout
from holdfast.core.retry import ACTION_RETRY, Retry

if TYPE_CHECKING:
    from holdfast.authoring.state_graphs import StateGraph

__all__ = [
    "Edge",
    "GraphNode",
    "NodePolicy",
    "SideEffectPolicy",
    "Subgraph",
    "checked_function",
    "checked_node_name",
    "checked_policies",
    "node_timeout",
    "takes_context",
]

NAME_FIX = "use letters, digits, _ and -, beginning with a letter or _"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePolicy:
    """How a node is run: how long an attempt may take, how often it is tried, and the key it gives to others."""

    timeout: float | None = 30.0
    retry: Retry = ACTION_RETRY
    idempotency_key: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectPolicy:
    """What a node does to the world: whether its calls are recorded, and whether it may never be run twice unseen."""

    recordable: bool = False
    requires_idempotency: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """Another graph as a node: which graph, what it is given, and what comes back."""

    graph: StateGraph[Any]
    input: Callable[[Any], Any] | None = None
    output: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A node as its author declared it. `goes_to` is None for one that follows its edges, as far as is known."""

    name: str
    fn: Callable[..., Any] | None = None
    policy: NodePolicy = NodePolicy()
    effects: SideEffectPolicy = SideEffectPolicy()
    label: str | None = None
    queue: str | None = None
    goes_to: tuple[str, ...] | None = None
    takes_context: bool = False
    is_async: bool = False
    subgraph: Subgraph | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from one node to another. `number` is its place among those that leave the same node (I40)."""

    source: str
    target: str
    number: int
    when: Callable[[Any], object] | None = None

    @property
    def condition(self) -> str:
        """The name of its condition, for people; empty without one."""
        if self.when is None:
            return ""
        name = str(getattr(self.when, "__name__", type(self.when).__name__))
        return "when" if name == "<lambda>" else name


def checked_node_name(name: object, graph: str) -> str:
    """The name if it can be part of an address; GraphError otherwise."""
    owner = f"a node of graph {graph!r}"
    if not isinstance(name, str):
        raise GraphError(f"the name {name!r:.80} of {owner} is a {type(name).__name__}", hint=NAME_FIX)
    if name.startswith("-") or not name.replace("-", "_").isidentifier():
        shown = "a lambda, which has no name" if name == "<lambda>" else f"{name!r}"
        raise GraphError(f"the name of {owner} is {shown}", hint=f'give it name="…": {NAME_FIX}')
    return validated_name(name, owner)


def checked_function(function: Any, graph: str) -> None:
    """GraphError unless this can be a node: a function of the state, and of the context if it likes."""
    check_function(function, f"@{graph}.node")
    parameters = list(inspect.signature(function).parameters.values())
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in parameters if each.default is each.empty and each.kind not in _VARIADIC]
    if not positional or len(needed) > 2 or any(each.kind is each.KEYWORD_ONLY for each in needed):
        raise GraphError(
            f"node {function.__qualname__} of graph {graph!r} has the signature {inspect.signature(function)}, and is "
            "called with the state, or with the state and a context",
            hint=f"write def {function.__name__}(state) or def {function.__name__}(state, ctx: hf.NodeContext)",
        )


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether a node wants a context: a second parameter that has no default, or is called ctx."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) < 2 or parameters[1].kind in (*_VARIADIC, inspect.Parameter.KEYWORD_ONLY):
        return False
    return parameters[1].default is inspect.Parameter.empty or parameters[1].name in ("ctx", "context")


def node_timeout(seconds: object, owner: str) -> float | None:
    """The timeout in seconds; GraphError for what could never elapse."""
    try:
        return validated_timeout(seconds, owner)
    except Exception as error:
        raise GraphError(getattr(error, "message", str(error)), hint=getattr(error, "hint", None)) from None


def checked_policies(name: str, graph: str, policy: NodePolicy, effects: SideEffectPolicy) -> None:
    """GraphError unless a node's policies can be kept."""
    owner = f"node {name!r} of graph {graph!r}"
    if not isinstance(policy.retry, Retry):
        raise GraphError(
            f"retry={policy.retry!r} of {owner} is a {type(policy.retry).__name__}, not a Retry",
            hint="write retry=hf.Retry(attempts=3)",
        )
    if policy.idempotency_key is not None and not callable(policy.idempotency_key):
        raise GraphError(
            f"idempotency_key={policy.idempotency_key!r:.80} of {owner} is a {type(policy.idempotency_key).__name__}",
            hint='give a function of the state: idempotency_key=lambda state: state["order"]',
        )
    for option in ("recordable", "requires_idempotency"):
        value = getattr(effects, option)
        if not isinstance(value, bool):
            raise GraphError(
                f"{option}={value!r:.80} of {owner} is a {type(value).__name__}", hint="give True or False"
            )
    if effects.requires_idempotency and policy.idempotency_key is None:
        raise GraphError(
            f"{owner} has requires_idempotency=True and no idempotency_key",
            hint="give idempotency_key=lambda state: …, a text that is the same whenever the effect is the same",
        )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
