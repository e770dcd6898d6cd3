"""What the tests of codecs run: an application, and codecs that users might write."""

from __future__ import annotations

import datetime
import os
import zlib
from itertools import cycle

import holdfast as hf

registry = hf.Registry()


class Sealed:
    """Encrypts, for a test: the key repeated over compressed JSON, behind a nonce that differs each time."""

    tag = "sealed-1"

    def __init__(self, key: bytes) -> None:
        self._key = key

    def _mixed(self, data: bytes, nonce: bytes) -> bytes:
        return bytes(a ^ b for a, b in zip(data, cycle(self._key + nonce), strict=False))

    def encode(self, plain: object, /) -> bytes:
        nonce = os.urandom(8)
        return nonce + self._mixed(zlib.compress(hf.JSON.encode(plain)), nonce)

    def decode(self, data: bytes, annotation: object, /) -> object:
        return hf.JSON.decode(zlib.decompress(self._mixed(data[8:], data[:8])), annotation)


sealed = Sealed(b"a key that only this application has")
sealed_with_another_key = Sealed(b"the key of somebody else")


@hf.action(registry=registry)
async def stamp(text: str, on: datetime.date, *, copies: int = 1) -> list[bytes]:
    return [f"{text} {on:%d.%m.%Y}".encode()] * copies


@hf.action(registry=registry)
async def echo(value: object) -> object:
    return value


@hf.action(registry=registry)
async def nothing() -> None: ...


@hf.action(registry=registry, isolation="process")
def stamp_elsewhere(text: str, on: datetime.date) -> list[bytes]:
    return [f"{text} {on:%d.%m.%Y} {os.getpid()}".encode()]


@hf.action(registry=registry, transactional=True)
async def stamp_with_the_commit(text: str) -> bytes:
    return text.encode()


seen: list[tuple[str, datetime.date]] = []


class Letter(hf.Dag, registry=registry, on_failure="fail"):
    """Writes its fields down where the test looks."""

    text: str
    on: datetime.date

    @hf.step
    async def write(self) -> None:
        seen.append((self.text, self.on))

    file_it = hf.step(job=echo, args={"value": "in a drawer"})
