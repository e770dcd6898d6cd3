"""Before a deploy: would open runs of a state graph go on with this code? Nothing is started, and nothing is written.

A run follows the graph that its code has, from step to step. So what is compared is what is stored of the step that is
under way: the nodes that it names, and the state that they will be given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.queries import StateChain
from holdfast.core.rows import Checkpoint, Run
from holdfast.models.state_memory import put_together

if TYPE_CHECKING:
    from holdfast.engine import Engine

NAMES_SHOWN = 10


async def graph_problem(engine: Engine, run: Run) -> str:
    """Why this run would break with the code of this process; empty if it would not."""
    try:
        code = engine.definitions.state_graph(run.workflow)
    except HoldfastError as error:
        return str(error)
    if code is None:
        return f"this code has no graph {run.workflow}"
    chain: list[Checkpoint] = await engine.store.rows(StateChain(run.id, run.base))
    if not chain or chain[-1].step != run.base:
        return f"its checkpoint of step {run.base} is missing"
    try:
        known = put_together(chain, code)
        code.state_for(known.fields)
        for item in known.frontier:
            if item.sent is not None and item.node in code.nodes:
                code.state_for(known.fields, item.sent)
    except HoldfastError as error:
        return f"its state after step {run.base} does not fit {code.state_type.name}: {error}"
    gone = sorted({item.node for item in known.frontier if item.node not in code.nodes})
    if not gone:
        return ""
    return f"step {run.base + 1} runs nodes that this code does not have: {', '.join(gone[:NAMES_SHOWN])}"


def graph_change(engine: Engine, run: Run) -> str:
    """What somebody should know before the deploy, though nothing breaks."""
    code = engine.definitions.state_graph(run.workflow)
    if code is None or not run.signature or run.signature == code.graph.signature:
        return ""
    return "its graph or its state has changed since it was started; it goes on with the new one from its next step"
