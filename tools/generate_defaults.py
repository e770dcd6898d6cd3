"""Write docs/defaults.md from the code, or with --check say whether it is current.

The code is the only source of the values (I4): the fields of `Settings` with the sentence below each, and the default
arguments of what users call.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.authoring.actions import Unset
from holdfast.authoring.deciders import DeciderOptions
from holdfast.authoring.startable import resolve_start
from holdfast.core import settings
from holdfast.core.graph import NodePolicy
from holdfast.runtime.stores import DEFAULT_URL

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "defaults.md"
COMMAND = "python tools/generate_defaults.py"


def generated() -> str:
    """The whole document."""
    return "\n".join([*_head(), *_settings(), *_policies(), *_deciders(), *_graphs(), *_calls()])


def _head() -> Iterator[str]:
    yield "# Defaults"
    yield ""
    yield f"Written by `{COMMAND}` from the code; `make test` fails when it is not current."
    yield "What the words mean is in the [glossary](glossary.md), how they are used in [using](using.md)."
    yield ""


def _settings() -> Iterator[str]:
    yield "## Settings of an engine"
    yield ""
    yield "A keyword argument of `hf.Engine`, or an environment variable; the argument wins. An unknown name is an"
    yield "error that proposes the nearest known one."
    yield ""
    yield "| setting | variable | default | meaning |"
    yield "|---|---|---|---|"
    sentences = _sentences()
    for field in dataclasses.fields(settings.Settings):
        name = field.name
        variable = "" if name in settings.WITHOUT_VARIABLE else f"`HOLDFAST_{name.upper()}`"
        yield f"| `{name}` | {variable} | {_shown(field.default)} | {sentences[name]} |"
    yield ""
    yield f"Besides, `HOLDFAST_URL` names the database; without it, `{DEFAULT_URL}` (in the current directory)."
    yield ""


def _sentences() -> dict[str, str]:
    """The text below each field. Python does not keep it, so it is read from the source."""
    tree = ast.parse(inspect.getsource(settings))
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def _policies() -> Iterator[str]:
    policy = NodePolicy()
    probes = hf.Registry()  # not the default one, so that nothing of this is left behind

    class Probe(hf.Dag, registry=probes):
        @hf.step
        async def node(self) -> None: ...

    @hf.action(registry=probes)
    async def probe() -> None: ...

    yield "## Actions, steps and tasks"
    yield ""
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    yield f"| `retry` | `Retry(attempts={policy.retry.attempts})` | how many executions, and after which errors |"
    yield f"| `timeout` | {_shown(policy.timeout_seconds)} | seconds that one attempt may take |"
    yield f"| `queue` | {_shown(policy.queue)} | where it is claimed from; without one, the queue of its run |"
    of_dag, of_action = (resolve_start(thing, (), probes).on_failure for thing in (Probe(), probe))
    yield f"| `on_failure` of a `Dag` | `{of_dag!r}` | what becomes of the run when a node gives up |"
    yield f"| `on_failure` of an action that is started on its own | `{of_action!r}` | it cannot be changed |"
    yield ""
    yield "| of `hf.Retry` | default | meaning |"
    yield "|---|---|---|"
    retry = hf.Retry()
    yield f"| `attempts` | {retry.attempts} | executions in all, the first included |"
    yield f"| `base` | {retry.base} | seconds before the second attempt, doubled for each further one, plus jitter |"
    yield f"| `cap` | {retry.cap} | the longest delay, jitter included |"
    yield "| `retry_on` | `(Exception,)` | types, or a function that is given the exception |"
    yield ""


DECIDER_MEANINGS = {
    "queue": "where its effects, timers and inbox are claimed from",
    "retry": "how often effects and timers are tried",
    "effect_timeout": "how long one attempt at an effect may take, in seconds or as a timedelta",
    "snapshot_every": "after how many events the state is kept; 0 for never",
    "dedup": "the window in which equal inputs are one",
    "state_version": "to be raised when `evolve` has changed where its own code does not show it",
    "command_retention": "how long command ids are remembered",
}


def _deciders() -> Iterator[str]:
    yield "## Deciders and projections"
    yield ""
    yield "| option of a `Decider` class | default | meaning |"
    yield "|---|---|---|"
    for field in dataclasses.fields(DeciderOptions):
        yield f"| `{field.name}` | {_shown(getattr(DeciderOptions(), field.name))} | {DECIDER_MEANINGS[field.name]} |"
    yield ""
    yield "| option of `hf.projection` | default |"
    yield "|---|---|"
    for argument, default in _arguments(hf.projection):
        yield f"| `{argument}` | {default} |"
    yield ""


GRAPH_MEANINGS = {
    "reduce": "one function in the place of the fields' reducers",
    "max_concurrent": "how many items of one run may run at once",
    "queue_depth": "how many items the frontier holds; the others are spilled to the checkpoint",
    "default_timeout": "seconds that one attempt of a node may take, unless the node says otherwise",
    "max_steps": "after how many steps a run is taken for an endless one, and fails",
    "backpressure_seconds": "for how long spilled items may wait before the run is paused; none waits without end",
    "keep_checkpoints": "how many of the latest are kept, and the labelled ones; none keeps all",
    "queue": "the queue of its runs, for a start that names none",
    "emitter": "who hears of what happens in its runs",
    "redact": "keys whose values are secrets, besides the usual ones",
    "aliases": "names that its runs were stored under before",
    "registry": "where it is registered",
}
NODE_MEANINGS = {
    "name": "the function's own, without one",
    "retry": "how many executions, and after which errors",
    "timeout": "seconds that one attempt may take; the graph's `default_timeout` without one, and none for no limit",
    "recordable": "whether it calls `ctx.record`",
    "requires_idempotency": "whether a replay may never run it again without records",
    "idempotency_key": "a function of the state; needed where idempotency is required",
    "label": "of the checkpoint after a step in which it ran",
    "queue": "where it is claimed from; without one, the queue of its run",
    "goes_to": "the nodes that it may lead to by itself",
}


def _graphs() -> Iterator[str]:
    yield "## State graphs"
    yield ""
    for call, of, meanings in (
        (hf.StateGraph, "hf.StateGraph", GRAPH_MEANINGS),
        (hf.StateGraph.node, "graph.node", NODE_MEANINGS),
    ):
        yield f"| option of `{of}` | default | meaning |"
        yield "|---|---|---|"
        for argument, default in _arguments(call):
            if (argument, of) != ("name", "hf.StateGraph"):  # which has none
                yield f"| `{argument}` | {default} | {meanings[argument]} |"
        yield ""
    yield "| call | argument | default |"
    yield "|---|---|---|"
    for name, call in (("engine.replay", hf.Engine.replay), ("engine.fork", hf.Engine.fork)):
        for argument, default in _arguments(call):
            yield f"| `{name}` | `{argument}` | {default} |"
    yield ""


def _calls() -> Iterator[str]:
    yield "## Calls"
    yield ""
    yield "| call | argument | default |"
    yield "|---|---|---|"
    for name, call in (("engine.start", hf.Engine.start), ("engine.worker", hf.Engine.worker)):
        for argument, default in _arguments(call):
            yield f"| `{name}` | `{argument}` | {default} |"
    yield ""


def _arguments(call: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            yield parameter.name, _shown(parameter.default)


def _shown(value: object) -> str:
    match value:
        case Unset():
            return "the graph's"
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case int() | float():
            return f"{value:,}"
        case hf.Retry():
            return f"`Retry(attempts={value.attempts}, base={value.base}, cap={value.cap})`"
        case timedelta():
            return f"{value.days} days" if value == timedelta(days=value.days) else f"`{value!r}`"
        case _:
            return f"`{value!r}`"


def main(arguments: list[str]) -> int:
    text = generated()
    if arguments == ["--check"]:
        if DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == text:
            return 0
        print(f"docs/defaults.md is not what the code says; run `{COMMAND}`", file=sys.stderr)
        return 1
    if arguments:
        print("usage: generate_defaults.py [--check]", file=sys.stderr)
        return 2
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
