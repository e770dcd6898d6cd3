"""From a leased work item to something that can be called, and back to bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from holdfast.authoring.actions import Action
from holdfast.authoring.context import current
from holdfast.authoring.dags import Dag, NodeCall, callable_of, job_call
from holdfast.core.codec import JSON, Codecs, encode_stored_result
from holdfast.core.codec_label import labelled
from holdfast.core.errors import MissingJob, PayloadRefused, PayloadTooLarge
from holdfast.core.graph import Graph, Node
from holdfast.core.retry import Retry
from holdfast.core.rows import CALL, EFFECT, Run, Work
from holdfast.models.dag_items import is_alone
from holdfast.models.flow_code import FLOW
from holdfast.runtime.definitions import RegistryDefinitions

if TYPE_CHECKING:
    from holdfast.authoring.decider_code import BoundDecider

NO_RESULT = b"null"
Condition = Callable[[], Any]


class Unrepeatable(Exception):
    """An attempt failed in a way that no other would mend, whatever its policy; `error` is what it failed of (I3)."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def stored(encode: Callable[..., bytes], *returned: Any) -> bytes:
    """The result as it is stored. If it can't be, the action has run all the same, and is not run again for it."""
    try:
        return encode(*returned)
    except (PayloadRefused, PayloadTooLarge) as refused:
        raise Unrepeatable(refused) from None


class Invocation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One attempt of a node: what to call, where, under which policy, and how to store what it returns."""

    name: str
    instance: Dag | None
    call: Callable[[], Any]
    arguments: tuple[bytes, str]  # the encoded call and its codec, for a process that calls it elsewhere
    encode: Callable[[Any], bytes] | None  # None: DAG nodes speak through side effects
    retry: Retry
    is_async: bool
    transactional: bool
    isolation: str | None
    action: Action[..., Any] | None
    skip_if: tuple[Condition, ...] = ()
    cancel_if: tuple[Condition, ...] = ()
    depends_on_run: tuple[Condition, ...] = ()
    timeout: int | None = None  # microseconds, where the code says it and not the item
    own_key: str | None = None  # the idempotency key, where the code says it

    def encoded(self, returned: Any) -> bytes:
        return NO_RESULT if self.encode is None else stored(self.encode, returned)


MOST_KNOWN = 1_000  # steps: half a kilobyte each


class _Step(msgspec.Struct, frozen=True, eq=False):
    """What is the same in all attempts of a step."""

    dag: type[Dag]
    fn: Callable[[Any], Any]
    plan: Invocation  # without an instance to call it on


class Steps:
    """The plain steps of the classes of this process: looked up once, and again when anything is defined anew (I31)."""

    def __init__(self, definitions: RegistryDefinitions, codecs: Codecs) -> None:
        self._definitions = definitions
        self._codecs = codecs
        self._known: dict[tuple[str, str], _Step | None] = {}
        self._version = -1  # of the registry, when these were looked up

    def invocation_of(self, work: Work, run: Run) -> Invocation | None:
        """One attempt of such a step; None for everything else, which `invocation_of` looks up."""
        if self._version != self._definitions.registry.version:
            self._known.clear()
            self._version = self._definitions.registry.version
        if run.model != "dag" or run.definition is not None:
            return None
        try:
            step = self._known[run.workflow, work.node]
        except KeyError:
            step = self._look_up(run.workflow, work.node)
        if step is None:
            return None
        instance = step.dag.decode_fields(run.input, run.codec, self._codecs)
        return replace(step.plan, instance=instance, call=partial(step.fn, instance))

    def _look_up(self, workflow: str, node_id: str) -> _Step | None:
        step, found, graph = None, self._definitions.thing(workflow), self._definitions.of_code(workflow)
        if graph is None or node_id not in graph.by_id:
            return None
        node = graph.by_id[node_id]
        if isinstance(found, type) and issubclass(found, Dag) and node.method and found.__dag__.is_plain(node.method):
            method = found.__dag__.methods[node.method]
            plan = Invocation(
                name=node.name,
                instance=None,
                call=partial(method.fn, None),
                arguments=(b"", JSON.tag),
                encode=None,
                retry=node.policy.retry,
                is_async=method.is_async,
                transactional=method.transactional,
                isolation=None,
                action=None,
            )
            step = _Step(found, method.fn, plan)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[workflow, node_id] = step
        return step


def invocation_of(
    definitions: RegistryDefinitions, work: Work, run: Run, graph: Graph | None, result_limit_bytes: int, codecs: Codecs
) -> Invocation:
    """Look the code up and decode the arguments. Whatever is raised here makes the item a dead letter (I8).

    `graph` is the one that the run follows.
    """
    if work.kind == EFFECT:
        return _of_effect(_decider(definitions, work), work, run)
    if work.kind == CALL or run.model == FLOW:
        return invocation_of_call(definitions.registry.action(work.name), work, run, result_limit_bytes, codecs)
    found = definitions.thing(work.workflow)
    if is_alone(run, work):
        if not isinstance(found, Action):
            raise MissingJob(f"action {work.workflow} is not registered here", hint="import its module in this worker")
        return _of_action(found, work, run, result_limit_bytes, codecs)
    if graph is None:
        raise MissingJob(f"workflow {work.workflow} is not registered here", hint="import its module in this worker")
    node = graph.node(work.node)
    instance: Dag | None = None
    if isinstance(found, type) and issubclass(found, Dag):
        instance = found.decode_fields(run.input, run.codec, codecs)
        ready = callable_of(instance, node)
    elif node.job is not None:
        ready = job_call(node, definitions.registry)
    else:
        raise MissingJob(f"workflow {work.workflow} is not registered here", hint="import its module in this worker")
    action = None if node.job is None else definitions.registry.action(node.job)
    return Invocation(
        name=node.name,
        instance=instance,
        call=ready.call,
        arguments=(node.args or b"", work.codec),
        encode=None,
        retry=_retry(node, ready) if run.definition is not None else node.policy.retry,
        is_async=ready.is_async,
        transactional=ready.transactional,
        isolation=ready.isolation,
        action=action,
        skip_if=ready.skip_if,
        cancel_if=ready.cancel_if,
        depends_on_run=ready.depends_on_run,
    )


def _of_action(action: Action[..., Any], work: Work, run: Run, limit: int, codecs: Codecs) -> Invocation:
    args, kwargs = action.call.decode_call(run.input, run.codec, codecs=codecs)
    return Invocation(
        name=work.node,
        instance=None,
        call=lambda: action.fn(*args, **kwargs),
        arguments=(run.input, run.codec),
        encode=partial(encode_stored_result, action.call, codecs, limit),
        retry=_given_retry(work, action.policy.retry),
        is_async=action.is_async,
        transactional=action.transactional,
        isolation=action.isolation,
        action=action,
    )


def invocation_of_call(action: Action[..., Any], work: Work, run: Run, limit: int, codecs: Codecs) -> Invocation:
    """A call that a function made."""
    args, kwargs = action.call.decode_call(work.payload or b"", work.codec, codecs=codecs)
    return Invocation(
        name=action.name,
        instance=None,
        call=lambda: action.fn(*args, **kwargs),
        arguments=(work.payload or b"", work.codec),
        encode=partial(encode_stored_result, action.call, codecs, limit),
        retry=_given_retry(work, action.policy.retry),
        is_async=action.is_async,
        transactional=action.transactional,
        isolation=action.isolation,
        action=action,
    )


def _decider(definitions: RegistryDefinitions, work: Work) -> BoundDecider:
    code = definitions.decider(work.workflow)
    if code is None:
        raise MissingJob(f"decider {work.workflow} is not registered here", hint="import its module in this worker")
    return code


def _of_effect(code: BoundDecider, work: Work, run: Run) -> Invocation:
    """What a decider asked for; its handler may return an input for the same instance."""
    from holdfast.authoring.effect_context import EffectContext  # for those who have deciders

    effect, key = code.decode_effect(work.payload or b"", work.codec), run.key or ""
    kind = type(effect).__name__

    def encode(returned: Any) -> bytes:
        follows = code.returned_input(returned, key, kind)
        return b"" if follows is None else labelled(*follows)

    return Invocation(
        name=f"{kind} ({work.node})",
        instance=None,
        call=lambda: code.definition.decider.handle(effect, EffectContext.of(current(), key)),
        arguments=(work.payload or b"", work.codec),
        encode=encode,
        retry=code.retry,
        is_async=code.definition.handles_async,
        transactional=False,
        isolation=None,
        action=None,
    )


def _given_retry(work: Work, policy: Retry) -> Retry:
    if work.policy is None:
        return policy
    numbers = msgspec.json.decode(work.policy)
    return Retry(attempts=numbers["attempts"], base=numbers["base"], cap=numbers["cap"], retry_on=policy.retry_on)


def _retry(node: Node, ready: NodeCall) -> Retry:
    """A stored graph holds numbers; what is worth retrying is the code's to say."""
    numbers = node.policy.retry
    if numbers.retry_on == ready.retry_on:  # as by default: not made and checked once more
        return numbers
    return Retry(attempts=numbers.attempts, base=numbers.base, cap=numbers.cap, retry_on=ready.retry_on)
