"""`holdfast check` before a deploy: what the new code of a decider would not understand of what is stored.

The old code runs in a registry of its own and leaves events, effects, timers and inputs behind; the new code is asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast import decider_checking
from holdfast.checking import Checked
from holdfast.core.ids import instance_id
from tests.cli.conftest import folder  # noqa: F401 - a fixture
from tests.cli.test_json_shapes import promised
from tests.deciders.conftest import Stage
from tests.deciders.shops import ORDERS, OrderShell, create, pay

Struct = msgspec.Struct


class Open(Struct, frozen=True):
    id: str
    cents: int = 0


class Ring(Struct, frozen=True):
    id: str


class Opened(Struct, frozen=True):
    cents: int


class Rang(Struct, frozen=True): ...


class Mail(Struct, frozen=True):
    to: str


class Fax(Struct, frozen=True):
    to: str


def account(events: Any = Opened | Rang, inputs: Any = Open | Ring, effects: Any = Mail | Fax, **methods: Any) -> type:
    """A decider "account" with these types, in a registry of its own."""

    class Account(hf.Decider[int, inputs, events, effects], name="account", registry=hf.Registry()):  # type: ignore[misc]
        def workflow_id(self, input: Any) -> str:
            return str(input.id)

        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Any) -> int:
            evolve = methods.get("evolve")
            return evolve(state, event) if evolve else state + getattr(event, "cents", 0)

        def decide(self, now: Any, state: int, input: Any) -> Any:
            if isinstance(input, Ring):
                return hf.Decision.event(Rang())
            return (
                hf.Decision.event(Opened(input.cents))
                .with_effect(Fax("bank"))
                .with_timer_after(timedelta(hours=1), Ring(input.id), key="bell")
            )

        def is_terminal(self, state: int) -> bool:
            return False

        async def handle(self, effect: Any, ctx: Any) -> Any: ...

    return Account


def another(name: str, **fields: Any) -> type:
    """A class under a name that is stored, with other fields."""
    return msgspec.defstruct(name, [(field, *given) for field, given in fields.items()], frozen=True)


RUN = instance_id("account", "a")


@asynccontextmanager
async def deployed(stage: Stage, new: type) -> AsyncIterator[hf.Engine]:
    """An engine with the new code, on a store where the old code left one of everything."""
    async with stage.engine(account().__decider__.registry, work=False) as engine:
        await engine.execute("account", Open("a", 5))
        await engine.enqueue_input("account", Open("a", 7))
    async with stage.engine(new.__decider__.registry, work=False) as later:
        yield later


async def checked(new: type, stage: Stage | None = None) -> list[Checked]:
    async with deployed(stage or Stage.memory(), new) as engine:
        return await engine.check()


async def difference(new: type) -> str:
    """The one problem that there is."""
    (found,) = await checked(new)
    assert (found.verdict, found.workflow, found.what, found.run) == ("breaks", "account", "decider", RUN)
    return found.difference


async def test_i37_code_that_understands_everything_is_fine(stage: Stage) -> None:
    """A new type, and a field with a default, are no trouble."""
    wider = another("Opened", cents=(int,), currency=(str, "EUR"))
    more = another("Closed")
    assert await checked(account(events=wider | Rang | more), stage) == [
        Checked(run=None, workflow="account", verdict="fine", what="decider")
    ]


async def test_i37_an_event_type_that_the_code_lost_is_told_with_how_many_there_are() -> None:
    text = await difference(account(events=Rang))
    assert text.startswith("1 event of type Opened cannot be read: event Opened of account 'a', sequence 1,")
    assert "Account, 'Opened', from_version=1)" in text


async def test_i37_an_event_that_lacks_a_field_is_told_with_the_field() -> None:
    stricter = another("Opened", cents=(int,), currency=(str,))
    text = await difference(account(events=stricter | Rang))
    assert "missing required field `currency`" in text
    assert "give what is missing a default, or add @hf.upcast(" in text


async def test_i37_a_stored_field_that_the_class_lost_is_told_although_nothing_fails() -> None:
    """Renamed, with a default: every old event reads as if it had the default, and nobody would notice."""
    renamed = another("Opened", amount=(int, 0))
    (found,) = await checked(account(events=renamed | Rang, evolve=lambda state, event: state))
    assert (found.verdict, found.ok, found.run) == ("changes", True, RUN)
    assert found.difference.startswith("1 event of type Opened: their stored field 'cents' is read by nobody")
    assert "Account, 'Opened', from_version=1)" in found.difference


async def test_i37_a_field_that_an_upcast_renames_is_no_change() -> None:
    new = account(events=another("Opened", amount=(int, 0)) | Rang)
    hf.upcast(new, "Opened", from_version=1)(lambda plain: {"type": plain["type"], "amount": plain["cents"]})
    assert [each.verdict for each in await checked(new)] == ["fine"]


async def test_i37_the_fix_for_a_renamed_field_is_the_upcast_that_renames_it() -> None:
    text = await difference(account(events=another("Opened", amount=(int,)) | Rang))
    assert "Fix: add @hf.upcast(account.<locals>.Account, 'Opened', from_version=1), if 'cents' was renamed" in text
    assert "def renamed(event): event['amount'] = event.pop('cents'); return event" in text


async def test_i37_the_upcast_that_is_proposed_gives_the_field_that_is_told_to_be_missing() -> None:
    """Of several that are missing the first of the class, not of the alphabet."""
    text = await difference(account(events=another("Opened", price=(int,), currency=(str,)) | Rang))
    assert "missing required field `price`" in text
    assert "def renamed(event): event['price'] = event.pop('cents'); return event" in text


async def test_i9_dead_letters_that_this_code_could_not_replay_are_told(stage: Stage) -> None:
    class Gone(hf.NonRetryable): ...

    async def refuse(self: Any, effect: Any, ctx: Any) -> Any:
        raise Gone("no line")

    old = account()
    old.handle = refuse  # type: ignore[attr-defined]
    async with stage.engine(old.__decider__.registry) as engine:  # type: ignore[attr-defined]
        await engine.execute("account", Open("a", 5))
        await engine.settle()
    async with stage.engine(account(effects=Mail).__decider__.registry, work=False) as later:  # type: ignore[attr-defined]
        (found,) = await later.check()
    assert found.verdict == "changes"
    assert found.difference.startswith("1 dead letter: effect Fax, which is no effect of this code")


async def test_i37_an_upcast_that_raises_is_told_and_one_that_works_is_fine() -> None:
    """Of a version that is stored no more than a sample is tried: one event."""
    stricter = another("Opened", cents=(int,), currency=(str,))
    new = account(events=stricter | Rang)
    hf.upcast(new, "Opened", from_version=1)(lambda plain: {**plain, "currency": plain["land"]})
    assert "raised KeyError: 'land'" in await difference(new)
    new = account(events=stricter | Rang)
    hf.upcast(new, "Opened", from_version=1)(lambda plain: {**plain, "currency": "EUR"})
    assert [each.verdict for each in await checked(new)] == ["fine"]


async def test_i16_an_instance_that_cannot_be_folded_is_told_with_the_event() -> None:
    def evolve(state: int, event: Any) -> int:
        raise LookupError("no such account")

    text = await difference(account(evolve=evolve))
    assert text == (
        "instance 'a' cannot be folded: LookupError: no such account (while folding event Opened of account 'a', "
        "sequence 1,)"
    )


async def test_i8_pending_effects_of_a_type_that_no_code_has_are_told() -> None:
    text = await difference(account(effects=Mail))
    assert text.startswith("1 pending effect of type Fax, which is no effect of this code: nobody could carry it out")
    assert "keep the class until none is left" in text


async def test_i8_a_pending_effect_that_cannot_be_read_is_told() -> None:
    text = await difference(account(effects=Mail | another("Fax", to=(str,), page=(int,))))
    assert text.startswith("1 pending effect of type Fax, and one cannot be read: ")
    assert "missing required field `page`" in text


async def test_i8_timers_of_a_type_that_no_code_has_are_told() -> None:
    text = await difference(account(inputs=Open))
    assert text.startswith("1 timer of type Ring, which is no input of this code")


async def test_i8_an_input_that_waits_in_an_inbox_and_cannot_be_read_is_told() -> None:
    text = await difference(account(inputs=Ring | another("Open", id=(str,), owner=(str,))))
    assert text.startswith("an input in the inbox of instance 'a' cannot be read: ")
    assert "missing required field `owner`" in text


async def test_every_sort_of_problem_is_told_once() -> None:
    """What cannot be read cannot be folded: that is not told a second time, however many instances have it."""
    new = account(events=Rang, effects=Mail, inputs=Open)
    assert [each.difference.split()[:4] for each in await checked(new)] == [
        ["1", "event", "of", "type"],
        ["1", "pending", "effect", "of"],
        ["1", "timer", "of", "type"],
    ]


async def test_only_so_many_instances_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of millions is checked in bounded time."""
    folded: list[int] = []
    monkeypatch.setattr(decider_checking, "INSTANCES_FOLDED", 2)
    monkeypatch.setattr(decider_checking, "EVENTS_FOLDED", 100)

    def evolve(state: int, event: Any) -> int:
        folded.append(1)
        return state

    new = account(evolve=evolve)
    stage = Stage.memory()
    async with stage.engine(account().__decider__.registry, work=False) as engine:
        for number in range(5):
            await engine.execute("account", Open(str(number)))
    async with stage.engine(new.__decider__.registry, work=False) as later:
        assert [each.verdict for each in await later.check()] == ["fine"]
    assert len(folded) == 2


# -- the command


def test_check_of_a_decider_has_an_exit_code_and_words(folder: Path, sqlite_url: str) -> None:  # noqa: F811 - the fixture
    (folder / "orders.py").write_text(ORDERS, encoding="utf-8")
    sys.path.insert(0, str(folder))
    shop = OrderShell(folder, sqlite_url)
    shop.prepare(create("17", 13), pay("17"))
    assert shop.ok("check", "orders") == "1 decider checked: this code understands what is stored\n"
    broken = ORDERS.replace("class Created:\n    cents: int", "class Created:\n    cents: int\n    currency: str")
    (folder / "later.py").write_text(broken.replace("SendEmail | Charge]", "SendEmail]"), encoding="utf-8")
    done = shop("check", "later")
    assert done.exit_code == 1
    run = instance_id("order", "17")
    assert f"breaks   decider order (see run {run}): 1 event of type Created cannot be read: " in done.stdout
    assert "1 pending effect of type Charge, which is no effect of this code" in done.stdout
    assert "1 decider checked: 2 problems that would break instances\n" in done.stdout
    document = json.loads(shop("check", "later", "--json").stdout)
    assert [set(document), set(document["runs"][0])] == promised()["check"]
    assert (document["ok"], document["breaks"]) == (False, 2)
