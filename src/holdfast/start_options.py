"""What `engine.start` was told beside the workflow, checked and turned into an operation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, TypedDict

import msgspec

from holdfast.authoring.registry import LONGEST_NAME
from holdfast.authoring.startable import StartSpec
from holdfast.core.errors import UsageError
from holdfast.core.operations import PolicyOverride, StartRun

TEXT_LIMIT_BYTES = 255
# A name has up to LONGEST_NAME characters of up to four bytes each; loops and elements add to it, as in charge@2.0[3].
NODE_LIMIT_BYTES = 4 * LONGEST_NAME + 100


class Identified(Protocol):
    """A handle, or anything else that has a run's id."""

    @property
    def id(self) -> str: ...


class StartOptions(TypedDict, total=False):
    """What `engine.start` takes beside the workflow and its arguments."""

    key: str | None
    queue: str | None
    priority: int
    tags: Mapping[str, str] | None
    at: datetime | None
    paused: bool
    if_exists: str


class StartOptionsOrTx(StartOptions, total=False):
    """The same, and a PostgreSQL connection in a transaction of the caller's own."""

    tx: Any


TAGS_LIMIT = 100


def unknown_options(workflow: object, unknown: Mapping[str, object]) -> UsageError:
    """What `start` says to keywords that it does not have: a slip of the pen, or arguments of the workflow."""
    from holdfast.core.graph import known_names  # for those who made a mistake

    told = known_names(min(unknown), StartOptionsOrTx.__annotations__)
    given = ", ".join(f"{name}=…" for name in unknown)
    if told.startswith("did you mean"):
        pass
    elif getattr(workflow, "__state_graph__", False):
        fields = ", ".join(f'"{name}": …' for name in unknown)
        told = f"a state graph is started with its state: start(graph, {{{fields}}})"
    elif not hasattr(workflow, "bind"):
        told = f"the workflow's own arguments are not given as keywords of start; of its options {told}"
    elif _are_parameters(unknown, workflow):
        told = f"the workflow's own arguments are positional; for keywords start {_name(workflow)}.bind({given})"
    elif hasattr(workflow, "options") and _are_parameters(unknown, workflow.options):
        told = f"its own options are given before: start({_name(workflow)}.options({given}), …)"
    return UsageError(f"start has no option {', '.join(sorted(unknown))}", hint=told)


def _are_parameters(names: Mapping[str, object], called: object) -> bool:
    """Whether a call could have these keywords. A Dag class has fields, and is asked for no signature."""
    if not callable(called) or isinstance(called, type):
        return True
    parameters = inspect.signature(called).parameters
    anything = any(each.kind is each.VAR_KEYWORD and each.name != "unknown" for each in parameters.values())
    return anything or names.keys() <= parameters.keys()


def _name(workflow: object) -> str:
    return str(getattr(workflow, "__name__", None) or getattr(workflow, "name", None) or "workflow")


def start_operation(
    run: str,
    spec: StartSpec,
    *,
    key: str | None,
    aliases: tuple[str, ...],
    queue: str | None,
    priority: int,
    tags: Mapping[str, str] | None,
    at: datetime | None,
    paused: bool,
    if_exists: str,
) -> StartRun:
    """The start as data; UsageError names the option that does not fit."""
    if if_exists not in ("same", "restart"):
        raise UsageError(f"if_exists is {if_exists!r}", hint='use "same" or "restart"')
    if not isinstance(paused, bool):
        raise UsageError(f"paused is {paused!r}", hint="give True or False")
    _check_priority(priority)
    operation = StartRun(  # of what most starts have: Python makes a dict of more than 15 keywords, which is slow
        run=run,
        workflow=spec.workflow,
        model=spec.model,
        key=None if key is None else checked_text(key, "key"),
        aliases=aliases,
        input=spec.input,
        codec=spec.codec,
        input_digest=spec.input_digest,
        on_failure=spec.on_failure,
        queue=(spec.queue or "default") if queue is None else checked_text(queue, "queue"),
        priority=priority,
        tags=_checked_tags(tags),
        due=0 if at is None else microseconds(at),
        paused=paused,
        signature=spec.signature,
    )
    if if_exists != "same" or spec.document or spec.override is not None:
        override = _override(spec)
        operation = msgspec.structs.replace(operation, if_exists=if_exists, nodes=spec.document, override=override)
    return operation


def _override(spec: StartSpec) -> PolicyOverride | None:
    policy = spec.override
    if policy is None:
        return None
    return PolicyOverride(
        timeout_seconds=policy.timeout_seconds,
        queue=policy.queue,
        attempts=policy.retry.attempts,
        base_seconds=policy.retry.base,
        cap_seconds=policy.retry.cap,
    )


def _check_priority(priority: object) -> None:
    if not isinstance(priority, int) or isinstance(priority, bool) or not -(2**31) <= priority < 2**31:
        raise UsageError(f"priority is {priority!r}", hint="give an integer of 32 bits; higher runs first")


def checked_node(node: object, what: str = "node") -> str:
    """The name or address of a node, as long as one that was defined can be."""
    return checked_text(node, what, NODE_LIMIT_BYTES)


def checked_run(run: object) -> str:
    """The id of a run that was given by its id, or as a handle."""
    found = run if isinstance(run, str) else getattr(run, "id", None)
    if not isinstance(found, str):
        raise UsageError(f"the run is {run!r:.80}, a {type(run).__name__}", hint="give its id, or its handle")
    return checked_text(found, "a run id")


def checked_text(text: object, what: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
    """A short printable text, as keys, queues and tags are."""
    fix = f"give a text of 1 to {limit_bytes} bytes in UTF-8"
    if not isinstance(text, str):
        raise UsageError(f"{what} is {text!r:.80}, a {type(text).__name__}", hint=fix)
    if not text:
        raise UsageError(f"{what} is empty", hint=fix)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit_bytes:
        raise UsageError(f"{what} is {text[:40]!r}… with {size:,} bytes", hint=fix)
    if not text.isprintable():
        raise UsageError(f"{what} {text!r} has characters that cannot be printed", hint="use printable ones only")
    return text


def _checked_tags(tags: Mapping[str, str] | None) -> str:
    if tags is None:
        return "{}"
    if not isinstance(tags, Mapping):
        raise UsageError(
            f"tags is {tags!r:.80}, a {type(tags).__name__}", hint='give names with texts: {"tenant": "acme"}'
        )
    if len(tags) > TAGS_LIMIT:
        raise UsageError(
            f"{len(tags):,} tags were given", hint=f"give at most {TAGS_LIMIT}; the rest belongs in the input"
        )
    for name, value in tags.items():
        checked_text(name, "a tag's name")
        checked_text(value, f"the value of tag {name}")
    return msgspec.json.encode(dict(sorted(tags.items()))).decode()


def microseconds(at: object) -> int:
    """An aware datetime as the database counts time."""
    if not isinstance(at, datetime):
        raise UsageError(f"{at!r:.80} is a {type(at).__name__} and no time", hint="give an aware datetime")
    if at.utcoffset() is None:
        raise UsageError(
            f"{at!r} has no time zone", hint="give an aware datetime, such as datetime.now(UTC) + timedelta(hours=1)"
        )
    return int(at.timestamp() * 1_000_000)


def check_worker(queues: tuple[str, ...] | list[str] | str, concurrency: object) -> None:
    """UsageError unless a worker like this could serve something."""
    if isinstance(queues, str):
        raise UsageError(f"queues is the text {queues!r}", hint=f"give a list: queues=[{queues!r}]")
    for queue in queues:
        checked_text(queue, "a name in queues")
    if not queues:
        raise UsageError("queues is empty, so the worker would serve nothing", hint='give a list: queues=["default"]')
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise UsageError(f"concurrency is {concurrency!r}", hint="give a whole number of 1 or more")
