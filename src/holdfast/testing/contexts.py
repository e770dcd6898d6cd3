"""What code that asks for `hf.current()` gets in a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.authoring.context import Context, NodeInfo, Tx, entered
from holdfast.core.ids import idempotency_key


class _Given(Context):
    """It stands for the context of what is called in it, and is not that of somebody who calls."""

    __slots__ = ()

    def for_call(self, name: str) -> Context:
        return self._with_key(self.idempotency_key)


@contextmanager
def action_context(
    name: str = "test", *, attempt: int = 1, run_id: str = "test-run", tx: Tx | None = None
) -> Iterator[Context]:
    """`hf.current()` inside the block is a context of your making; `tx` lets a transactional action run in it."""
    context = _Given(
        run_id=run_id,
        workflow_name=name,
        node=NodeInfo(id=name, name=name, attempt=attempt),
        idempotency_key=idempotency_key(name, run_id, name),
        worker="test",
        tx=tx,
    )
    with entered(context):
        yield context
