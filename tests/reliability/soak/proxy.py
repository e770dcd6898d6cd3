"""A network that misbehaves, between clients and a PostgreSQL: `python -m tests.reliability.soak.proxy ORDER`.

Listens on a Unix socket and passes messages on. While the storm lasts it cuts connections, about as many as it was
told, at times and in ways that its seed decides:

- `cut`: both ends closed, wherever they are;
- `unsent`: what would have committed is not passed on;
- `unknown`: it is passed on, and the client is cut off at once: it will never know;
- `untold`: the server has said that it is done, and the client is not told.

And between cuts it delays everything for a moment, or swallows everything that one connection says in either direction
and lets go of it later, cut (a black hole). A line on its input ends the storm; then it prints what it did, and passes
on whatever comes until its input is closed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.reliability.soak.wire import Framer, Message, asks_for_an_end, tells_of_an_end

SOCKET_NAME = ".s.PGSQL.5432"
CHUNK = 1 << 16
CUTS = ("cut", "unsent", "unknown", "untold", "untold")


class Order(msgspec.Struct, kw_only=True):
    """What a proxy is to do."""

    server: str  # the directory of the server's socket
    own: str  # the directory of ours
    seed: int
    cuts_a_second: float
    hole_seconds: float = 1.0


class Line:
    """One connection and its other half."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.client, self.server = client, server
        self.swallows = False
        self._asked, self._told = Framer(untyped_first=True), Framer(untyped_first=False)
        self._logged_in = False

    def cut(self) -> None:
        for writer in (self.client, self.server):
            writer.close()

    async def pass_requests(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            await self.proxy.lag()
            ends = [message for message in self._asked.feed(data) if asks_for_an_end(message)]
            if self.swallows:
                continue
            if ends and self._logged_in and self.proxy.takes("unsent"):
                return
            self.server.write(data)
            await self.server.drain()
            if ends and self._logged_in and self.proxy.takes("unknown"):
                return

    async def pass_answers(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            ends = [message for message in self._told.feed(data) if tells_of_an_end(message)]
            if self.swallows:
                continue
            if ends and self._logged_in and self.proxy.takes("untold"):
                return
            self._logged_in = self._logged_in or bool(ends)
            self.client.write(data)
            await self.client.drain()


class Proxy:
    """Passes on, or does not."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.dice = random.Random(f"proxy {order.seed}")
        self.lines: list[Line] = []
        self.did: Counter[str] = Counter()
        self._wanted: list[str] = []  # cuts that wait for a transaction to end somewhere
        self._lag_seconds = 0.0

    def takes(self, kind: str) -> bool:
        """Whether this is where a cut of this kind is to happen."""
        if kind not in self._wanted:
            return False
        self._wanted.remove(kind)
        self.did[kind] += 1
        return True

    async def lag(self) -> None:
        if self._lag_seconds:
            await asyncio.sleep(self._lag_seconds)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, server = await asyncio.open_unix_connection(str(Path(self.order.server) / SOCKET_NAME))
        except OSError:
            writer.close()  # the server is down: so is the network
            return
        line = Line(self, writer, server)
        self.lines.append(line)
        both = [asyncio.ensure_future(way) for way in (line.pass_requests(reader), line.pass_answers(answers))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.lines.remove(line)
            line.cut()
            for way in both:
                way.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def storm(self) -> None:
        while True:
            await asyncio.sleep(self.dice.expovariate(self.order.cuts_a_second))
            kind, trouble = self.dice.choice(CUTS), self.dice.random()
            if trouble < 0.05:
                self._slow_down(self.dice.uniform(0.02, 0.2))
            elif trouble < 0.08:
                self._open_a_hole()
            if kind == "cut":
                self._on_one_line(Line.cut)
            elif len(self._wanted) < 3:  # no crowd of them when nobody commits anything for a while
                self._wanted.append(kind)

    def _on_one_line(self, do: Callable[[Line], None]) -> None:
        if self.lines:
            do(self.dice.choice(self.lines))
            self.did["cut"] += 1

    def _slow_down(self, seconds: float) -> None:
        self.did["slow moments"] += 1
        self._lag_seconds = seconds
        asyncio.get_running_loop().call_later(1.0, self._hurry_up)

    def _hurry_up(self) -> None:
        self._lag_seconds = 0.0

    def _open_a_hole(self) -> None:
        """A connection that nothing comes out of any more, at either end, and that is cut later."""
        if self.lines:
            line = self.dice.choice(self.lines)
            line.swallows = True
            self.did["black holes"] += 1
            asyncio.get_running_loop().call_later(self.order.hole_seconds, line.cut)

    def calm(self) -> None:
        self._wanted.clear()
        self._hurry_up()


async def serve(order: Order) -> None:
    proxy = Proxy(order)
    server = await asyncio.start_unix_server(proxy.accept, str(Path(order.own) / SOCKET_NAME))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("listening", flush=True)
    await lines.readline()  # the storm begins when we are told
    raging = asyncio.ensure_future(proxy.storm())
    while (await lines.readline()).strip():  # an empty line ends it, any other asks how it goes
        print(msgspec.json.encode(dict(proxy.did)).decode(), flush=True)
    raging.cancel()
    proxy.calm()
    print(msgspec.json.encode(dict(proxy.did)).decode(), flush=True)
    await lines.read()
    server.close()
    for line in list(proxy.lines):
        line.cut()
    while proxy.lines:  # noqa: ASYNC110 - each ends when it has seen that it was cut
        await asyncio.sleep(0.01)


def seen_in(data: bytes) -> list[Message]:
    """What a server said, message by message; for the tests of this module."""
    return list(Framer(untyped_first=False).feed(data))


if __name__ == "__main__":
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=Order)))
