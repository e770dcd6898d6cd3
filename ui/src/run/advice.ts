/** The commands that `explain` gives, as what this page can do itself: a button is nearer than a terminal. */

import type { Cause, RunDetail } from "../contract";
import { shortId } from "../format";

export type Remedy =
  | { kind: "act"; action: string; node: string }
  | { kind: "send"; event: string }
  | { kind: "details" }
  | { kind: "open"; run: string }
  | { kind: "dead" }
  | { kind: "none" };

const RUN_ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;

export function remedyOf(cause: Cause, run: RunDetail): Remedy {
  const [program, verb = "", ...words] = (cause.command ?? "").split(/\s+/);
  if (program !== "holdfast") return { kind: "none" };
  const plain = words.filter((word, at) => !word.startsWith("--") && !["--app", "--to", "--url"].includes(words[at - 1] ?? ""));
  if (verb === "dead") return { kind: "dead" };
  if (verb === "send" && plain[0]) return { kind: "send", event: plain[0] };
  if (verb === "show" && words.includes("--traceback") && run.error) return { kind: "details" };
  const other = plain[0] ?? "";
  if ((verb === "explain" || verb === "show") && other !== run.id && RUN_ID.test(other)) return { kind: "open", run: other };
  const ours = plain[0] === run.id || plain[0] === `${run.workflow}/${run.key}`;
  if (!ours || words.includes("--answer")) return { kind: "none" };
  if (["retry", "resume", "cancel", "pause"].includes(verb) && run.actions.includes(verb)) return { kind: "act", action: verb, node: "" };
  if (["skip", "reattempt"].includes(verb) && plain[1] && run.actions.includes(verb)) return { kind: "act", action: verb, node: plain[1] };
  return { kind: "none" };
}

/** What is left to tell beside the headline: not the same again, and what the form for an answer says already. */
export function causesOf(run: RunDetail): { cause: Cause; remedy: Remedy }[] {
  let dead = false;
  return run.explain.causes
    .filter((cause) => !(cause.command === null && /^it waits since /.test(cause.text) && run.waits.length > 0))
    .filter((cause) => run.questions.length === 0 || !isQuestion(cause, run))
    .map((cause) => ({ cause, remedy: remedyOf(cause, run) }))
    .filter(({ remedy }) => {
      if (remedy.kind !== "dead") return true;
      const first = !dead; // listing and replaying are one page here
      dead = true;
      return first;
    });
}

function isQuestion(cause: Cause, run: RunDetail): boolean {
  return (cause.command ?? "").includes("--answer") || run.questions.some((question) => cause.text.startsWith(`node ${question.node} asks`));
}

const IDS = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b/g;

/** With the ends of ids only: whole ones are a link or a click away. */
export function concise(text: string): string {
  return text.replace(IDS, shortId);
}

/** The headline without what stands above it anyway. */
export function headlineOf(run: RunDetail): string {
  const text = run.explain.headline;
  for (const known of [`run ${run.id} of ${run.workflow} `, `${run.workflow}/${run.key} (run ${run.id}) `, `run ${run.id} `]) {
    if (!text.startsWith(known)) continue;
    const rest = text.slice(known.length).replace(/^is /, "");
    return concise(rest.charAt(0).toUpperCase() + rest.slice(1));
  }
  return concise(text);
}
