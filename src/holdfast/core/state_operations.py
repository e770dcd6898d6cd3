"""Operations of state graphs: what a node recorded or asks, what a person answered, a run that begins in the middle."""

from __future__ import annotations

from typing import ClassVar

from holdfast.core.ids import hashed
from holdfast.core.operations import Operation, RunOperation, WorkOperation

INTERRUPT = "interrupt"
CALLED = "call"


class RecordCall(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A node's call to the outside world has ended: what it asked for, and what came back."""

    recording: int  # the attempt that it is recorded under
    call: int
    name: str
    request: bytes
    request_hash: str
    response: bytes | None = None
    response_hash: str | None = None
    error: bytes | None = None
    duration: int = 0


class AskPerson(WorkOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """A node waits for a person: its item is given back, and goes on with the answer."""

    recording: int
    call: int
    request: bytes
    request_hash: str


class AnswerPerson(RunOperation, frozen=True, kw_only=True, gc=False, tag=True):
    """What a person says to a node that waits for it; `node` may be left out while only one does.

    With `question`, the attempt and the call that asked, `node` is the item's address, and no later question is meant.
    """

    locked: ClassVar[bool] = True
    answer: bytes
    answer_hash: str
    node: str | None = None
    question: tuple[int, int] | None = None
    by: str = "a person"


class ForkGraph(Operation, frozen=True, kw_only=True, gc=False, tag=True):
    """A new run that goes on from a checkpoint of `source`, with some fields of its state set anew."""

    locked: ClassVar[bool] = True
    run: str
    source: str
    step: int
    update: bytes = b"{}"
    key: str | None = None
    by: str = "an operator"
    named: str = ""  # how the step was named, if not by its number: the latest, or that of a label

    @property
    def asked(self) -> str:
        """What was asked for, whichever step that was at the time: under one key the same is the same fork."""
        return hashed(self.named or str(self.step), self.update.decode())

    @property
    def runs(self) -> tuple[str, ...]:
        return (self.run, self.source)
