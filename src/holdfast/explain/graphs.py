"""A state graph in sentences: which nodes ask a person, what waits to be let in, and why a step could not be merged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.core.codec import decode_error
from holdfast.core.rows import FAILED, LEASED, PAUSED, READY, Work
from holdfast.explain.graph_standing import Question
from holdfast.explain.reason import Fix, Reason, fix
from holdfast.explain.words import brief, clock, listed, nodes, span

if TYPE_CHECKING:
    from holdfast.explain.situation import Situation

ANSWER: Final = "ANSWER"
PAYLOAD_WIDTH: Final = 300
# What a failure that no node is to blame for is called, by the type of its error.
WHAT_FAILED: Final = {"NoProgress": "what follows step {}"}


def asks(s: Situation, items: Sequence[Work], node: str) -> Reason:
    """One question, with the command that answers it."""
    question = None if s.standing is None else s.standing.questions.get(node)
    if question is None:
        return Reason(f"node {node} waits for a person")
    since = f"since {clock(question.since)} ({span(s.now - question.since)})"
    return Reason(f"node {node} asks a person {since}: {_payload(question)}", (_answer(s, node),))


def _answer(s: Situation, node: str) -> Fix:
    return fix(f"to answer {node} (ANSWER is JSON, or a text)", "resume", s.run.id, "--answer", ANSWER, "--node", node)


def _payload(question: Question) -> str:
    return brief(json.dumps(question.payload, ensure_ascii=False, default=str), PAYLOAD_WIDTH)


def waiting(s: Situation) -> list[Reason]:
    """Items of the step that were not let in: they are in the checkpoint, and nobody can claim them yet."""
    here = s.standing
    if here is None or not here.waiting or s.run.ended:
        return []
    which = "1 item" if here.waiting == 1 else f"{here.waiting:,} items"
    text = f"{which} of step {here.step} {'waits' if here.waiting == 1 else 'wait'} to be let in"
    if here.max_concurrent:
        text += f": at most {here.max_concurrent:,} run at once (max_concurrent)"
    spilled = here.waiting - here.queue_depth
    if here.queue_depth and spilled > 0:
        text += (
            f"; the frontier holds {here.queue_depth:,} of them (queue_depth), and {spilled:,} are spilled behind it"
        )
    if s.run.status != PAUSED and not any(item.status in (READY, LEASED) for item in s.work):
        text += ", and nothing is running whose end would let one in"
    return [Reason(text)]


def failed_step(s: Situation) -> list[Reason]:
    """A step whose items all succeeded and that failed all the same: the merge, a condition, or the limit of steps."""
    if s.run.status != FAILED or s.run.error is None or s.run.remaining:
        return []
    error = decode_error(s.run.error)
    hint = (error.state or {}).get("hint")
    step = s.run.base + 1
    what = WHAT_FAILED.get(error.type, "the merge of step {}").format(step)
    text = f"{what} failed, and no node is to blame: what the nodes of that step returned is kept"
    if isinstance(hint, str):
        text += f". {hint[:1].upper()}{hint[1:]}"
    module = s.module_for()
    return [
        Reason(
            text,
            (
                fix("to merge again, with the code mended; no node runs again", "retry", s.run.id, "--app", module),
                fix(
                    "to run that step again in a new run, with a node mended or with other values",
                    *("fork", s.run.id, "--step", str(s.run.base), "--update", '{"FIELD": "VALUE"}', "--app", module),
                ),
            ),
        )
    ]


def summary(s: Situation) -> str | None:
    """Where the graph stands if that is its own doing; None if what holds its items up says it all."""
    here = s.standing
    if here is None or any(item.status in (READY, LEASED) for item in s.work):
        return None
    asking = [item.node for item in s.work if item.node in here.questions]
    if asking:
        return f"{s.title} waits for {'an answer' if len(asking) == 1 else 'answers'} to {_named(asking)}"
    return None


def step_of(s: Situation) -> str:
    """`, in step 7`, for the end of a summary."""
    return "" if s.standing is None else f", in step {s.standing.step:,}"


def _named(names: Sequence[str]) -> str:
    return nodes(names) if len(names) == 1 else listed(names)


def ways_on(s: Situation) -> tuple[Fix, ...]:
    """A cancelled run is over, but it can be gone on with from any of its checkpoints."""
    purpose = "to go on in a new run from its last checkpoint"
    return (fix(purpose, "fork", s.run.id, "--step", str(s.run.base), "--app", s.module_for()),)


__all__ = ["asks", "failed_step", "step_of", "summary", "waiting", "ways_on"]
