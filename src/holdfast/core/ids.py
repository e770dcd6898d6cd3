"""Identities: time-ordered ids from passed-in time and randomness, and derived ids that must repeat."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

_SHARED: Final = 2048  # runs of one workflow in which nothing was retried have the same ancestries


def uuid7(milliseconds: int, random_bits: int) -> str:
    """A UUIDv7 from a time and 74 random bits. Ids made later sort later."""
    value = (milliseconds & 0xFFFFFFFFFFFF) << 80
    value |= 0x7 << 76
    value |= (random_bits >> 62 & 0xFFF) << 64
    value |= 0b10 << 62
    value |= random_bits & 0x3FFFFFFFFFFFFFFF
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def child_id(parent: str, address: str) -> str:
    """The id of a run that another one starts: the same in every replay, and sorted beside its parent."""
    digest = int(hashed("child", parent, address)[:20], 16)
    try:
        milliseconds = int(parent.replace("-", "")[:12], 16)
    except ValueError:  # an id that was not made here
        milliseconds = 0
    return uuid7(milliseconds, digest & (2**74 - 1))


def instance_id(workflow: str, key: str) -> str:
    """The id of a decider's instance, so that its first input can name it."""
    text = hashed("instance", workflow, key)
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-b{text[17:20]}-{text[20:32]}"


def hashed(*parts: str) -> str:
    """sha256 over length-prefixed parts, so that no two lists of parts share an encoding."""
    encoded = [part.encode() for part in parts]
    return hashlib.sha256(b"".join([len(data).to_bytes(8, "big") + data for data in encoded])).hexdigest()


def parents_hash(ancestries: list[str]) -> str:
    """Names the very attempts of the parents that a node follows, in any order."""
    return _hash_of_one(ancestries[0]) if len(ancestries) == 1 else hashed(*sorted(ancestries))


@lru_cache(_SHARED)
def _hash_of_one(parent: str) -> str:
    return hashed(parent)


@lru_cache(_SHARED)
def ancestry_hash(node: str, attempt: int, parents: str) -> str:
    """I28: names an attempt together with all that led to it. `parents` is kept with the row, so that the next
    attempt of a node can be named without reading its parents again."""
    return hashed(node, str(attempt), parents)


def idempotency_key(workflow: str, run: str, node: str) -> str:
    """I13: the same in every attempt of a node, different for every node and run."""
    return f"{workflow}:{run}:{node}"
