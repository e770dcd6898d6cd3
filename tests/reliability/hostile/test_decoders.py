"""Every decoder of stored or sent bytes, given bytes that mean harm: a value or an error of ours, and soon."""

from __future__ import annotations

import decimal
import os
import random
import resource
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.codec import DEFAULT_CODECS, CallCodec, decode_error, encode_error, unlabelled
from holdfast.core.codec_formats import MSGPACK
from holdfast.core.codec_label import labelled
from holdfast.core.dag_document import document, frozen, graph_of_nodes, stored_nodes
from holdfast.core.dag_document_reading import parse_document
from holdfast.core.flow_addresses import parse_address
from holdfast.core.flow_graph import FlowGraph
from holdfast.core.flow_values import decode_value
from holdfast.core.flow_waits import FlowWait, read_wait, wait_bytes
from holdfast.core.function_operations import RESULT, Entry, entry_bytes, entry_of
from holdfast.core.rows import Checkpoint
from holdfast.core.state_items import Item, entry_path, step_of
from holdfast.core.state_outcomes import Outcome, decode_outcome, encode_outcome, split
from holdfast.core.state_patch import difference, patched
from holdfast.graph_steps import GraphWithoutCode
from holdfast.listing import readable
from holdfast.models.state_memory import Totals, frontier_of, totals_of
from tests.reliability.hostile import victims
from tests.reliability.hostile.mutating import mutations

COUNT_VARIABLE, SEED_VARIABLE = "HOSTILE_BYTES", "HOSTILE_SEED"
SLOW_SECONDS = 2.0
LONGEST_MESSAGE = 20_000
MOST_MEMORY_KILOBYTES = 300_000
MAKES_THE_BEST_OF_IT = {"labelled result", "error", "rebuilt error", "error in its place", "what people read"}


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float


class Unknown(ConnectionError):
    def __init__(self, price: decimal.Decimal) -> None:
        super().__init__(price)
        self.price = price


class Rich(msgspec.Struct):
    when: datetime
    span: timedelta
    id: uuid.UUID
    price: decimal.Decimal
    colour: Colour
    raw: bytes
    points: list[Point]
    inside: Rich | None = None


async def rich(value: Rich, *more: int, flag: bool = False, **others: Point) -> Rich | None: ...


async def plain(value, other=None): ...  # type: ignore[no-untyped-def]


RICH = Rich(
    datetime(2030, 1, 1, tzinfo=UTC),
    timedelta(1),
    uuid.UUID(int=7),
    decimal.Decimal("1.5"),
    Colour.RED,
    b"\x00\xff",
    [Point(1, 2.5)],
)
CALL, PLAIN = CallCodec(rich, name="rich"), CallCodec(plain, name="plain")
FLOW = victims.gathered.graph


def checkpoint(**fields: bytes) -> Checkpoint:
    given = {"state": b"{}", "frontier": b"[]", "totals": b"[]", **fields}
    return Checkpoint(run="r", step=1, whole=True, digest="", key="", **given)


def graph_of() -> Any:
    builder = hf.DagBuilder("built", registry=victims.registry)
    builder.node("one", job=victims.greet, args={"name": "Ada"}, retry=hf.Retry(attempts=3), timeout=5)
    builder.node("two", job=victims.greet, args={"name": "Bob"})
    return builder.build().graph


BUILT = frozen(graph_of())
NO_CODE = GraphWithoutCode(DEFAULT_CODECS)
ARGUMENTS: tuple[Any, Any] = (RICH, 1, 2), {"flag": True, "far": Point(3, 4.0)}
PACKED = hf.Codecs(MSGPACK)
CALLED = [CALL.encode_call(*ARGUMENTS)]
CALLED_PACKED = [CALL.encode_call(*ARGUMENTS, codecs=PACKED)]
RESULTS = [CALL.encode_result(RICH), b"null"]
ERROR = encode_error(ValueError("no"), earlier=encode_error(KeyError("before")))
UNKNOWN_ERROR = encode_error(Unknown(RICH.price), at_home=True)
ITEMS = msgspec.json.encode((Item(node="look", path=entry_path("look")),))
OUTCOME = encode_outcome(Outcome(delta={"log": msgspec.Raw(b'["x"]')}))
PATCH = difference({"log": b'["aaaa","b"]', "n": b"1"}, {"log": b'["aaaa","b","c"]', "n": b"2"})
ENTRY = entry_bytes(Entry(address="greet|1", kind=RESULT, name="greet", value=b'"x"'))

DECODERS: dict[str, tuple[Callable[[bytes], Any], list[bytes]]] = {
    "call": (lambda data: CALL.decode_call(data), CALLED),
    "call in msgpack": (lambda data: CALL.decode_call(data, "msgpack", codecs=PACKED), CALLED_PACKED),
    "untyped call": (lambda data: PLAIN.decode_call(data), [b'[[{"a":[1,2.5,null]}],{"other":"x"}]']),
    "result": (lambda data: CALL.decode_result(data), RESULTS),
    "labelled result": (lambda data: unlabelled(data), [labelled(b"null", "msgpack"), b"null"]),
    "error": (decode_error, [ERROR]),
    "rebuilt error": (lambda data: decode_error(data).to_exception(lambda name: ValueError), [ERROR]),
    "error in its place": (lambda data: decode_error(data).to_exception(at_home=True), [UNKNOWN_ERROR]),
    "stored graph": (graph_of_nodes, [stored_nodes(BUILT)]),
    "graph document": (
        lambda data: parse_document(data.decode(errors="surrogateescape")),
        [msgspec.json.encode(document(BUILT, None))],
    ),
    "flow": (FlowGraph.from_json, [FLOW.to_json()]),
    "value of a flow": (
        lambda data: decode_value(data, {}),
        [b'{"t":["x"]}', b"[1,2]", b'{"e":["ValueError",["no"]]}'],
    ),
    "wait of a flow": (read_wait, [wait_bytes(FlowWait(events=("word",)))]),
    "address of a flow": (lambda data: parse_address(data.decode(errors="replace")), [b"charge@2.0[7]"]),
    "address of an item": (lambda data: step_of(data.decode(errors="replace")), [b"look@7", b"look@7.00ff"]),
    "entry": (entry_of, [ENTRY]),
    "outcome of a node": (decode_outcome, [OUTCOME]),
    "state": (split, [b'{"log":["x"],"n":1}']),
    "patch": (lambda data: patched({"log": b'["aaaa","b"]', "n": b"1"}, data), [PATCH]),
    "frontier": (lambda data: frontier_of(checkpoint(frontier=data), NO_CODE), [ITEMS]),
    "totals": (lambda data: totals_of(checkpoint(totals=data)), [msgspec.json.encode(Totals(steps=1))]),
    "what people read": (readable, [b'{"by":"ada"}']),
}


@pytest.mark.parametrize("name", DECODERS)
def test_i14_a_decoder_gives_a_value_or_an_error_of_ours(name: str) -> None:
    decode, samples = DECODERS[name]
    for sample in samples:
        decode(sample)  # what we wrote ourselves is read, so that what follows means something
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1 << 30))
    count = int(os.environ.get(COUNT_VARIABLE) or 5000)
    print(f"repeat with: {SEED_VARIABLE}={seed} {COUNT_VARIABLE}={count} pytest {__file__} -k {name!r}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = longest = 0
    for data in mutations(samples, random.Random(f"{name} {seed}"), count):
        began = time.monotonic()
        try:
            decode(data)
        except hf.HoldfastError as error:
            refused += 1
            longest = max(longest, len(error.message))
        except Exception as error:
            raise AssertionError(f"{name} of {data[:200]!r} raised {error!r}") from error
        assert time.monotonic() - began < SLOW_SECONDS, data
    assert longest < LONGEST_MESSAGE
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MOST_MEMORY_KILOBYTES, f"{name} took {grown} kB"
    assert refused or name in MAKES_THE_BEST_OF_IT, "nothing of this was refused: are the samples read at all?"
