"""An agent: a model that asks for tools until it has an answer, and a tool that asks a person first.

    python examples/graphs/agent.py

It works until it wants to send a mail, asks whether it may, and the program ends: the question is a row in the
database, no process waits for it. Somebody answers, now or next week:

    python examples/graphs/agent.py --answer yes
    python examples/graphs/agent.py --answer no

The model is a fake one without a network, so that this runs anywhere; `ctx.record` is where a real one would be called.
What it answered is recorded: a worker that is killed asks it nothing twice, and the run can be replayed without it.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Annotated, Any, TypedDict

import holdfast as hf

Message = dict[str, Any]

PRICES = {"lamp": 49, "chair": 120}


class State(TypedDict):
    question: str
    messages: Annotated[list[Message], hf.reducers.append]
    call: Message  # which tool a `tool` item is to run: each item is sent its own


agent = hf.StateGraph(State, name="agent", max_steps=50)


@agent.node(recordable=True, goes_to=["tool"])
async def think(state: State, ctx: hf.NodeContext) -> Any:
    """Ask the model. It either has an answer, or asks for tools, which then run side by side."""
    asked = {"question": state["question"], "messages": state["messages"]}
    reply = await ctx.record("model", asked, lambda: fake_model(**asked))
    delta = {"messages": [reply]}
    if not reply["calls"]:
        return delta
    return hf.Many([hf.Send("tool", {"call": call}) for call in reply["calls"]], delta)


@agent.node(recordable=True, requires_idempotency=True, idempotency_key=lambda state: state["call"]["id"])
async def tool(state: State, ctx: hf.NodeContext) -> dict[str, Any]:
    """Run one tool. A mail cannot be taken back, so a person is asked; the item holds nothing while it waits."""
    call = state["call"]
    if call["tool"] == "mail" and await ctx.interrupt({"may I send this": call["text"]}) != "yes":
        return {"messages": [{"role": "tool", "id": call["id"], "text": "refused by a person"}]}
    found = await ctx.record(call["tool"], call, lambda: TOOLS[call["tool"]](call, ctx.idempotency_key))
    return {"messages": [{"role": "tool", "id": call["id"], "text": found}]}


agent.start_at("think")
agent.finish("think")  # where no tool is asked for
agent.edge("tool", "think")  # the tools of one step meet here: the model is asked once, with all they found


# What would be the world outside.


async def fake_model(question: str, messages: list[Message]) -> Message:
    """Look both prices up, then mail the sum, then say so."""
    print(f"  the model is asked, with {len(messages)} messages", flush=True)
    found = [message["text"] for message in messages if message["role"] == "tool"]
    if not found:
        calls = [{"id": f"{question}/{name}", "tool": "price", "article": name} for name in PRICES if name in question]
        return {"role": "model", "text": "I look them up.", "calls": calls}
    if len(found) == len(PRICES):
        total = sum(map(int, found))
        text = f"{question}: {total}"
        return {
            "role": "model",
            "text": "I mail it.",
            "calls": [{"id": f"{question}/mail", "tool": "mail", "text": text}],
        }
    return {"role": "model", "text": f"Done: the mail was {found[-1]}.", "calls": []}


def price(call: Message, key: str) -> str:
    print(f"  the price of a {call['article']} is looked up", flush=True)
    return str(PRICES[call["article"]])


def mail(call: Message, key: str) -> str:
    """A mail server that knows the key would recognise a mail that it has sent already."""
    print(f"  mail: {call['text']}", flush=True)
    return "sent"


TOOLS = {"price": price, "mail": mail}


async def main(question: str, answer: str | None) -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        handle = await engine.start(agent, {"question": question, "messages": []}, key=question)
        if answer is not None and await handle.interrupts():
            await handle.resume_with(answer, by="you")
        await engine.settle()
        for asked in await handle.interrupts():
            print(f"{asked.node} asks: {asked.payload}")
        if await handle.status() != "completed":
            return
        print((await handle.result())["messages"][-1]["text"])
        report = await engine.replay(handle.id)
        print(f"replayed {report.steps} steps with {report.calls} recorded calls: the same state")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="?", default="a lamp and a chair")
    parser.add_argument("--answer", choices=["yes", "no"])
    given = parser.parse_args()
    asyncio.run(main(given.question, given.answer))
