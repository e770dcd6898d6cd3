"""Requests: what their names and digests say, and that every process says the same."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.authoring.conditions import NamedEvent, make_wait
from holdfast.authoring.events import as_event
from holdfast.authoring.function_calls import (
    ActionCall,
    BroadcastCall,
    ChildCall,
    ChildResult,
    ExecuteCall,
    Request,
    SendCall,
    SideEffect,
)
from holdfast.core.codec import MSGPACK, Codecs

registry = hf.Registry()


@dataclass
class Basket:
    tags: set[str]


@dataclass
class Create:
    tags: set[str]


@dataclass
class Cancel:
    tags: set[str]


changed = hf.event("changed", Basket, registry=registry)


@hf.action(registry=registry, aliases=("price_it",))
async def price(basket: Basket, factor: float = 1.0) -> float:
    return factor


@hf.workflow(registry=registry)
async def checkout(basket: Basket) -> None: ...


TAGS = ("a", "b", "c", "d", "e", "f")


def every_request() -> list[Request]:
    """One request of each kind, with arguments whose order depends on the process."""
    basket = Basket(set(TAGS))
    return [
        ActionCall(price, (basket,), {"factor": 2.0}),
        checkout.child_call((basket,), {}),
        ChildResult(workflow="checkout", run_id="run-2", result_codec=None),
        make_wait([NamedEvent(tag) for tag in set(TAGS)], 0, registry.events),
        SendCall(event=changed, payload=basket, to="run-2", id=None),
        BroadcastCall(event=changed, payload=basket, to_all=False, id="m1"),
        ExecuteCall(decider="orders", input=Create(set(TAGS)), command_id=None),
        SideEffect(fn=lambda: 1, name="dice"),
    ]


def test_i48_digests_are_the_same_in_every_process_and_under_every_hash_seed() -> None:
    """Otherwise a set among the arguments would make every restart a changed program."""
    program = (
        "from tests.authoring.test_function_calls import every_request\n"
        "print([(r.kind, r.name, r.digest()) for r in every_request()])"
    )
    root = Path(__file__).resolve().parents[2]
    seen = {str([(request.kind, request.name, request.digest()) for request in every_request()])}
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        seen.add(done.stdout.strip())
    assert len(seen) == 1


def test_i48_other_arguments_are_another_digest() -> None:
    one, two = Basket({"a"}), Basket({"b"})
    pairs: list[tuple[Any, Any]] = [
        (ActionCall(price, (one,), {}), ActionCall(price, (two,), {})),
        (checkout.child_call((one,), {}), checkout.child_call((two,), {})),
        (
            ChildResult(workflow="w", run_id="r1", result_codec=None),
            ChildResult(workflow="w", run_id="r2", result_codec=None),
        ),
        (SendCall(event=changed, payload=one, to="r", id=None), SendCall(event=changed, payload=two, to="r", id=None)),
        (SendCall(event=changed, payload=one, to="r", id=None), SendCall(event=changed, payload=one, to="q", id=None)),
        (SendCall(event=changed, payload=one, to="r", id=None), SendCall(event=changed, payload=one, to="r", id="-")),
        (
            BroadcastCall(event=changed, payload=one, to_all=True, id=None),
            BroadcastCall(event=changed, payload=one, to_all=False, id=None),
        ),
        (
            ExecuteCall(decider="orders", input=Create({"a"}), command_id=None),
            ExecuteCall(decider="orders", input=Cancel({"a"}), command_id=None),
        ),
    ]
    for before, after in pairs:
        assert before.digest() != after.digest(), before
        assert len(before.digest()) == 64


def test_i48_a_call_written_in_another_way_is_the_same_call() -> None:
    basket = Basket({"a"})
    assert ActionCall(price, (basket,), {}).digest() == ActionCall(price, (), {"basket": basket}).digest()
    in_msgpack = Codecs(MSGPACK)
    call = ActionCall(price, (basket,), {})
    assert call.digest_of(call.encoded(codecs=in_msgpack), codecs=in_msgpack) == call.digest()
    assert ActionCall(price.options(timeout=5), (basket,), {}).digest() == call.digest()


def test_i15_the_name_is_not_part_of_the_digest_so_that_an_alias_can_go_on() -> None:
    @hf.action(registry=hf.Registry())
    async def price_it(basket: Basket, factor: float = 1.0) -> float:
        return factor

    basket = Basket({"a"})
    assert ActionCall(price_it, (basket,), {}).digest() == ActionCall(price, (basket,), {}).digest()


def test_i48_a_child_that_is_started_differently_is_another_call() -> None:
    base: dict[str, Any] = {"name": "checkout", "startable": checkout, "args": (), "input_digest": "d"}
    base |= {"result_codec": None, "awaits": False}
    variants: list[dict[str, Any]] = [
        {},
        {"key": "k"},
        {"key": ""},
        {"detached": True},
        {"awaits": True},
        {"input_digest": "e"},
    ]
    assert len({ChildCall(**{**base, **change}).digest() for change in variants}) == len(variants)
    assert ChildCall(**base).digest() == ChildCall(**base, queue="slow").digest()


def test_an_event_by_name_has_the_type_that_is_registered() -> None:
    assert as_event("a test", "changed", registry) is changed
    unknown = as_event("a test", "unheard-of", registry)
    assert unknown.decode(unknown.encode([1]).data) == [1]
