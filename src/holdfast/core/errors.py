"""Every error Holdfast raises, in one tree whose branches say whose move it is.

    HoldfastError
    ├── UsageError              your code or call is at fault: change it
    │   ├── UnknownWorkflow
    │   ├── UnknownNode
    │   ├── DagError
    │   ├── FlowNotSupported
    │   ├── GraphError
    │   ├── KeyConflict
    │   ├── PayloadRefused
    │   └── PayloadTooLarge
    ├── RunError                one run is at fault: look at it, retry or repair it
    │   ├── RunFailed
    │   ├── RunCancelled
    │   ├── RunPaused
    │   ├── RemoteError
    │   ├── NonDeterminism
    │   ├── ReplayMismatch
    │   ├── ReattemptRefused
    │   ├── MissingJob
    │   ├── ReadinessOverflow
    │   ├── ConflictingWrites
    │   ├── NoProgress
    │   └── DecideFailed
    └── StoreError              the world is at fault: repair it or wait
        ├── StoreUnavailable
        ├── SchemaTooNew
        ├── NotOurDatabase
        └── EngineClosed

    NonRetryable                not ours: raise it in an action to stop its retries

A message states the fact and the identity; the hint states the fix. Each class has a default hint, so an error
without a way out cannot be raised. Every class can be built from a message alone and survives pickling, because
process pools and test runners send exceptions across processes.
"""

from __future__ import annotations

from typing import ClassVar


class HoldfastError(Exception):
    """Root of the tree: `except HoldfastError` catches all that Holdfast itself raises."""

    default_hint: ClassVar[str] = "run `holdfast doctor` and read the message above"

    message: str
    hint: str

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        # Only the message goes into args: unpickling calls cls(*args) and then restores __dict__, which holds the rest.
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint

    def __str__(self) -> str:
        return f"{self.message.rstrip().removesuffix('.')}. Fix: {self.hint}"


# --- the user's code ---------------------------------------------------------------------------------------------


class UsageError(HoldfastError):
    """A definition or a call is wrong; repeating it unchanged can't help."""

    default_hint = "correct the call or the definition named in the message"


class UnknownWorkflow(UsageError):
    """No workflow is registered under this name."""

    default_hint = "import the module that defines it before opening the engine, or list the old name in aliases="


class UnknownNode(UsageError):
    """The run has no node with this address."""

    default_hint = "list the run's nodes with `holdfast show RUN`"


class DagError(UsageError):
    """The tasks of a Dag do not form a valid graph."""

    default_hint = "check depends_on= of the tasks named in the message for cycles and misspelt names"


class FlowNotSupported(UsageError):
    """A flow uses Python that can't be compiled to a graph."""

    default_hint = "move that code into an @action, or write the workflow as a function"


class GraphError(UsageError):
    """A state graph is incomplete or contradicts itself."""

    default_hint = "check the edges and entry point of the graph named in the message"


class KeyConflict(UsageError):
    """The key belongs to a run that was started with another input."""

    default_hint = "use another key, or pass the input that the key was first used with"


class PayloadRefused(UsageError):
    """A value can't be stored so that exactly the same value comes back."""

    default_hint = "annotate the parameter or result with its type, or convert the value first"


class PayloadTooLarge(UsageError):
    """A value is larger than one payload may be."""

    default_hint = "store the data elsewhere and pass a reference to it"


# --- the run -----------------------------------------------------------------------------------------------------


class RunError(HoldfastError):
    """Something about one run; other runs are not concerned."""

    default_hint = "look at the run with `holdfast show RUN` and `holdfast explain RUN`"


class RunFailed(RunError):
    """The run ended in failure; `cause` is the exception that ended it, and `node` what raised it, where known.

    Of a function `node` is the action or child that it called. `attempts` has what each attempt of the call or node
    that gave up raised, the oldest first and the cause last.
    """

    default_hint = "repair the cause, then `holdfast retry RUN`"

    def __init__(
        self,
        message: str,
        *,
        run_id: str = "",
        workflow: str = "",
        node: str | None = None,
        cause: BaseException | None = None,
        attempts: tuple[BaseException, ...] = (),
        hint: str | None = None,
    ) -> None:
        if hint is None and run_id:
            hint = f"repair the cause, then `holdfast retry {run_id}`"
        super().__init__(message, hint=hint)
        self.run_id = run_id
        self.workflow = workflow
        self.node = node
        self.cause = cause
        self.attempts = attempts
        self.__cause__ = cause

    def __setstate__(self, state: dict[str, object] | None) -> None:
        # Pickle carries attributes but not __cause__; without this, a failure from another process loses its chain.
        self.__dict__.update(state or {})
        self.__cause__ = self.cause


class RunCancelled(RunError):
    """The run was cancelled before it could produce a result."""

    default_hint = 'start it again, with if_exists="restart" to keep its key'

    def __init__(self, message: str, *, run_id: str = "", by: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run_id = run_id
        self.by = by


class RunPaused(RunError):
    """The run is paused, so no result will come until somebody runs `command`."""

    default_hint = "resume it with `holdfast resume RUN`, or wait with result(wait_paused=True)"

    def __init__(
        self, message: str, *, run_id: str = "", reason: str = "", command: str | None = None, hint: str | None = None
    ) -> None:
        self.run_id = run_id
        self.reason = reason
        self.command = command or f"holdfast resume {run_id or 'RUN'}"
        super().__init__(message, hint=hint or f"run `{self.command}`, or wait with result(wait_paused=True)")


class RemoteError(RunError):
    """Stands for an exception whose class is not known in this process; keeps its type, message and traceback."""

    default_hint = "import the module that defines the exception's class here to get the original exception"

    type: str
    traceback: str

    def __init__(self, type: str, message: str | None = None, traceback: str = "", *, hint: str | None = None) -> None:
        if message is None:  # built from a message alone, like every other error
            type, message = "Exception", type
        super().__init__(message, hint=hint)
        self.args = (type, message, traceback)
        self.type = type
        self.traceback = traceback

    def __str__(self) -> str:
        # From args, not from `message`: in rows of older versions that attribute begins with the type.
        return f"{self.args[0]}: {self.args[1].rstrip().removesuffix('.')}. Fix: {self.hint}"

    @property
    def type_name(self) -> str:
        """An older name of `type`."""
        return self.type

    @property
    def remote_message(self) -> str:
        """An older name of `message`."""
        return self.message


class NonDeterminism(RunError):
    """Running the workflow again asked for something other than what its history holds."""

    default_hint = "move clocks, randomness and I/O into actions or take them from hf; keep old code paths for old runs"


class ReplayMismatch(RunError):
    """Replaying the history gave another outcome than the one recorded; `difference` has both sides."""

    default_hint = "compare the two sides in the message; run the old code, or fork the run onto the new"
    difference: object = None


class ReattemptRefused(RunError):
    """The node is not in a state from which it may be attempted again."""

    default_hint = "`holdfast explain RUN` says what the node waits for; only nodes that gave up can be reattempted"


class MissingJob(RunError):
    """Work waited for a worker that knows its name, and none came."""

    default_hint = "deploy a worker that registers the name, list it in aliases=, or `holdfast dead discard` the work"


class ReadinessOverflow(RunError):
    """More predecessors completed a node than it has: its counter can't be trusted."""

    default_hint = "report this with the output of `holdfast show RUN --json`; `holdfast fork RUN` goes on from before"


class ConflictingWrites(RunError):
    """Two nodes of one step wrote the same state key, which has no reducer."""

    default_hint = "give the key a reducer, or let only one of the nodes write it"


class NoProgress(RunError):
    """The run can't go on, yet nothing is left that could wake it."""

    default_hint = "`holdfast explain RUN` names the node; check the conditions on its edges"


class DecideFailed(RunError):
    """The workflow's own decision code raised; nothing was written."""

    default_hint = "repair the function named in the message; the run goes on from its last recorded state"


# --- the world ---------------------------------------------------------------------------------------------------


class StoreError(HoldfastError):
    """The database, or the way to it, is at fault."""

    default_hint = "check the database with `holdfast doctor`"


class StoreUnavailable(StoreError):
    """The database did not answer in time; what was being written may or may not be there."""

    default_hint = "check that the database runs and is reachable; repeating the call is safe"


class SchemaTooNew(StoreError):
    """The database was migrated by a newer Holdfast than this one."""

    default_hint = "upgrade holdfast in this process to the version that migrated the database"


class NotOurDatabase(StoreError):
    """The database holds tables that Holdfast did not create."""

    default_hint = "check the URL, or give Holdfast a database or schema of its own"


class EngineClosed(StoreError):
    """The engine is not open."""

    default_hint = "use it inside `async with engine:`"


# --- for users to raise ------------------------------------------------------------------------------------------


class NonRetryable(Exception):
    """Raise this, or a subclass of it, in an action to fail at once whatever its retry policy allows."""
