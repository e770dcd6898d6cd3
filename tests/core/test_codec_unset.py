"""I14: which fields of a pydantic model were given survives storing, and rows without a note of it stay readable."""

from __future__ import annotations

import dataclasses
from typing import Any

import pydantic
import pytest

from holdfast.core.codec import JSON, MSGPACK, CallCodec, Codecs
from holdfast.core.errors import PayloadRefused

CODECS = {codec.tag: Codecs(codec) for codec in (JSON, MSGPACK)}


class Patch(pydantic.BaseModel):
    name: str | None = None
    email: str | None = pydantic.Field(default=None, alias="eMail")
    hidden: int = pydantic.Field(default=1, exclude=True)


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)
    name: str = "?"
    size: int = 0


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = "?"
    size: int = 0


@dataclasses.dataclass
class Holder:
    patch: Patch


class Outer(pydantic.BaseModel):
    one: Patch
    many: list[Patch] = []
    by_number: dict[int, Patch] = {}
    pair: tuple[Patch, int] | None = None
    held: Holder | None = None


class Several(pydantic.RootModel[list[Patch]]):
    pass


class Counted(pydantic.BaseModel):
    values: int = 0

    @pydantic.model_validator(mode="after")
    def count(self) -> Counted:
        self.values = 7  # which makes it a given field, here and when it is read
        return self


@pytest.fixture(params=sorted(CODECS))
def codecs(request: pytest.FixtureRequest) -> Codecs:
    return CODECS[request.param]


def round_trip(codecs: Codecs, value: object, annotation: object) -> Any:
    written = codecs.encode(value, annotation, where="x")
    return codecs.decode(written.data, annotation, where="x")


def given(value: object) -> object:
    """What `exclude_unset` leaves of every model in the value."""
    return value.model_dump(exclude_unset=True) if isinstance(value, pydantic.BaseModel) else value


VALUES = [
    Patch(name="Ada"),
    Patch(),
    Patch(name="Ada", eMail=None),
    Patch.model_construct(name="Ada"),
    Strict(size=3),
    Open(size=3, more=[1]),  # type: ignore[call-arg]
    Counted(),
    Counted.model_construct(values=7, _fields_set=set()),
    Several([Patch(name="Ada"), Patch(eMail="a@b")]),
    Outer(
        one=Patch(name="Ada"),
        many=[Patch(), Patch(eMail="x")],
        by_number={2: Patch(name="two"), 1: Patch()},
        pair=(Patch(eMail=None), 1),
        held=Holder(Patch(name="held")),
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_i14_fields_that_nobody_gave_are_not_given_afterwards_either(codecs: Codecs, value: pydantic.BaseModel) -> None:
    back = round_trip(codecs, value, type(value))
    assert back == value
    assert given(back) == given(value)
    assert back.model_fields_set == value.model_fields_set
    assert codecs.encode(back, type(value), where="x") == codecs.encode(value, type(value), where="x")


def test_i14_models_inside_of_records_lists_and_unions_keep_what_was_given(codecs: Codecs) -> None:
    (back,) = round_trip(codecs, [Holder(Patch(name="Ada"))], list[Holder])
    assert back.patch.model_fields_set == {"name"}
    assert round_trip(codecs, Strict(size=1), Patch | Strict).model_fields_set == {"size"}


def test_i14_all_values_are_stored_so_that_a_default_may_change(codecs: Codecs) -> None:
    class New(Patch):
        name: str | None = "another default"
        born: int | None = None

    written = codecs.encode(Patch(eMail="x"), Patch, where="x")
    back = codecs.decode(written.data, New, where="x")
    assert isinstance(back, New)
    assert back.name is None
    assert back.model_fields_set == {"email"}


def test_i14_rows_without_a_note_read_as_before(codecs: Codecs) -> None:
    stored = codecs.default.encode({"name": "Ada", "eMail": None})
    back = codecs.decode(stored, Patch, where="x")
    assert isinstance(back, Patch)
    assert back == Patch(name="Ada")
    assert back.model_fields_set == {"name", "email"}


def test_i14_nothing_is_added_to_models_with_all_fields_given() -> None:
    assert CODECS["json"].encode(Strict(name="a", size=1), Strict, where="x").data == b'{"name":"a","size":1}'


def test_i12_the_input_is_the_same_whichever_of_its_fields_were_given(codecs: Codecs) -> None:
    """A key that was used before notes were stored must not conflict with the same call now."""

    def change(patch: Patch, either: Patch | Strict) -> None: ...

    call = CallCodec(change, codecs)
    noted = call.input_digest(call.encode_call((Patch(name="Ada"), Strict(size=1))))
    plain = call.input_digest(call.encode_call((Patch(name="Ada", eMail=None), Strict(name="?", size=1))))
    assert noted == plain


def test_i14_a_dict_that_uses_the_name_of_the_note_is_refused(codecs: Codecs) -> None:
    with pytest.raises(PayloadRefused, match="would come back with other fields"):
        codecs.encode(Open.model_validate({"pydantic:unset": "mine"}), Open, where="x")
    assert codecs.encode({"pydantic:unset": 1}, dict[str, int], where="x").data  # of no concern outside of models
