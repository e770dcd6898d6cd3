"""`hf.EffectContext`: what a decider's `handle` knows about the effect it carries out."""

from __future__ import annotations

from holdfast.authoring.context import Context, ContextLogger, NodeInfo
from holdfast.core.ids import idempotency_key, instance_id

__all__ = ["EffectContext"]


class EffectContext:
    """Which instance asked, which attempt this is, and the key by which other systems recognise a repetition.

    In a test of a handler, make one: `hf.EffectContext(workflow_id="17", attempt=2)`.
    """

    __slots__ = ("_context", "workflow_id")

    def __init__(
        self,
        *,
        workflow_id: str,
        workflow: str = "decider",
        effect_id: str = "effect/1.0",
        attempt: int = 1,
        context: Context | None = None,
    ) -> None:
        self.workflow_id = workflow_id
        if context is None:
            run_id = instance_id(workflow, workflow_id)
            context = Context(
                run_id=run_id,
                workflow_name=workflow,
                node=NodeInfo(id=effect_id, name=effect_id, attempt=attempt),
                idempotency_key=idempotency_key(workflow, run_id, effect_id),
                worker="none",
            )
        self._context = context

    @classmethod
    def of(cls, context: Context, workflow_id: str) -> EffectContext:
        """For the engine: the effect that runs in this context, whose node it is."""
        return cls(workflow_id=workflow_id, context=context)

    def __repr__(self) -> str:
        return f"<EffectContext of {self.workflow} {self.workflow_id!r}, {self.effect_id}, attempt {self.attempt}>"

    @property
    def workflow(self) -> str:
        """The decider's name."""
        return self._context.workflow_name

    @property
    def run_id(self) -> str:
        """The id of the instance's run."""
        return self._context.run_id

    @property
    def effect_id(self) -> str:
        """The effect's address within the instance, the same in every attempt."""
        return self._context.node.id

    @property
    def attempt(self) -> int:
        """The number of this execution, from 1."""
        return self._context.attempt

    @property
    def is_retry(self) -> bool:
        """Whether an earlier attempt may have reached the world."""
        return self.attempt > 1

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this effect and in no other (I13): hand it to the systems that you call."""
        return self._context.idempotency_key

    @property
    def cancelled(self) -> bool:
        """True once this execution should stop. For plain `def` handlers, which nothing can interrupt."""
        return self._context.cancelled

    @property
    def logger(self) -> ContextLogger:
        """A logger whose records carry the run, the effect and the attempt."""
        return self._context.logger

    async def heartbeat(self) -> None:
        """Tell the engine that this is still alive; raises when the right to run it has been lost."""
        await self._context.heartbeat()

    def note(self, text: str) -> None:
        """Keep a line for people in this attempt's outcome."""
        self._context.note(text)
