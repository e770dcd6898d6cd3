"""The bytes of payloads: the same in every process, labelled with their codec, and readable or an error of ours."""

from __future__ import annotations

import subprocess
import sys
import zlib

import pytest

from holdfast.core.codec import JSON, MSGPACK, Codec, Codecs, Encoded, digest
from holdfast.core.errors import PayloadRefused, UsageError
from tests.core.test_codec import CODECS, ITEM, WHERE, Item


@pytest.fixture(params=sorted(CODECS))
def codecs(request: pytest.FixtureRequest) -> Codecs:
    return CODECS[request.param]


def test_i14_equal_sets_are_equal_bytes_in_every_process() -> None:
    script = (
        "import dataclasses, enum, pydantic\n"
        "from holdfast.core.codec import DEFAULT_CODECS as codecs\n"
        "Colour = enum.Enum('Colour', 'RED BLUE GREEN')\n"
        "class Model(pydantic.BaseModel):\n    tags: set[str]\n    deep: frozenset[frozenset[str]]\n"
        "words = {'alpha', 'beta', 'gamma', 'delta'}\n"
        "pairs = {frozenset({'a', 'b'}), frozenset({'c', 'd'})}\n"
        "Record = dataclasses.make_dataclass('Record', [('w', set[str]), ('d', dict[str, int])], frozen=True)\n"
        "for value, kind in [(words, set[str]), (set(Colour), set[Colour]), (pairs, set[frozenset[str]]),\n"
        "                    (Model(tags=words, deep=pairs), Model), (Record(words, {'z': 1, 'a': 2}), Record)]:\n"
        "    print(codecs.encode(value, kind, where='x').data)\n"
    )
    outputs = set()
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert '"d":{"z":1,"a":2}' in outputs.pop()  # a dict keeps its order


def test_i14_canonical_bytes_ignore_the_order_of_keys(codecs: Codecs) -> None:
    one = codecs.canonical({"a": 1, "b": {"c": 1, "d": 2}}, where=WHERE)
    other = codecs.canonical({"b": {"d": 2, "c": 1}, "a": 1}, where=WHERE)
    assert one == other
    assert digest(one) == digest(other)
    assert len(digest(b"")) == 64


def test_i14_rows_of_other_codecs_stay_readable() -> None:
    class Zipped:
        tag = "json+zip"

        def encode(self, plain: object, /) -> bytes:
            return zlib.compress(JSON.encode(plain))

        def decode(self, data: bytes, annotation: object, /) -> object:
            return JSON.decode(zlib.decompress(data), annotation)

    zipped: Codec = Zipped()
    newer = Codecs(zipped)
    encoded = newer.encode(ITEM, Item, where=WHERE)
    assert encoded == Encoded(encoded.data, "json+zip")
    older = Codecs(MSGPACK, extra=(zipped,))
    assert older.decode(encoded.data, Item, where=WHERE, codec=encoded.codec) == ITEM
    assert older.of("json") is JSON
    with pytest.raises(PayloadRefused, match=r"'json\+zip', which is not registered here \(known: json, msgpack\)"):
        Codecs().decode(encoded.data, Item, where=WHERE, codec=encoded.codec)


def test_two_codecs_may_not_share_a_tag() -> None:
    class Impostor:
        tag = "json"

        def encode(self, plain: object, /) -> bytes:
            return b""

        def decode(self, data: bytes, annotation: object, /) -> object:
            return None

    with pytest.raises(UsageError, match="share the tag 'json'"):
        Codecs(Impostor())


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff", b'{"name":1}', b'"\xed\xa0\x80"'])
def test_i8_bytes_that_do_not_decode_are_an_error_of_ours(codecs: Codecs, data: bytes) -> None:
    with pytest.raises(PayloadRefused, match="action charge was stored as"):
        codecs.decode(data, Item, where=WHERE)
