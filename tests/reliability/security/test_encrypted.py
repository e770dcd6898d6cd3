"""With a codec that encrypts, payloads are nowhere in the clear: not in a row, not in a log, not in a refusal."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import logging
import os
import sqlite3
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest

import holdfast as hf
from holdfast.core import quoting
from holdfast.core.errors import HoldfastError
from tests.reliability.security.canary_world import CANARY
from tests.worker.support import until

SECONDS = 20.0


class Encrypting:
    """Good enough to tell what goes through it from what does not."""

    tag = "encrypting-1"

    def encode(self, plain: object) -> bytes:
        nonce = os.urandom(8)
        return nonce + self._turned(nonce, hf.JSON.encode(plain))

    def decode(self, data: bytes, annotation: object) -> object:
        return hf.JSON.decode(self._turned(data[:8], data[8:]), annotation)

    def _turned(self, nonce: bytes, data: bytes) -> bytes:
        return bytes(each ^ key for each, key in zip(data, hashlib.shake_256(nonce).digest(len(data)), strict=True))


class Colour(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    by_name: dict[str, int] = {}
    kind: Literal["a"] = "a"


@dataclasses.dataclass
class Sour:
    text: str

    def __post_init__(self) -> None:
        if self.text != "sweet":
            raise ValueError(f"not {self.text}")


WRONG: list[tuple[object, Any]] = [
    (Colour, lambda secret: secret),
    (Literal["x"], lambda secret: secret),
    (Colour | Sour, lambda secret: secret),
    (dict[str, Any], lambda secret: {secret: {secret: {1: 2}}}),
    (dict[str, Any], lambda secret: {"k": {secret: (1,)}}),
    (dict[Any, Any], lambda secret: {(secret, 1): 1}),
    (set[Any], lambda secret: {(secret, 1)}),
    (Any, lambda secret: {secret: {secret}}),
    (Model, lambda secret: Model.model_construct(by_name={secret: secret})),
    (Model, lambda secret: Model.model_construct(kind=secret)),
    (Sour, lambda secret: {"text": secret}),
    (datetime, lambda secret: secret),
]


class World:
    """Values that are refused, in every model."""

    def __init__(self) -> None:
        registry = self.registry = hf.Registry()
        self.actions: list[Any] = []
        for number, (annotation, make) in enumerate(WRONG):

            async def wrong(secret: str, make: Any = make) -> object:
                return make(secret)

            wrong.__annotations__["return"] = annotation
            self.actions.append(hf.action(name=f"wrong_{number}", registry=registry)(wrong))

        @hf.action(registry=registry)
        async def takes(colour: Colour) -> None: ...

        @hf.workflow(registry=registry)
        async def calls(secret: str) -> None:
            for each in self.actions:
                with suppress(hf.PayloadRefused):
                    await each(secret)
            await takes(secret)  # type: ignore[arg-type]

        @hf.workflow(registry=registry)
        async def returns(secret: str) -> Colour:
            return secret  # type: ignore[return-value]

        @dataclasses.dataclass
        class State:
            colour: Colour = Colour.RED
            table: dict[str, Any] = dataclasses.field(default_factory=dict)
            name: str = ""

        graph = hf.StateGraph(State, name="graph", registry=registry)

        @graph.node
        async def paints(state: State) -> dict[str, Any]:
            return {"colour": state.name}

        graph.start_at("paints")
        graph.finish("paints")
        other = hf.StateGraph(State, name="other", registry=registry)

        @other.node
        async def lays(state: State) -> dict[str, Any]:
            return {"table": {state.name: {1: 2}}}

        other.start_at("lays")
        other.finish("lays")
        self.startables: list[tuple[Any, Any]] = [
            (calls, CANARY),
            (returns, CANARY),
            (graph, State(name=CANARY)),
            (other, State(name=CANARY)),
        ]


def stored(path: Path) -> list[str]:
    """Where the canary is in the file's tables."""
    found = []
    with sqlite3.connect(path) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = db.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in rows.description]
            for row in rows:
                for name, value in zip(names, row, strict=True):
                    data = value if isinstance(value, bytes) else str(value).encode()
                    if CANARY.encode() in data:
                        found.append(f"{table}.{name}: {data[:2000]!r}")
    return found


async def test_i14_a_refusal_quotes_nothing_beside_a_codec_of_ones_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world, path = World(), tmp_path / "runs.db"
    told: list[str] = []
    async with (
        hf.Engine(f"sqlite:///{path}", registry=world.registry, codec=Encrypting()) as engine,
        engine.worker(),
    ):
        handles = [await engine.start(each, CANARY) for each in world.actions]
        handles += [await engine.start(startable, given) for startable, given in world.startables]
        for handle in handles:
            with pytest.raises(hf.RunFailed) as failed:
                await handle.result(timeout=SECONDS)
            told += [str(failed.value), repr(failed.value.cause), str(await handle.explain())]
        for startable, wrong in ((world.startables[2][0], {"colour": CANARY}), (world.startables[0][0], {1: CANARY})):
            with pytest.raises(HoldfastError) as refused:
                await engine.start(startable, wrong)
            told.append(str(refused.value))
    assert [text for text in told if CANARY in text] == []
    assert any("Invalid enum value <hidden>" in text for text in told)
    assert any("is a set, which JSON does not have" in text for text in told)
    lines = [f"{logging.Formatter().format(record)} {vars(record)}" for record in caplog.records]
    assert [line for line in lines if CANARY in line] == []
    assert stored(path) == []


async def test_i14_a_refusal_quotes_again_when_the_engine_is_closed() -> None:
    """Where payloads can be read anyway, a short value helps whoever wrote it."""
    engine = hf.Engine("memory://", registry=hf.Registry(), codec=Encrypting())
    async with engine:
        assert not quoting.is_allowed()
    assert quoting.is_allowed()
    async with hf.Engine("memory://", registry=hf.Registry(), codec="msgpack"):
        assert quoting.is_allowed()


class Declined(Exception):
    def __init__(self, card: str, code: int = 402) -> None:
        super().__init__(f"declined with {code}")
        self.card = card
        self.code = code


class Blocked(Exception):
    """Its argument is the secret, which its text does not tell."""

    def __str__(self) -> str:
        return "blocked"


@dataclasses.dataclass
class Named:
    secret: str = ""
    seen: list[str] = dataclasses.field(default_factory=list)


def seen_of(error: Exception) -> str:
    found = [type(error).__name__, str(error)]
    found += [str(getattr(error, name, f"no {name}")) for name in ("card", "code", "errno", "filename")]
    return " ".join(found)


async def test_i14_of_exceptions_only_what_their_text_tells_is_in_the_clear(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """I14: arguments and attributes are payloads. Class and text are kept, and a replay has what the live run had."""
    caplog.set_level(logging.DEBUG)
    registry, path, seen = hf.Registry(), tmp_path / "runs.db", list[str]()

    @hf.action(registry=registry, retry=hf.Retry(attempts=2, base=0.001))
    async def pay(secret: str, how: str) -> None:
        if how == "file":
            raise FileNotFoundError(2, "No such file", "/none")
        raise Declined(secret) if how == "declined" else Blocked(secret)

    @hf.workflow(registry=registry)
    async def shop(secret: str) -> list[str]:
        seen.clear()
        for how in ("declined", "blocked", "file"):
            try:
                await pay(secret, how)
            except (Declined, Blocked, FileNotFoundError) as error:
                seen.append(seen_of(error))
        await hf.wait_for("go on")
        await pay(secret, "declined")
        return seen

    @hf.flow(registry=registry)
    async def stream(secret: str) -> str:
        try:
            await pay(secret, "blocked")
        except Blocked as error:
            await hf.sleep(0.001)
            return str(error)
        return "?"

    class Steps(hf.Dag, registry=registry):
        secret: str

        @hf.step
        async def first(self) -> None:
            raise Declined(self.secret)

    graph = hf.StateGraph(Named, name="graph", registry=registry)

    @graph.node(recordable=True)
    async def node(state: Named, ctx: hf.NodeContext) -> dict[str, Any]:
        def call() -> None:
            raise Declined(state.secret)

        try:
            await ctx.record("pay", 1, call)
        except Declined as error:
            return {"seen": [seen_of(error)]}
        raise AssertionError("it was not declined")

    graph.start_at("node")
    graph.finish("node")
    expected = [
        "Declined declined with 402 no card 402 no errno no filename",
        "Blocked blocked no card no code no errno no filename",
        "FileNotFoundError [Errno 2] No such file: '/none' no card no code 2 /none",
    ]
    settings: dict[str, Any] = {"registry": registry, "codec": Encrypting()}
    async with hf.Engine(f"sqlite:///{path}", **settings) as engine, engine.worker():
        run = await engine.start(shop, CANARY)
        assert await (await engine.start(stream, CANARY)).result(timeout=SECONDS) == "blocked"
        steps, asked = await engine.start(Steps(secret=CANARY)), await engine.start(graph, Named(secret=CANARY))
        with pytest.raises(hf.RunPaused):
            await steps.result(timeout=SECONDS)
        assert (await asked.result(timeout=SECONDS)).seen == expected[:1]
        assert (await engine.replay(asked.id)).ok
        await until(lambda: len(seen) == len(expected), "the shop has seen the last of its failures")
        await engine.settle(timeout=SECONDS)
        assert seen == expected
    async with hf.Engine(f"sqlite:///{path}", **settings) as engine, engine.worker():
        await engine.send("go on", None, to=run.id)
        with pytest.raises(hf.RunFailed) as failed:
            await engine.get(run.id).result(timeout=SECONDS)
        assert seen == expected
        assert isinstance(failed.value.cause, Declined)
        assert len(failed.value.attempts) == 2
    assert stored(path) == []
    assert [
        record for record in caplog.records if CANARY in f"{logging.Formatter().format(record)} {vars(record)}"
    ] == []
