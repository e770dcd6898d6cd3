"""Every route, in one table: its address, who may use it, what it takes, what it answers, and who serves it.

The server's routing, the authorisation, the OpenAPI document and the list in the documentation are all made of this
table. What is not in it does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from holdfast.documents.backlog import QueueList, WorkerList
from holdfast.documents.dead_letters import LetterPage
from holdfast.documents.definitions import DefinitionDetail, DefinitionList
from holdfast.documents.detail import RunDetail
from holdfast.documents.graph_view import GraphView
from holdfast.documents.history import HistoryPage
from holdfast.documents.listing import RunCounts, RunPage
from holdfast.documents.nodes import NodePage
from holdfast.documents.timeline import Timeline
from holdfast.documents.timers import TimerPage
from holdfast.web import answers as a
from holdfast.web import operating, overseeing, reading, starting
from holdfast.web import questions as q
from holdfast.web.access import Role
from holdfast.web.calls import Call

BASE: Final = "/api/v1"
READ, OPERATE, ADMIN, PUBLIC = Role.READ, Role.OPERATE, Role.ADMIN, Role.PUBLIC
Method = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route. `{name:path}` in an address is a name that may hold slashes.

    Those without a `handler` are the server's own (`serves` says which): they answer something else than JSON, or need
    no store.
    """

    method: Method
    path: str
    role: Role
    summary: str
    answer: Any
    handler: Callable[[Call], Awaitable[Any]] | None = None
    serves: str = ""
    query: type[q.Form] | None = None
    body: type[q.Form] | None = None
    status: int = 200
    takes_key: bool = False
    media: str = "application/json"

    @property
    def shown_path(self) -> str:
        """The address as people and documents write it."""
        return re.sub(r"\{(\w+):\w+\}", r"{\1}", self.path)

    @property
    def name(self) -> str:
        """What the operation is called."""
        return self.handler.__name__ if self.handler is not None else self.serves

    @property
    def changes_something(self) -> bool:
        return self.role > READ


def _get(path: str, handler: Any, answer: Any, summary: str, query: type[q.Form] | None = None) -> Route:
    return Route(
        method="GET", path=BASE + path, role=READ, summary=summary, answer=answer, handler=handler, query=query
    )


def _post(
    path: str,
    role: Role,
    handler: Any,
    answer: Any,
    summary: str,
    body: type[q.Form] = q.NoBody,
    *,
    status: int = 200,
    takes_key: bool = False,
) -> Route:
    return Route(
        method="POST",
        path=BASE + path,
        role=role,
        summary=summary,
        answer=answer,
        handler=handler,
        body=body,
        status=status,
        takes_key=takes_key,
    )


def _own(method: Method, path: str, role: Role, serves: str, summary: str, answer: Any = str, **more: Any) -> Route:
    return Route(method=method, path=path, role=role, serves=serves, summary=summary, answer=answer, **more)


# An address that is all words stands before one with a name in its place.
ROUTES: Final[tuple[Route, ...]] = (
    _get("/runs", reading.list_runs, RunPage, "Runs, newest first.", q.ListQuery),
    _get("/runs/counts", reading.count_runs, RunCounts, "How many runs have each status.", q.Filter),
    _get("/runs/{id}", reading.show_run, RunDetail, "One run, and why it is where it is."),
    _get("/runs/{id}/nodes", reading.list_nodes, NodePage, "Its nodes with their attempts.", q.NodesQuery),
    _get("/runs/{id}/graph", reading.show_graph, GraphView, "Its graph with live states.", q.GraphQuery),
    _get("/runs/{id}/timeline", reading.show_timeline, Timeline, "What it did, over time.", q.TimelineQuery),
    _get("/runs/{id}/history", reading.list_history, HistoryPage, "Its record, oldest first.", q.HistoryQuery),
    _get("/runs/{id}/state", reading.show_state, a.StateView, "A decider's state after an event.", q.StateQuery),
    _get("/runs/{id}/events", reading.list_events, a.StreamPage, "A decider's events.", q.HistoryQuery),
    _get("/runs/{id}/checkpoints", reading.list_checkpoints, a.CheckpointList, "A state graph's steps."),
    _get("/runs/{id}/checkpoints/{step}", reading.show_checkpoint, a.CheckpointDetail, "One step, with its state."),
    _post(
        "/runs", OPERATE, starting.start_run, a.StartedAnswer, "Start a run.", q.StartBody, status=201, takes_key=True
    ),
    _post("/runs/bulk", ADMIN, operating.operate_in_bulk, a.BulkAnswer, "Do one thing to many runs.", q.BulkBody),
    _post("/runs/{id}/cancel", OPERATE, operating.cancel_run, a.Done, "Stop it for good.", q.CancelBody),
    _post("/runs/{id}/pause", OPERATE, operating.pause_run, a.Done, "Start nothing more of it.", q.PauseBody),
    _post("/runs/{id}/resume", OPERATE, operating.resume_run, a.Done, "Go on, retrying what failed."),
    _post("/runs/{id}/retry", OPERATE, operating.retry_run, a.Done, "New attempts for all that gave up."),
    _post("/runs/{id}/reattempt", OPERATE, operating.reattempt_node, a.Done, "A new attempt for one node.", q.NodeBody),
    _post("/runs/{id}/skip", OPERATE, operating.skip_node, a.Done, "Skip a node; what follows goes on.", q.NodeBody),
    _post(
        "/runs/{id}/fork",
        OPERATE,
        operating.fork_run,
        a.ForkedAnswer,
        "A new run from a node or a step of it.",
        q.ForkBody,
        takes_key=True,
    ),
    _post("/runs/{id}/answer", OPERATE, operating.answer_question, a.Done, "Answer what a node asks.", q.AnswerBody),
    _post(
        "/runs/{id}/events/{name:path}",
        OPERATE,
        operating.send_event,
        a.SentAnswer,
        "Send it an event.",
        q.SendBody,
        takes_key=True,
    ),
    _post(
        "/events/{name:path}",
        OPERATE,
        operating.broadcast_event,
        a.SentAnswer,
        "Send an event to whoever waits for it.",
        q.BroadcastBody,
        takes_key=True,
    ),
    _post(
        "/deciders/{name:path}/execute",
        OPERATE,
        operating.execute_input,
        a.Accepted,
        "Give an instance an input.",
        q.ExecuteBody,
        status=202,
        takes_key=True,
    ),
    _get("/dead", overseeing.list_dead, LetterPage, "Dead letters, oldest first.", q.PageQuery),
    _post("/dead/replay", OPERATE, overseeing.replay_dead, a.Done, "Try one again.", q.LetterBody),
    _post("/dead/discard", ADMIN, overseeing.discard_dead, a.Done, "Close one for good.", q.LetterBody),
    _get("/queues", overseeing.list_queues, QueueList, "How much waits in each queue."),
    _get("/workers", overseeing.list_workers, WorkerList, "Who works, and since when."),
    _get("/timers", overseeing.list_timers, TimerPage, "What waits for its time.", q.PageQuery),
    _get("/projections", overseeing.list_projections, a.ProjectionList, "Where projections stand."),
    _post("/projections/{name:path}/pause", OPERATE, overseeing.pause_projection, a.Done, "Pause one.", q.PauseBody),
    _post("/projections/{name:path}/resume", OPERATE, overseeing.resume_projection, a.Done, "Let it go on."),
    _post("/projections/{name:path}/retry", OPERATE, overseeing.retry_projection, a.Done, "Try the event again."),
    _post("/projections/{name:path}/rebuild", ADMIN, overseeing.rebuild_projection, a.Done, "From the first event."),
    _post(
        "/projections/{name:path}/skip",
        ADMIN,
        overseeing.skip_projection_event,
        a.Done,
        "Pass over the event it stopped at.",
        q.SkipEventBody,
    ),
    _get("/definitions", overseeing.list_definitions, DefinitionList, "What can be started."),
    _get("/definitions/{name:path}", overseeing.show_definition, DefinitionDetail, "One of them, with its graph."),
    _post("/maintenance", ADMIN, overseeing.set_maintenance, a.Done, "Hold work back, or let it go on.", q.HoldBody),
    _get("/stats", overseeing.show_stats, a.StatsAnswer, "How much of everything there is."),
    _get("/me", overseeing.show_me, a.Me, "Who is asking, and of what server."),
    _own(
        "GET",
        BASE + "/live",
        READ,
        "live",
        "Changes as they happen, as server-sent events.",
        query=q.LiveQuery,
        media="text/event-stream",
    ),
    _own("GET", "/metrics", READ, "metrics", "Numbers for Prometheus.", media="text/plain"),
    _own("GET", "/openapi.json", READ, "openapi", "This interface as OpenAPI 3.1.", dict[str, Any]),
    _own("GET", "/healthz", PUBLIC, "health", "Whether the process answers.", a.Health),
    _own("GET", "/readyz", PUBLIC, "readiness", "Whether the store answers too.", a.Health),
    _own(
        "POST",
        "/session",
        PUBLIC,
        "open_session",
        "Sign the page in: a token for a cookie.",
        a.Done,
        body=q.SessionBody,
    ),
    _own("DELETE", "/session", PUBLIC, "close_session", "Sign the page out.", a.Done),
    _own("GET", "/", PUBLIC, "page", "The page.", media="text/html"),
    _own("GET", "/assets/{file}", PUBLIC, "asset", "A file of the page.", bytes, media="application/octet-stream"),
)
