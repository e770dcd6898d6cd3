"""One run, live: where it is and why, its nodes or items with times that grow, what it waits for, its last lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.cli.checkpoints import shown_nodes
from holdfast.cli.failures import FAILED, OK
from holdfast.cli.output import one_line, shown_state
from holdfast.cli.show_function import TURN, runs_on, wait_rows
from holdfast.cli.show_graph import frontier_rows
from holdfast.cli.show_nodes import node_rows
from holdfast.cli.times import shown_distance, shown_seconds
from holdfast.cli.watch_following import Change
from holdfast.cli.watch_screen import dim, heading, sentence, stacked, styled, table
from holdfast.documents.history_words import about, who

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from holdfast.core.graph import Graph
    from holdfast.core.rows import Run
    from holdfast.documents.run import NodeShown, RunShown
    from holdfast.engine import Engine
    from holdfast.explain import Explanation

CODES: Final = {"completed": OK, "failed": FAILED, "cancelled": FAILED}
PAUSED: Final = "paused"
EXPLAINED_LINES: Final = 4
REASONS_SHOWN: Final = 3
LEAST_NODES: Final = 4
LEFT_LINES: Final = 100  # what stays in the terminal in the end: enough to read, and no ten thousand nodes
HISTORY_SHOWN: Final = 50
DATA_WIDTH: Final = 200
# Of many nodes, those that are worth a line of a small screen.
WORTH_A_LINE: Final = frozenset({"leased", "failed", "timed_out", "dead", "lost"})
NOT_BEGUN: Final = frozenset({"pending", "blocked"})


class RunLook(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a run."""

    shown: RunShown
    graph: Graph | None
    told: Explanation
    now: datetime
    exit_code: int | None
    changed: tuple[Change, ...]

    def changes(self) -> Sequence[Change]:
        return self.changed

    def screen(self, width: int, height: int) -> RenderableType:
        shown = self.shown
        ends = self.exit_code is not None
        lines = [self._title(width), *self._explained(width), styled("")]
        waits = self._waits(width)
        history = self._history()
        room = (height or LEFT_LINES) - len(lines) - 1
        nodes = self._nodes(width, max(LEAST_NODES, room - len(waits) - min(len(history), 5) - 3))
        lines += nodes
        if waits:
            lines += [*_gap(lines), *waits]
        left = room - len(nodes) - len(waits) - 3
        if history and left > 0:
            lines += [*_gap(lines), heading("history (UTC)"), *history[-left:]]
        footer = [] if ends else [dim(f"Ctrl-C leaves; holdfast show {shown.run} shows all")]
        return stacked(lines, height, footer)

    def _title(self, width: int) -> Text:
        from rich.text import Text

        shown = self.shown
        name = shown.workflow if shown.key is None else f"{shown.workflow}/{shown.key}"
        title = Text(no_wrap=True, overflow="ellipsis")
        title.append_text(styled(name, style="bold")).append("  ")
        title.append_text(styled(shown.status, shown.status)).append("  ")
        title.append(shown_seconds(((shown.finished_at or self.now) - shown.created_at).total_seconds()))
        worker = runs_on(shown)
        for text in (f"run {shown.run}", "" if worker is None else f"on worker {worker}"):
            if text and len(title.plain) + 2 + len(text) <= width:
                title.append(f"  {text}", style="dim")
        return title

    def _explained(self, width: int) -> list[Text]:
        told, shown = self.told, self.shown
        lines = sentence(_without_name(told, shown), width, EXPLAINED_LINES, shown.status)
        if shown.instance is not None and shown.instance.state.source == "code":
            inbox = f", {shown.instance.inbox:,} in its inbox" if shown.instance.inbox else ""
            stands = f"state {shown.instance.state.status} after {shown.instance.sequence:,} events{inbox}"
            lines.insert(0, styled(stands, "running"))
        for reason in told.reasons[:REASONS_SHOWN]:
            lines += sentence(f"- {reason}", width, 2)
        if told.fixes:
            lines += [styled(f"{told.fixes[0].purpose}:"), styled(f"    {told.fixes[0].command}", "running")]
        return lines

    def _nodes(self, width: int, most: int) -> list[Text]:
        shown, now = self.shown, self.now
        last = "DOES" if shown.model == "flow" else "AFTER"
        title = "NODE"
        if shown.graph is not None:
            rows, last, title = frontier_rows(shown, shown.graph, False, now), "REACHED FROM", "ITEM"
            if shown.finished_at is not None or not rows:
                return [styled(f"{shown.graph.step:,} steps finished")]
        else:
            nodes = _calls(shown) if shown.model == "function" else shown.nodes
            rows = node_rows(nodes, self.graph, False, now)
            title = "CALL" if shown.model == "function" else "NODE"
        if not rows:
            return []
        kept, left = _fitting(rows, most - 1)
        headers = ["", title, "STATE", "ATTEMPTS", "TIME", last]
        if not any(row[-1] for row in kept):
            headers, kept = headers[:-1], [row[:-1] for row in kept]
        lines = table(headers, kept, width, cut=2)
        return [*lines, dim(f"     and {left:,} more lines: `holdfast show` has them")] if left else lines

    def _waits(self, width: int) -> list[Text]:
        shown, now = self.shown, self.now
        calls = [node for node in _calls(shown) if node.state in ("ready", "leased")]
        rows = [[what, about] for what, _, about in wait_rows(shown, calls, now)]
        for question in () if shown.graph is None else shown.graph.questions:
            asks = one_line(json.dumps(question.payload, ensure_ascii=False, default=str), DATA_WIDTH)
            rows.append([f"an answer to {question.item}", asks])
        if shown.instance is not None:
            rows += [[f"timer {each.type}", shown_distance(each.due_at, now)] for each in shown.instance.timers]
        return [] if not rows else table(["WAITS FOR", ""], rows, width, cut=1)

    def _history(self) -> list[Text]:
        if self.shown.instance is not None and self.shown.instance.events:
            return [
                styled(f"{each.at:%H:%M:%S}  event {each.sequence:,}: {each.type} {_text(each.data)}")
                for each in self.shown.instance.events[-HISTORY_SHOWN:]
            ]
        told = [(entry["at"], _entry_line(entry)) for entry in self.shown.history[-HISTORY_SHOWN:]]
        if self.shown.graph is not None:
            told += [(step["at"], _step_line(step)) for step in self.shown.graph.steps[-HISTORY_SHOWN:]]
            told.sort()
        return [styled(text) for _, text in told]


def _gap(lines: Sequence[Text]) -> list[Text]:
    """An empty line, unless there is one."""
    return [styled("")] if lines[-1].plain else []


def _fitting(rows: list[list[str]], most: int) -> tuple[list[list[str]], int]:
    """As many lines as fit, in their order: first those where something happens, then those that come next."""
    if len(rows) <= most:
        return rows, 0
    most = max(1, most - 1)  # one for how many are left out
    state = [getattr(row[0], "status", "") for row in rows]
    lively = [at for at, each in enumerate(state) if each in WORTH_A_LINE]
    waiting = [at for at, each in enumerate(state) if each not in WORTH_A_LINE and each != "completed"]
    done = [at for at, each in enumerate(state) if each == "completed"]
    chosen = sorted([*lively, *waiting, *reversed(done)][:most])
    return [rows[at] for at in chosen], len(rows) - len(chosen)


def _without_name(told: Explanation, shown: RunShown) -> str:
    """The sentence, which begins with a name that is written above it already."""
    return told.summary.removeprefix(f"run {shown.run} of {shown.workflow} ")


def _calls(shown: RunShown) -> list[NodeShown]:
    return [node for node in shown.nodes if shown.model == "function" and node.id != TURN]


def _entry_line(entry: dict[str, Any]) -> str:
    by = who(entry["kind"], entry["data"])
    told = about(entry["kind"], entry["data"])
    words = entry["kind"] + (f" by {by}" if by else "") + (f": {told}" if told else "")
    return f"{entry['at']:%H:%M:%S}  {words}"


def _step_line(step: dict[str, Any]) -> str:
    ran = shown_nodes(step["ran"]) if step["ran"] else "it began"
    changed = f", changed {', '.join(step['changed'])}" if step["changed"] else ""
    return f"{step['at']:%H:%M:%S}  step {step['step']:,}: {ran}{changed}"


def _text(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), DATA_WIDTH)


class RunLooker:
    """Looks at one run until it has ended, or is paused and nobody said to stay."""

    def __init__(
        self, engine: Engine, row: Run, *, stay: bool, adapt: Callable[[Explanation], Explanation] = lambda told: told
    ) -> None:
        self._engine = engine
        self._adapt = adapt
        self._row = row
        self._stay = stay
        self._status: tuple[str, str | None] | None = None
        self._nodes: dict[str, tuple[str, int]] = {}
        self._sequence = 0

    async def look(self, height: int) -> RunLook:
        from holdfast.documents.run import gather

        # A run that was pruned meanwhile is looked at as it was.
        (row,) = await self._engine.store.runs([self._row.id]) or [self._row]
        self._row = row
        shown, graph = await gather(self._engine, row)
        told = self._adapt(await self._engine.get(row.id).explain())
        over = CODES.get(shown.status, FAILED if shown.status == PAUSED and not self._stay else None)
        return RunLook(
            shown=shown,
            graph=graph,
            told=told,
            now=datetime.now(UTC),
            exit_code=over,
            changed=tuple(self._changes(shown, told)) if not height else (),
        )

    def _changes(self, shown: RunShown, told: Explanation) -> list[Change]:
        changes = [*self._entries(shown), *self._node_changes(shown)]
        if self._status != (shown.status, shown.reason):
            self._status = shown.status, shown.reason
            facts = {"kind": "status", "run": shown.run, "status": shown.status, "reason": shown.reason}
            changes.append(_change(f"{shown.workflow} {_without_name(told, shown)}", facts))
        return changes

    def _node_changes(self, shown: RunShown) -> list[Change]:
        changes = []
        for node in shown.nodes:
            now = node.state, len(node.attempts)
            before = self._nodes.get(node.id)
            self._nodes[node.id] = now
            if now == before or (before is None and node.state in NOT_BEGUN):
                continue
            last = node.attempts[-1] if node.attempts else None
            error = None if last is None else last.error
            attempt = None if last is None else last.attempt
            text = f"{node.name}: {shown_state(node.state)}"
            text += f" (attempt {attempt})" if attempt and attempt > 1 else ""
            text += f": {error['type']}: {error['message']}" if error else ""
            named = {"kind": "node", "run": shown.run, "id": node.id, "name": node.name}
            facts = {**named, "state": node.state, "attempt": attempt, "error": error}
            changes.append(_change(text, facts))
        return changes

    def _entries(self, shown: RunShown) -> list[Change]:
        changes = []
        for entry in shown.history:
            if entry["sequence"] > self._sequence:
                facts = {"kind": "history", "run": shown.run, "entry": entry}
                text = _entry_line(entry).partition("  ")[2]
                changes.append(Change(at=entry["at"], text=text, facts=facts))
        self._sequence = max([self._sequence, *(entry["sequence"] for entry in shown.history)])
        return changes


def _change(text: str, facts: dict[str, Any]) -> Change:
    return Change(at=datetime.now(UTC), text=text, facts=facts)


__all__ = ["RunLooker"]
