"""Durable functions over everything that asyncio offers and the run's loop supports.

Each takes `notes`, a list into which it writes what it sees in the order it sees it: two runs whose notes are equal
took the same turns. Calls of actions are answered by the simulated world in schedules.py; those whose name begins with
"fail" are answered with an exception.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from holdfast.runtime.run_loop import DurableCall, RunLoop

Notes = list[Any]
Program = Callable[[Notes], Coroutine[Any, Any, Any]]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def run_loop() -> RunLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, RunLoop)
    return loop


def act(name: str, *args: Any) -> DurableCall[Any]:
    return DurableCall(run_loop(), "call", name, repr(args), args)


async def chain(notes: Notes, name: str, length: int) -> str:
    for step in range(length):
        notes.append(await act(name, step))
    return name


@program
async def sequence(notes: Notes) -> Any:
    return [await act("a", number) for number in range(6)]


@program
async def gather_of_calls_and_coroutines(notes: Notes) -> Any:
    first = await asyncio.gather(*[act("a", number) for number in range(4)], chain(notes, "b", 3))
    mixed = await asyncio.gather(act("fail"), chain(notes, "c", 2), act("d"), return_exceptions=True)
    return first, [str(each) for each in mixed]


@program
async def gather_that_fails(notes: Notes) -> Any:
    try:
        await asyncio.gather(chain(notes, "a", 3), act("fail", 1), act("fail", 2), chain(notes, "b", 2))
    except ValueError as error:
        notes.append(str(error))
    return await act("after")


@program
async def task_group(notes: Notes) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(chain(notes, f"t{number}", 1 + number % 3)) for number in range(4)]
        calls = [group.create_task(act("u", number)) for number in range(3)]
    return [task.result() for task in [*tasks, *calls]]


@program
async def task_group_with_a_failing_child(notes: Notes) -> Any:
    async def child(number: int) -> None:
        try:
            await chain(notes, f"t{number}", 2)
            if number in (2, 4):
                await act("fail", number)
        finally:
            notes.append(("undo", number, await act("undo", number)))

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(child(number))
    except* ValueError as errors:
        notes.append([str(error) for error in errors.exceptions])
    return await act("after")


@program
async def background_task_and_cancel(notes: Notes) -> Any:
    async def ticks() -> None:
        while True:
            await asyncio.sleep(0.7)
            notes.append(await act("tick"))

    ticking = asyncio.create_task(ticks())
    await chain(notes, "work", 5)
    ticking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticking
    return await act("end")


@program
async def as_completed_of_calls(notes: Notes) -> Any:
    for each in asyncio.as_completed([act("a", number) for number in range(6)]):
        value = await each
        notes.append((value, await act("next", value)))
    return len(notes)


@program
async def as_completed_of_tasks_with_a_timeout(notes: Notes) -> Any:
    tasks = [asyncio.create_task(chain(notes, f"t{number}", number)) for number in range(1, 6)]
    try:
        for each in asyncio.as_completed(tasks, timeout=4):
            notes.append(("done", await each))
    except TimeoutError:
        notes.append("late")
    for task in tasks:
        task.cancel()
    return await act("end")


@program
async def wait_for_the_first_and_cancel_the_losers(notes: Notes) -> Any:
    racers = [asyncio.create_task(chain(notes, f"r{number}", 2)) for number in range(5)]
    for _ in range(3):
        done, pending = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
        notes.append([task.result() for task in done])
        notes.append([task.get_name() for task in pending])
        for task in list(pending)[:2]:
            task.cancel()
            notes.append(("cancel", task.get_name()))
        racers = [task for task in pending if not task.cancelling()] or [asyncio.create_task(chain(notes, "more", 1))]
    for task in racers:
        task.cancel()
    return await act("end")


@program
async def wait_for_the_first_exception(notes: Notes) -> Any:
    tasks = {asyncio.create_task(act("fail" if number == 3 else "a", number)) for number in range(6)}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    notes.append([(task.get_name(), str(task.exception())) for task in done])
    for task in pending:
        notes.append(await task)
    return await act("end")


@program
async def wait_for_all_with_a_timeout(notes: Notes) -> Any:
    tasks = [asyncio.create_task(chain(notes, f"t{number}", 2)) for number in range(5)]
    done, pending = await asyncio.wait(tasks, timeout=2.5)
    for task in done:
        notes.append(("done", await act("settle", task.result())))
    for task in pending:
        task.cancel()
    ends = await asyncio.gather(*pending, return_exceptions=True)
    return len(done), [type(end).__name__ for end in ends]


@program
async def timeout_around_calls(notes: Notes) -> Any:
    for attempt in range(3):
        try:
            async with asyncio.timeout(1.5) as limit:
                await chain(notes, f"try{attempt}", 2)
                if attempt == 1:
                    limit.reschedule(run_loop().time() + 3)
                await act("last", attempt)
        except TimeoutError:
            notes.append(("late", attempt))
    return await act("end")


@program
async def nested_timeouts(notes: Notes) -> Any:
    try:
        async with asyncio.timeout(4):
            for number in range(4):
                try:
                    async with asyncio.timeout_at(run_loop().time() + 1):
                        notes.append(await act("a", number))
                except TimeoutError:
                    notes.append(("inner", number, await act("inner", number)))
    except TimeoutError:
        notes.append(("outer", await act("outer")))
    return len(notes)


@program
async def wait_for(notes: Notes) -> Any:
    for number in range(4):
        try:
            notes.append(await asyncio.wait_for(act("a", number), timeout=1))
        except TimeoutError:
            notes.append(("late", number))
        try:
            notes.append(await asyncio.wait_for(chain(notes, "c", 2), timeout=2))
        except TimeoutError:
            notes.append(("late chain", await act("undo", number)))
    return len(notes)


@program
async def shield(notes: Notes) -> Any:
    kept = asyncio.ensure_future(chain(notes, "kept", 4))
    try:
        await asyncio.wait_for(asyncio.shield(kept), timeout=1)
    except TimeoutError:
        notes.append("went on")
    other = await act("other")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await asyncio.shield(act("precious"))
    return other, await kept


@program
async def sleeps(notes: Notes) -> Any:
    async def sleeper(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0.3 * number)
            notes.append((number, await act("woke", number)))

    await asyncio.gather(*[sleeper(number) for number in range(4)], asyncio.sleep(0), asyncio.sleep(2))
    return run_loop().time()


@program
async def queue_and_a_pool(notes: Notes) -> Any:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=3)

    async def worker(name: str) -> None:
        while True:
            item = await queue.get()
            notes.append((name, item, await act("item", item)))
            queue.task_done()

    workers = [asyncio.create_task(worker(f"w{number}")) for number in range(3)]
    for item in range(9):
        await queue.put(item)
    await queue.join()
    for each in workers:
        each.cancel()
    return await act("end")


@program
async def priority_queue(notes: Notes) -> Any:
    queue: asyncio.PriorityQueue[tuple[int, str]] = asyncio.PriorityQueue()

    async def produce(number: int) -> None:
        await queue.put((number % 2, await act("make", number)))

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(produce(number))
        for _ in range(6):
            notes.append(await queue.get())
            notes.append(await act("use"))
    return len(notes)


@program
async def lock(notes: Notes) -> Any:
    guard = asyncio.Lock()

    async def branch(number: int) -> None:
        await act("before", number)
        async with guard:
            notes.append(("in", number))
            notes.append(("out", number, await act("inside", number)))

    await asyncio.gather(*[branch(number) for number in range(5)])
    return notes[-1]


@program
async def semaphore(notes: Notes) -> Any:
    slots = asyncio.Semaphore(2)

    async def branch(number: int) -> None:
        async with slots:
            await chain(notes, f"b{number}", 1 + number % 2)
        notes.append(("left", number, slots.locked()))

    await asyncio.gather(*[branch(number) for number in range(6)])
    return await act("end")


@program
async def event(notes: Notes) -> Any:
    ready = asyncio.Event()

    async def waiter(number: int) -> None:
        await act("prepare", number)
        await ready.wait()
        notes.append((number, await act("go", number)))

    async def setter() -> None:
        await chain(notes, "set", 3)
        ready.set()

    await asyncio.gather(*[waiter(number) for number in range(4)], setter())
    return len(notes)


@program
async def condition(notes: Notes) -> Any:
    changed = asyncio.Condition()
    stock: list[Any] = []

    async def consumer(number: int) -> None:
        async with changed:
            await changed.wait_for(lambda: bool(stock))
            notes.append((number, stock.pop()))
        await act("consumed", number)

    async def producer(number: int) -> None:
        item = await act("produce", number)
        async with changed:
            stock.append(item)
            changed.notify()

    await asyncio.gather(*[consumer(number) for number in range(4)], *[producer(number) for number in range(4)])
    return len(notes)


@program
async def barrier(notes: Notes) -> Any:
    gate = asyncio.Barrier(3)

    async def party(number: int) -> None:
        await act("arrive", number)
        place = await gate.wait()
        notes.append((number, place, await act("pass", number)))

    await asyncio.gather(*[party(number) for number in range(6)])
    return len(notes)


@program
async def async_generators(notes: Notes) -> Any:
    async def numbers(name: str) -> AsyncIterator[Any]:
        try:
            for number in range(5):
                yield await act(name, number)
        finally:
            notes.append((name, await act("close", name)))

    async def consume(name: str, limit: int) -> None:
        async with contextlib.aclosing(numbers(name)) as source:
            async for value in source:
                notes.append(value)
                limit -= 1
                if not limit:
                    break

    await asyncio.gather(consume("x", 2), consume("y", 9), consume("z", 3))
    return [value async for value in numbers("w")]


@program
async def abandoned_async_generator(notes: Notes) -> Any:
    async def numbers(name: str) -> AsyncIterator[Any]:
        for number in range(5):
            yield await act(name, number)

    async def consume(name: str) -> None:
        async for value in numbers(name):
            notes.append(value)
            break  # without aclosing: its end is a task of the collector's, which takes no number of ours
        await asyncio.gather(act("after", name), act("also", name))

    await asyncio.gather(consume("x"), consume("y"))
    return await asyncio.create_task(chain(notes, "end", 2))


@program
async def exit_stack(notes: Notes) -> Any:
    async def release(name: str) -> None:
        notes.append(await act("release", name))

    async with contextlib.AsyncExitStack() as stack:
        for name in ("a", "b", "c"):
            await act("acquire", name)
            stack.push_async_callback(release, name)
        with contextlib.suppress(ValueError):
            await act("fail")
    return notes[-1]


@program
async def done_callbacks_that_make_tasks(notes: Notes) -> Any:
    made: list[asyncio.Task[Any]] = []

    def ended(task: asyncio.Task[Any]) -> None:
        notes.append(("ended", task.get_name()))
        made.append(asyncio.get_running_loop().create_task(chain(notes, f"after {task.get_name()}", 1)))

    tasks = [asyncio.create_task(chain(notes, f"t{number}", 2)) for number in range(4)]
    for task in tasks:
        task.add_done_callback(ended)
    await asyncio.gather(*tasks)
    await asyncio.sleep(0)
    return await asyncio.gather(*made)


@program
async def shared_variable_first_wins(notes: Notes) -> Any:
    winner: list[int] = []

    async def branch(number: int) -> Any:
        await act("race", number)
        if not winner:
            winner.append(number)
            return await act("first", number)
        return await act("behind", winner[0], number)

    return await asyncio.gather(*[branch(number) for number in range(5)])


@program
async def decisions_by_the_clock(notes: Notes) -> Any:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(5):
        before = loop.time()
        await act("a", number)
        notes.append(await act("slow" if loop.time() - before > 1 else "quick", number))
    return loop.time() - began


@program
async def finally_with_calls(notes: Notes) -> Any:
    async def booked(name: str) -> Any:
        await act("book", name)
        try:
            return await act("fail" if name == "hotel" else "use", name)
        except (ValueError, asyncio.CancelledError):
            notes.append(("undo", await act("undo", name)))
            raise
        finally:
            notes.append(("close", await act("close", name)))

    try:
        await asyncio.gather(*[booked(name) for name in ("car", "flight", "hotel")])
    except ValueError:
        notes.append("failed")
    finally:
        notes.append(await act("mail"))
    return len(notes)


@program
async def seeded_randomness(notes: Notes) -> Any:
    async def branch(number: int) -> None:
        await act("a", number)
        loop = run_loop()
        notes.append((loop.branch(), loop.rng().randint(1, 1000), str(loop.next_uuid())))
        await act("b", number, loop.rng().random(), str(loop.next_uuid()))

    await asyncio.gather(*[branch(number) for number in range(4)])
    return run_loop().rng().random(), str(run_loop().next_uuid())


@program
async def set_of_tasks_walked_by_the_user(notes: Notes) -> Any:
    tasks = {asyncio.create_task(act("a", number)) for number in range(12)}
    calls = {act("b", number) for number in range(12)}
    notes.append([task.get_name() for task in tasks])
    first = [await call for call in calls]
    return first, [await task for task in tasks]


@program
async def first_of_several_kinds(notes: Notes) -> Any:
    stop = asyncio.Event()

    async def beat() -> None:
        while not stop.is_set():
            try:
                await asyncio.wait_for(stop.wait(), timeout=0.9)
            except TimeoutError:
                notes.append(await act("beat"))

    beating = asyncio.create_task(beat())
    answers: list[Awaitable[Any]] = [asyncio.create_task(act("ask", number)) for number in range(3)]
    while answers:
        done, pending = await asyncio.wait(
            [*answers, asyncio.create_task(asyncio.sleep(1.3, "timer"))], return_when="FIRST_COMPLETED"
        )
        for each in done:
            notes.append(each.result())
        for each in pending - set(answers):
            each.cancel()
        answers = [each for each in answers if each in pending]
    stop.set()
    await beating
    return len(answers)
