/** Why the run is as it is, before anything else: what `holdfast explain` says, with what helps beside it. */

import { useState } from "preact/hooks";
import type { RunDetail } from "../contract";
import { Command, CopyButton } from "../parts/copy";
import { useConfirm } from "../parts/dialog";
import { lookOf } from "../parts/status";
import { Ago } from "../parts/time";
import { setQuery, to } from "../router";
import { useRefusal } from "../session";
import { causesOf, concise, headlineOf } from "./advice";
import { confirmationOf, WORDS } from "./confirmations";
import { SendDialog } from "./send_dialog";

const SHOWN = 8;

export function Explanation({ run, changed }: { run: RunDetail; changed: () => void }) {
  const [sending, setSending] = useState<string | null>(null);
  const [ask, dialog] = useConfirm();
  const refusal = useRefusal("operate");
  const { text } = run.explain;
  const ended = run.finished_at !== null;
  const remedies = causesOf(run);
  const told = `${run.explain.headline} ${remedies.map(({ cause }) => cause.text).join(" ")}`;
  const offered = new Set(remedies.map(({ remedy }) => (remedy.kind === "send" ? remedy.event : remedy.kind === "open" ? remedy.run : "")));
  const events = ended ? [] : run.waits.filter((wait) => wait.event !== null && !offered.has(wait.event));
  const runs = ended ? [] : run.waits.filter((wait) => wait.run !== null && !offered.has(wait.run));
  const since = ended ? null : (run.waits.map((wait) => wait.since).sort()[0] ?? null);
  return (
    <section class={`explanation tone-${lookOf(run.status).tone}`} aria-label="Why it is so">
      <p class="headline">
        {headlineOf(run)}
        {since !== null && (
          <span class="muted small">
            {" "}
            since <Ago at={since} />
          </span>
        )}
      </p>
      {remedies.length > 0 && (
        <ul class="causes">
          {remedies.slice(0, SHOWN).map(({ cause, remedy }) => (
            <li key={`${cause.text}${cause.command}`}>
              <span class="prewrap">{concise(cause.text)}</span>
              {remedy.kind === "act" && (
                <button
                  type="button"
                  class="small"
                  disabled={refusal !== null}
                  title={refusal ?? ""}
                  onClick={() => {
                    const confirmation = confirmationOf(remedy.action, run, changed, remedy.node);
                    if (confirmation) ask(confirmation);
                  }}
                >
                  {WORDS[remedy.action]}
                  {remedy.node && ` ${remedy.node}`}
                </button>
              )}
              {remedy.kind === "send" && (
                <button type="button" class="small" disabled={refusal !== null} title={refusal ?? ""} onClick={() => setSending(remedy.event)}>
                  Send {remedy.event}
                </button>
              )}
              {remedy.kind === "details" && (
                <button type="button" class="small" onClick={() => setQuery({ tab: "details" }, { push: true })}>
                  Show the error
                </button>
              )}
              {remedy.kind === "open" && (
                <a class="button small" href={to(["runs", remedy.run])}>
                  Open that run
                </a>
              )}
              {remedy.kind === "dead" && (
                <a class="button small" href={to(["dead"])}>
                  Dead letters
                </a>
              )}
              {cause.command && remedy.kind === "none" && <Command text={cause.command} />}
              {cause.command && remedy.kind !== "none" && <CopyButton text={cause.command} label={`Copy the command: ${cause.command}`} />}
            </li>
          ))}
        </ul>
      )}
      {(events.length > 0 || runs.length > 0) && (
        <ul class="waits">
          {events.slice(0, SHOWN).map((wait) => (
            <li key={wait.address}>
              {!told.includes(wait.event as string) && (
                <span>
                  Waits for the event <code>{wait.event}</code>
                </span>
              )}
              <button type="button" class="small" disabled={refusal !== null} title={refusal ?? ""} onClick={() => setSending(wait.event)}>
                Send {wait.event}
              </button>
            </li>
          ))}
          {runs.slice(0, SHOWN).map((wait) => (
            <li key={`${wait.address}${wait.run}`}>
              <span>
                Waits for <a href={to(["runs", wait.run as string])}>another run</a>
                {wait.status && <>, which is {wait.status}</>}
              </span>
            </li>
          ))}
        </ul>
      )}
      {text && text.trim() !== run.explain.headline.trim() && (
        <details>
          <summary>As text, with commands</summary>
          <pre class="prewrap">{text}</pre>
        </details>
      )}
      {dialog}
      {sending !== null && <SendDialog run={run} changed={changed} event={sending} onClose={() => setSending(null)} />}
    </section>
  );
}
