"""The public names under a strict type checker, reached as users reach them. Never run, only checked."""

from __future__ import annotations

from typing import assert_type

import holdfast as hf


@hf.action(retry=hf.Retry(attempts=3))
async def charge(order: int, cents: int) -> str:
    return f"{hf.current().idempotency_key}: {order} {cents}"


class Order(hf.Dag, on_failure="fail"):
    number: int

    @hf.step
    async def validate(self) -> None: ...


async def main() -> None:
    engine = hf.Engine("memory://", lease_seconds=10.0)
    async with engine, engine.worker(concurrency=5):
        assert_type(await engine.run(charge, 17, 1999), str)
        assert_type(await engine.start(charge, 17, 1999, key="charge-17"), hf.Handle[str])
        assert_type(await engine.start(Order(number=17)), hf.Handle[None])
        try:
            await engine.run(charge, 17, 1999)
        except hf.RunFailed as error:
            assert_type(error, hf.RunFailed)
