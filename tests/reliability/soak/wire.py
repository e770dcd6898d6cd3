"""As much of PostgreSQL's protocol as a proxy must understand to know where a transaction ends."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

READY = b"Z"
OUTSIDE_A_TRANSACTION = b"I"
SIMPLE_QUERY, SYNC = b"Q", b"S"
COMMAND_COMPLETE = b"C"


class Message(NamedTuple):
    """One message: its type and the bytes after its length."""

    type: bytes
    body: bytes


class Framer:
    """Cuts a stream of bytes into messages. The very first one that a client sends has no type."""

    def __init__(self, *, untyped_first: bool) -> None:
        self._rest = b""
        self._untyped = untyped_first

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now."""
        self._rest += data
        while True:
            head = 0 if self._untyped else 1
            if len(self._rest) < head + 4:
                return
            (length,) = struct.unpack_from("!I", self._rest, head)
            if len(self._rest) < head + length:
                return
            message = Message(self._rest[:head], self._rest[head + 4 : head + length])
            self._rest = self._rest[head + length :]
            self._untyped = False
            yield message


def asks_for_an_end(message: Message) -> bool:
    """Whether the server will commit what it was sent when it has read this: a statement alone, or COMMIT."""
    if message.type == SIMPLE_QUERY:
        return message.body[:6].upper() == b"COMMIT"
    return message.type == SYNC


def tells_of_an_end(message: Message) -> bool:
    """Whether the server says that it is ready and that no transaction is open: what was asked is committed."""
    return message.type == READY and message.body == OUTSIDE_A_TRANSACTION
