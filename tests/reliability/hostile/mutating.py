"""Bytes that were once a value: cut, flipped, spliced, repeated, or nested beyond reason."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

SPICE = (
    *(
        b"\x00",
        b"\xff",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\u0000",
        b"\\ud800",
        b"null",
        b"true",
    ),
    *(
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"-0",
        b"9" * 40,
        b"18446744073709551616",
        b'{"a":1,"a":2}',
        b"[" * 3000,
        b'{"x":' * 2000,
    ),
    *(
        b"\x93",
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        b"__class__",
    ),
    *(b"'; DROP TABLE runs; --", b"$1", b"%s", b"../../etc/passwd", b"pickle", b"json", b"hf:", b"\xf0\x9f\x92\xa3"),
)


def mutations(samples: Sequence[bytes], dice: random.Random, count: int) -> Iterator[bytes]:
    """The samples themselves, nothing at all, and variations of the samples."""
    yield from samples
    yield b""
    yield from SPICE
    for _ in range(count):
        data = bytearray(dice.choice(samples))
        for _ in range(dice.randint(1, 4)):
            _mutate(data, samples, dice)
        yield bytes(data)


def _mutate(data: bytearray, samples: Sequence[bytes], dice: random.Random) -> None:
    at = dice.randrange(len(data) + 1)
    match dice.randrange(6):
        case 0 if data:
            data[at % len(data)] = dice.randrange(256)
        case 1:
            del data[at:]
        case 2:
            del data[at : at + dice.randint(1, 8)]
        case 3:
            data[at:at] = dice.choice(SPICE)
        case 4:
            other = dice.choice(samples)
            cut = dice.randrange(len(other) + 1)
            data[at:] = other[cut:]
        case _:
            data[at:at] = data[at : at + dice.randint(1, 20)] * dice.randint(1, 3)
