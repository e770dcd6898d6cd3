"""What a node of a state graph gave back, as it is stored with its work: a delta, and perhaps where to go."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.core.stored import read_stored

Fields = Mapping[str, bytes]
"""A state or a part of one: the fields that have a value, each as canonical JSON."""


Sent = dict[str, msgspec.Raw]
"""The fields that a node is given alone, besides the merged state."""


class Route(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node to go to, with what it is given alone (of `Send`)."""

    node: str
    sent: Sent | None = None


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A node's delta. `route` takes the place of the node's edges; `stop` ends the run after this step's merge."""

    delta: dict[str, msgspec.Raw] = {}
    route: tuple[Route, ...] | None = None
    stop: bool = False

    @property
    def fields(self) -> dict[str, bytes]:
        return {name: bytes(value) for name, value in self.delta.items()}


_decoder = msgspec.json.Decoder(Outcome)
_encoder = msgspec.json.Encoder()
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

NOTHING = Outcome()


def encode_outcome(outcome: Outcome) -> bytes:
    return _encoder.encode(outcome)


def decode_outcome(data: bytes | None) -> Outcome:
    """What was stored; a node that was skipped gave nothing."""
    return NOTHING if data is None else read_stored(_decoder.decode, data, "what a node gave")


def with_sent(fields: Fields, sent: Sent | None) -> Fields:
    """The state that an item runs on."""
    return fields if sent is None else {**fields, **{name: bytes(value) for name, value in sent.items()}}


def joined(fields: Fields) -> bytes:
    """The fields as one JSON object, in the order of their names."""
    return b"{" + b",".join(_encoder.encode(name) + b":" + fields[name] for name in sorted(fields)) + b"}"


def split(data: bytes | msgspec.Raw) -> dict[str, bytes]:
    """The fields of a JSON object."""
    fields = read_stored(_object_decoder.decode, data, "the state of a graph")
    return {name: bytes(value) for name, value in fields.items()}
