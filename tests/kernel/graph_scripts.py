"""Random scripts of what can happen to a few runs of a state graph; see scripts.py for how scripts are followed."""

from __future__ import annotations

import random
from typing import Any

import msgspec

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
    SkipNode,
    StartRun,
)
from holdfast.core.rows import COMPLETED, FAILED, LEASED, READY, RUNS, Work
from holdfast.core.state_operations import AnswerPerson, AskPerson, ForkGraph, RecordCall
from holdfast.store.contract import ClaimRequest
from tests.kernel.little_graph import EDGES, LITTLE
from tests.kernel.scripts import Script, Writer
from tests.support.stores import every_row

NAMES = tuple(f"{LITTLE}.{node}" for node in EDGES)


async def write_graph_script(seed: int, steps: int) -> Script:
    writer = GraphWriter(random.Random(seed))
    written = [await writer.step() for _ in range(steps)]
    return Script(seed, written, await every_row(writer.store))


class GraphWriter(Writer):
    def claim_request(self) -> ClaimRequest:
        worker = self.chance.choice(["w1", "w2"])
        return ClaimRequest(worker=worker, queue="default", limit=100, workflows=(LITTLE,), actions=NAMES)

    def operation(self) -> Operation:
        chance = self.chance
        kind = chance.choices(["start", "settle", "operator", "repeat"], [1, 24, 3, 1])[0]
        if kind == "repeat" and self.said:
            return chance.choice([*[one for one in self.said[-40:] if not _does_it_again(one)], self._start()])
        if kind == "settle" and (work := self._some_work()) is not None:
            return self._settle(work)
        if kind == "operator" and self.store.tables[RUNS]:
            return self._ask()
        return self._start()

    def _start(self) -> StartRun:
        self.started += 1
        return StartRun(
            run=f"run-{self.started:04d}",
            workflow=LITTLE,
            model="graph",
            input=b'{"n":0,"all":[]}',
            key=self.chance.choice([None, None, "k1", "k2"]),
            paused=self.chance.random() < 0.05,
            offer=self._offer(),
        )

    def _settle(self, work: Work) -> Operation:
        chance = self.chance
        token = max(0, work.token + chance.choices([0, -1, 1], [30, 1, 1])[0])
        at: dict[str, Any] = {"run": work.run, "node": work.node, "attempt": work.attempt, "token": token}
        kind = chance.choices(
            ["done", "fail", "release", "lapse", "kill", "bury", "record", "ask"], [80, 4, 1, 2, 1, 1, 4, 3]
        )[0]
        if kind == "fail":
            return FailWork(**at, error=b'{"type":"E"}', retryable=chance.random() < 0.7, attempts=3)
        if kind == "release":
            return ReleaseWork(**at)
        if kind == "lapse":
            return LapseWork(**at, lost_limit=3)
        if kind == "kill":
            return KillWork(**at, error=b'{"type":"Undecodable"}')
        if kind == "bury":
            return BuryUnknown(run=work.run, node=work.node, attempt=work.attempt, error=b'{"type":"MissingJob"}')
        recording: dict[str, Any] = {"recording": int(work.parents or work.attempt), "call": chance.choice([1, 2])}
        if kind == "record":
            return RecordCall(**at, **recording, name="search", request=b"{}", request_hash="q", response=b"1")
        if kind == "ask":
            return AskPerson(**at, **recording, request=b"{}", request_hash="q")
        return CompleteWork(**at, result=self._outcome(), offer=self._offer())

    def _outcome(self) -> bytes:
        chance = self.chance
        outcome: dict[str, Any] = {"delta": {}}
        if chance.random() < 0.08:
            outcome["delta"]["n"] = chance.choice([0, 1, 2, 3])
        if chance.random() < 0.7:
            outcome["delta"]["all"] = [chance.randint(0, 9)] * chance.choice([1, 1, 200])
        if chance.random() < 0.25:
            targets = chance.choices(["a", "b", "c"], k=chance.choice([1, 2, 5]))
            outcome["route"] = [[node, chance.choice([None, {"n": chance.randint(0, 9)}])] for node in targets]
        elif chance.random() < 0.05:
            outcome["stop"] = True
        return msgspec.json.encode(outcome)

    def _ask(self) -> Operation:
        chance = self.chance
        run = chance.choice(list(self.store.tables[RUNS].values()))
        nodes = [work.node for work in self._items() if work.run == run.id] or ["nowhere"]
        kind = chance.choices(["answer", "fork", "skip", "reattempt", "discard", "other"], [6, 2, 2, 2, 1, 8])[0]
        if kind == "answer":
            node = chance.choice([None, None, chance.choice(nodes)])
            return AnswerPerson(run=run.id, answer=b"1", answer_hash=f"h{len(self.said)}", node=node, by="ann")
        if kind == "fork":
            self.started += 1
            step = max(0, run.base - chance.choice([0, 0, 1]))
            return ForkGraph(run=f"run-{self.started:04d}", source=run.id, step=step, update=b'{"n":1}', by="ann")
        if kind == "skip":
            return SkipNode(run=run.id, node=chance.choice(nodes), by="ann")
        if kind == "reattempt":
            return ReattemptNode(run=run.id, node=chance.choice(nodes), by="ann")
        if kind == "discard":
            return DiscardDead(run=run.id, node=chance.choice(nodes), by="ann")
        return chance.choices([PauseRun, ResumeRun, RetryRun, CancelRun], [3, 6, 6, 1])[0](run=run.id, by="ann")


def _does_it_again(operation: Operation) -> bool:
    """What only the coordinator repeats, when an answer was lost, and an operator who asks twice."""
    return isinstance(operation, RecordCall | RetryRun | AnswerPerson | AskPerson)


def unsound(rows: dict[str, list[Any]]) -> list[str]:
    """What no sequence of operations may leave behind."""
    wrong = []
    for run in rows["runs"]:
        work = [item for item in rows["work"] if item.run == run.id]
        latest = {item.node: item for item in work}
        open_work = [item for item in work if item.status in ("blocked", READY, LEASED)]
        if run.status == "cancelled" and open_work:
            wrong.append(f"{run.id} is cancelled and has open work")
        if run.status == COMPLETED and open_work:
            wrong.append(f"{run.id} is completed and has open work")
        counted = {
            "active": sum(item.status in (READY, LEASED) for item in work),
            "gave_up": sum(item.status in ("dead", FAILED, "timed_out") for item in latest.values()),
        }
        for name, n in counted.items():
            if getattr(run, name) != n:
                wrong.append(f"{run.id} ({run.status}) says {getattr(run, name)} {name}, and there are {n}")
        steps = [row.step for row in rows["checkpoints"] if row.run == run.id]
        if len(steps) != len(set(steps)) or run.base not in steps:
            wrong.append(f"{run.id} is at step {run.base} and has the checkpoints {steps}")
        if run.status == "running" and not run.active:
            wrong.append(f"{run.id} is running, and nothing of it is")
        if run.status == "suspended" and not any(item.status == "blocked" for item in work):
            wrong.append(f"{run.id} is suspended, and asks nobody")
        done = sum(item.status in (COMPLETED, "skipped") for item in latest.values() if _step(item) == run.base + 1)
        if run.status not in (COMPLETED, "cancelled") and run.due - done < 0:
            wrong.append(f"{run.id} let {run.due} items in, of which {done} are done")
    return wrong


def _step(work: Work) -> int:
    return int(work.node.rpartition("@")[2].partition(".")[0])
