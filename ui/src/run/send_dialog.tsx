/** Sends an event to one run. One opening of the dialog is one message, however often the button is pressed. */

import { useState } from "preact/hooks";
import { post, segment } from "../api";
import type { RunDetail } from "../contract";
import { Dialog } from "../parts/dialog";
import { complain, say } from "../parts/toast";
import { JsonInput, readValue } from "./json_input";

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
  const awaited = run.waits.map((wait) => wait.event).filter((name): name is string => name !== null);
  const [name, setName] = useState(event ?? awaited[0] ?? "");
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [message] = useState(() => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`);
  const read = readValue(text);
  const submit = async (submitted: Event) => {
    submitted.preventDefault();
    setBusy(true);
    try {
      const answer = await post<{ outcome: string }>(`runs/${segment(run.id)}/events/${segment(name)}`, { value: read.value, message_id: message }, message);
      say(`${name} ${OUTCOMES[answer.outcome] ?? answer.outcome}.`);
      changed();
      onClose();
    } catch (error) {
      complain(error, `Send ${name}`);
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
        <JsonInput label="Value" hint="JSON, or plain text" text={text} onText={setText} rows={4} placeholder='{"approved": true}' />
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
