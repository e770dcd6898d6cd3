"""Random scripts of what can happen to a few instances of a decider; see scripts.py for how scripts are followed."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from holdfast.core.decider_operations import (
    DrainInbox,
    EnqueueInput,
    ExecuteInput,
    ForgetSnapshot,
    RefuseInput,
)
from holdfast.core.function_operations import RedeliverEvent
from holdfast.core.ids import instance_id
from holdfast.core.operations import (
    BuryUnknown,
    CancelRun,
    CompleteWork,
    DiscardDead,
    FailWork,
    KillWork,
    LapseWork,
    Operation,
    PauseRun,
    ReattemptNode,
    ReleaseWork,
    ResumeRun,
    RetryRun,
    SetHold,
)
from holdfast.core.rows import EFFECT, EVENTS, INBOX, LEASED, READY, RUNS, TIMER, Work
from holdfast.store.contract import ClaimRequest
from tests.kernel.scripts import Script, Writer
from tests.kernel.tally import TALLY
from tests.support.stores import SECOND, every_row

KEYS = ("17", "18", "19")
NAMES = (TALLY, f"{TALLY}.Ring", f"{TALLY}:Later")


async def write_decider_script(seed: int, steps: int) -> Script:
    writer = DeciderWriter(random.Random(seed))
    written = [await writer.step() for _ in range(steps)]
    return Script(seed, written, await every_row(writer.store))


class DeciderWriter(Writer):
    def claim_request(self) -> ClaimRequest:
        worker = self.chance.choice(["w1", "w2"])
        return ClaimRequest(worker=worker, queue="default", limit=100, workflows=(TALLY,), actions=NAMES)

    def operation(self) -> Operation:
        chance = self.chance
        kind = chance.choices(["give", "settle", "operator", "repeat", "hold"], [10, 10, 3, 1, 1])[0]
        if kind == "repeat" and self.said:
            return chance.choice([*[one for one in self.said[-40:] if not _is_another_input(one)], self._give()])
        if kind == "hold":
            scope, name = chance.choice([("all", ""), ("workflow", TALLY), ("drain", TALLY)])
            return SetHold(scope=scope, name=name, on=chance.random() < 0.4, by="ann")
        if kind == "settle" and (work := self._some_work()) is not None:
            return self._settle(work)
        if kind == "operator" and self.store.tables[RUNS]:
            return self._ask()
        return self._give()

    def _give(self) -> Operation:
        chance = self.chance
        self.started += 1
        key = chance.choice(KEYS)
        given: dict[str, Any] = {
            "run": instance_id(TALLY, key),
            "workflow": TALLY,
            "key": key,
            "id": f"s{self.started}",
            "data": self._wish(),
            "command": chance.choice([None, None, "c1", "c2"]),
        }
        if chance.random() < 0.3:
            return EnqueueInput(**given)
        return ExecuteInput(**given, observe=chance.choice(["off", "type", "payload"]), offer=self._offer())

    def _wish(self) -> bytes:
        chance = self.chance
        wish: dict[str, Any] = {
            "events": chance.choice([1, 1, 2, 4]),
            "effects": chance.choice([0, 0, 1, 3]),
            "cancels": chance.choice([[], [], ["a"], ["b", "a"]]),
            "timers": {key: chance.choice([0, SECOND, 5 * SECOND]) for key in ("a", "b") if chance.random() < 0.3},
        }
        if chance.random() < 0.07:
            wish["raises"] = True
        if chance.random() < 0.02:
            wish["events"] = 120
        return msgspec.json.encode(wish)

    def _settle(self, work: Work) -> Operation:
        chance = self.chance
        token = max(0, work.token + chance.choices([0, -1, 1], [20, 1, 1])[0])
        at: dict[str, Any] = {"run": work.run, "node": work.node, "attempt": work.attempt, "token": token}
        kind = chance.choices(["done", "fail", "release", "lapse", "kill", "bury"], [10, 3, 1, 2, 1, 1])[0]
        if kind == "fail" and work.kind != INBOX:
            return FailWork(**at, error=b'{"type":"E"}', retryable=chance.random() < 0.7, attempts=3)
        if kind == "release":
            return ReleaseWork(**at)
        if kind == "lapse":
            return LapseWork(**at, lost_limit=3)
        if kind == "kill" and work.kind != INBOX:
            return KillWork(**at, error=b'{"type":"Undecodable"}')
        if kind == "bury":
            return BuryUnknown(run=work.run, node=work.node, attempt=work.attempt, error=b'{"type":"MissingJob"}')
        if work.kind == INBOX:
            waiting = sorted(event.id for event in self.store.tables[EVENTS].values() if event.target == work.run)
            if waiting and chance.random() < 0.2:
                return RefuseInput(**at, event=chance.choice(waiting), reason="so")
            return DrainInbox(**at, limit=chance.choice([1, 2, 100]), observe=chance.choice(["off", "payload"]))
        result = work.payload if work.kind == TIMER else chance.choice([None, self._wish()])
        return CompleteWork(**at, result=result, outcome=chance.choice([None, b"{}"]), offer=self._offer())

    def _ask(self) -> Operation:
        chance = self.chance
        run = chance.choice(list(self.store.tables[RUNS].values())).id
        dead = [event for event in self.store.tables[EVENTS].values() if event.status == "dead"]
        if dead and chance.random() < 0.3:
            event = chance.choice(dead)
            return RedeliverEvent(event=event.id, name=event.name, run=event.target)
        kinds: list[type[Any]] = [PauseRun, ResumeRun, RetryRun, ReattemptNode, DiscardDead, ForgetSnapshot, CancelRun]
        kind = chance.choices(kinds, [3, 6, 4, 3, 2, 3, 1])[0]
        asked: Operation
        if kind in (ReattemptNode, DiscardDead):
            nodes = [work.node for work in self._items() if work.run == run] or ["nowhere"]
            asked = kind(run=run, node=chance.choice(nodes), by="ann")
        elif kind is ForgetSnapshot:
            asked = ForgetSnapshot(run=run)
        else:
            asked = kind(run=run, by="ann")
        return asked


def _is_another_input(operation: Operation) -> bool:
    """Without a command id, the same input again is another one."""
    return isinstance(operation, ExecuteInput) or (isinstance(operation, EnqueueInput) and operation.command is None)


def unsound(rows: dict[str, list[Any]]) -> list[str]:
    """What no sequence of operations may leave behind."""
    wrong = []
    for run in rows["runs"]:
        work = [item for item in rows["work"] if item.run == run.id]
        if run.status == "cancelled" and any(item.status in ("blocked", "ready", "leased") for item in work):
            wrong.append(f"{run.key} is cancelled and has open work")
        latest = {item.node: item for item in work}
        counted = {
            "active": sum(item.status in (READY, LEASED) for item in work),
            "remaining": sum(item.kind == EFFECT and item.status in ("blocked", READY, LEASED) for item in work),
            "gave_up": sum(item.status in ("dead", "failed", "timed_out") for item in latest.values()),
            "mailbox": sum(event.target == run.id and event.status == "queued" for event in rows["events"]),
            "base": sum(fact.run == run.id for fact in rows["stream"]),
        }
        for name, n in counted.items():
            if getattr(run, name) != n:
                wrong.append(f"{run.key} ({run.status}) says {getattr(run, name)} {name}, and there are {n}")
        if sum(item.kind == EFFECT and item.status in (READY, LEASED) for item in work) > 1:
            wrong.append(f"{run.key} has several effects under way")
        if counted["remaining"] and not any(item.kind == EFFECT and item.status in (READY, LEASED) for item in work):
            wrong.append(f"{run.key} ({run.status}) has effects, and none is next")
        looks = any(item.kind == INBOX and item.status in (READY, LEASED, "dead") for item in work)
        if run.mailbox and not looks:
            wrong.append(f"{run.key} ({run.status}) has inputs in its inbox, and nobody looks")
        sequences = sorted(fact.sequence for fact in rows["stream"] if fact.run == run.id)
        if sequences != list(range(1, len(sequences) + 1)):
            wrong.append(f"the stream of {run.key} has gaps")
    return wrong
