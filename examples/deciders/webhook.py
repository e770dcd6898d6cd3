"""A webhook: another system tells of payments over HTTP, more than once, and each counts once.

    python examples/deciders/webhook.py

Who calls a webhook repeats a call whose answer it did not get. Each call here carries an id; it becomes the command id
of the input, and a repetition is recognised by it. The input is in the database before the answer is sent, so a call
that was answered is not lost, whatever happens to this process; a worker applies it, in the order of arrival.

The program serves, calls itself five times, shows what came of it, and ends. It uses nothing but the standard library
and the blocking engine, as a synchronous web framework would.
"""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Never

import holdfast as hf


@dataclass(frozen=True)
class PaymentReceived:
    invoice: str
    cents: int


@dataclass(frozen=True)
class Paid:
    cents: int


@dataclass(frozen=True)
class Invoice:
    paid: int = 0
    payments: int = 0


class Invoices(hf.Decider[Invoice, PaymentReceived, Paid, Never], name="invoice"):
    def workflow_id(self, input: PaymentReceived) -> str:
        return input.invoice

    def initial(self) -> Invoice:
        return Invoice()

    def evolve(self, state: Invoice, event: Paid) -> Invoice:
        return Invoice(state.paid + event.cents, state.payments + 1)

    def decide(self, now: datetime, state: Invoice, input: PaymentReceived) -> hf.Decision[Paid, Never, Never]:
        return hf.Decision.event(Paid(input.cents))


class Webhook(BaseHTTPRequestHandler):
    """POST /<decider> with an input as JSON, and the sender's id of the call in a header."""

    engine: hf.BlockingEngine

    def do_POST(self) -> None:  # the name that http.server looks for
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            payload = json.loads(body)
            self.engine.enqueue_input(self.path.strip("/"), payload, command_id=self.headers["Webhook-Id"])
        except (ValueError, hf.UsageError) as error:  # the caller's fault; trying again will not help
            self.answer(400, str(error))
        except hf.StoreError as error:  # ours: let the caller try again
            self.answer(503, str(error))
        else:
            self.answer(202, "accepted")

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def call(port: int, path: str, payload: object, call_id: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", path, json.dumps(payload), {"Webhook-Id": call_id})
    response = connection.getresponse()
    print(f"{call_id}: {response.status} {response.read().decode().splitlines()[0]}")
    connection.close()


def main() -> None:
    with hf.Engine().blocking() as engine, engine.worker():
        Webhook.engine = engine
        with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            port = server.server_port
            call(port, "/invoice", {"type": "PaymentReceived", "invoice": "2031-07", "cents": 1500}, "call-1")
            call(port, "/invoice", {"type": "PaymentReceived", "invoice": "2031-07", "cents": 1500}, "call-1")
            call(port, "/invoice", {"type": "PaymentReceived", "invoice": "2031-07", "cents": 400}, "call-2")
            call(port, "/invoice", {"type": "PaymentRecieved", "invoice": "2031-07", "cents": 400}, "call-3")
            call(port, "/invoices", {"type": "PaymentReceived", "invoice": "2031-07", "cents": 400}, "call-4")
            server.shutdown()
        engine.settle()
        invoice = engine.state(Invoices, "2031-07")
        print(f"invoice 2031-07: {invoice.paid} cents in {invoice.payments} payments")


if __name__ == "__main__":
    main()
