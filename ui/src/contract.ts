/** What the server sends and takes, under api/v1. The OpenAPI document of the server says the same. */

export const STATUSES = [
  "pending",
  "running",
  "suspended",
  "paused",
  "cancelling",
  "completed",
  "failed",
  "cancelled",
] as const;
export type Status = (typeof STATUSES)[number];

export const MODELS = ["function", "dag", "flow", "graph", "decider", "projection"] as const;
export type Model = (typeof MODELS)[number];

/** A payload: whatever JSON can hold. */
export type Json = unknown;

export interface Run {
  id: string;
  workflow: string;
  model: Model;
  key: string | null;
  status: Status;
  queue: string;
  priority: number;
  tags: Record<string, string>;
  reason: string | null;
  /** In a few words what a run that waits is waiting for, where the server knows it. */
  waits_for?: string | null;
  parent: string | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
}

export interface Failure {
  type: string;
  message: string;
  traceback: string | null;
}

export interface RunPage {
  runs: Run[];
  cursor: string | null;
}

export interface RunCounts {
  counts: Record<Status, number>;
  total: number;
  more: boolean;
}

export interface Cause {
  text: string;
  command: string | null;
}

export interface Wait {
  event: string | null;
  run: string | null;
  status: string | null;
  address: string;
  since: string;
  /** What the event carries, where its definition is known. */
  takes?: { type: string; fields: Parameter[] } | null;
}

export interface Timer {
  run: string;
  workflow: string;
  node: string;
  kind: string;
  due_at: string;
  overdue_seconds: number;
  key?: string | null;
  payload?: Json;
}

export interface Child {
  run: string;
  workflow: string;
  status: Status;
  key: string | null;
}

export interface Question {
  node: string;
  payload: Json;
  since: string;
}

export interface RunDetail extends Run {
  due_at: string | null;
  wakes_at: string | null;
  input: Json;
  result: Json;
  error: Failure | null;
  explain: { headline: string; text: string; causes: Cause[] };
  waits: Wait[];
  timers: Timer[];
  children: Child[];
  questions: Question[];
  actions: string[];
  counts: Record<string, number>;
  instance: Json;
  graph: Json;
}

export interface Attempt {
  attempt: number;
  state: string;
  worker: string | null;
  queued_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  error: Failure | null;
  outcome: Json;
}

export interface Node {
  id: string;
  name: string;
  state: string;
  detail: string;
  after: string[];
  does: string;
  attempts: Attempt[];
}

export interface NodePage {
  nodes: Node[];
  cursor: string | null;
}

export interface GraphNode {
  id: string;
  label: string;
  kind: string;
  state: string;
  attempts: number;
  detail: string;
  count: number | null;
  states: Record<string, number> | null;
}

export interface GraphEdge {
  from: string;
  to: string;
  label: string;
  loop: boolean;
  taken: boolean;
}

export interface GraphView {
  kind: Model;
  direction: "TB" | "LR";
  nodes: GraphNode[];
  edges: GraphEdge[];
  truncated: boolean;
}

export type BarKind = "attempt" | "wait" | "retry" | "timer" | "child" | "queued";

export interface Bar {
  lane: string;
  kind: BarKind;
  label: string;
  state: string;
  attempt: number;
  begin: string;
  end: string | null;
}

export interface Timeline {
  now: string;
  begin: string;
  end: string | null;
  lanes: { id: string; label: string }[];
  bars: Bar[];
  more: boolean;
}

export interface HistoryEntry {
  sequence: number;
  at: string;
  kind: string;
  text: string;
  by: string;
  payload: Json;
}

export interface HistoryPage {
  entries: HistoryEntry[];
  cursor: number | null;
}

export interface StateView {
  available: boolean;
  why: string;
  sequence: number;
  last: number;
  state: Json;
}

export interface StreamEvent {
  sequence: number;
  at: string;
  type: string;
  data: Json;
  system: boolean;
  cause: string;
}

export interface StreamPage {
  events: StreamEvent[];
  cursor: number | null;
}

export interface Checkpoint {
  step: number;
  label: string;
  at: string;
  nodes: string[];
  digest: string;
}

export interface CheckpointDetail {
  step: number;
  label: string;
  at: string;
  state: Json;
  changed: Record<string, { before: Json; after: Json }>;
  ran: string[];
}

export interface Done {
  done: boolean;
  message: string;
}

export interface BulkDone {
  done: number;
  skipped: number;
  failed: { id: string; message: string }[];
  more: boolean;
}

export interface Letter {
  id: string;
  kind: "work" | "event";
  run: string | null;
  node: string | null;
  name: string;
  workflow: string | null;
  died_at: string;
  reason: string;
  error: Failure | null;
  key?: string | null;
  payload?: Json;
  run_status?: Status | null;
}

export interface Queue {
  name: string;
  ready: number;
  delayed: number;
  leased: number;
  oldest_ready_seconds: number | null;
  workers: number;
}

/** What a worker is doing now. */
export interface Held {
  run: string;
  workflow: string;
  key: string | null;
  node: string;
}

export interface Worker {
  id: string;
  host: string;
  pid: number;
  queues: string[];
  concurrency: number;
  running: number;
  started_at: string;
  lease_expires_at: string;
  heartbeat_age_seconds: number;
  alive: boolean;
  version: string;
  runs?: Held[] | null;
}

export interface Projection {
  name: string;
  decider: string;
  status: string;
  position: number;
  behind: number;
  lag_seconds: number | null;
  error: Failure | string | null;
  owner: string | null;
}

export interface Parameter {
  name: string;
  type: string;
  /** As it is written in Python; null if it has to be given. */
  default: string | null;
}

export interface Definition {
  name: string;
  model: Model;
  signature: string;
  doc: string;
  parameters: Parameter[];
  known_here: boolean;
  runs: Partial<Record<Status, number>> | null;
}

export interface DefinitionDetail extends Definition {
  graph: GraphView | null;
  mermaid: string | null;
}

export type Role = "read" | "operate" | "admin";

export interface Me {
  role: Role;
  name: string;
  version: string;
  store: string;
  redacted: boolean;
  code: boolean;
  readonly_reason: string | null;
}

/** What the live stream says. */
export interface RunsChanged {
  changed: { id: string; status: Status; workflow: string; model: Model }[];
  counts?: boolean;
}
