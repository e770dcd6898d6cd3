"""Durable functions that follow random scripts: actions, sleeps, events, branches, children, rollbacks, new lives."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast as hf
from holdfast.core.rows import CANCELLED, COMPLETED, FAILED
from tests.reliability.simulation.actions import Failing, act, act_elsewhere, refuse, registry
from tests.reliability.simulation.ledger import Execution, must
from tests.reliability.simulation.programs import Basis

word = hf.event("word", int, registry=registry)
shout = hf.event("shout", int, registry=registry)
Script = list[list[Any]]


@hf.workflow(registry=registry)
async def script(steps: list[list[Any]]) -> list[Any]:
    """What it returns says what it saw, step by step."""
    return await follow(steps)


async def follow(steps: Script) -> list[Any]:
    seen: list[Any] = []
    for place, (verb, *args) in enumerate(steps):
        match verb:
            case "act":
                seen.append(await act(args[0]))
            case "elsewhere":
                seen.append(await act_elsewhere(args[0]))
            case "sleep":
                await hf.sleep(args[0])
                seen.append(None)
            case "branches":
                seen.append(list(await asyncio.gather(*[follow(branch) for branch in args[0]])))
            case "child":
                seen.append(await script(args[0]))
            case "started":
                child = await hf.start_child(script, args[0])
                ended = await hf.wait_for(hf.ended(child.id))
                seen.append([ended.status])
            case "word" | "shout":
                event = word if verb == "word" else shout
                came = await hf.wait_for(event if args[0] is None else event | hf.after(args[0]))
                seen.append(came.value if isinstance(came, hf.Received) else "late")
            case "aside":
                seen.append(await hf.side_effect(lambda: 7, name="aside"))
            case "rollback":
                hf.on_rollback(act, args[0])
                seen.append(None)
            case "caught":
                try:
                    await refuse(args[0])
                except Failing as error:
                    seen.append(str(error))
            case "fail":
                await refuse(args[0])
            case "continue":
                hf.continue_as(script, steps[place + 1 :])
    return seen


class Functions(Basis):
    """One script, with everything that has to be sent to it."""

    def __init__(self, world: Any, number: int) -> None:
        super().__init__(world, number)
        self.words = self.shouts = 0
        self.steps = self._script(self.dice.randint(1, 5), depth=0)
        self.fails = self.dice.random() < 0.15
        if self.fails:
            self.steps.insert(0, ["rollback", self.job(fails=0)])
            self.steps.append(["fail", self.label()])
        elif self.dice.random() < 0.2:
            self.steps.insert(self.dice.randrange(len(self.steps) + 1), ["continue"])
        self.wish = "cancel" if self.dice.random() < (0.7 if world.late else 0.2) else ""
        if self.wish and self.dice.random() < 0.6:
            self.steps.insert(0, ["rollback", self.job(fails=0)])
        self.sent: dict[str, int] = {}

    def _script(self, length: int, depth: int) -> Script:
        return [self._step(depth) for _ in range(length)]

    def _step(self, depth: int) -> list[Any]:
        verbs = ["act", "act", "act", "elsewhere", "sleep", "aside", "caught"]
        if depth == 0:
            verbs += ["word", "word", "shout"]
        if depth < 2:
            verbs += ["branches", "child", "started"]
        verb = self.dice.choice(verbs)
        match verb:
            case "act" | "elsewhere":
                return [verb, self.job()]
            case "sleep":
                return [verb, self.dice.choice((0.1, 1.0, 4.0))]
            case "branches":
                return [
                    verb,
                    [self._script(self.dice.randint(1, 2), depth + 1) for _ in range(self.dice.randint(2, 3))],
                ]
            case "child" | "started":
                return [verb, self._script(self.dice.randint(1, 2), depth + 1)]
            case "caught":
                return [verb, self.label()]
            case "word":
                self.words += 1
                return [verb, self.dice.choice((None, 1.0))]
            case "shout":
                self.shouts += 1
                return [verb, None]
        return [verb]

    async def drive(self) -> None:
        run = await self.start(script, self.steps)
        for number in range(self.words):
            await self.pause_a_while(1.5)
            id = f"{self.name} word {number}"
            self.sent[id] = number
            answer = await self.world.ask(lambda engine, n=number, i=id: engine.send(word, n, to=run, id=i))  # type: ignore[misc]
            must(not isinstance(answer, hf.TargetNotFound), "G1", f"run {run} was acknowledged and is not found")
            self.world.ledger.note("words", (run, id, number, type(answer).__name__))
        for number in range(self.shouts):
            id = f"{self.name} shout {number}"
            value = len(self.world.ledger.notes.get("shouts", ()))
            self.world.ledger.note("shouts", value)
            await self.world.ask(lambda engine, n=value, i=id: engine.broadcast(shout, n, id=i))  # type: ignore[misc]
        if self.wish:
            await self.pause_a_while(3.0)
            await self.world.ask(lambda engine: engine.get(run).cancel())

    async def check(self, engine: hf.Engine) -> None:
        run = self.runs[self.name]
        row = (await engine.store.runs([run]))[0]
        if row.status == CANCELLED:
            must(self.wish, "G7", f"{self.name} {run} was cancelled by nobody")
            return
        expected = FAILED if self.fails else COMPLETED
        must(row.status == expected, "G9", f"{self.name} {run} is {row.status}, and should be {expected}: {row.reason}")
        if self.fails:
            self._check_rolled_back()
            return
        result = await engine.get(run).result()
        steps = self.steps
        if ["continue"] in steps:
            steps = steps[steps.index(["continue"]) + 1 :]
        self._check_seen(steps, result)
        self._check_words(result, run)

    def _check_rolled_back(self) -> None:
        label = self.steps[0][1]["label"]
        returned = [each for each in self.world.ledger.by_label.get(label, ()) if each.end == "returned"]
        must(returned, "G3", f"{self.name} failed and its rollback {label} never ran")

    def _check_seen(self, steps: Script, seen: list[Any], after: float = 0.0) -> float:
        """G2, G6, G8: what a function saw is what happened, in its order, and no sleep was short. When it was over."""
        must(len(seen) == len(steps), "G8", f"{self.name} saw {seen} of {steps}")
        for (verb, *args), value in zip(steps, seen, strict=True):
            if verb in ("act", "elsewhere"):
                execution = self.world.ledger.check_result(args[0]["label"], value["nonce"])
                self._check_not_before(after, execution)
                after = execution.ended or 0.0
            elif verb == "sleep":
                after += args[0] - 1e-5
            elif verb == "branches":
                ends = [self._check_seen(branch, part, after) for branch, part in zip(args[0], value, strict=True)]
                after = max(ends)
            elif verb == "child":
                after = self._check_seen(args[0], value, after)
            elif verb == "started":
                must(value == [COMPLETED], "G8", f"a child of {self.name} is {value}")
            elif verb == "word" and value == "late":
                after += args[0] - 1e-5
            elif verb == "caught":
                must(value == args[0], "G8", f"{self.name} caught {value!r}, not {args[0]!r}")
        return after

    def _check_not_before(self, after: float, execution: Execution) -> None:
        told = f"{execution.label} of {self.name} began at {execution.began:.3f}, before {after:.3f}"
        must(execution.began >= after - 1e-4, "G6", told)

    def _check_words(self, result: list[Any], run: str) -> None:
        """G5: each event that was sent arrived once, or is still there, or came when the run had ended."""
        came = [
            value for (verb, *_), value in zip(self.steps, result, strict=False) if verb == "word" and value != "late"
        ]
        if ["continue"] not in self.steps:
            must(len(came) == len(set(came)), "G5", f"{self.name} was given {came}: one of them twice")
            answers = {n: told for r, _, n, told in self.world.ledger.notes.get("words", ()) if r == run}
            must(set(came) <= set(answers), "G5", f"{self.name} was given {came}, and was sent {sorted(answers)}")
            if "late" not in result:
                must(len(came) == self.words, "G5", f"{self.name} waited for {self.words} words and got {came}")
