"""What becomes of work whose rows nobody can make sense of: somebody changed them by hand, or a disk did.

Nothing poisonous stops a worker (I8). An item that cannot even be settled would be found again as an orphan and run
again, for ever; so it is buried here without asking the model of its run, and its run fails, where people can see it.
"""

from __future__ import annotations

import logging
from typing import Any

from holdfast.coordinator import Coordinator
from holdfast.core.codec import encode_error
from holdfast.core.errors import StoreError
from holdfast.core.operations import KillWork, Operation, Settled
from holdfast.core.rows import Work

log = logging.getLogger("holdfast.worker")


async def bury(coordinator: Coordinator, work: Work, error: Exception) -> Settled | None:
    """Make an item that could not be settled a dead letter, whatever its run's rows hold; None if that fails."""
    try:
        settled: Settled = await coordinator.submit(
            KillWork(
                run=work.run,
                node=work.node,
                attempt=work.attempt,
                token=work.token,
                error=encode_error(error),
                plainly=True,
            )
        )
    except StoreError as trouble:
        log.warning("node %s of run %s was not settled: %s", work.node, work.run, trouble)
    except Exception:
        log.exception("node %s of run %s cannot be settled in any way; see `holdfast doctor`", work.node, work.run)
    else:
        return settled
    return None


async def submit_or_log(coordinator: Coordinator, operation: Operation) -> Any:
    """Submit what one may do without: what cannot be decided about one run must not hold up the others."""
    try:
        return await coordinator.submit(operation)
    except StoreError:
        raise
    except Exception:
        log.exception("%s of run %s could not be decided", type(operation).__name__, ", ".join(operation.runs))
        return None
