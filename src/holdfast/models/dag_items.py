"""The work item of a node: what the graph says of it, as a row."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast.core.graph import Node
from holdfast.core.ids import ancestry_hash, parents_hash
from holdfast.core.operations import PolicyOverride
from holdfast.core.rows import BLOCKED, GATE_OPEN, JOB, NODE, READY, Run, Work
from holdfast.models.delivery import gate_for

NO_PARENTS = parents_hash([])
BUILT = "built-"
NOT_IN_GRAPH = b'{"notes":["skipped: the graph had no such node any more"]}'


def item_of(run: Run, node: Node, *, required: int, now: int, parents: str | None = None) -> Work:
    """The first attempt of a node: blocked, or if the attempts that it follows are named, ready."""
    name, kind = needed(run, node)
    policy = node.policy
    timeout = policy.timeout_seconds
    due = first_due(run, now)
    return Work(  # by position, at first: Python makes a dict of more than 15 keywords, for as much as all of this
        run.id,
        node.id,
        1,
        run.workflow,
        kind,
        name,
        BLOCKED if parents is None else READY,
        required=required,
        completed=0 if parents is None else required,
        queue=policy.queue or run.queue,
        priority=run.priority,
        gate=GATE_OPEN if parents is None else gate_for(run, due, now),
        due=due,
        timeout=None if timeout is None else int(timeout * 1_000_000),
        payload=node.args,
        parents=parents,
        ancestry=None if parents is None else ancestry_hash(node.id, 1, parents),
        created=now,
    )


def first_due(run: Run, now: int) -> int:
    """When a first attempt that can start now does: not before the time that the run was started for.

    What comes first may not be what it was at the start: somebody skips it, a deploy or an import changes the graph.
    """
    return run.due if run.due > now else now


def redefined(work: Work, run: Run, node: Node, required: int) -> Work:
    """An item that has not begun, as another graph has it."""
    if work.policy is not None:  # an action on its own, with a policy that was given for this run alone
        return replace(work, required=required)
    fresh = item_of(run, node, required=required, now=work.created)
    return replace(
        work,
        required=required,
        name=fresh.name,
        kind=fresh.kind,
        queue=fresh.queue,
        timeout=fresh.timeout,
        payload=fresh.payload,
    )


def needed(run: Run, node: Node) -> tuple[str, str]:
    """What a worker must know to run the node (I8): a name, and with kind `node` the workflow too."""
    if run.definition is None:
        if node.job is not None and node.job == node.id == run.workflow:  # an action on its own
            return run.workflow, NODE
        return f"{run.workflow}.{node.id}", NODE  # `node_name`, with every step
    if node.job is not None:
        return node.job, JOB if run.definition.startswith(BUILT) else NODE
    return method_name(run.workflow, str(node.method)), NODE


def is_alone(run: Run, work: Work) -> bool:
    """Whether the run is one action, started on its own."""
    return run.definition is None and work.name == run.workflow


def node_name(workflow: str, node: str) -> str:
    """A node of a class as its code has it: two workers with different code differ here."""
    return f"{workflow}.{node}"


def method_name(workflow: str, method: str) -> str:
    """A method that a stored graph names: the class may have it under another node, or none."""
    return f"{workflow}:{method}"


def version_name(workflow: str, signature: str) -> str:
    """A version of a class: what a worker's row says of its code, for others to see."""
    return f"{workflow}@{signature}"


def latest_of(run: Run, attempts: Sequence[Work]) -> Work:
    """The latest attempt of a node; of a DAG's that waits, with the counts of its parents, which its first row has."""
    first, latest = attempts[0], attempts[-1]
    if run.model != "dag" or latest.status != BLOCKED or first is latest:
        return latest
    return replace(latest, required=first.required, completed=first.completed)


def awaited_by(run: Run, blocked: Work) -> str:
    """How many of its parents a node has that waits; one of a DAG that has all of them lacks the end of another run."""
    if run.model == "dag" and blocked.completed >= blocked.required:
        return "by another run"
    return f"{blocked.completed} of {blocked.required}"


def overridden(work: Work, run: Run, override: PolicyOverride) -> Work:
    numbers = {"attempts": override.attempts, "base": override.base_seconds, "cap": override.cap_seconds}
    timeout = override.timeout_seconds
    return replace(
        work,
        queue=override.queue or run.queue,
        timeout=None if timeout is None else int(timeout * 1_000_000),
        policy=msgspec.json.encode(numbers).decode(),
    )
