"""Workflows of every model that are given a secret, and go wrong in every way in which somebody might log it.

None of them puts the secret into the text of an exception: what an author writes there is the author's to tell.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import msgspec

import holdfast as hf

CANARY = "canary-5ca1ab1e"
"""In every payload. It must not be found in anything that is logged, nor in an error that nobody asked for details."""

QUICK = hf.Retry(attempts=2, base=0.001, cap=0.002)


class Secret(msgspec.Struct, frozen=True):
    word: str


class Said(msgspec.Struct, frozen=True):
    id: str
    word: str


class Heard(msgspec.Struct, frozen=True):
    word: str


class Tell(msgspec.Struct, frozen=True):
    word: str


class Unlucky(Exception):
    """What goes wrong here."""


class Letter(TypedDict):
    word: str
    words: Annotated[list[str], hf.reducers.append]


class Canaries:
    """The definitions, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = hf.Registry()

        @hf.action(registry=registry, retry=QUICK)
        async def whisper(secret: Secret) -> Secret:
            return secret

        @hf.action(registry=registry, retry=QUICK)
        async def stumble(secret: Secret) -> Secret:
            raise Unlucky("something else")

        @hf.action(registry=registry)
        async def give_the_wrong_thing(secret: Secret) -> int:
            return [secret.word]  # type: ignore[return-value]

        @hf.action(registry=registry)
        async def give_too_much(secret: Secret) -> str:
            return secret.word * 200_000

        @hf.action(registry=registry, timeout=0.05)
        async def take_too_long(secret: Secret) -> None:
            await asyncio.Event().wait()

        class Post(hf.Dag, registry=registry, on_failure="fail"):
            secret: Secret

            @hf.step
            async def write(self) -> None:
                hf.current().note("written")

            @hf.step(retry=QUICK)
            async def send(self) -> None:
                raise Unlucky("something else")

        told = self.told = hf.event("told", Secret, registry=registry)

        @hf.workflow(registry=registry)
        async def converse(secret: Secret) -> Secret:
            heard = await hf.wait_for(told)
            with suppress(Unlucky):
                await stumble(heard.value)
            return await whisper(secret)

        @hf.workflow(registry=registry)
        async def lose(secret: Secret) -> None:
            await whisper(secret)
            raise Unlucky("something else")

        class Listener(hf.Decider[int, Said, Heard, Tell], name="listener", registry=registry, retry=QUICK):
            def workflow_id(self, input: Said) -> str:
                return input.id

            def initial(self) -> int:
                return 0

            def evolve(self, state: int, event: Heard) -> int:
                return state + 1

            def decide(self, now: Any, state: int, input: Said) -> Any:
                if input.id == "undecided":
                    raise Unlucky("something else")
                if input.id == "strange":
                    return hf.Decision.event([input.word])
                return hf.Decision.event(Heard(input.word)).with_effect(Tell(input.word))

            def is_terminal(self, state: int) -> bool:
                return False

            async def handle(self, effect: Tell, ctx: Any) -> Any:
                if ctx.workflow_id == "foreign":
                    return effect
                raise Unlucky("something else")

        @hf.projection(Listener, name="ears", retry=QUICK, registry=registry)
        async def ears(recorded: Any, tx: Any) -> None:
            raise Unlucky("something else")

        @hf.flow(registry=registry)
        async def relay(secret: Secret) -> Secret:
            both = await asyncio.gather(whisper(secret), stumble(secret), return_exceptions=True)
            return await whisper(both[0])

        @hf.flow(registry=registry)
        async def trip(secret: Secret) -> str:
            heard = await whisper(secret)
            return {"other": 1}[heard.word]

        letters = self.letters = hf.StateGraph(Letter, name="letters", registry=registry)

        @letters.node(recordable=True, retry=QUICK)
        async def look_up(state: Letter, ctx: Any) -> dict[str, Any]:
            found = await ctx.record("search", {"q": state["word"]}, lambda: {"found": state["word"]})
            return {"words": [found["found"]]}

        @letters.node(retry=QUICK)
        async def spoil(state: Letter) -> dict[str, Any]:
            raise Unlucky("something else")

        @letters.node(retry=QUICK)
        async def answer_wrongly(state: Letter) -> Any:
            return [state["word"]]

        @letters.node(retry=QUICK)
        async def answer_elsewhere(state: Letter) -> Any:
            return hf.Stop([state["word"]])  # type: ignore[arg-type]

        @letters.node(retry=QUICK)
        async def answer_of_another_type(state: Letter) -> Any:
            return {"word": [state["word"]]}

        letters.start_at("look_up", "answer_wrongly", "answer_elsewhere", "answer_of_another_type")
        letters.edge("look_up", "spoil")
        letters.finish("spoil", "answer_wrongly", "answer_elsewhere", "answer_of_another_type")

        self.actions = (whisper, stumble, give_the_wrong_thing, give_too_much, take_too_long)
        self.functions = (lose, relay, trip)
        self.Post, self.converse, self.Listener = Post, converse, Listener
