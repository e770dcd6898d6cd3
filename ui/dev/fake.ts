/** A server that knows a few invented runs, for working on looks without an engine: `npm run fake`. Used by nothing else. */

import type { Plugin } from "vite";
import type { Bar, Failure, GraphEdge, GraphNode, GraphView, HistoryPage, Me, Model, Node, NodePage, Run, RunCounts, RunDetail, RunPage, Status, Timeline } from "../src/contract";

const NOW = Date.now();
const ago = (seconds: number) => new Date(NOW - seconds * 1000).toISOString();
const STATUSES: Status[] = ["running", "completed", "failed", "suspended", "paused", "completed", "cancelled", "pending", "completed", "cancelling"];
const MODELS: Model[] = ["dag", "function", "flow", "graph", "decider"];
const NAMES = ["nightly_report", "onboard", "order", "agent", "account"];
const failure: Failure = { type: "BankBusy", message: "order 17: call again", traceback: "Traceback (most recent call last):\n  …\nBankBusy: order 17: call again" };

function run(at: number): Run {
  const status = STATUSES[at % STATUSES.length] ?? "running";
  const ended = ["completed", "failed", "cancelled"].includes(status);
  return {
    id: `0192f1c4-7a3e-7c11-9d20-${String(at).padStart(12, "0")}`,
    workflow: NAMES[at % NAMES.length] ?? "order",
    model: MODELS[at % MODELS.length] ?? "dag",
    key: at % 3 === 0 ? `order-${1000 + at}` : null,
    status,
    queue: "default",
    priority: 0,
    tags: at % 4 === 0 ? { region: "eu", tenant: "acme" } : {},
    reason: null,
    parent: null,
    created_at: ago(30 + at * 47),
    started_at: status === "pending" ? null : ago(28 + at * 47),
    finished_at: ended ? ago(20 + at * 46) : null,
  };
}

const RUNS = Array.from({ length: 180 }, (_, at) => run(at));

function detail(id: string): RunDetail {
  const found = RUNS.find((each) => each.id === id) ?? run(0);
  return {
    ...found,
    due_at: null,
    wakes_at: null,
    input: { order: 17, items: [{ article: "lamp", count: 2 }], note: "<script>alert(1)</script>" },
    result: found.status === "completed" ? { shipped: true } : null,
    error: found.status === "failed" ? failure : null,
    explain: {
      headline: found.status === "failed" ? "charge_card failed after 3 attempts: BankBusy: order 17: call again" : `${found.workflow} is ${found.status}`,
      text: "charge_card failed after 3 attempts.\nThe rest waits for it.",
      causes: found.status === "failed" ? [{ text: "try it again when the bank answers", command: `holdfast retry ${found.id}` }] : [],
    },
    waits: found.status === "suspended" ? [{ event: "approved", run: null, status: null, address: "1", since: ago(200) }] : [],
    timers: [],
    children: [],
    questions: found.model === "graph" && found.status === "suspended" ? [{ node: "tool@3", payload: { "may I send this": "lamp: 49" }, since: ago(90) }] : [],
    actions: found.status === "failed" ? ["retry", "fork", "reattempt", "skip"] : ["cancel", "pause", "send"],
    counts: { completed: 3, failed: 1, blocked: 2 },
    instance: null,
    graph: null,
  };
}

function graph(): GraphView {
  const node = (id: string, state: string, attempts = 1, more: Partial<GraphNode> = {}): GraphNode => ({ id, label: id, kind: "step", state, attempts, detail: "", count: null, states: null, ...more });
  const edge = (from: string, to: string, taken: boolean, loop = false): GraphEdge => ({ from, to, label: loop ? "again" : "", loop, taken });
  return {
    kind: "dag",
    direction: "TB",
    truncated: true,
    nodes: [
      node("validate", "completed"),
      node("reserve_stock", "completed", 2),
      node("charge_card", "failed", 3),
      node("resize", "running", 1, { count: 420, states: { completed: 300, leased: 20, failed: 5, ready: 95 } }),
      node("pack", "blocked", 0, { detail: "2 of 3" }),
      node("ship", "blocked", 0),
    ],
    edges: [edge("validate", "reserve_stock", true), edge("validate", "charge_card", true), edge("validate", "resize", true), edge("reserve_stock", "pack", true), edge("charge_card", "pack", false), edge("resize", "pack", false), edge("pack", "ship", false), edge("ship", "validate", false, true)],
  };
}

function timeline(): Timeline {
  const bar = (lane: string, kind: Bar["kind"], state: string, attempt: number, begin: number, end: number | null): Bar => ({ lane, kind, label: lane, state, attempt, begin: ago(begin), end: end === null ? null : ago(end) });
  return {
    now: new Date().toISOString(),
    begin: ago(62),
    end: null,
    more: false,
    lanes: ["validate", "reserve_stock", "charge_card", "resize"].map((id) => ({ id, label: id })),
    bars: [
      bar("validate", "queued", "ready", 1, 61.5, 60),
      bar("validate", "attempt", "completed", 1, 60, 59.99),
      bar("reserve_stock", "attempt", "lost", 1, 58, 50),
      bar("reserve_stock", "attempt", "completed", 2, 44, 40),
      bar("charge_card", "attempt", "failed", 1, 58, 52),
      bar("charge_card", "retry", "ready", 1, 52, 46),
      bar("charge_card", "attempt", "failed", 2, 46, 41),
      bar("charge_card", "wait", "waiting", 1, 41, 12),
      bar("resize", "attempt", "leased", 1, 30, null),
    ],
  };
}

const nodes: Node[] = [{ id: "charge_card", name: "charge_card", state: "failed", detail: "", after: ["validate"], does: "action charge_card", attempts: [1, 2, 3].map((attempt) => ({ attempt, state: "failed", worker: "0192f1c4-worker", queued_at: ago(60), started_at: ago(60 - attempt), finished_at: ago(59 - attempt), error: failure, outcome: null })) }];
const me: Me = { role: "admin", name: "local", version: "0.1.0", store: "fake", redacted: false, code: true, readonly_reason: null };

function answer(path: string, query: URLSearchParams): unknown {
  const statuses = query.getAll("status");
  const found = RUNS.filter((each) => (statuses.length === 0 || statuses.includes(each.status)) && each.workflow.includes(query.get("workflow") ?? ""));
  if (path === "me") return me;
  if (path === "runs/counts") {
    const counts = Object.fromEntries(STATUSES.map((status) => [status, RUNS.filter((each) => each.status === status).length])) as RunCounts["counts"];
    return { counts, total: RUNS.length, more: false } satisfies RunCounts;
  }
  if (path === "runs") {
    const from = Number(query.get("cursor") ?? 0);
    return { runs: found.slice(from, from + 50), cursor: from + 50 < found.length ? String(from + 50) : null } satisfies RunPage;
  }
  const [, id = "", part = ""] = path.split("/");
  if (path.startsWith("runs/")) {
    if (part === "graph") return graph();
    if (part === "timeline") return timeline();
    if (part === "nodes") return { nodes, cursor: null } satisfies NodePage;
    if (part === "history") return { entries: [1, 2, 3].map((sequence) => ({ sequence, at: ago(100 - sequence * 9), kind: "resumed", text: "went on", by: "ada", payload: sequence === 2 ? { why: "deployed" } : null })), cursor: null } satisfies HistoryPage;
    return detail(id);
  }
  return { definitions: [], queues: [], workers: [], timers: [], letters: [], projections: [], cursor: null };
}

export function fakeServer(): Plugin {
  return {
    name: "holdfast-fake-server",
    configureServer(server) {
      server.middlewares.use((incoming, response, next) => {
        const request = incoming as typeof incoming & { url?: string; method?: string };
        const address = new URL(request.url ?? "/", "http://fake");
        if (!address.pathname.startsWith("/api/v1/")) return next();
        const path = decodeURIComponent(address.pathname.slice("/api/v1/".length));
        if (path === "live") {
          response.setHeader("Content-Type", "text/event-stream");
          response.write(": hello\n\n");
          return;
        }
        response.setHeader("Content-Type", "application/json");
        response.end(JSON.stringify(request.method === "POST" ? { done: true, message: "Done, says the fake server.", id: RUNS[1]?.id } : answer(path, address.searchParams)));
      });
    },
  };
}
