"""What users store is not what operators read: payloads and passwords stay out of logs."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.errors import HoldfastError
from tests.reliability.security.canary_world import CANARY, Canaries, Said, Secret
from tests.support.stores import execute
from tests.worker.support import child_environment

SECONDS = 20.0
SETTINGS = {"sweep_seconds": 0.1, "poll_seconds": 0.05, "lease_seconds": 30.0}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Everything that any logger says, from the finest level on."""
    caplog.set_level(logging.DEBUG)
    return caplog


def told(logged: pytest.LogCaptureFixture) -> list[str]:
    """All lines, with tracebacks and with what was attached to them."""
    formatter = logging.Formatter("%(name)s %(message)s")
    return [f"{formatter.format(record)} {vars(record)}" for record in logged.records]


async def live(engine: hf.Engine, world: Canaries) -> None:
    """Runs of every model, through to their ends, good and bad."""
    secret = Secret(CANARY)
    handles = [await engine.start(each, secret) for each in (*world.actions, *world.functions)]
    handles.append(await engine.start(world.Post(secret=secret)))
    handles.append(await engine.start(world.letters, {"word": CANARY, "words": []}))
    talk = await engine.start(world.converse, secret, key="talk")
    async with hf.Engine(engine.url, registry=hf.Registry()) as stranger:  # who does not know the event's type
        await stranger.send("told", {"word": [CANARY]}, to=talk.id)
    await engine.send(world.told, secret, to=talk.id)
    for number in range(2):
        await engine.execute(world.Listener, Said(str(number), CANARY), command_id=f"once {number}")
        await engine.execute(world.Listener, Said(str(number), CANARY + "!"), command_id=f"once {number}")
    await engine.enqueue_input(world.Listener, Said("undecided", CANARY))
    for id in ("queued", "strange", "foreign"):
        await engine.enqueue_input(world.Listener, Said(id, CANARY))
    for handle in (*handles, talk):
        with suppress(HoldfastError):
            await handle.result(timeout=SECONDS)
    await engine.settle(timeout=SECONDS)


async def refusals(engine: hf.Engine, world: Canaries) -> list[str]:
    """What callers are told when they are refused. They have the value; whoever reads their log need not."""
    said: list[str] = []
    secret = Secret(CANARY)
    for attempt in (
        lambda: engine.start(world.actions[0], Secret(CANARY * 200_000)),
        lambda: engine.start(world.actions[0], CANARY),
        lambda: engine.start("whisper", {"word": 1, "other": CANARY}),
        lambda: engine.start(world.converse, Secret(CANARY + "!"), key="talk"),
        lambda: engine.start(world.letters, {"word": [CANARY], "words": []}),
        lambda: engine.send(world.told, CANARY, to="nobody"),
        lambda: engine.execute(world.Listener, Said("undecided", CANARY)),
        lambda: engine.execute_dynamic("listener", {"type": "Said", "id": 7, "word": CANARY}),
        lambda: engine.execute(world.Listener, secret),
        lambda: engine.execute(world.Listener, Said("strange", CANARY)),
        lambda: engine.execute_dynamic("listener", {"id": "7", "word": CANARY}),
    ):
        try:
            await attempt()
        except HoldfastError as error:
            said.append(f"{error!s} {error!r}")
    assert len(said) >= 7
    return said


async def test_no_payload_of_any_model_is_logged(url: str, logged: pytest.LogCaptureFixture) -> None:
    """Inputs, results, events, states, effects, recorded calls: stored and handed on, never in a line of a log."""
    world = Canaries()
    async with hf.Engine(url, registry=world.registry, **SETTINGS) as engine:
        async with engine.worker():
            await live(engine, world)
            # A payload that does not decode any more, in somebody's hands already.
            broken = await engine.start(world.actions[0], Secret(CANARY), queue="later")
            await execute(engine.store, "UPDATE runs SET input = substr(input, 2) WHERE queue = 'later'")
        async with engine.worker(queues=["later"]):
            with suppress(HoldfastError):
                await broken.result(timeout=SECONDS)
        said = await refusals(engine, world)
        assert len(await engine.dead()) >= 4
    lines = told(logged)
    assert len(lines) > 20, "nothing was logged at all: this test looks in the wrong place"
    assert [line for line in lines if CANARY in line] == []
    assert not [text for text in said if CANARY in text], "\n".join(said)


async def test_a_password_is_in_no_error_and_in_no_log(logged: pytest.LogCaptureFixture) -> None:
    """The address of a database is told without it."""
    with pytest.raises(HoldfastError) as refused:
        async with hf.Engine(
            f"postgresql://somebody:{CANARY}@127.0.0.1:9/nowhere?connect_timeout=1", store_timeout_seconds=1.0
        ):
            pass
    chain: BaseException | None = refused.value
    while chain is not None:
        assert CANARY not in f"{chain!s} {chain!r}"
        chain = chain.__cause__ or chain.__context__
    assert [line for line in told(logged) if CANARY in line] == []


@pytest.mark.parametrize("command", [["runs"], ["doctor"], ["stats"], ["worker", "tests.endtoend.programs.app"]])
def test_a_password_is_not_printed_by_the_command_line(command: list[str], tmp_path: Path) -> None:
    """Errors of the command line go to terminals, tickets and chat rooms."""
    url = f"postgresql://somebody:{CANARY}@127.0.0.1:9/nowhere?connect_timeout=1"
    environment = child_environment() | {"HOLDFAST_URL": url, "HOLDFAST_STORE_TIMEOUT_SECONDS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert done.stderr
    assert CANARY not in done.stdout + done.stderr
