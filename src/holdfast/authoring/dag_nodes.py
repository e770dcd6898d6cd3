"""`hf.step` and `hf.task`: how a class declares the nodes of its DAG.

A declaration only remembers what was written. Names, PREVIOUS and positions are resolved when the
class is complete (`dag_chain`), because a step further down, or one in a subclass, may still be
inserted before any of them.
"""

from __future__ import annotations

import enum
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    overload,
)

import msgspec
from msgspec.structs import replace

from holdfast.authoring.actions import UNSET, Action, Unset, check_function, check_transactional, overridden
from holdfast.authoring.context import entered, is_running, require_transaction, stand_in_context
from holdfast.authoring.dag_conditions import Condition, Conditions, listed_conditions
from holdfast.authoring.registry import validated_name
from holdfast.core.errors import DagError
from holdfast.core.graph import DEFAULT_POLICY, NodePolicy
from holdfast.core.retry import Retry

if TYPE_CHECKING:
    from types import FrameType

    from holdfast.authoring.dags import Dag

__all__ = ["PREVIOUS", "Declaration", "JobNode", "MethodNode", "Previous", "step", "task"]

# Not bound to Dag: a mixin that is no Dag itself may hold nodes too.
S = TypeVar("S")
R = TypeVar("R")
Kind = Literal["step", "task"]


class Previous(enum.Enum):
    """Its one member stands for the step before this one in the finished chain. Never stored."""

    PREVIOUS = "the step before"

    def __repr__(self) -> str:
        return "PREVIOUS"


PREVIOUS: Final = Previous.PREVIOUS


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What one `step` or `task` said, and nothing that it did not say."""

    kind: Kind
    name: str | None = None
    after_step: Dependency | None = None
    before_step: Dependency | None = None
    depends_on: tuple[Dependency, ...] | Unset = UNSET
    also_depends_on: tuple[Dependency, ...] = ()
    retry: Retry | Unset = UNSET
    timeout: float | Unset | None = UNSET
    queue: str | Unset | None = UNSET
    transactional: bool | Unset = UNSET
    skip_if: tuple[Condition, ...] | Unset = UNSET
    cancel_if: tuple[Condition, ...] | Unset = UNSET
    depends_on_run: tuple[Condition, ...] | Unset = UNSET
    job: Action[..., Any] | None = None
    args: Mapping[str, Any] = {}

    def policy(self, owner: str) -> NodePolicy:
        """The job's own policy, or the default, with what was said here on top."""
        base = DEFAULT_POLICY if self.job is None else self.job.policy
        return overridden(base, self.retry, self.timeout, self.queue, owner)

    def completed_from(self, earlier: Declaration) -> Declaration:
        """This declaration, with everything it leaves open taken from the one it overrides.

        So a method that is overridden keeps its place, its dependencies and its policy unless the
        subclass says otherwise. A position given anew replaces the old one, whichever side it was.
        """
        moved = self.after_step is not None or self.before_step is not None
        rewired = self.depends_on is not UNSET or bool(self.also_depends_on)
        return replace(
            self,
            name=earlier.name if self.name is None else self.name,
            after_step=self.after_step if moved else earlier.after_step,
            before_step=self.before_step if moved else earlier.before_step,
            depends_on=self.depends_on if rewired else earlier.depends_on,
            also_depends_on=self.also_depends_on if rewired else earlier.also_depends_on,
            retry=earlier.retry if self.retry is UNSET else self.retry,
            timeout=earlier.timeout if self.timeout is UNSET else self.timeout,
            queue=earlier.queue if self.queue is UNSET else self.queue,
            transactional=earlier.transactional if self.transactional is UNSET else self.transactional,
            skip_if=earlier.skip_if if self.skip_if is UNSET else self.skip_if,
            cancel_if=earlier.cancel_if if self.cancel_if is UNSET else self.cancel_if,
            depends_on_run=earlier.depends_on_run if self.depends_on_run is UNSET else self.depends_on_run,
        )


# Of a class with thousands of steps nearly all say nothing, and share what says so.
_NONE_BEFORE: Final[Mapping[str, Any]] = {}
_NOTHING_SAID: Final = {kind: Declaration(kind=kind) for kind in get_args(Kind)}


class DeclaredNode:
    """A class attribute that is a node of the DAG."""

    declaration: Declaration
    attribute: str = ""
    line: int = 0  # of the class body, where it was declared
    hides: DeclaredNode | None = None  # a node of the same class that had the attribute before
    _body: str = ""  # the class in whose body it was declared, and the nodes which that had already
    _before: Mapping[str, DeclaredNode] = _NONE_BEFORE

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name
        if owner.__qualname__ == self._body:  # and not another class that is made by a function which the body calls
            self.hides = self._before.get(name, self.hides)
        self._before = _NONE_BEFORE

    def declared_in(self, body: FrameType | None, name: str | None) -> Self:
        """Remembers what assigning it may hide. `name` is the attribute it will have, None if that is not known yet."""
        if body is not None:
            self.line, self._body = body.f_lineno, body.f_locals["__qualname__"]
            names = body.f_locals if name is None else (name,)
            found = {each: body.f_locals.get(each) for each in names}
            self._before = {
                each: node for each, node in found.items() if isinstance(node, DeclaredNode)
            } or _NONE_BEFORE
        return self

    @property
    def node_name(self) -> str:
        """The node's name: the one given with name=, else the attribute's."""
        return self.declaration.name or self.attribute


class MethodNode(DeclaredNode, Generic[S, R]):
    """A method that is a node. On an instance it is the method again, so that tests can call it."""

    def __init__(self, fn: Callable[[S], R], declaration: Declaration) -> None:
        # `functools.update_wrapper`, but for a dict that nearly none of them needs: a class may have thousands.
        for attribute in functools.WRAPPER_ASSIGNMENTS:
            setattr(self, attribute, getattr(fn, attribute))
        if added := vars(fn):
            vars(self).update(added)
        self.__wrapped__ = self.fn = fn
        self.declaration = declaration
        self.attribute = fn.__name__
        self.is_async = inspect.iscoroutinefunction(fn)

    @property
    def transactional(self) -> bool:
        """Whether its writes and its completion commit together."""
        return self.declaration.transactional is True

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: S, owner: type[Any]) -> Callable[[], R]: ...
    def __get__(self, instance: S | None, owner: type[Any]) -> Self | Callable[[], R]:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, instance: S) -> R:
        if self.transactional:
            require_transaction(f"{self.declaration.kind} {self.node_name}")
        if is_running():
            return self.fn(instance)
        context = stand_in_context(self.node_name, workflow=cast("Dag", instance))
        if self.is_async:

            async def in_context() -> Any:
                with entered(context):
                    return await self.fn(instance)  # type: ignore[misc]  # is_async: R is awaitable

            return in_context()  # type: ignore[return-value]  # the coroutine of the same result
        with entered(context):
            return self.fn(instance)


class JobNode(DeclaredNode, Generic[R]):
    """A class attribute that runs a registered action as a node."""

    def __init__(self, job: Action[..., R], declaration: Declaration) -> None:
        self.job = job
        self.declaration = declaration

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: Dag, owner: type[Any]) -> Callable[[], Coroutine[Any, Any, R]]: ...
    def __get__(self, instance: Dag | None, owner: type[Any]) -> Self | Callable[[], Coroutine[Any, Any, R]]:
        if instance is None:
            return self

        async def run_job() -> R:
            if is_running():
                return await self.job(**self.declaration.args)
            with entered(stand_in_context(self.node_name, workflow=instance)):
                return await self.job(**self.declaration.args)

        return run_job


Dependency: TypeAlias = "str | Previous | DeclaredNode"
Dependencies: TypeAlias = "Dependency | Iterable[Dependency]"


class NodeDecorator(Protocol):
    """What `@hf.step(…)` and `@hf.task(…)` with options return."""

    def __call__(self, fn: Callable[[S], R], /) -> MethodNode[S, R]: ...


@overload
def step(fn: Callable[[S], R], /) -> MethodNode[S, R]: ...
@overload
def step(
    *,
    after_step: Dependency | None = ...,
    before_step: Dependency | None = ...,
    depends_on: Dependencies | Unset | None = ...,
    also_depends_on: Dependencies = ...,
    name: str | None = ...,
    retry: Retry | Unset = ...,
    timeout: float | Unset | None = ...,
    queue: str | Unset | None = ...,
    transactional: bool | Unset = ...,
    skip_if: Conditions | Unset = ...,
    cancel_if: Conditions | Unset = ...,
    depends_on_run: Conditions | Unset = ...,
) -> NodeDecorator: ...
@overload
def step(
    *,
    job: Action[..., R],
    args: Mapping[str, Any] | None = ...,
    after_step: Dependency | None = ...,
    before_step: Dependency | None = ...,
    depends_on: Dependencies | Unset | None = ...,
    also_depends_on: Dependencies = ...,
    name: str | None = ...,
    retry: Retry | Unset = ...,
    timeout: float | Unset | None = ...,
    queue: str | Unset | None = ...,
    skip_if: Conditions | Unset = ...,
    cancel_if: Conditions | Unset = ...,
    depends_on_run: Conditions | Unset = ...,
) -> JobNode[R]: ...
def step(
    fn: Callable[[Any], Any] | None = None,
    /,
    *,
    after_step: Dependency | None = None,
    before_step: Dependency | None = None,
    depends_on: Dependencies | Unset | None = UNSET,
    also_depends_on: Dependencies = (),
    name: str | None = None,
    retry: Retry | Unset = UNSET,
    timeout: float | Unset | None = UNSET,
    queue: str | Unset | None = UNSET,
    transactional: bool | Unset = UNSET,
    skip_if: Conditions | Unset = UNSET,
    cancel_if: Conditions | Unset = UNSET,
    depends_on_run: Conditions | Unset = UNSET,
    job: Action[..., Any] | None = None,
    args: Mapping[str, Any] | None = None,
) -> Any:
    """A node in the class's chain: it follows the step before it, unless it says otherwise.

    `after_step` and `before_step` insert it elsewhere in the chain. `depends_on` replaces what it waits
    for (None or [] makes it an entry point) and `also_depends_on` adds to it; both leave the chain as it is.

    `skip_if` and `cancel_if` are asked before it runs: a function of the instance, plain or async, the name of
    a method or field, or a bool; or a list of these, of which one suffices. `depends_on_run` is asked in the same way
    for the id or handle of another run: the node waits until that has completed, and fails if it did not.
    """
    return _declare(
        fn,
        Declaration(
            kind="step",
            name=name,
            after_step=after_step,
            before_step=before_step,
            depends_on=depends_on if depends_on is UNSET else _listed(depends_on, "depends_on"),
            also_depends_on=_listed(also_depends_on, "also_depends_on"),
            retry=retry,
            timeout=timeout,
            queue=queue,
            transactional=transactional,
            skip_if=_conditions(skip_if, "skip_if"),
            cancel_if=_conditions(cancel_if, "cancel_if"),
            depends_on_run=_conditions(depends_on_run, "depends_on_run"),
            job=job,
            args={} if args is None else dict(args),
        ),
    )


@overload
def task(fn: Callable[[S], R], /) -> MethodNode[S, R]: ...
@overload
def task(
    *,
    depends_on: Dependencies | None = ...,
    name: str | None = ...,
    retry: Retry | Unset = ...,
    timeout: float | Unset | None = ...,
    queue: str | Unset | None = ...,
    transactional: bool | Unset = ...,
    skip_if: Conditions | Unset = ...,
    cancel_if: Conditions | Unset = ...,
    depends_on_run: Conditions | Unset = ...,
) -> NodeDecorator: ...
@overload
def task(
    *,
    job: Action[..., R],
    args: Mapping[str, Any] | None = ...,
    depends_on: Dependencies | None = ...,
    name: str | None = ...,
    retry: Retry | Unset = ...,
    timeout: float | Unset | None = ...,
    queue: str | Unset | None = ...,
    skip_if: Conditions | Unset = ...,
    cancel_if: Conditions | Unset = ...,
    depends_on_run: Conditions | Unset = ...,
) -> JobNode[R]: ...
def task(
    fn: Callable[[Any], Any] | None = None,
    /,
    *,
    depends_on: Dependencies | Unset | None = UNSET,
    name: str | None = None,
    retry: Retry | Unset = UNSET,
    timeout: float | Unset | None = UNSET,
    queue: str | Unset | None = UNSET,
    transactional: bool | Unset = UNSET,
    skip_if: Conditions | Unset = UNSET,
    cancel_if: Conditions | Unset = UNSET,
    depends_on_run: Conditions | Unset = UNSET,
    job: Action[..., Any] | None = None,
    args: Mapping[str, Any] | None = None,
) -> Any:
    """A node beside the chain: it waits for what `depends_on` names, and for nothing without it."""
    return _declare(
        fn,
        Declaration(
            kind="task",
            name=name,
            depends_on=depends_on if depends_on is UNSET else _listed(depends_on, "depends_on"),
            retry=retry,
            timeout=timeout,
            queue=queue,
            transactional=transactional,
            skip_if=_conditions(skip_if, "skip_if"),
            cancel_if=_conditions(cancel_if, "cancel_if"),
            depends_on_run=_conditions(depends_on_run, "depends_on_run"),
            job=job,
            args={} if args is None else dict(args),
        ),
    )


def _declare(fn: Callable[[Any], Any] | None, declaration: Declaration) -> Any:
    decorator = f"@hf.{declaration.kind}"
    if declaration == (nothing_said := _NOTHING_SAID[declaration.kind]):
        declaration = nothing_said
    if declaration.name is not None:
        validated_name(declaration.name, f"a {declaration.kind}")
    if declaration.job is not None:
        if not isinstance(declaration.job, Action):
            raise DagError(
                f"job={declaration.job!r} of a {declaration.kind} is a {type(declaration.job).__name__}, not an action",
                hint="decorate the function with @hf.action and pass the action",
            )
        declaration.job.check_arguments((), declaration.args)
        declaration.policy(f"{declaration.kind} for job {declaration.job.name}")
        return JobNode(declaration.job, declaration).declared_in(_class_body(), None)
    if declaration.args:
        raise DagError(
            f"args={dict(declaration.args)!r} of a {declaration.kind} without a job",
            hint="a method reads the class's fields from self; args= goes with job=",
        )

    def decorate(function: Callable[[Any], Any]) -> MethodNode[Any, Any]:
        check_method(function, declaration, decorator)
        node: MethodNode[Any, Any] = MethodNode(function, declaration)
        return node.declared_in(_class_body(), function.__name__)

    return decorate if fn is None else decorate(fn)


def _class_body() -> FrameType | None:
    """The class body that is being executed, if that is where a node is declared: also by a function it calls.

    I25: Python would let the second of two nodes replace the first, and only who runs meanwhile can see both. A
    metaclass could too, but would not get along with one that a user's class has.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # functions, and none but functions
        frame = frame.f_back
    return frame if frame is not None and "__qualname__" in frame.f_locals else None


def check_method(function: Callable[[Any], Any], declaration: Declaration, decorator: str) -> None:
    """Refuses what cannot run as a node: generators, methods with parameters, bad policies."""
    check_function(function, decorator)
    owner = f"{declaration.kind} {function.__qualname__}"
    declaration.policy(owner)
    check_transactional(function, declaration.transactional is True, owner)
    code = function.__code__
    if code.co_argcount == 1 and not code.co_kwonlyargcount and not vars(function):
        return  # as nearly all are: a signature is half of what a class of many nodes costs
    parameters = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        parameter.name
        for parameter in parameters[1:]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed or not parameters or parameters[0].kind not in positional:
        raise DagError(
            f"{owner} takes ({', '.join(parameter.name for parameter in parameters)}), but a node is called with "
            "self alone",
            hint="put what it needs into the class's fields, or make it an action and use job= with args=",
        )


def _conditions(given: Conditions | Unset, option: str) -> tuple[Condition, ...] | Unset:
    if given is UNSET:
        return UNSET
    if isinstance(given, DeclaredNode):
        raise DagError(
            f"{option}={given.node_name} is a {given.declaration.kind}, which is run and not asked",
            hint="use a plain method of the class",
        )
    return listed_conditions(given, option)


def _listed(given: Dependencies | None, option: str) -> tuple[Dependency, ...]:
    if given is None:
        return ()
    listed = (given,) if isinstance(given, str | Previous | DeclaredNode) else given
    try:
        members = tuple(listed)
    except TypeError:
        members = (listed,)  # type: ignore[assignment]  # refused below, with the value in the message
    for member in members:
        if not isinstance(member, str | Previous | DeclaredNode):
            raise DagError(
                f"{option} holds {member!r}, a {type(member).__name__}",
                hint="name a node with a text, name a step or task defined above, or use hf.PREVIOUS",
            )
    return members
