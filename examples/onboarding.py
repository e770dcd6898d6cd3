"""A new member, a decision by a person, a reminder when none comes, and a rollback when it is no.

In one terminal, somebody signs up. The program is a worker, and waits:

    python examples/onboarding.py Ada

In another, somebody decides:

    python examples/onboarding.py Ada --approve
    python examples/onboarding.py Ada --reject "already a member"

Kill the first at any time and start it again. Nobody gets two accounts, and no reminder comes twice.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from datetime import timedelta

import holdfast as hf


@dataclass(frozen=True)
class Decision:
    by: str
    reason: str = ""


# Events have names, and types that are checked when one is sent.
approved = hf.event("membership-approved", Decision)
rejected = hf.event("membership-rejected", Decision)


class NotWelcome(Exception):
    """Somebody said no."""


@hf.action
async def create_account(member: str) -> str:
    print(f"  account of {member} created", flush=True)
    return f"account-{member.lower()}"


@hf.action
async def delete_account(account: str) -> None:
    print(f"  {account} deleted", flush=True)


@hf.action(retry=hf.Retry(attempts=3, base=0.2))
async def ask(member: str, reminder: int) -> None:
    """A mail to whoever decides; the first attempt at each reminder finds the mail server busy."""
    if reminder and hf.current().attempt == 1:
        raise ConnectionError("the mail server is busy")
    print(f"  {'reminder' if reminder else 'question'} sent: may {member} join?", flush=True)


@hf.action
async def welcome(member: str, by: str) -> None:
    print(f"  {member} is welcome, says {by}", flush=True)


@hf.workflow
async def onboard(member: str, patience_seconds: float) -> str:
    account = await create_account(member)
    hf.on_rollback(delete_account, account)  # from here on: if this run fails or is cancelled
    reminders = 0
    hf.expose("reminders", lambda: reminders)
    await ask(member, reminders)
    while True:
        match await hf.wait_for(approved | rejected | hf.after(timedelta(seconds=patience_seconds))):
            case hf.Received(event="membership-approved", value=decision):
                await welcome(member, decision.by)
                return account
            case hf.Received(value=decision):
                raise NotWelcome(f"{decision.by}: {decision.reason}")
            case hf.TimeReached():
                reminders += 1
                await ask(member, reminders)


async def sign_up(member: str, patience_seconds: float) -> None:
    engine = hf.Engine()
    async with engine, engine.worker():
        handle = await engine.start(onboard, member, patience_seconds, key=member)
        try:
            print(f"{member} has {await handle.result()}")
        except hf.RunFailed as failed:
            print(f"{member} did not join: {failed.cause}")


async def decide(member: str, patience_seconds: float, reason: str | None) -> None:
    """No worker here: this process only sends."""
    async with hf.Engine() as engine:
        handle = await engine.start(onboard, member, patience_seconds, key=member)  # the run that is there already
        print(f"reminders so far: {await handle.query('reminders')}")
        event = approved if reason is None else rejected
        # The id makes a second try harmless: the same decision arrives once.
        print(await engine.send(event, Decision("the board", reason or ""), to=handle, id=f"decision-{member}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("member", nargs="?", default="Ada")
    parser.add_argument("--patience", type=float, default=30.0, metavar="SECONDS", help="until a reminder is sent")
    parser.add_argument("--approve", action="store_true")
    parser.add_argument("--reject", metavar="REASON")
    given = parser.parse_args()
    if given.approve or given.reject is not None:
        asyncio.run(decide(given.member, given.patience, given.reject))
    else:
        asyncio.run(sign_up(given.member, given.patience))
