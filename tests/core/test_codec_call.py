"""Calls as payloads: bound to the signature, typed by its annotations, the same bytes for the same call."""

from __future__ import annotations

import dataclasses
import decimal
import functools
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.codec import DEFAULT_CODECS, MAX_INT, MSGPACK, CallCodec, Codecs, digest
from holdfast.core.errors import PayloadRefused, PayloadTooLarge, UsageError


@dataclasses.dataclass
class Order:
    id: int
    tags: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Refund:
    id: int


def no_arguments() -> None: ...


def untyped(a, b=2):  # type: ignore[no-untyped-def]
    ...


def typed(order: Order, price: decimal.Decimal, *, note: str = "", extra: bytes | None = None) -> Order:
    return order


def mixed(order: Order, anything=None) -> Any:  # type: ignore[no-untyped-def]
    ...


def variadic(first: int, *rest: decimal.Decimal, flag: bool = False, **options: set[int]) -> tuple[int, ...]:
    return ()


def union(event: Order | Refund, /, *more: Order | Refund, last: Order | Refund | None = None) -> Order | Refund:
    return event


ORDER = Order(1, {"b", "a"})
ONE = decimal.Decimal("1.50")


@pytest.fixture(params=["json", "msgpack"])
def codecs(request: pytest.FixtureRequest) -> Codecs:
    return Codecs(MSGPACK) if request.param == "msgpack" else Codecs()


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (no_arguments, (), {}),
        (untyped, (1,), {}),
        (untyped, ({"a": [1]}, None), {}),
        (typed, (ORDER, ONE), {}),
        (typed, (ORDER, ONE), {"note": "x"}),
        (typed, (ORDER, ONE), {"note": "x", "extra": b"\xff"}),
        (mixed, (ORDER,), {}),
        (mixed, (ORDER, [1]), {}),
        (variadic, (1,), {}),
        (variadic, (1, ONE, ONE), {"flag": True, "other": {1, 2}, "a b": set()}),
        (union, (ORDER,), {}),
        (union, (Refund(2), ORDER, Refund(3)), {"last": ORDER}),
        (union, (Refund(2),), {"last": None}),
    ],
)
def test_i14_a_call_comes_back_as_it_was_made(
    codecs: Codecs, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    call = CallCodec(function, codecs)
    data = call.encode_call(args, kwargs)
    assert call.decode_call(data) == (args, kwargs)
    assert call.decode_call(data, call.tag) == (args, kwargs)
    assert (data == b"") == (not args and not kwargs)


def test_i14_the_document_is_positional_and_keyword_arguments() -> None:
    assert CallCodec(typed).encode_call((ORDER, ONE), {"note": "x"}) == (
        b'[[{"id":1,"tags":["a","b"]},"1.50"],{"note":"x"}]'
    )
    assert CallCodec(untyped).encode_call((1, "x")) == b'[[1,"x"],{}]'


def test_i12_the_same_call_is_the_same_bytes_however_it_is_written(codecs: Codecs) -> None:
    call = CallCodec(typed, codecs)
    data = call.encode_call((ORDER, ONE))
    assert call.encode_call((ORDER,), {"price": ONE}) == data
    assert call.encode_call((), {"price": ONE, "order": ORDER}) == data


def test_i12_equal_inputs_have_equal_digests() -> None:
    def start(options: dict[str, int], ratio: float = 1.0) -> None: ...

    def digest_of(*args: object, codec: Codecs = Codecs()) -> str:  # noqa: B008
        call = CallCodec(start, codec)
        return call.input_digest(call.encode_call(args))

    expected = digest_of({"a": 1, "b": 2}, 3.0)
    assert digest_of({"b": 2, "a": 1}, 3) == expected
    assert digest_of({"b": 2, "a": 1}, 3, codec=Codecs(MSGPACK)) == expected
    assert digest_of({"b": 2, "a": 1}) != expected
    assert digest_of({"b": 2, "a": 2}, 3.0) != expected


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((ORDER,), {}), ((ORDER, ONE, 1), {}), ((ORDER, ONE), {"nope": 1})]
)
def test_a_call_that_does_not_fit_is_a_usage_error_that_shows_the_signature(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    call = CallCodec(typed, name="action typed")
    with pytest.raises(UsageError, match=r"action typed\(order: .*Order.*, price: ") as caught:
        call.encode_call(args, kwargs)
    assert not isinstance(caught.value, PayloadRefused)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "named"),
    [
        (typed, (Order("x"), ONE), {}, "argument 'order' of action pay does not fit"),  # type: ignore[arg-type]
        (typed, (ORDER, 1.5), {}, "argument 'price' of action pay"),
        (typed, (ORDER, ONE), {"note": 3}, "argument 'note' of action pay"),
        (untyped, (1, (2,)), {}, "argument 'b' of action pay: $ is a tuple"),
        (untyped, ({"a": {1}},), {}, "argument 'a' of action pay: $.a is a set"),
        (mixed, (ORDER, Refund(1)), {}, "argument 'anything' of action pay: $ is a Refund"),
        (variadic, (1, ONE, "x"), {}, "argument '*2' of action pay"),
        (variadic, (1,), {"other": [1]}, "argument 'other' of action pay"),
        (union, (ORDER, 3), {}, "argument '*1' of action pay"),
    ],
)
def test_i14_a_refused_argument_is_named(
    codecs: Codecs, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], named: str
) -> None:
    with pytest.raises(PayloadRefused) as caught:
        CallCodec(function, codecs, name="action pay").encode_call(args, kwargs)
    assert named in str(caught.value)


def test_i14_an_argument_may_have_a_hundred_levels(codecs: Codecs) -> None:
    def take(value: list[Any]) -> None: ...

    deep: list[object] = []
    for _ in range(99):
        deep = [deep]
    for function in (take, untyped):
        call = CallCodec(function, codecs)
        assert call.decode_call(call.encode_call((deep,))) == ((deep,), {})
        with pytest.raises(PayloadRefused, match=r"argument '(value|a)' of .* nested more than 100"):
            call.encode_call(([deep],))


def test_i14_the_limit_is_for_the_whole_call() -> None:
    with pytest.raises(PayloadTooLarge, match="the arguments of action pay is"):
        CallCodec(untyped, name="action pay", limit=100).encode_call(("x" * 60, "y" * 60))


def test_i14_results_are_decoded_to_the_annotation(codecs: Codecs) -> None:
    call = CallCodec(typed, codecs, name="action pay")
    assert call.decode_result(call.encode_result(ORDER)) == ORDER
    with pytest.raises(PayloadRefused, match="the result of action pay"):
        call.encode_result(None)
    assert CallCodec(variadic, codecs).decode_result(CallCodec(variadic, codecs).encode_result((1, 2))) == (1, 2)
    assert CallCodec(union, codecs).decode_result(CallCodec(union, codecs).encode_result(Refund(1))) == Refund(1)


def test_i14_no_result_is_null() -> None:
    assert CallCodec(no_arguments).encode_result(None) == b"null"
    assert CallCodec(untyped).encode_result(None) == b"null"
    assert CallCodec(untyped).decode_result(b"null") is None
    with pytest.raises(PayloadRefused):
        CallCodec(no_arguments).encode_result(1)


def test_i14_what_was_written_under_another_annotation_is_refused_with_both() -> None:
    def before(n: int) -> None: ...

    def after(n: str) -> None: ...

    data = CallCodec(before).encode_call((1,))
    with pytest.raises(PayloadRefused, match=r"arguments of .* Expected `str`, got `int`"):
        CallCodec(after).decode_call(data)


def test_a_parameter_with_a_default_may_be_added_later() -> None:
    def before(n: int) -> None: ...

    def after(n: int, more: str = "") -> None: ...

    assert CallCodec(after).decode_call(CallCodec(before).encode_call((1,))) == ((1,), {})


class Holder:
    def method(self, n: int) -> str:
        return str(n)

    def __call__(self, n: int) -> str:
        return str(n)


@pytest.mark.parametrize(
    "function",
    [
        Holder.method,
        Holder().method,
        Holder(),
        functools.partial(variadic),
        functools.wraps(Holder.method)(lambda *a: 0),
    ],
)
def test_self_is_not_part_of_a_call(function: Callable[..., object]) -> None:
    call = CallCodec(function)
    assert call.decode_call(call.encode_call((1,))) == ((1,), {})
    with pytest.raises(PayloadRefused, match="argument"):
        call.encode_call(("x",))


def test_an_annotation_that_nobody_can_resolve_is_a_usage_error() -> None:
    def lost(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UsageError, match="annotations of action lost can't be resolved: NameError"):
        CallCodec(lost, name="action lost")
    resolved = CallCodec(lost, namespace={"Nowhere": Order})
    assert resolved.decode_call(resolved.encode_call((ORDER,))) == ((ORDER,), {})


def test_an_annotation_that_nothing_can_store_is_named_with_its_parameter() -> None:
    def lost(x: Holder) -> None: ...

    with pytest.raises(PayloadRefused, match="argument 'x' of action lost is annotated Holder, which can't be stored"):
        CallCodec(lost, name="action lost")


@given(
    first=st.integers(-(2**63), 2**63 - 1),
    rest=st.lists(st.decimals(allow_nan=False, allow_infinity=False), max_size=40),
    flag=st.booleans() | st.none(),
    options=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])).filter(lambda name: name not in ("first", "flag")),
        st.sets(st.integers(0, 9)),
    ),
    packed=st.booleans(),
)
def test_i14_generated_calls_round_trip(
    first: int, rest: list[decimal.Decimal], flag: bool | None, options: dict[str, set[int]], packed: bool
) -> None:
    call = CallCodec(variadic, Codecs(MSGPACK) if packed else Codecs())
    kwargs: dict[str, object] = {**({} if flag is None else {"flag": flag}), **options}
    assert call.decode_call(call.encode_call((first, *rest), kwargs)) == ((first, *rest), kwargs)


@pytest.mark.parametrize(
    "args", [(1, "a", 0.5, True), (-(2**63), "é\0\n", -0.0, False), (2**63 - 1, "", 1e300, True), (0, '"', 1.0, False)]
)
def test_i12_i14_a_call_of_scalars_is_written_and_known_as_any_other(args: tuple[Any, ...]) -> None:
    """The short way for scalars must give the bytes, the digest and the arguments of the long one."""

    def function(number: int, text: str, share: float, flag: bool) -> None: ...

    call = CallCodec(function)
    data = call.encode_call(args)
    assert call.encode_scalars(args, {}) == data
    assert call.encode_input(args, {}, MAX_INT, DEFAULT_CODECS) == (data, call.input_digest(data))
    decoded, _ = call.decode_call(data)
    assert (decoded, repr(decoded)) == (args, repr(args))


@pytest.mark.parametrize("args", [(2**63,), ("1",), (True,), (), (1, 2)])
def test_i14_what_is_not_just_a_scalar_goes_the_long_way(args: tuple[Any, ...]) -> None:
    def function(number: int, other: int = 0) -> None: ...

    def exact(number: int) -> None: ...

    assert CallCodec(function).encode_scalars((1,), {}) is None
    assert CallCodec(exact).encode_scalars(args, {}) is None
    assert CallCodec(exact).encode_scalars((), {"number": 1}) is None


def test_i14_a_text_that_no_codec_can_write_is_refused_as_ever() -> None:
    def function(text: str) -> None: ...

    assert CallCodec(function).encode_scalars(("\ud800",), {}) is None
    with pytest.raises(PayloadRefused, match="argument 'text' of function function"):
        CallCodec(function).encode_input(("\ud800",), {}, MAX_INT, DEFAULT_CODECS)


@pytest.mark.parametrize("size", [0, 12, 4095, 4096, 100_000])
def test_a_digest_is_sha256_whatever_the_size(size: int) -> None:
    assert digest(b"x" * size) == hashlib.sha256(b"x" * size).hexdigest()


def test_i14_keys_that_have_no_text_are_refused_with_every_codec(codecs: Codecs) -> None:
    """I14: MessagePack could write them, but not the digest by which inputs are compared."""

    def place(names: dict[tuple[int, int], str]) -> None: ...

    with pytest.raises(PayloadRefused, match="tuple"):
        CallCodec(place).encode_input(({(1, 2): "a"},), {}, 1000, codecs)
