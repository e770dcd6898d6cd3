"""`hf.Decider` classes: how types are read, what is registered, and what is refused when a class is created."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, NamedTuple, Never, NoReturn, TypeVar, Union

import msgspec
import pydantic
import pytest
import typing_extensions

import holdfast as hf
from holdfast.authoring.decider_code import bound_decider
from holdfast.authoring.immutability import is_immutable
from tests.deciders.authoring_world import Add, Added, Body, made

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Removed(msgspec.Struct, frozen=True):
    n: int


class Emptied(pydantic.BaseModel, frozen=True):
    why: str = ""


@dataclass(frozen=True)
class Mail:
    to: str


S = TypeVar("S")
E = TypeVar("E")


def names_of(cls: Any) -> tuple[list[str], list[str], list[str]]:
    types = cls.__decider__.types
    return list(types.inputs.by_name), list(types.events.by_name), list(types.effects.by_name)


Alias = typing_extensions.TypeAliasType("Alias", Added | Removed)
Nested = typing_extensions.TypeAliasType("Nested", Alias | Emptied)


@pytest.mark.parametrize(
    ("events", "names"),
    [
        (Added, ["Added"]),
        (Added | Removed, ["Added", "Removed"]),
        (Union[Added, Removed, Emptied], ["Added", "Removed", "Emptied"]),  # noqa: UP007
        (Nested, ["Added", "Removed", "Emptied"]),
        (Annotated[Added | Removed, "a note"], ["Added", "Removed"]),
        (Annotated[Added, "a note"] | Removed, ["Added", "Removed"]),
        ("Added | Removed", ["Added", "Removed"]),
        (Union["Added", Removed], ["Added", "Removed"]),
    ],
)
def test_events_are_read_from_a_class_a_union_an_alias_or_a_text(events: Any, names: list[str]) -> None:
    cls = made(int, Add, events, Mail, members={"__module__": __name__})  # where a text is read
    assert names_of(cls) == (["Add"], names, ["Mail"])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_a_type_statement_is_an_alias_too() -> None:
    space: dict[str, Any] = {"Added": Added, "Removed": Removed}
    exec("type Events = Added | Removed", space)  # noqa: S102 - older Pythons could not parse this file
    assert names_of(made(int, Add, space["Events"], Never))[1] == ["Added", "Removed"]


@pytest.mark.parametrize("never", [Never, NoReturn])
def test_without_effects_handle_may_be_left_out(never: Any) -> None:
    """`Never` says that there are none, so nothing is missing."""

    class Quiet(Body):
        handle = hf.Decider.handle

    cls = made(int, Add, Added, never, bases=(Quiet,))
    assert names_of(cls) == (["Add"], ["Added"], [])
    assert not cls.__decider__.has_effects


def test_effects_without_a_handle_are_refused_with_the_fix() -> None:
    with pytest.raises(hf.UsageError, match=r"(?s)Silent.*has effects \(Mail\) and no handle.*Never"):

        class Silent(hf.Decider[int, Add, Added, Mail], registry=hf.Registry()):
            def workflow_id(self, input: Add) -> str:
                return input.id

            def initial(self) -> int:
                return 0

            def evolve(self, state: int, event: Added) -> int:
                return state

            def decide(self, now: datetime, state: int, input: Add) -> hf.Decision[Added, Mail, Add]:
                return hf.Decision.event(Added(1))


def test_a_plain_handle_is_allowed_and_known_as_such() -> None:
    def handle(self: Any, effect: Any, ctx: Any) -> None:
        return None

    assert not made(int, Add, Added, Mail, members={"handle": handle}).__decider__.handles_async
    assert made(int, Add, Added, Mail).__decider__.handles_async


def test_types_may_be_local_to_a_function_and_given_as_text() -> None:
    @dataclass
    class Local:
        n: int

    class Inside(Body, hf.Decider[int, Add, "Local", Never], registry=hf.Registry()):  # type: ignore[misc]
        pass

    assert names_of(Inside)[1] == ["Local"]
    del Local


LATE = hf.Registry()


class Early(Body, hf.Decider["int", "Add", "Late", Never], name="early", registry=LATE):  # type: ignore[misc]
    pass


@dataclass(frozen=True)
class Late:
    n: int


def test_types_may_be_defined_after_the_class() -> None:
    """They are read at the first use; the class is registered all the same."""
    assert LATE.workflows["early"] is Early
    assert names_of(Early)[1] == ["Late"]


def test_a_type_that_never_comes_is_named_at_the_first_use() -> None:
    cls = made(int, Add, "Nowhere", Never)
    with pytest.raises(hf.UsageError, match=r"Made.*'Nowhere'"):
        _ = cls.__decider__.types


def test_a_generic_base_is_no_decider_and_its_subclass_is_one() -> None:
    """A base leaves types open: nothing of it can be executed, and its name stays free."""

    class Counting(Body, hf.Decider[S, Add, E, Never], Generic[S, E]):  # type: ignore[misc]
        pass

    assert not hasattr(Counting, "__decider__")
    with pytest.raises(hf.UsageError, match="types are open"):
        Counting.state_machine()
    registry = hf.Registry()

    class Whole(Counting[int, Added | Removed], name="whole", registry=registry):
        pass

    assert names_of(Whole) == (["Add"], ["Added", "Removed"], [])
    assert Whole.__decider__.types.state is int
    assert registry.workflows["whole"] is Whole


def test_a_subclass_inherits_options_but_not_the_name() -> None:
    registry = hf.Registry()
    retry = hf.Retry(attempts=2)
    parent = made(int, Add, Added, Never, name="parent", queue="q", retry=retry, snapshot_every=7, registry=registry)

    class Child(parent, snapshot_every=0):  # type: ignore[misc]
        pass

    options = Child.__decider__.options
    assert (options.queue, options.retry, options.snapshot_every) == ("q", retry, 0)
    assert Child.__holdfast__.name == "Child"
    assert registry.workflows["Child"] is Child


def test_the_defaults_are_those_of_effects_and_timers() -> None:
    """Five attempts, from a second to five minutes; a snapshot every hundred events; no window; a week of commands."""
    code = bound_decider(made(int, Add, Added, Mail))
    assert (code.queue, code.snapshot_every, code.window) == ("default", 100, None)
    assert code.retry == hf.Retry(attempts=5, base=1.0, cap=300.0)
    assert code.definition.options.effect_timeout_us is None
    assert code.definition.options.command_retention_us == 7 * 86_400 * 1_000_000


def test_options_reach_the_code_that_the_engine_asks() -> None:
    cls = made(
        int, Add, Added, Mail, name="made", aliases=["old"], queue="q", retry=hf.Retry(attempts=9), effect_timeout=2.5,
        snapshot_every=0, dedup=hf.Dedup(last=100, ttl=timedelta(hours=1)), command_retention=timedelta(days=1),
    )  # fmt: skip
    code = bound_decider(cls)
    assert (code.name, code.queue, code.retry.attempts, code.snapshot_every) == ("made", "q", 9, 0)
    assert (code.window.last, code.window.seconds) == (100, 3_600.0) if code.window else False
    assert code.definition.options.effect_timeout_us == 2_500_000
    assert cls.__decider__.registry.workflows["old"] is cls


class Pair(NamedTuple):
    a: int


class Arrayed(msgspec.Struct, array_like=True):
    n: int


class Numbered(msgspec.Struct, tag=3):
    n: int


@dataclass
class Typed:
    type: str


class TypedStruct(msgspec.Struct, rename={"kind": "type"}):
    kind: str


class TypedModel(pydantic.BaseModel):
    kind: str = pydantic.Field(alias="type")


class Rooted(pydantic.RootModel[int]):
    pass


@dataclass
class Socket:
    what: Body


other_added = dataclass(type("Added", (), {"__annotations__": {"n": int}}))


async def awaited(self: Any, *args: Any) -> Any: ...


def generated(self: Any, *args: Any) -> Any:
    yield 1


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no types", {"types": ()}, "does not say its types"),
    ("a text as event", {"types": (int, Add, str, Never)}, "str is no class of records"),
    ("a tuple as input", {"types": (int, Pair, Added, Never)}, "Pair is no class of records"),
    ("None as effects", {"types": (int, Add, Added, None)}, "write Never"),
    ("an optional event", {"types": (int, Add, Added | None, Never)}, "None is no class of records"),
    ("no events", {"types": (int, Add, Never, Never)}, "Never for its events"),
    ("no inputs", {"types": (int, Never, Added, Never)}, "Never for its inputs"),
    ("one name twice", {"types": (int, Add, Added | other_added, Never)}, "two of its event types are called Added"),
    ("an array", {"types": (int, Add, Arrayed, Never)}, "array_like"),
    ("a number as tag", {"types": (int, Add, Numbered, Never)}, "has the tag 3"),
    ("a field type", {"types": (int, Add, Typed, Never)}, 'a field "type" of its own'),
    ("a field renamed type", {"types": (int, Add, TypedStruct, Never)}, 'a field "type" of its own'),
    ("an alias type", {"types": (int, Add, TypedModel, Never)}, 'a field "type" of its own'),
    ("a root model", {"types": (int, Add, Rooted, Never)}, "root model"),
    ("a field of a class", {"types": (int, Add, Socket, Never)}, "no way is known to store a Body"),
    ("async evolve", {"members": {"evolve": awaited}}, "evolve of class Made is an async def"),
    ("async decide", {"members": {"decide": awaited}}, "decide of class Made is an async def"),
    ("async workflow_id", {"members": {"workflow_id": awaited}}, "workflow_id of class Made is an async def"),
    ("a generator", {"members": {"decide": generated}}, "decide of class Made is a generator"),
    ("a value for a method", {"members": {"evolve": 5}}, "evolve of class Made is a int"),
    ("no methods", {"bases": ()}, "no workflow_id and no initial and no evolve and no decide"),
    ("arguments", {"members": {"__init__": lambda self, gateway: None}}, "cannot be made without arguments"),
    ("an unknown option", {"snapshots": 3}, "no class option 'snapshots'"),
    ("a bad name", {"name": ""}, "is empty"),
    ("a bad queue", {"queue": "a\nb"}, "unprintable"),
    ("a number as retry", {"retry": 3}, "retry=3"),
    ("negative snapshots", {"snapshot_every": -1}, "snapshot_every=-1"),
    ("a window of nothing", {"dedup": 5}, "dedup=5"),
    ("a text as version", {"state_version": "2"}, "state_version='2'"),
    ("no time for effects", {"effect_timeout": 0}, "effect_timeout=0"),
    ("less than no time", {"command_retention": timedelta(days=-1)}, "negative"),
]


@pytest.mark.parametrize(("what", "given", "said"), REFUSED, ids=[what for what, _, _ in REFUSED])
def test_a_class_that_could_not_work_is_refused_when_it_is_created(what: str, given: dict[str, Any], said: str) -> None:
    given = dict(given)
    types = given.pop("types", (int, Add, Added, Never))
    with pytest.raises(hf.UsageError) as caught:
        made(*types, **given)
    assert said in str(caught.value)
    assert "Made" in str(caught.value)


def test_a_class_that_was_refused_leaves_its_name_free() -> None:
    registry = hf.Registry()
    with pytest.raises(hf.UsageError):
        made(int, Add, str, Never, registry=registry)
    assert not registry.workflows


def test_i15_two_deciders_of_one_name_are_an_error() -> None:
    """I15: the second is refused, and both places are named."""
    registry = hf.Registry()
    made(int, Add, Added, Never, name="order", registry=registry)

    with pytest.raises(hf.UsageError, match=r"'order' is defined twice.*Made.*Second"):

        class Second(Body, hf.Decider[int, Add, Added, Never], name="order", registry=registry):  # type: ignore[misc]
            pass


@pytest.mark.parametrize("given", [{}, {"last": 0}, {"last": True}, {"ttl": -1}, {"ttl": 0}, {"ttl": "x"}])
def test_a_window_that_means_nothing_is_refused(given: Any) -> None:
    with pytest.raises(hf.UsageError):
        hf.Dedup(**given)


def test_an_effect_context_knows_its_instance_and_a_retry() -> None:
    """I13: its key is the same in every attempt."""
    first = hf.EffectContext(workflow_id="17", workflow="order", effect_id="effect/3.0")
    second = hf.EffectContext(workflow_id="17", workflow="order", effect_id="effect/3.0", attempt=2)
    other = hf.EffectContext(workflow_id="18", workflow="order", effect_id="effect/3.0")
    assert (first.workflow_id, first.workflow, first.attempt, first.is_retry) == ("17", "order", 1, False)
    assert second.is_retry
    assert first.idempotency_key == second.idempotency_key != other.idempotency_key
    first.note("fine")


async def test_an_effect_context_of_the_tests_own_has_a_heartbeat() -> None:
    await hf.EffectContext(workflow_id="17").heartbeat()


@dataclass(frozen=True)
class Frozen:
    names: tuple[str, ...]
    inner: Frozen | None = None


@dataclass(frozen=True)
class HoldsList:
    names: list[str]


@pytest.mark.parametrize(
    ("annotation", "answer"),
    [
        (int, True), (str | None, True), (Frozen, True), (tuple[Frozen, ...], True), (Alias, True), (Removed, True),
        (HoldsList, False), (dict[str, int], False), (list[int], False), (Any, False), (Emptied, False),
        (tuple[HoldsList, ...], False),
    ],
)  # fmt: skip
def test_a_state_that_can_be_changed_in_place_is_told_from_one_that_cannot(annotation: Any, answer: bool) -> None:
    """Where it can, the engine must not go on with a state that a failed decision may have touched."""
    assert is_immutable(annotation) is answer
