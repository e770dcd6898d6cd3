"""A worker whose process started the work itself is sent no rows that are remembered here (K4)."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.core.operations import Handed
from holdfast.store.contract import ClaimRequest
from tests.worker.support import DEADLINE_SECONDS, assert_sound, engine_on

CROWD = 12


def adding() -> tuple[Registry, hf.Action[[int], int]]:
    registry = Registry()

    @hf.action(registry=registry)
    async def add_one(number: int) -> int:
        return number + 1

    return registry, add_one


class Claims:
    """What a worker asked for, and what it got."""

    def __init__(self, engine: hf.Engine, patch: pytest.MonkeyPatch) -> None:
        self.recalled: list[int] = []
        self.read: list[int] = []
        claim = engine.store.claim

        async def noted(request: ClaimRequest) -> list[Handed]:
            handed = await claim(request)
            if handed:
                (self.read if request.recall is None else self.recalled).append(len(handed))
            return handed

        patch.setattr(engine.store, "claim", noted)


async def test_k4_a_crowd_that_was_started_here_is_claimed_from_memory_after_the_first_claim(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, add_one = adding()
    async with engine_on(url, registry) as engine:
        claims = Claims(engine, monkeypatch)
        async with engine.worker(concurrency=2):
            handles = await asyncio.gather(*(engine.start(add_one, number) for number in range(CROWD)))
            results = [await handle.result(timeout=DEADLINE_SECONDS) for handle in handles]
        await assert_sound(engine)
    assert results == [number + 1 for number in range(CROWD)]
    assert len(claims.read) == 1
    assert claims.recalled


async def test_k4_what_another_process_started_is_read(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also right behind a claim of what was remembered; and then the next claim asks for whole rows again."""
    registry, add_one = adding()
    async with engine_on(shared_url, registry) as engine, engine_on(shared_url, registry) as other:
        claims = Claims(engine, monkeypatch)
        ours = [await engine.start(add_one, number) for number in range(CROWD)]
        theirs = [await other.start(add_one, 100 + number) for number in range(CROWD)]
        async with engine.worker(concurrency=2):
            results = [await handle.result(timeout=DEADLINE_SECONDS) for handle in (*ours, *theirs)]
        await assert_sound(engine)
    assert results == [*(number + 1 for number in range(CROWD)), *(101 + number for number in range(CROWD))]
    assert len(claims.read) > 1
