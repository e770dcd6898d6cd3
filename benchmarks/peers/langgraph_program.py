"""The same graphs as in benchmarks/graphs.py, for LangGraph. Run in its environment: it imports nothing of ours.

    python langgraph_program.py URL chain|wide|talk|setup sync|async sync|async SIZE

The first of the two is the durability, the second the interface. Prints {"values": {"ms": …}}: of a step, or of a run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import operator
import sqlite3
import statistics
import sys
import time
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

MESSAGES = [(2 * hashlib.sha256(str(number).encode()).hexdigest())[:100] for number in range(1000)]
WARM_UP, RUNS = 2, 5


class Count(TypedDict):
    n: int


class Log(TypedDict):
    log: Annotated[list[int], operator.add]


class Talk(TypedDict):
    n: int
    messages: Annotated[list[str], operator.add]


def node(body: Any, asynchronous: bool) -> Any:
    if not asynchronous:
        return body

    async def awaited(state: Any) -> Any:
        return body(state)

    return awaited


def chain(length: int, asynchronous: bool) -> tuple[Any, Any]:
    graph = StateGraph(Count)
    for number in range(length):
        graph.add_node(f"s{number}", node(lambda state: {"n": state["n"] + 1}, asynchronous))
        graph.add_edge(START if number == 0 else f"s{number - 1}", f"s{number}")
    graph.add_edge(f"s{length - 1}", END)
    return graph, {"n": 0}


def wide(width: int, asynchronous: bool) -> tuple[Any, Any]:
    graph = StateGraph(Log)
    graph.add_node("begin", node(lambda state: {}, asynchronous))
    graph.add_node("end", node(lambda state: {}, asynchronous))
    graph.add_edge(START, "begin")
    for number in range(width):
        graph.add_node(f"w{number}", node(lambda state, number=number: {"log": [number]}, asynchronous))
        graph.add_edge("begin", f"w{number}")
    graph.add_edge([f"w{number}" for number in range(width)], "end")
    graph.add_edge("end", END)
    return graph, {"log": []}


def talk(steps: int, asynchronous: bool) -> tuple[Any, Any]:
    graph = StateGraph(Talk)
    say = node(lambda state: {"n": state["n"] + 1, "messages": [f"message {state['n']}"]}, asynchronous)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda state: "say" if state["n"] < steps else END, ["say", END])
    return graph, {"n": 0, "messages": MESSAGES}


def settings(thread: int) -> Any:
    return {"configurable": {"thread_id": f"run-{thread}"}, "recursion_limit": 1_000_000}


def run_here(url: str, graph: Any, state: Any, durability: str, times: int) -> list[float]:
    with saver(url) as checkpointer:
        if graph is None:
            return [0.0]
        compiled = graph.compile(checkpointer=checkpointer)
        taken = []
        for number in range(times):
            started = time.perf_counter()
            compiled.invoke(state, settings(number), durability=durability)
            taken.append(time.perf_counter() - started)
        return taken


async def run_async(url: str, graph: Any, state: Any, durability: str, times: int) -> list[float]:
    async with async_saver(url) as checkpointer:
        await checkpointer.setup()
        compiled = graph.compile(checkpointer=checkpointer)
        taken = []
        for number in range(times):
            started = time.perf_counter()
            await compiled.ainvoke(state, settings(number), durability=durability)
            taken.append(time.perf_counter() - started)
        return taken


def saver(url: str) -> Any:
    from contextlib import contextmanager

    @contextmanager
    def opened() -> Any:
        if url.startswith("sqlite:///"):
            from langgraph.checkpoint.sqlite import SqliteSaver

            connection = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
            made = SqliteSaver(connection)
            made.setup()
            yield made
            connection.close()
        else:
            from langgraph.checkpoint.postgres import PostgresSaver

            with PostgresSaver.from_conn_string(url) as made:
                made.setup()
                yield made

    return opened()


def async_saver(url: str) -> Any:
    if url.startswith("sqlite:///"):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        return AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///"))
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    return AsyncPostgresSaver.from_conn_string(url)


def main() -> None:
    url, workload, durability, interface, size = sys.argv[1:]
    asynchronous = interface == "async"
    made = {"chain": chain, "wide": wide, "talk": talk}.get(workload)
    graph, state = (None, None) if made is None else made(int(size), asynchronous)
    times = WARM_UP + RUNS if workload in ("chain", "wide") else 1
    if asynchronous:
        taken = asyncio.run(run_async(url, graph, state, durability, times))
    else:
        taken = run_here(url, graph, state, durability, times)
    seconds = statistics.median(taken[WARM_UP:] or taken)
    print(json.dumps({"values": {"ms": seconds * 1000 / (int(size) if workload == "chain" else 1)}}))


if __name__ == "__main__":
    main()
