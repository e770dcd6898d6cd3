"""The setting `codec`: what it may be, and how everything else is refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.codec import codecs_for
from holdfast.core.settings import Settings, make_settings
from holdfast.runtime.codecs import open_codecs


class Reversed:
    """A codec as small as it can be."""

    tag = "reversed"

    def encode(self, plain: object, /) -> bytes:
        return hf.JSON.encode(plain)[::-1]

    def decode(self, data: bytes, annotation: object, /) -> object:
        return hf.JSON.decode(data[::-1], annotation)


class WithoutDecode:
    tag = "half"

    def encode(self, plain: object, /) -> bytes:
        return b""


own = Reversed()
text = "not a codec"


def changed(**parts: Any) -> Any:
    return type("Changed", (Reversed,), parts)()


def test_i14_a_codec_is_given_by_name_as_itself_or_with_others_to_read() -> None:
    assert Settings().codec == "json"
    assert codecs_for("json").default is hf.JSON
    assert codecs_for("msgpack").default is hf.MSGPACK
    assert codecs_for(own).default is own
    several = hf.Codecs(hf.MSGPACK, extra=[own])
    assert codecs_for(several) is several
    assert {"json", "msgpack", "reversed"} == {tag for tag in ("json", "msgpack", "reversed", "x") if tag in several}
    for codec in ("json", "msgpack", own, several):
        assert hf.Engine("memory://", codec=codec).settings.codec is codec


@pytest.mark.parametrize(
    ("codec", "fact"),
    [
        ("yaml", "codec is 'yaml'"),
        ("", "codec is ''"),
        (None, "without tag, encode, decode"),
        (7, "codec is 7"),
        (Reversed, "a class and no instance"),
        (WithoutDecode(), "without decode"),
        (changed(tag=""), "is ''"),
        (changed(tag=7), "is 7"),
        (changed(tag="é"), "is 'é'"),
        (changed(tag="a\nb"), r"is 'a\nb'"),
        (changed(tag="x" * 65), "'xxx"),
        (changed(tag="json"), "share the tag 'json'"),
        (changed(encode=lambda self, plain: "text"), "encodes to str, not to bytes"),
        (changed(encode=lambda self, plain: 1 / 0), "ZeroDivisionError"),
        (changed(decode=lambda self, data, annotation: None), "gives None back"),
        (changed(decode=lambda self, data: None), "TypeError"),
    ],
)
def test_i14_what_cannot_write_and_read_is_refused_when_it_is_given(codec: Any, fact: str) -> None:
    """Not when the first result is lost; the message has the value and the choices or the form."""
    with pytest.raises(hf.UsageError) as refused:
        hf.Engine("memory://", codec=codec)
    assert fact in str(refused.value)
    assert refused.value.hint


def test_i14_the_environment_names_a_codec_and_the_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CODEC", "msgpack")
    assert hf.Engine("memory://").codecs.default is hf.MSGPACK
    assert hf.Engine("memory://", codec="json").codecs.default is hf.JSON
    monkeypatch.setenv("HOLDFAST_CODEC", f"{__name__}:own")
    assert hf.Engine("memory://").codecs.default is own


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("yaml", "HOLDFAST_CODEC is 'yaml'"),
        ("no.such.module:codec", "No module named 'no"),
        (f"{__name__}:missing", "no attribute 'missing'"),
        (f"{__name__}:text", "which is the text 'not a codec'"),
        (f"{__name__}:Reversed", "a class and no instance"),
        (":", "cannot be loaded"),
    ],
)
def test_i14_a_name_that_leads_nowhere_is_refused_with_the_name(value: str, fact: str) -> None:
    assert __name__ in sys.modules
    with pytest.raises(hf.UsageError) as refused:
        open_codecs(make_settings({}, {"HOLDFAST_CODEC": value}).codec)
    assert fact in str(refused.value)
