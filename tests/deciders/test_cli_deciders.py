"""Deciders on the command line: giving inputs, and looking at what came of them, with their code and without."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import program
from tests.cli.conftest import folder  # noqa: F401 - a fixture
from tests.cli.test_json_shapes import promised
from tests.deciders.shops import ORDERS, OrderShell, create, pay, ship


@pytest.fixture
def shop(folder: Path, sqlite_url: str) -> OrderShell:  # noqa: F811 - the fixture
    (folder / "orders.py").write_text(ORDERS, encoding="utf-8")
    sys.path.insert(0, str(folder))
    return OrderShell(folder, sqlite_url)


# -- giving inputs


def test_i33_an_input_is_executed_from_a_shell_and_the_events_that_follow_are_printed(shop: OrderShell) -> None:
    """The first one creates the instance; a decider is named by its module and class, or by its name with --app."""
    told = shop.ok("execute", "orders:Order", json.dumps(create("17")))
    assert "order/17 applied Create" in told
    assert 'Created  {"cents": 100}' in told
    document = shop.json("execute", "order", json.dumps(pay("17")), "--app", "orders")
    assert [set(document), set(document["events"][0])] == promised()["execute"]
    assert (document["outcome"], document["workflow_id"], document["sequence"]) == ("applied", "17", 3)
    assert [(event["type"], event["system"]) for event in document["events"]] == [
        ("Paid", False),
        ("TimerCancelled", True),
    ]


def test_an_input_is_read_from_stdin(shop: OrderShell) -> None:
    """Of a line without a worker the one thing that is missing is told."""
    words = ["execute", "orders:Order", "-"]
    done = CliRunner().invoke(program, words, input=json.dumps(create("17")), env={"HOLDFAST_URL": shop.url})
    assert done.exit_code == 0
    assert "order/17 applied Create" in done.stdout
    assert "no live worker runs order on queue 'default': holdfast worker orders" in done.stderr


def test_i12_a_command_id_applies_once_and_the_second_time_is_told(shop: OrderShell) -> None:
    """Whoever repeats a line whose answer was lost must see that nothing happened twice."""
    words = ("execute", "orders:Order", json.dumps(create("17")), "--command-id", "req-9")
    shop.ok(*words)
    assert shop.ok(*words) == "order/17 was given this Create before under command id req-9, so nothing happened\n"
    again = shop.json(*words)
    assert (again["outcome"], again["command_id"], again["differs"]) == ("duplicate", "req-9", False)
    assert shop.json("stream", "order", "17")["length"] == 1


def test_i12_another_input_under_a_used_command_id_is_told_apart_from_a_repetition(shop: OrderShell) -> None:
    shop.ok("execute", "orders:Order", json.dumps(create("17")), "--command-id", "req-9")
    words = ("execute", "orders:Order", json.dumps(pay("17")), "--command-id", "req-9")
    told = shop.ok(*words)
    assert "order/17 was given another input under command id req-9 before, so this Pay was not applied" in told
    assert shop.json(*words)["differs"] is True


def test_a_decider_without_the_id_of_an_instance_is_told_what_is_missing(shop: OrderShell) -> None:
    shop.ok("execute", "orders:Order", json.dumps(create("17")))
    done = shop("stream", "order")
    assert done.exit_code == 2
    assert "order is a decider, and it is not said which instance of it is meant" in done.stderr


def test_i34_an_instance_that_has_ended_ignores_an_input_and_that_is_no_error(shop: OrderShell) -> None:
    shop.prepare(create("17"), pay("17"))
    assert "order/17 applied Ship, and has ended" in shop.ok("execute", "orders:Order", json.dumps(ship("17")))
    told = shop.ok("execute", "orders:Order", json.dumps(pay("17")))
    assert told == "order/17 has ended (completed) and ignored Pay\n"


def test_i16_what_decide_raises_is_told_and_nothing_is_written(shop: OrderShell) -> None:
    shop.prepare()
    done = shop("execute", "orders:Order", json.dumps(create("17", 666)))
    assert done.exit_code == 1
    assert "order '17' could not decide on Create: ValueError: cents are evil" in done.stderr
    assert shop("show", "order/17").exit_code == 3


def test_an_input_can_be_left_in_the_inbox_and_is_counted_there(shop: OrderShell) -> None:
    """Depth and age are in `stats`, in the listing and with the instance."""
    told = shop.ok("execute", "orders:Order", json.dumps(create("17")), "--enqueue")
    assert told == "Create is in the inbox of order/17; a worker applies it\n"
    counted = shop.json("stats")["inbox"]
    assert counted["inputs"] == 1
    assert counted["oldest_seconds"] >= 0
    assert "1 input waits to be applied, the oldest for" in shop.ok("stats")
    (waiting,) = shop.json("show", "order/17")["instance"]["inputs"]
    assert (waiting["type"], waiting["data"]) == ("Create", {"order_id": "17", "cents": 100})
    assert set(waiting) == promised()["an input of an instance"][0]
    shop.prepare()
    assert shop.json("stats")["inbox"]["inputs"] == 0
    assert shop.json("state", "order", "17")["status"] == "created"


@pytest.mark.parametrize(
    ("target", "given", "code", "told"),
    [
        ("order", "{}", 2, "no decider 'order' is known here"),
        ("orders:Odrer", "{}", 3, "did you mean 'Order'?"),
        ("nowhere:Order", "{}", 3, "there is no module 'nowhere'"),
        ("orders:Order", '{"type": "Creat", "order_id": "1"}', 2, "did you mean 'Create'? known: 'Create', 'Pay'"),
        ("orders:Order", '{"order_id": "1"}', 2, 'add "type", one of Create, Pay, Ship, PaymentTimeout'),
        ("orders:Order", '{"type": "Create"}', 2, "missing required field `order_id`"),
        ("orders:Order", '{"type": "Create", "order_id": 1}', 2, "Expected `str`, got `int` - at `$.order_id`"),
        (
            "orders:Order",
            '{"type": "Create", "order_id": "1", "cent": 5}',
            2,
            "input Create of Order has no field 'cent'",
        ),
        ("orders:Order", '{"type": "Create", order_id: 1}', 2, 'line 1, column 20: {"type": "Create", >>>order_id'),
        ("orders:Order", '{"type": "Create", "cents": NaN}', 2, "NaN is Python's, not JSON's"),
        ("orders:Order", '["Create"]', 2, "the input is a list, and not an object"),
        ("orders:Order", '{"type": "Create", "order_id": ""}', 2, "workflow_id of order gave an empty text"),
    ],
)
def test_an_input_that_cannot_be_is_refused_before_a_database_is_made(
    shop: OrderShell, target: str, given: str, code: int, told: str
) -> None:
    """What is wrong, where, and what would be right: a typing error must not be applied as something else."""
    done = shop("execute", target, given)
    assert done.exit_code == code
    assert told in done.stderr
    assert not list(shop.folder.glob("*.db"))


def test_a_decider_is_not_started_nor_sent_events(shop: OrderShell) -> None:
    """The way in is named instead."""
    done = shop("start", "orders:Order")
    assert done.exit_code == 2
    assert "holdfast execute orders:Order '{\"type\": …}', with one of Create, Pay" in done.stderr
    shop.prepare(create("17"))
    assert "`holdfast execute order` gives it an input" in shop("send", "go", "--to", "order/17").stderr


# -- looking


def test_instances_are_listed_with_what_is_pending(shop: OrderShell) -> None:
    """Events, effects, timers, inbox and dead letters; where each stands, if its code is here."""
    shop.prepare(create("17"), create("18", 13), pay("18"), create("19", 14), pay("19"))
    shop.prepare(create("20", 666), enqueue=True)
    shop.prepare(pay("17"), work=False, enqueue=True)
    listed = {run["key"]: run for run in shop.json("runs", "--workflow", "order")["runs"]}
    assert set(listed["17"]["instance"]) == promised()["the instance of runs"][0]
    assert listed["17"]["instance"] == {"events": 1, "effects": 0, "timers": 1, "inbox": 1, "dead": 0}
    assert listed["18"]["instance"] == {"events": 3, "effects": 1, "timers": 0, "inbox": 0, "dead": 0}
    assert listed["19"]["instance"] == {"events": 3, "effects": 0, "timers": 0, "inbox": 0, "dead": 1}
    assert listed["20"]["instance"] == {"events": 0, "effects": 0, "timers": 0, "inbox": 0, "dead": 1}
    lines = shop.ok("runs", "--workflow", "order").splitlines()
    assert lines[0].split() == [
        "INSTANCE",
        "STATUS",
        "STATE",
        "EVENTS",
        "EFFECTS",
        "TIMERS",
        "INBOX",
        "DEAD",
        "STARTED",
    ]
    assert ["order/17", "running", "created", "1", "1", "1"] in [line.split()[:-1] for line in lines]
    shop.forget_code()
    assert "STATE" not in shop.ok("runs", "--workflow", "order").splitlines()[0]
    narrow = shop.terminal("runs", "--workflow", "order", "--app", "orders", columns=80)
    assert all(len(line) <= 80 for line in narrow.splitlines())
    assert "order/18" in narrow


def test_an_instance_is_shown_with_its_state_events_effects_timers_and_observed_inputs(shop: OrderShell) -> None:
    """All that an operator asks of one instance, on one page, and in one document with the promised names."""
    shop.prepare(create("17", 13), pay("17"), create("18"))
    document = shop.json("show", "order/17")
    instance = document["instance"]
    assert set(instance) == promised()["the instance of show"][0]
    assert (instance["state"]["status"], instance["state"]["fields"]) == ("paid", {"cents": 13})
    assert [event["type"] for event in instance["events"]] == ["Created", "Paid", "TimerCancelled"]
    (effect,) = instance["effects"]
    assert set(effect) == promised()["an effect of an instance"][0]
    assert (effect["id"], effect["type"], effect["state"], effect["attempt"]) == ("effect/2.0", "Charge", "ready", 2)
    assert effect["error"]["message"] == "the bank does not answer"
    (timer,) = shop.json("show", "order/18")["instance"]["timers"]
    assert set(timer) == promised()["a timer of an instance"][0]
    assert (timer["key"], timer["type"], timer["state"]) == ("payment", "PaymentTimeout", "ready")
    observed = instance["observations"]
    assert set(observed[0]) == promised()["an observation of an instance"][0]
    assert [(each["type"], each["before"], each["after"]) for each in observed] == [
        ("Create", "new", "created"),
        ("Pay", "created", "paid"),
    ]
    page = shop.ok("show", "order/17")
    assert "state     paid\n" in page
    assert "  cents   13\n" in page
    assert "ConnectionError: the bank does not answer" in page
    assert "created -> paid" in page
    assert "raise ConnectionError" in shop.ok("show", "order/17", "--traceback")
    assert "effect/1.0  SendEmail  completed" in shop.ok("show", "order/17", "--nodes")
    assert "timer/payment  PaymentTimeout  set" in shop.ok("show", "order/18")


def test_without_its_code_an_instance_is_shown_as_it_is_stored(shop: OrderShell) -> None:
    """Events, effects, timers and inputs are plain JSON; of the state, the last snapshot."""
    shop.prepare(create("17", 13), pay("17"), create("18"))
    shop.forget_code()
    page = shop("show", "order/17")
    assert "the code of order, which folds events into a state, is not imported: add --app MODULE" in page.stderr
    assert 'snapshot  {"status": "paid", "cents": 13} after event 3\n' in page.stdout
    assert 'Created         {"cents": 13}' in page.stdout
    assert shop.json("state", "order", "17")["source"] == "snapshot"
    done = shop("state", "order", "18")
    assert done.exit_code == 1
    assert "`holdfast stream order 18` shows its events as they are stored" in done.stderr


def test_code_that_cannot_fold_a_stream_does_not_hide_the_rest_of_an_instance(shop: OrderShell) -> None:
    """Whoever looks at a broken one needs it all the more."""
    shop.prepare(create("17"))
    shop.forget_code()
    broken = ORDERS.replace('return OrderState("created", cents)', 'raise KeyError("gone")')
    (shop.folder / "orders.py").write_text(broken, encoding="utf-8")
    page = shop("show", "order/17", "--app", "orders")
    assert page.exit_code == 0
    assert "KeyError: 'gone' (while folding event Created of order '17', sequence 1,)" in page.stderr
    assert 'Created  {"cents": 100}' in page.stdout


def test_i38_the_state_after_any_event_is_shown(shop: OrderShell) -> None:
    shop.prepare(create("17", 5), pay("17"), ship("17"))
    document = shop.json("state", "order", "17", "--at", "1")
    assert set(document) == promised()["state"][0]
    assert (document["status"], document["sequence"], document["length"]) == ("created", 1, 4)
    assert shop.json("state", "order/17", "--at", "0")["status"] == "new"
    assert shop.json("state", "order/17")["terminal"] is True
    assert "state     created\n" in shop.ok("state", "order", "17", "--at", "1")
    late = shop("state", "order", "17", "--at", "5")
    assert late.exit_code == 2
    assert "order/17 has no event 5: it has 4 so far" in late.stderr


def test_an_instance_that_does_not_exist_is_told_with_what_exists(shop: OrderShell) -> None:
    shop.prepare(create("17"))
    absent = shop("state", "order", "99")
    assert absent.exit_code == 3
    assert "order has no instance '99'" in absent.stderr
    shop.forget_code()
    other = shop("stream", "oder", "17")
    assert other.exit_code == 3
    assert "did you mean 'order'?" in other.stderr
    assert "is no instance of a decider" in shop("state", shop.start("shop:greet", "Ada")).stderr


def test_the_stream_is_listed_from_any_event_and_followed_to_the_end(shop: OrderShell) -> None:
    """Events as they are stored, and the engine's own records among them."""
    shop.prepare(create("17"), pay("17"), ship("17"))
    shop.forget_code()
    document = shop.json("stream", "order", "17", "--after", "1", "--limit", "2")
    assert set(document) == promised()["stream"][0]
    assert [event["sequence"] for event in document["events"]] == [2, 3]
    lines = shop.ok("stream", "order/17", "--follow", "--json").splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["Created", "Paid", "TimerCancelled", "Shipped"]
    assert shop.ok("stream", "order", "17", "--after", "4") == "order/17 has no events after 4\n"
    assert shop("stream", "order", "17", "--follow", "--limit", "1").exit_code == 2


def test_whoever_follows_a_stream_sees_what_happens_until_the_instance_ends(shop: OrderShell) -> None:
    shop.prepare(create("17"))
    with shop.process("stream", "order", "17", "--follow") as follower:
        assert follower.stdout is not None
        assert 'Created  {"cents": 100}' in follower.stdout.readline()
        shop.prepare(pay("17"), ship("17"))
        rest, _ = follower.communicate(timeout=30)
    assert [line.split()[3] for line in rest.splitlines()] == ["Paid", "TimerCancelled", "Shipped"]
    assert follower.returncode == 0


# -- state machines


def test_the_declared_machine_is_drawn_without_a_database(shop: OrderShell) -> None:
    """As a table, for Mermaid, for Graphviz, and as JSON with the promised names."""
    assert "created  Pay             paid     Charge, SendEmail" in shop.ok("graph", "orders:Order")
    assert "--> s1 : Create / SendEmail" in shop.ok("graph", "order", "--app", "orders", "--format", "mermaid")
    assert '"paid" -> "shipped" [label="Ship"];' in shop.ok("graph", "orders:Order", "--format", "dot")
    document = shop.json("graph", "orders:Order")
    assert [set(document), set(document["transitions"][0])] == promised()["graph of a decider"]
    assert not list(shop.folder.glob("*.db"))
    done = shop("graph", "orders:Order", "--format", "svg")
    assert done.exit_code == 2
    assert "a state machine is not drawn as svg" in done.stderr
    assert "--format dot is for deciders" in shop("graph", "shop:Order", "--format", "dot").stderr


def test_observed_transitions_are_drawn_with_counts_and_without_code(shop: OrderShell) -> None:
    shop.prepare(create("17"), pay("17"), create("18"))
    ways = {
        (way["from"], way["input"], way["to"]): way["count"]
        for way in shop.json("graph", "order", "--observed", "--app", "orders")["transitions"]
    }
    assert ways == {("new", "Create", "created"): 2, ("created", "Pay", "paid"): 1}
    assert shop.json("graph", "order", "--observed")["initial"] == "new"
    assert "> paid" in shop.ok("graph", "order/17")
    assert "Create / SendEmail" in shop.ok("show", "order/17", "--mermaid")  # what is declared
    shop.forget_code()
    assert "created  Pay     paid     1" in shop.ok("graph", "order")
    assert "Pay (1)" in shop.ok("show", "order/17", "--mermaid")
    assert shop.json("graph", "order/18")["workflow"] == "order"


def test_a_decider_that_declares_no_machine_says_so_and_shows_what_was_observed(
    folder: Path,  # noqa: F811 - the fixture
    sqlite_url: str,
) -> None:
    (folder / "orders.py").write_text(ORDERS.replace("def definition(", "def machine("), encoding="utf-8")
    sys.path.insert(0, str(folder))
    shop = OrderShell(folder, sqlite_url)
    shop.ok("execute", "orders:Order", json.dumps(create("17")))
    done = shop("graph", "order", "--app", "orders")
    assert done.exit_code == 1
    assert "order has no definition(), and no inputs of order were observed" in done.stderr
    assert "write definition() to declare them, or observe them" in done.stderr
    shop.prepare(create("18"))
    for words in (("graph", "orders:Order"), ("graph", "order/18", "--app", "orders")):
        drawn = shop(*words)
        assert "order has no definition(), which declares its states and transitions" in drawn.stderr
        assert "as it was observed" in drawn.stdout


def test_instances_are_called_by_their_names_among_other_runs(shop: OrderShell) -> None:
    """Their ids are made of these, and no one knows them; commands take the name."""
    shop.prepare(create("17"))
    header, line = shop.ok("runs").splitlines()
    assert header.split() == ["RUN", "MODEL", "STATUS", "STARTED", "TOOK"]
    assert line.startswith("order/17  decider  running")


def test_a_machine_that_nothing_is_known_of_says_how_to_observe_one(shop: OrderShell) -> None:
    shop.ok("execute", "orders:Order", json.dumps(create("17")))
    shop.forget_code()
    done = shop("graph", "order")
    assert done.exit_code == 1
    assert 'Engine(observe_inputs="type"), or HOLDFAST_OBSERVE_INPUTS=type' in done.stderr


# -- operating


def test_i9_dead_effects_timers_and_inputs_are_listed_replayed_and_discarded(shop: OrderShell) -> None:
    """One list for all of them, and the instance goes on without what is discarded."""
    shop.prepare(create("17", 14), pay("17"), create("18", 15))
    shop.prepare(create("19", 666), enqueue=True)
    letters = {letter["kind"]: letter for letter in shop.json("dead", "list")["dead"]}
    assert {kind: (each["type"], each["key"]) for kind, each in letters.items()} == {
        "effect": ("Charge", "17"),
        "timer": ("PaymentTimeout", "18"),
        "input": ("Create", "19"),
    }
    assert re.search(r"(?m)^order/17 +effect/2.0 +effect Charge +1 ", shop.ok("dead", "list"))
    whole = shop.terminal("dead", "list", columns=80)
    assert f"    holdfast dead replay {letters['input']['id']}\n" in whole  # on one line, to be copied
    which = shop("dead", "replay", "order/17")
    assert (which.exit_code, "holdfast dead replay order/17 effect/2.0" in which.stderr) == (2, True)
    replayed = shop.ok("dead", "replay", "order/17", "effect/2.0")
    assert re.search(r"effect/2.0 of order/17 is tried again \((once|up to \d+ times)\)", replayed)
    assert "is in the inbox again" in shop.ok("dead", "replay", letters["input"]["id"])
    shop.prepare()
    letters = {letter["kind"]: letter for letter in shop.json("dead", "list")["dead"]}
    assert set(letters) == {"effect", "timer", "input"}  # nothing was repaired
    assert "timer/payment of order/18 is discarded" in shop.ok("dead", "discard", "order/18", "timer/payment")
    shop.ok("dead", "discard", "order/17", "effect/2.0")
    assert "is discarded" in shop.ok("dead", "discard", letters["input"]["id"])
    assert shop.ok("dead", "list") == "there are no dead letters\n"
    assert shop.json("show", "order/17")["status"] == "running"
    assert shop("dead", "discard", "order/17", "effect/2.0").exit_code == 1


def test_i11_a_decider_that_is_drained_takes_no_new_instances_and_inputs_of_others(shop: OrderShell) -> None:
    shop.prepare(create("17"))
    assert shop.ok("drain", "order") == "order takes no new instances; 1 still open\n"
    done = shop("execute", "orders:Order", json.dumps(create("18")))
    assert done.exit_code == 1
    assert "decider order is being drained and takes no new instances" in done.stderr
    shop.ok("execute", "orders:Order", json.dumps(pay("17")))
    assert shop.ok("drain", "order", "--off") == "order takes new instances again\n"
    shop.ok("execute", "orders:Order", json.dumps(create("18")))
