"""Exceptions as data: always written, readable without their class, rebuilt where that is honest (I3)."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import email.message
import enum
import json
import types
import urllib.error
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import ErrorRecord, decode_error, encode_error
from holdfast.core.errors import KeyConflict, RemoteError, RunFailed, UsageError


class ShippingError(Exception):
    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message, code)
        self.code = code


class Rephrasing(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"no customer called {name}")


class KeywordsOnly(Exception):
    def __init__(self, *, code: int, seen: object = None) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.seen = seen


class Silent(Exception):
    """Makes its text from what no record can keep."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __str__(self) -> str:
        return f"the answer was {self.answer.status}"  # type: ignore[attr-defined]


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


class Insufficient(Exception):
    """Its argument is an attribute, and its text is something else."""

    def __init__(self, missing: object) -> None:
        super().__init__("insufficient funds")
        self.missing = missing


class WithDefault(Exception):
    missing: object = 0

    def __init__(self, missing: object) -> None:
        super().__init__("not enough")
        self.missing = missing


class InSlots(Exception):
    __slots__ = ("missing", "never_set")

    def __init__(self, missing: object) -> None:
        super().__init__("insufficient funds")
        self.missing = missing


class Reduced(Exception):
    """Says by itself what it is made from."""

    def __init__(self, missing: decimal.Decimal) -> None:
        super().__init__("insufficient funds")
        self.missing = missing
        self.connection = object()

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return Reduced, (self.missing,)


class Wrapping(Exception):
    def __init__(self, inner: Exception) -> None:
        super().__init__(str(inner))
        self.inner = inner


class Currency(enum.StrEnum):
    EURO = "EUR"


@dataclasses.dataclass
class Money:
    amount: int = 5


CLASSES = (ShippingError, Rephrasing, KeywordsOnly, Silent, Hostile, KeyConflict)
CLASSES += (Insufficient, WithDefault, InSlots, Reduced, Wrapping)  # type: ignore[assignment]
KNOWN = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in CLASSES}


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as caught:
        return caught


def own(error: BaseException) -> dict[str, object]:
    """Its attributes, without the note of where it was raised, which is ours."""
    return {name: value for name, value in vars(error).items() if name != "__notes__"}


def test_a_record_tells_type_message_bases_and_traceback() -> None:
    record = decode_error(encode_error(raised(ShippingError("no route", 7))))
    assert record.type == "ShippingError"
    assert record.qualified.endswith("test_codec_failure.ShippingError")
    assert "no route" in record.message
    assert record.bases == ("builtins.Exception", "builtins.BaseException")
    assert "raise exc" in record.traceback
    assert record.args == ["no route", 7]


def test_a_known_exception_is_rebuilt_with_its_attributes() -> None:
    original = ShippingError("no route", 7)
    original.carrier = "snail"  # type: ignore[attr-defined]
    back = decode_error(encode_error(original)).to_exception(KNOWN.get)
    assert type(back) is ShippingError
    assert str(back) == str(original)
    assert vars(back) == {"code": 7, "carrier": "snail"}


@pytest.mark.parametrize(
    "original",
    [
        ValueError("x"),
        KeyError("k"),
        FileNotFoundError(2, "No such file", "a.txt"),
        ZeroDivisionError(),
        TimeoutError("t"),
    ],
)
def test_built_in_exceptions_need_no_registry(original: Exception) -> None:
    back = decode_error(encode_error(original)).to_exception()
    assert type(back) is type(original)
    assert str(back) == str(original)


def test_errors_of_our_own_keep_their_hint() -> None:
    back = decode_error(encode_error(KeyConflict("key k is taken", hint="use k2"))).to_exception(KNOWN.get)
    assert isinstance(back, KeyConflict)
    assert back.hint == "use k2"


@pytest.mark.parametrize(
    "original",
    [
        UsageError("a class that is not known here"),
        KeyboardInterrupt(),
        SystemExit(2),
        BaseExceptionGroup("several", [KeyboardInterrupt()]),
    ],
)
def test_what_cannot_be_rebuilt_becomes_a_remote_error(original: BaseException) -> None:
    record = decode_error(encode_error(raised(original)))
    back = record.to_exception(KNOWN.get)
    assert isinstance(back, RemoteError)
    assert back.type == type(original).__name__
    assert back.message == record.message
    assert back.traceback == record.traceback


@pytest.mark.parametrize(
    "original",
    [
        Rephrasing("Bob"),  # calling it again would say: no customer called no customer called Bob
        KeywordsOnly(code=7),
        ShippingError(object()),  # type: ignore[arg-type]
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        SyntaxError("bad", ("app.py", 1, 2, "x = = 1")),
        urllib.error.HTTPError("http://example.org", 404, "not found", email.message.Message(), None),
        ValueError(b"bytes", (1, 2)),
        ValueError(datetime.datetime(2026, 11, 16)),
        KeyError(datetime.date(2026, 11, 16)),
        ValueError("bad \ud800 text"),
        UnicodeDecodeError("utf-8", b"\xff" * 20_000, 0, 1, "bad"),
    ],
)
def test_i54_an_exception_of_a_known_class_keeps_its_type_and_message(original: Exception) -> None:
    """I54: whatever the constructor wants and the arguments are."""
    known = KNOWN | {"urllib.error.HTTPError": urllib.error.HTTPError}
    record = decode_error(encode_error(raised(original)))
    back = record.to_exception(known.get)
    assert isinstance(back, type(original))
    assert type(back).__name__ == type(original).__name__
    assert str(back) == str(original)
    again = decode_error(encode_error(back))
    assert (again.qualified, again.message) == (record.qualified, record.message), "also when it is raised again"


def test_i54_attributes_are_those_that_the_exception_had() -> None:
    """I54: not what the constructor makes of the message; those that JSON can't hold are missing."""
    back = decode_error(encode_error(KeywordsOnly(code=7, seen=object()))).to_exception(KNOWN.get)
    assert type(back) is KeywordsOnly
    assert vars(back) == {"code": 7}


OF_PYTHONS_OWN_TYPES = [
    decimal.Decimal("1.50"),
    datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC),
    datetime.date(2026, 11, 16),
    datetime.timedelta(minutes=3),
    uuid.UUID(int=7),
    b"\xff",
    (1, "two"),
    {1, 2},
    {3: decimal.Decimal(4)},
    2**70,
]


@pytest.mark.parametrize("value", OF_PYTHONS_OWN_TYPES)
def test_i54_attributes_and_arguments_of_pythons_own_types_come_back_as_they_were(value: object) -> None:
    """I54: not as what the constructor makes of the message."""
    for kind in (Insufficient, WithDefault, InSlots):
        back = decode_error(encode_error(raised(kind(value)))).to_exception(KNOWN.get)
        assert type(back) is kind
        assert repr(back.missing) == repr(value)  # type: ignore[attr-defined]
        again = decode_error(encode_error(raised(back))).to_exception(KNOWN.get)
        assert repr(again.missing) == repr(value)  # type: ignore[attr-defined]
    back = decode_error(encode_error(raised(ShippingError("no route", value)))).to_exception(KNOWN.get)  # type: ignore[arg-type]
    assert repr((back.args, own(back))) == repr((("no route", value), {"code": value}))


@pytest.mark.parametrize("value", [Currency.EURO, Money(), object(), "x" * 20_000, [Money()], float, datetime.UTC])
def test_i54_attributes_that_cannot_be_kept_are_missing_and_not_something_else(value: object) -> None:
    """I54: a handler that reads one fails at that line; the class is still what `except` names."""
    for original in (Insufficient(value), WithDefault(value), InSlots(value)):
        data = encode_error(raised(original))
        for _ in range(3):  # also when it is raised again, and ends the run
            back = decode_error(data).to_exception(KNOWN.get)
            assert isinstance(back, type(original))
            assert (type(back).__name__, str(back)) == (type(original).__name__, str(original))
            with pytest.raises(AttributeError, match="missing"):
                back.missing  # noqa: B018
            data = encode_error(raised(back))


def test_i54_an_exception_that_says_what_it_is_made_from_is_made_from_that() -> None:
    back = decode_error(encode_error(raised(Reduced(decimal.Decimal("1.50"))))).to_exception(KNOWN.get)
    assert isinstance(back, Reduced)
    assert back.missing == decimal.Decimal("1.50")
    assert type(back.connection) is object
    lost = decode_error(encode_error(raised(Reduced(Money())))).to_exception(KNOWN.get)  # type: ignore[arg-type]
    assert isinstance(lost, Reduced)
    assert not hasattr(lost, "missing")


def test_i54_an_attribute_that_is_the_cause_is_the_cause() -> None:
    error = Wrapping(KeyError("k"))
    error.__cause__ = error.inner
    back = decode_error(encode_error(raised(error))).to_exception(KNOWN.get)
    assert isinstance(back, Wrapping)
    assert back.inner is back.__cause__
    assert repr(back.inner) == "KeyError('k')"
    without = decode_error(encode_error(raised(Wrapping(KeyError("k"))))).to_exception(KNOWN.get)
    assert not hasattr(without, "inner")


def test_i54_a_module_that_was_not_found_has_its_name() -> None:
    try:
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as error:
        back = decode_error(encode_error(error)).to_exception()
    assert isinstance(back, ModuleNotFoundError)
    assert back.name == "no_such_module"


def test_a_record_of_an_older_version_is_rebuilt_by_the_constructor() -> None:
    """What a function has seen before must be what it sees again."""
    older = ErrorRecord(
        type="Insufficient",
        qualified=f"{__name__}.Insufficient",
        message="insufficient funds",
        bases=("builtins.Exception", "builtins.BaseException"),
        args=["insufficient funds"],
    )
    assert vars(older.to_exception(KNOWN.get, at_home=older.at_home)) == {"missing": "insufficient funds"}
    assert type(older.to_exception(at_home=older.at_home)) is RemoteError


class NotLoaded(ShippingError, ConnectionError):
    limit = 3


def test_g8_a_class_of_the_functions_own_program_is_stood_in_for_where_it_is_not_loaded() -> None:
    """G8: `except` matches as it did, and nothing else that code can ask differs."""
    original = NotLoaded("no route", 7)
    original.weight = decimal.Decimal("1.5")  # type: ignore[attr-defined]
    original.__cause__ = NotLoaded("below")
    data = encode_error(raised(original), at_home=True)
    for _ in range(2):  # also when it is raised again
        record = decode_error(data)
        assert record.to_exception(at_home=True).args == original.args
        one, two = (record.to_exception(KNOWN.get, at_home=record.at_home) for _ in range(2))
        assert isinstance(one, ShippingError)
        assert isinstance(one, ConnectionError)
        assert not isinstance(one, RemoteError)
        assert type(one) is type(two)
        assert type(one).__name__ == "NotLoaded"
        assert (str(one), one.args, own(one)) == (str(original), original.args, vars(original))
        assert isinstance(one.__cause__, ConnectionError)
        assert (record.qualified, record.bases) == (
            f"{__name__}.NotLoaded",
            tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in NotLoaded.__mro__[1:-1]),
        )
        data = encode_error(raised(one), at_home=True)
    assert isinstance(record.to_exception(KNOWN.get), RemoteError), "for a client it is what api.md says"


def test_g8_members_of_a_group_are_stood_in_for_as_well() -> None:
    record = decode_error(encode_error(ExceptionGroup("two", [NotLoaded("a"), ValueError("b")]), at_home=True))
    group = record.to_exception(at_home=record.at_home)
    assert isinstance(group, ExceptionGroup)
    assert isinstance(group.exceptions[0], ConnectionError)
    assert group.split(ConnectionError)[1] is not None


def test_i54_a_class_of_another_program_is_a_remote_error_and_what_its_known_bases_are() -> None:
    record = decode_error(encode_error(raised(NotLoaded("no route", 7)), at_home=False))
    back = record.to_exception(KNOWN.get, at_home=record.at_home)
    assert isinstance(back, RemoteError)
    assert isinstance(back, ConnectionError)
    assert isinstance(back, ShippingError)
    plain = RemoteError(record.type, record.message, record.traceback)
    assert (str(back), back.args, own(back), repr(back)) == (str(plain), plain.args, vars(plain), repr(plain))
    known = KNOWN | {record.qualified: NotLoaded}
    assert type(record.to_exception(known.get, at_home=False)) is NotLoaded


def test_g8_a_class_that_nothing_can_be_made_of_is_taken_alike_where_it_is_loaded_and_where_not() -> None:
    """G8: pydantic's own error has no constructor, and lets no class be derived from it."""
    pydantic = pytest.importorskip("pydantic")
    with pytest.raises(pydantic.ValidationError) as refused:
        pydantic.TypeAdapter(int).validate_python("x")
    record = decode_error(encode_error(refused.value, at_home=True))
    known = {record.qualified: pydantic.ValidationError}
    for where in (known, dict[str, type]()):
        back = record.to_exception(where.get, at_home=record.at_home)
        assert isinstance(back, ValueError)
        assert (type(back).__name__, str(back)) == ("ValidationError", str(refused.value))


@pytest.mark.parametrize("at_home", [True, False])
@pytest.mark.parametrize("base", [UnicodeDecodeError, KeyError, OSError, StopIteration, ExceptionGroup, SystemExit])
def test_g8_what_stands_in_is_an_instance_of_its_built_in_base(base: type, at_home: bool) -> None:
    """But not of a group, which has members, and not of what is no Exception."""
    record = ErrorRecord(
        type="Odd",
        qualified="odd.Odd",
        message="odd",
        bases=tuple(f"builtins.{kind.__name__}" for kind in base.__mro__[:-1]),
        args=["odd"],
        exact=True,
    )
    back = record.to_exception(at_home=at_home)
    assert isinstance(back, base) == (base not in (ExceptionGroup, SystemExit))
    assert isinstance(back, RemoteError) == (not at_home or base is SystemExit)
    if at_home and base is not SystemExit:
        assert (str(back), back.args) == ("odd", ("odd",))


def test_i54_a_text_that_the_class_cannot_make_again_is_still_the_recorded_one() -> None:
    answer = types.SimpleNamespace(status=503, connection=object())
    back = decode_error(encode_error(raised(Silent(answer)))).to_exception(KNOWN.get)
    assert isinstance(back, Silent)
    assert str(back) == "the answer was 503"
    assert repr(back) == "Silent('the answer was 503')"


def test_a_record_of_an_older_version_without_arguments_has_its_type_and_message() -> None:
    stored = b'{"type":"ValueError","qualified":"builtins.ValueError","message":"no JSON"}'
    assert repr(decode_error(stored).to_exception()) == "ValueError('no JSON')"


def test_a_remote_error_that_an_older_version_recorded_says_what_it_said() -> None:
    record = ErrorRecord(
        type="RemoteError",
        qualified="holdfast.core.errors.RemoteError",
        message="Lost: no route. Fix: look",
        args=["Lost", "no route", "Traceback ..."],
        state={"message": "Lost: no route", "hint": "look", "type_name": "Lost", "remote_message": "no route"},
    )
    back = record.to_exception({record.qualified: RemoteError}.get)
    assert type(back) is RemoteError
    assert (str(back), back.type, back.traceback) == (record.message, "Lost", "Traceback ...")


def test_damaged_literals_do_no_harm() -> None:
    for literal in ("", "5", "[1]", "open('x')", "(" * 1000, "9" * 10_000):
        record = ErrorRecord(type="ValueError", qualified="builtins.ValueError", message="m", literal=literal)
        assert repr(record.to_exception()) == "ValueError('m')"


def test_a_registry_that_answers_nonsense_or_raises_does_no_harm() -> None:
    record = decode_error(encode_error(ShippingError("x")))

    def raises(qualified: str) -> type | None:
        raise RuntimeError(qualified)

    for known in (lambda _: int, lambda _: KeyboardInterrupt, lambda _: None, raises):
        assert isinstance(record.to_exception(known), RemoteError)


def test_a_stored_name_cannot_call_a_built_in_function() -> None:
    """Whoever can write a row must not be able to choose what is called: only exception classes are built."""
    for name in ("exec", "print", "object", "SystemExit"):
        record = ErrorRecord(type=name, qualified=f"builtins.{name}", message="", args=["raise SystemExit"])
        assert isinstance(record.to_exception(), RemoteError)


def test_the_chain_of_causes_is_kept_to_a_depth() -> None:
    error = ValueError("0")
    for n in range(1, 20):
        outer = ValueError(str(n))
        outer.__cause__ = error
        error = outer
    back: BaseException | None = decode_error(encode_error(error)).to_exception()
    messages = []
    while back is not None:
        messages.append(str(back))
        back = back.__cause__
    assert messages == ["19", "18", "17", "16", "15", "14"]


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert decode_error(encode_error(one)).message == "one"


def test_i3_the_final_error_keeps_the_chain_of_attempts() -> None:
    data: bytes | None = None
    for n in range(1, 8):
        data = encode_error(raised(ShippingError(f"attempt {n}")), earlier=data)
    assert data is not None
    record = decode_error(data)
    assert "attempt 7" in record.message
    assert ["attempt" in link.message for link in record.earlier] == [True] * 6
    assert [link.message[2:11] for link in record.earlier] == [f"attempt {n}" for n in range(1, 7)]
    assert [bool(link.traceback) for link in record.earlier] == [False] * 3 + [True] * 3
    assert all(not link.earlier for link in record.earlier)


def test_i3_a_thousand_attempts_with_long_messages_stay_below_a_payload() -> None:
    data: bytes | None = None
    for n in range(1000):
        data = encode_error(ValueError(f"{n} " + "x" * 100_000), earlier=data)
    assert data is not None
    assert len(data) < 1_000_000
    chain = decode_error(data).earlier
    assert len(chain) == 100
    assert (chain[0].message[:2], chain[-1].message[:3]) == ("0 ", "998")


def test_an_unreadable_earlier_record_does_not_hide_the_new_error() -> None:
    record = decode_error(encode_error(ValueError("new"), earlier=b"\xff{"))
    assert record.message == "new"
    assert "can't be read" in record.earlier[0].message


def test_long_texts_lose_their_middle() -> None:
    record = decode_error(encode_error(raised(ValueError("start" + "x" * 10_000_000 + "end"))))
    assert len(record.message) <= 8_000
    assert len(record.traceback) <= 16_000
    assert record.message.startswith("start")
    assert record.message.endswith("end")
    assert "characters left out" in record.message


def test_surrogates_in_a_message_are_escaped() -> None:
    record = decode_error(encode_error(raised(ValueError("bad \ud800 text"))))
    assert record.message == "bad \\ud800 text"
    assert str(record.to_exception()) == "bad \ud800 text"


def test_hostile_classes_are_recorded() -> None:
    class Liar(str):
        def encode(self, *args: object) -> bytes:
            raise RuntimeError

    class Worse(Exception):
        def __str__(self) -> str:
            return Liar("worse")

        def __reduce__(self) -> str:
            raise RuntimeError("no")

    assert decode_error(encode_error(raised(Worse({1: object()})))).message == "worse"

    class Exiting(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    assert "raised SystemExit" in decode_error(encode_error(raised(Exiting()))).message
    assert "raised RuntimeError" in decode_error(encode_error(raised(Hostile()))).message


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b"\xff", b"[" * 10_000])
def test_bytes_that_hold_no_record_give_one_that_says_so(data: bytes) -> None:
    assert decode_error(data).type == "UndecodableError"
    assert isinstance(decode_error(data).to_exception(), RemoteError)


def test_a_record_is_json_that_people_can_read() -> None:
    seen = json.loads(encode_error(ValueError("x")))
    assert {"type": "ValueError", "qualified": "builtins.ValueError", "message": "x"}.items() <= seen.items()


@given(args=st.lists(st.text(st.characters()) | st.integers() | st.floats() | st.binary() | st.none(), max_size=4))
def test_any_arguments_can_be_recorded_and_read(args: list[object]) -> None:
    record = decode_error(encode_error(raised(ValueError(*args))))
    back = record.to_exception()
    assert type(back) is ValueError
    assert str(back) == str(ValueError(*args))


def test_i54_the_failure_of_a_child_comes_back_as_run_failed_with_its_original_cause() -> None:
    """I54: a parent that fails with its child's failure tells the same to whoever waits for the parent."""
    child = RunFailed("child run 7 failed", run_id="7", workflow="parcel", cause=ValueError("too heavy"), hint="look")
    back = decode_error(encode_error(raised(child))).to_exception({"holdfast.core.errors.RunFailed": RunFailed}.get)
    assert isinstance(back, RunFailed)
    assert (str(back), back.run_id, back.hint) == (str(child), "7", "look")
    assert isinstance(back.cause, ValueError)
    assert back.cause is back.__cause__


def test_i54_the_reason_stays_at_the_bottom_however_many_runs_pass_it_on() -> None:
    """I54: the class of it is known to none of them; what lies between is kept to a depth."""
    stored = encode_error(ShippingError("no ship", 7), earlier=encode_error(ShippingError("no wind")))
    for level in range(12):
        stored = encode_error(RunFailed(f"child run {level} failed: no ship", run_id=str(level)), cause=stored)
    known = {"holdfast.core.errors.RunFailed": RunFailed, f"{__name__}.ShippingError": ShippingError}
    chain: list[BaseException] = [decode_error(stored).to_exception(known.get)]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    assert [type(each) for each in chain] == [RunFailed] * 5 + [ShippingError]
    last = chain[-2]
    assert isinstance(last, RunFailed)
    assert [str(each) for each in last.attempts] == [str(ShippingError("no wind")), str(chain[-1])]
    assert len(stored) < 40_000


def test_a_group_of_failures_is_rebuilt_with_what_it_holds() -> None:
    inner = ExceptionGroup("inner", [KeyError("k")])
    record = decode_error(encode_error(raised(ExceptionGroup("several", [ValueError("v"), inner]))))
    back = record.to_exception(KNOWN.get)
    assert isinstance(back, ExceptionGroup)
    assert str(back) == "several (2 sub-exceptions)"
    first, second = back.exceptions
    assert isinstance(first, ValueError)
    assert isinstance(second, ExceptionGroup)
    assert repr(second.exceptions) == "(KeyError('k'),)"


def test_a_rebuilt_exception_has_where_it_was_raised_as_a_note_and_only_once() -> None:
    first = decode_error(encode_error(raised(ValueError("no route")))).to_exception()
    (note,) = first.__notes__
    assert note.startswith("Its traceback, as it was recorded:\n")
    assert note.endswith("in raised\n    raise exc\nValueError: no route")
    again = decode_error(encode_error(raised(first)))  # as a function does with the failure of its call
    assert again.state is None
    (note,) = again.to_exception().__notes__
    assert note.count("raise exc\n") == 2
    ended = decode_error(encode_error(raised(SystemExit(3)))).to_cause()
    assert "raise exc\n" in ended.__notes__[0]


def test_notes_of_an_authors_own_are_kept_and_a_long_traceback_is_cut() -> None:
    error = raised(ValueError("long " * 5_000))
    error.add_note("while packing")
    rebuilt = decode_error(encode_error(error)).to_exception()
    own, recorded = rebuilt.__notes__
    assert own == "while packing"
    assert len(recorded) < 4_100
