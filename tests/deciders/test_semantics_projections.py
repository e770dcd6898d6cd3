"""What a projection is promised (I36), seen from outside and on every store."""

from __future__ import annotations

import asyncio

import holdfast as hf
from tests.deciders.conftest import DEADLINE_SECONDS, Stage
from tests.deciders.orders import Act, Alarm, PuppetEvent, Spoke, World
from tests.worker.support import until


async def test_i36_a_projection_sees_every_event_in_order_and_no_system_record(stage: Stage, world: World) -> None:
    seen: list[hf.Recorded[object]] = []

    @hf.projection(world.Puppet, name="all words", registry=world.registry)
    async def all_words(event: hf.Recorded[object], tx: hf.Tx) -> None:
        seen.append(event)

    async with stage.engine(world.registry) as engine:
        await asyncio.gather(
            *(
                engine.execute(
                    world.Puppet, Act(f"p{n % 4}", (str(n),), alarms=(Alarm(3600, "x", "k"),), cancel=("k",))
                )
                for n in range(40)
            )
        )
        await until(lambda: len(seen) >= 40, "the projection has seen them all")
        await engine.settle(timeout=DEADLINE_SECONDS)
        assert len(seen) == 40
        positions = [event.position for event in seen]
        assert positions == sorted(set(positions))
        for id in ("p0", "p1", "p2", "p3"):
            mine = [event for event in seen if event.workflow_id == id]
            stream = [fact for fact in await engine.stream(world.Puppet, id) if not fact.system]
            assert [event.sequence for event in mine] == [fact.sequence for fact in stream]
            assert [event.event for event in mine] == [fact.event for fact in stream]
        first = seen[0]
        assert (first.workflow, first.type, isinstance(first.event, Spoke)) == ("puppet", "Spoke", True)
        (info,) = await engine.projections()
        assert info.name == "all words"


async def test_i36_an_event_that_a_projection_cannot_take_parks_it_and_nobody_else(stage: Stage, world: World) -> None:
    fine: list[str] = []
    broken: list[str] = []

    @hf.projection(world.Puppet, name="fine", registry=world.registry)
    async def takes_all(event: hf.Recorded[PuppetEvent], tx: hf.Tx) -> None:
        fine.append(word_of(event))

    quick = hf.Retry(attempts=2, base=0.01, cap=0.01)

    @hf.projection(world.Puppet, name="broken", registry=world.registry, retry=quick)
    async def takes_some(event: hf.Recorded[PuppetEvent], tx: hf.Tx) -> None:
        if word_of(event) == "poison" and not world.mended:
            raise ValueError("I cannot swallow this")
        broken.append(word_of(event))

    async with stage.engine(world.registry) as engine:
        for word in ("one", "poison", "two"):
            await engine.execute(world.Puppet, Act("p", (word,)))

        async def parked() -> bool:
            return any(each.name == "broken" and each.status == "failed" for each in await engine.projections())

        await until(parked, "the projection is parked")
        await until(lambda: len(fine) == 3, "the other one goes on")
        assert set(broken) == {"one"}
        world.mended = True
        await engine.retry_projection("broken")
        await until(lambda: "two" in broken, "it goes on when it is retried")
        # A list knows nothing of transactions: what was rolled back is in it, and was given again.
        assert list(dict.fromkeys(broken)) == fine == ["one", "poison", "two"]


def word_of(event: hf.Recorded[PuppetEvent]) -> str:
    return event.event.word if isinstance(event.event, Spoke) else "ended"
