"""Old events in new code: upcasts by version, the digest of folding code, snapshots of states, ids of commands."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Never
from uuid import UUID

import msgspec
import pydantic
import pytest

import holdfast as hf
from holdfast.authoring.decider_code import bound_decider
from holdfast.core.rows import Fact
from tests.deciders.authoring_world import Add, Added, Body, EchoBody, fact, made


@dataclass(frozen=True)
class Opened:
    id: str
    name: str = ""
    cents: int = 0


@dataclass(frozen=True)
class Renamed:
    id: str


def opening() -> Any:
    return made(Any, Opened | Renamed, Opened | Renamed, Never, bases=(EchoBody,))


def test_i37_upcasts_follow_each_other_by_version() -> None:
    """I37: an event is read as the version after the last upcast, and stored with that version."""
    cls = opening()

    @hf.upcast(cls, "Opened", from_version=2)
    def in_cents(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "cents": event.pop("price") * 100}

    @hf.upcast(cls, "Opened", from_version=1)
    def with_name(event: dict[str, Any]) -> dict[str, Any]:
        assert event == {"type": "Opened", "id": "1", "price": 2}
        event["name"] = "nobody"
        return event

    code = bound_decider(cls)
    assert code.evolve((), fact("Opened", b'{"type":"Opened","id":"1","price":2}')) == (Opened("1", "nobody", 200),)
    second = fact("Opened", b'{"type":"Opened","id":"1","name":"ada","price":2}', version=2)
    assert code.evolve((), second) == (Opened("1", "ada", 200),)
    third = fact("Opened", b'{"type":"Opened","id":"1","name":"ada","cents":7}', version=3)
    assert code.evolve((), third) == (Opened("1", "ada", 7),)
    assert code.encode_event(Opened("1")).version == 3
    assert code.encode_event(Renamed("1")).version == 1
    assert code.recorded(second).event == Opened("1", "ada", 200)


def test_an_upcast_may_rename_an_event_type_that_is_gone() -> None:
    """The event goes on as the first version of the new type, and through that type's own upcasts."""
    cls = opening()

    @hf.upcast(cls, "WasCalledThis", from_version=1)
    def renamed(event: dict[str, Any]) -> dict[str, Any]:
        return {"type": "Renamed", "number": event["n"]}

    @hf.upcast(cls, Renamed, from_version=1)
    def numbered(event: dict[str, Any]) -> dict[str, Any]:
        return {"id": str(event["number"])}  # without a type it keeps its own

    code = bound_decider(cls)
    old = fact("WasCalledThis", b'{"type":"WasCalledThis","n":4}')
    assert code.evolve((), old) == (Renamed("4"),)
    assert (code.recorded(old).type, code.recorded(old).version) == ("Renamed", 1)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (1, "no upcast leads from version 1"),
        (4, "has version 4 of Opened, and this code knows versions up to 3"),
        (2, "the upcast of Opened from version 2"),
    ],
)
def test_i37_a_gap_a_newer_version_and_a_broken_upcast_are_told_with_the_event(version: int, said: str) -> None:
    """I37: when the event is read, naming type, key, sequence and the version that lacks a way on."""
    cls = opening()

    @hf.upcast(cls, "Opened", from_version=2)
    def broken(event: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("price")

    with pytest.raises(hf.PayloadRefused) as caught:
        bound_decider(cls).evolve((), fact("Opened", b'{"type":"Opened","id":"1"}', version=version))
    assert said in str(caught.value)
    assert "of order '17', sequence 3" in str(caught.value)


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (None, "gave a NoneType"),
        ({"type": 5}, "gave the type 5"),
        ({"type": "Opened"}, "missing required field `id`"),
        ({"type": "Nothing"}, "'Nothing', which is no event of Made (known: Opened, Renamed)"),
        ({"type": "Opened", "id": "1", "cents": "x"}, "cents"),
    ],
)
def test_what_an_upcast_gives_is_checked(gives: Any, said: str) -> None:
    cls = opening()
    hf.upcast(cls, "Old", from_version=1)(lambda event: gives)
    with pytest.raises(hf.PayloadRefused) as caught:
        bound_decider(cls).evolve((), fact("Old", b'{"type":"Old"}'))
    assert said in str(caught.value)


def test_upcasts_in_a_circle_are_found() -> None:
    cls = opening()
    hf.upcast(cls, "A", from_version=1)(lambda event: {"type": "B"})
    hf.upcast(cls, "B", from_version=1)(lambda event: {"type": "A"})
    with pytest.raises(hf.PayloadRefused, match="circle"):
        bound_decider(cls).evolve((), fact("A", b'{"type":"A"}'))


@pytest.mark.parametrize("version", [0, -1, True, "1", None])
def test_a_version_that_is_none_is_refused(version: Any) -> None:
    with pytest.raises(hf.UsageError, match="versions count from 1"):
        hf.upcast(opening(), "Opened", from_version=version)


def test_upcasts_are_refused_of_what_is_no_decider_and_twice_from_a_version() -> None:
    with pytest.raises(hf.UsageError, match="no decider"):
        hf.upcast(dict, "Opened", from_version=1)  # type: ignore[type-var]
    cls = opening()
    hf.upcast(cls, "Opened", from_version=1)(lambda event: event)
    with pytest.raises(hf.UsageError, match="two upcasts of Opened from version 1"):
        hf.upcast(cls, "Opened", from_version=1)(lambda event: {**event})


def test_i15_a_module_that_is_loaded_again_may_define_its_upcasts_again() -> None:
    """I15: the same module and qualified name is a reload, not a second definition."""
    cls = opening()

    def with_name(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "name": "first"}

    def edited(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "name": "second"}

    edited.__qualname__ = with_name.__qualname__  # a line or two further down, after an edit
    for step in (with_name, edited):
        hf.upcast(cls, "Opened", from_version=1)(step)
    old = fact("Opened", b'{"type":"Opened","id":"1"}')
    assert bound_decider(cls).evolve((), old) == (Opened("1", "second"),)


@dataclass(frozen=True)
class Stamped:
    id: str
    at: datetime
    seal: bytes = b""


def test_an_upcast_gets_what_its_codec_reads_and_may_give_what_the_event_holds() -> None:
    """MessagePack knows times and bytes, and JSON does not: an upcast passes on either."""
    cls = made(Any, Stamped, Stamped, Never, bases=(EchoBody,))
    hf.upcast(cls, Stamped, from_version=1)(lambda event: {**event, "seal": b"\xff"})
    at = datetime(2030, 1, 1, tzinfo=UTC)
    for codec in (hf.JSON, hf.MSGPACK):
        row = fact("Stamped", codec.encode({"type": "Stamped", "id": "1", "at": at}), codec=codec.tag)
        assert bound_decider(cls).evolve((), row) == (Stamped("1", at, b"\xff"),)


def test_i33_a_system_record_is_read_as_what_it_is() -> None:
    """I33: it has a place in the stream, and none in the union of events."""
    code = bound_decider(opening())
    row = Fact(
        run="r", sequence=4, workflow="order", key="17", type="TimerCancelled", version=0, at=1_000_000, system=True,
        data=b'{"key":"payment"}', cause="c", position=9,
    )  # fmt: skip
    recorded = code.recorded(row)
    assert recorded == hf.Recorded(
        workflow="order", workflow_id="17", sequence=4, type="TimerCancelled", event=hf.TimerCancelled("payment"),
        at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), position=9, version=0, system=True, cause="c",
    )  # fmt: skip


# --- folding -----------------------------------------------------------------------------------------------------


class Forgetful(Body):
    def evolve(self, state: Any, event: Any) -> Any:
        if event.n == 13:
            raise RuntimeError("unlucky")


def test_an_evolve_that_forgets_to_return_is_told_so() -> None:
    """The commonest slip of all; without this the state would be None from here on."""
    code = bound_decider(made(int, Add, Added, Never, bases=(Forgetful,)))
    with pytest.raises(hf.DecideFailed, match="evolve of Made returned None for event Added, where a int is due"):
        code.evolve(0, fact("Added", b'{"type":"Added","n":1}'))
    lenient = bound_decider(made(int | None, Add, Added, Never, bases=(Forgetful,)))
    assert lenient.evolve(0, fact("Added", b'{"type":"Added","n":1}')) is None


def test_what_evolve_raises_comes_with_the_event_that_it_was_given() -> None:
    code = bound_decider(made(int, Add, Added, Never, bases=(Forgetful,)))
    with pytest.raises(RuntimeError, match="unlucky") as caught:
        code.evolve(0, fact("Added", b'{"type":"Added","n":13}'))
    assert "event Added of order '17', sequence 3" in caught.value.__notes__[0]


def test_i14_a_decision_is_folded_from_what_will_be_read_again() -> None:
    """I14: the caller's own objects are never part of a state, so live and replay agree."""
    given = Added(4)

    class Keeps(Body):
        def initial(self) -> Any:
            return []

        def evolve(self, state: Any, event: Any) -> Any:
            return [*state, event]

        def decide(self, now: datetime, state: Any, input: Any) -> Any:
            return hf.Decision.event(given)

    code = bound_decider(made(list[Added], Add, Added, Never, bases=(Keeps,)))
    routed = code.route(Add("1"))
    decided = code.decide(0, [], routed.data, routed.codec)
    assert decided.state == [given]
    assert decided.state[0] is not given


def test_i35_decide_gets_its_time_as_an_aware_datetime_in_utc() -> None:
    """I35: the only clock is the argument."""
    seen: list[datetime] = []

    class Clocked(Body):
        def decide(self, now: datetime, state: Any, input: Any) -> Any:
            seen.append(now)
            return hf.Decision.event(Added(1))

    code = bound_decider(made(int, Add, Added, Never, bases=(Clocked,)))
    routed = code.route(Add("1"))
    code.decide(1_893_456_000_000_001, 0, routed.data, routed.codec)
    assert seen == [datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]
    assert seen[0].tzinfo is UTC


# --- snapshots ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Total:
    n: int = 0


@dataclass(frozen=True)
class Closed:
    why: str = ""


def test_i38_a_state_is_kept_and_read_by_its_annotation() -> None:
    """I38: a snapshot stands for the state that was folded, so it has to be equal to it."""
    code = bound_decider(made(Total | Closed, Add, Added, Never))
    for state in (Total(3), Closed("x")):
        stored = code.store_state(state)
        assert stored is not None
        assert code.load_state(*stored) == state


def test_i38_a_state_that_cannot_be_kept_is_told_once_and_folded_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """I38: snapshots are a help, never a condition."""
    code = bound_decider(made(Any, Add, Added, Never))
    with caplog.at_level(logging.WARNING, "holdfast.deciders"):
        assert code.store_state({1, 2}) is None
        assert code.store_state(object()) is None
    assert len(caplog.records) == 1
    assert "Made" in caplog.text


PROGRAM = """
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Never
import holdfast as hf
from holdfast.authoring.decider_code import bound_decider

@dataclass(frozen=True)
class Add:
    id: str

@dataclass(frozen=True)
class Added:
    n: int = {default}

@dataclass(frozen=True)
class State:
    n: {kind} = 0
    {field}

    def more(self, n):
        return State(self.n + n {method})

{comment}
{constant}
def helper(event):
    return event.n {helper}

class Counter(hf.Decider[State, Add, Added, Never], name="counter", state_version={version}):
    rate = {attribute}
    unused = {unused}
    def workflow_id(self, input: Add) -> str:
        return input.id
    def initial(self) -> State:
        return State()
    def evolve(self, state: State, event: Added) -> State:
        if event.n in {{"b", "a", "c", "d"}}:
            return state
        return state.more(helper(event) * self.rate {evolve})
    def decide(self, now: datetime, state: State, input: Add) -> hf.Decision[Added, Never, Add]:
        return hf.Decision.event(Added(1 {decide}))

{upcast}
print(bound_decider(Counter).code)
"""
BLANK = {
    "default": "1", "kind": "int", "field": "", "method": "", "helper": "", "version": "1", "comment": "",
    "evolve": "", "decide": "", "upcast": "", "constant": "", "attribute": "1", "unused": "1",
}  # fmt: skip
UPCAST = 'hf.upcast(Counter, "Added", from_version=1)(lambda event: event)'


def digest_of(tmp_path: Path, hash_seed: str = "1", **parts: str) -> str:
    source = textwrap.dedent(PROGRAM).format(**{**BLANK, **parts})
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": hash_seed, "PATH": ""}, cwd=tmp_path,
    )  # fmt: skip
    return done.stdout.strip()


def in_process_digest(**parts: str) -> str:
    source = textwrap.dedent(PROGRAM).format(**{**BLANK, **parts}).replace("print(", "answer = (")
    source = source.replace('name="counter"', 'name="counter", registry=hf.Registry()')
    module = ModuleType("counter_program")
    sys.modules["counter_program"] = module
    try:
        exec(compile(source, "counter_program.py", "exec"), module.__dict__)  # noqa: S102 - the program above
        return str(module.__dict__["answer"])
    finally:
        del sys.modules["counter_program"]


def test_i38_the_digest_of_folding_code_is_the_same_in_every_process(tmp_path: Path) -> None:
    """I38: another digest means that every snapshot is folded anew, so it must not depend on hashes or addresses."""
    assert digest_of(tmp_path, "1") == digest_of(tmp_path, "2")


@pytest.mark.parametrize(
    "change",
    [
        {"evolve": "+ 1"}, {"helper": "+ 1"}, {"method": "+ 1"}, {"field": "m: int = 0"}, {"version": "2"},
        {"default": "2"}, {"kind": "float"}, {"upcast": UPCAST},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_i38_code_that_folds_otherwise_has_another_digest(change: dict[str, str]) -> None:
    """I38: a snapshot of other code is not used; also helpers, methods of the state and upcasts are code that folds."""
    assert in_process_digest(**change) != in_process_digest()


def test_i38_code_with_the_same_names_and_numbers_is_told_apart_by_what_it_does() -> None:
    """I38: adding and taking away differ in one instruction."""
    assert in_process_digest(evolve="+ 1") != in_process_digest(evolve="- 1")


CONSTANTS = """
import decimal, enum, datetime
class Level(enum.Enum):
    LOW = 1
    HIGH = 2
RATE = %s
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1", "2"), ("1", "True"), ("1.0", "1.5"), ("None", "0"), ("'a'", "'b'"), ("b'a'", "'a'"),
        ("decimal.Decimal('1.0')", "decimal.Decimal('1.00')"), ("Level.LOW", "Level.HIGH"), ("(1, 2)", "(2, 1)"),
        ("[1, [2]]", "[1, [3]]"), ("{'a': {1, 2}}", "{'a': {1, 3}}"), ("frozenset({1})", "{1}"),
        ("datetime.timedelta(days=1)", "datetime.timedelta(days=2)"), ("1 << 20_000", "1 << 20_001"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["helper", "evolve"])
def test_i38_a_constant_that_folding_code_names_is_part_of_the_digest(before: str, after: str, place: str) -> None:
    """I38: another rate in the module is another fold, as much as another `evolve`."""
    uses = {place: "* RATE"}
    digests = [in_process_digest(constant=CONSTANTS % value, **uses) for value in (before, after, before)]
    assert digests[0] != digests[1]
    assert digests[0] == digests[2]
    assert in_process_digest(constant=CONSTANTS % before) == in_process_digest(constant=CONSTANTS % after), "not named"


def test_i38_a_constant_of_the_class_or_of_a_function_around_it_is_part_of_the_digest() -> None:
    assert in_process_digest(attribute="2") != in_process_digest()
    assert in_process_digest(unused="2") == in_process_digest()
    around = "def made(rate):\n    return lambda n: n * rate\nrated = made(%s)"
    digests = [in_process_digest(constant=around % rate, helper="+ rated(event.n)") for rate in (1, 2)]
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    "value",
    ["{'b', 'a', 'c', 'd'}", "{'x': {'b', 'a', 'c'}}", "object()", "[object()]", "range(3)", "[0] * 100_000", "helper"],
)
def test_i38_no_constant_makes_the_digest_another_in_another_process(tmp_path: Path, value: str) -> None:
    """I38: neither the order of sets nor the address of an object, which is not looked at."""
    parts = {"helper": "* RATE()", "upcast": f"RATE = {value}\nLOOP = []; LOOP.append(LOOP)", "evolve": "+ LOOP"}
    assert digest_of(tmp_path, "1", **parts) == digest_of(tmp_path, "2", **parts)


@pytest.mark.parametrize("change", [{"decide": "+ 1"}, {"comment": "# a comment\n\n"}], ids=["decide", "comment"])
def test_i38_code_that_folds_the_same_keeps_its_snapshots(change: dict[str, str]) -> None:
    """I38: a changed `decide`, a comment or a shifted line costs nobody a fold from the beginning."""
    assert in_process_digest(**change) == in_process_digest()


# --- ids of commands ---------------------------------------------------------------------------------------------


@hf.idempotent(key="charge_id")
@dataclass(frozen=True, slots=True)
class Charge:
    id: str
    charge_id: UUID | None = None


@hf.idempotent(key=lambda refund: refund.numbers[0])
class Refund(msgspec.Struct, frozen=True):
    id: str
    numbers: list[int]


@hf.idempotent(key="token")
class Transfer(pydantic.BaseModel):
    id: str
    token: str


@pytest.mark.parametrize(
    ("value", "command"),
    [
        (Charge("1", UUID(int=7)), "Charge:00000000-0000-0000-0000-000000000007"),
        (Charge("1"), None),
        (Refund("1", [7]), "Refund:7"),
        (Transfer(id="1", token="t"), "Transfer:t"),
        (Add("1"), None),
    ],
)
def test_i12_an_input_may_carry_its_own_command_id(value: Any, command: str | None) -> None:
    """I12: applied once by that id; it holds the type, since a charge and its refund may share a number."""
    code = bound_decider(made(Any, Charge | Refund | Transfer | Add, Added, Never))
    routed = code.route(value)
    assert routed.command == command
    assert code.command_of(routed.data, routed.codec) == command


def test_a_long_or_odd_command_id_is_shortened_and_stays_its_own() -> None:
    code = bound_decider(made(Any, Transfer, Added, Never))
    ids = [code.route(Transfer(id="1", token=token)).command for token in ("x" * 10_000, "x" * 9_999, "a\0", "b\0")]
    assert len(set(ids)) == 4
    assert all(each is not None and len(each) < 200 and each.isprintable() for each in ids)


def test_a_misspelt_field_is_refused_when_the_decider_is_created() -> None:
    @hf.idempotent(key="chargeid")
    @dataclass
    class Misspelt:
        id: str
        charge_id: str

    with pytest.raises(hf.UsageError, match=r"chargeid.*Misspelt.*charge_id"):
        made(Any, Misspelt, Added, Never)


@pytest.mark.parametrize("key", ["", "not a name", 5, None])
def test_a_key_that_names_no_field_is_refused(key: Any) -> None:
    with pytest.raises(hf.UsageError, match="idempotent"):
        hf.idempotent(key=key)
