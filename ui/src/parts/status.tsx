/** States of runs, nodes, attempts and projections: a shape, a colour, and the word. */

import { Icon } from "./icons";

interface Look {
  icon: string;
  /** The group of colours, of which there are few on purpose. */
  tone: "idle" | "active" | "waiting" | "held" | "good" | "bad" | "gone";
  word: string;
  meaning: string;
}

const LOOKS: Record<string, Look> = {
  pending: { icon: "waiting", tone: "idle", word: "pending", meaning: "accepted, and not begun yet" },
  running: { icon: "running", tone: "active", word: "running", meaning: "something of it can be done, or is being done" },
  suspended: { icon: "suspended", tone: "waiting", word: "suspended", meaning: "waits for an event, a time, a run or a person" },
  paused: { icon: "paused", tone: "held", word: "paused", meaning: "held: by an operator, or by itself after an error; nothing new begins until it is resumed, retried or skipped" },
  cancelling: { icon: "cancelling", tone: "held", word: "cancelling", meaning: "is being cancelled; what it undoes is under way" },
  completed: { icon: "completed", tone: "good", word: "completed", meaning: "ended with a result" },
  failed: { icon: "failed", tone: "bad", word: "failed", meaning: "ended with an error" },
  cancelled: { icon: "cancelled", tone: "gone", word: "cancelled", meaning: "ended by a cancellation" },
  blocked: { icon: "waiting", tone: "idle", word: "blocked", meaning: "waits for what comes before it" },
  ready: { icon: "waiting", tone: "active", word: "ready", meaning: "waits for a worker, or for its time" },
  leased: { icon: "running", tone: "active", word: "running", meaning: "a worker has it" },
  timed_out: { icon: "failed", tone: "bad", word: "timed out", meaning: "took longer than it may" },
  lost: { icon: "lost", tone: "held", word: "lost", meaning: "the worker vanished; the next attempt takes over" },
  skipped: { icon: "skipped", tone: "gone", word: "skipped", meaning: "not needed, or stepped over by an operator" },
  dead: { icon: "failed", tone: "bad", word: "dead", meaning: "given up; it is among the dead letters" },
  queued: { icon: "waiting", tone: "idle", word: "queued", meaning: "waits for room" },
  waiting: { icon: "suspended", tone: "waiting", word: "waiting", meaning: "waits" },
  stuck: { icon: "failed", tone: "bad", word: "stuck", meaning: "stopped at an event that it could not take" },
  live: { icon: "completed", tone: "good", word: "live", meaning: "keeps up" },
  rebuilding: { icon: "running", tone: "active", word: "rebuilding", meaning: "reads all events again" },
};

const UNKNOWN: Look = { icon: "waiting", tone: "idle", word: "", meaning: "" };

export function lookOf(state: string): Look {
  return LOOKS[state] ?? { ...UNKNOWN, word: state.replaceAll("_", " ") };
}

export function StatusBadge({ state, note }: { state: string; note?: string }) {
  const look = lookOf(state);
  return (
    <span class={`status tone-${look.tone}`} title={look.meaning}>
      <Icon name={look.icon} />
      <span>{note ?? look.word}</span>
    </span>
  );
}

export function StatusIcon({ state }: { state: string }) {
  const look = lookOf(state);
  return (
    <span class={`status-icon tone-${look.tone}`} title={`${look.word}: ${look.meaning}`} role="img" aria-label={look.word}>
      <Icon name={look.icon} />
    </span>
  );
}
