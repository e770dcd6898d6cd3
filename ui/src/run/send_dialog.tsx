/** Sends an event to one run. One opening of the dialog is one message, however often the button is pressed. */

import { useState } from "preact/hooks";
import { post, segment } from "../api";
import type { Parameter, RunDetail, Wait } from "../contract";
import { Dialog, Refused } from "../parts/dialog";
import { say } from "../parts/toast";
import { JsonInput, readValue } from "./json_input";
import { skeletonOf } from "./skeleton";

const OUTCOMES: Record<string, string> = {
  delivered: "was delivered, and the run goes on",
  queued: "is kept until the run asks for it",
  target_ended: "came too late: the run has ended",
};

interface Props {
  run: RunDetail;
  changed: () => void;
  onClose: () => void;
  event?: string;
}

export function SendDialog({ run, changed, onClose, event }: Props) {
  const awaited = [...new Set(run.waits.map((wait) => wait.event).filter((name): name is string => name !== null))];
  const [name, setName] = useState(event ?? awaited[0] ?? "");
  // Until somebody types, the field holds what the chosen event needs.
  const [typed, setTyped] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState<unknown>(null);
  const [message] = useState(() => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`);
  const takes = run.waits.find((wait) => wait.event === name)?.takes ?? null;
  const text = typed ?? skeletonOf(takes?.fields ?? []);
  const type = takes?.type ?? typeTold(run, name);
  const read = readValue(text);
  const submit = async (submitted: Event) => {
    submitted.preventDefault();
    setBusy(true);
    setRefused(null);
    try {
      const answer = await post<{ outcome: string }>(`runs/${segment(run.id)}/events/${segment(name)}`, { value: read.value, message_id: message }, message);
      say(`${name} ${OUTCOMES[answer.outcome] ?? answer.outcome}.`);
      changed();
      onClose();
    } catch (error) {
      setRefused(error);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Send an event to this run" onClose={onClose}>
      <form onSubmit={submit}>
        <p class="dialog-text">
          {awaited.length > 0
            ? `It waits for ${awaited.join(" or ")}. Whatever is sent is kept until the run takes it.`
            : "It waits for no event now. What is sent is kept, and taken when the run asks for it."}
        </p>
        <label class="field">
          <span>Event</span>
          <input type="text" required value={name} list="awaited" onInput={(input) => setName(input.currentTarget.value)} />
          <datalist id="awaited">
            {awaited.map((each) => (
              <option key={each} value={each} />
            ))}
          </datalist>
        </label>
        <JsonInput label="Value" hint={type ? `${type}, as JSON` : "JSON, or plain text; nothing is null"} text={text} onText={setTyped} rows={4} />
        <Fields takes={takes} />
        <Refused error={refused} />
        <div class="dialog-buttons">
          <button type="button" onClick={onClose} disabled={busy}>
            Not now
          </button>
          <button type="submit" class="primary" disabled={busy || !name || read.as === "not valid JSON"}>
            {busy ? "Sending…" : "Send"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Fields({ takes }: { takes: Wait["takes"] }) {
  if (!takes || takes.fields.length === 0) return null;
  return (
    <ul class="fields-told" aria-label={`Fields of ${takes.type}`}>
      {takes.fields.map((field: Parameter) => (
        <li key={field.name}>
          <code>{field.name}</code> <span class="muted small">{field.default === null ? field.type : `${field.type}, optional: ${field.default}`}</span>
        </li>
      ))}
    </ul>
  );
}

/** Where the server tells no fields, the explanation may still name the type. */
function typeTold(run: RunDetail, event: string): string | null {
  const cause = run.explain.causes.find((each) => (each.command ?? "").includes(` send ${event} `));
  return /PAYLOAD is (\S+), as JSON/.exec(cause?.text ?? "")?.[1] ?? null;
}
