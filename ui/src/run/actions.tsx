/** What can be done with a run now, as the server says. */

import { useState } from "preact/hooks";
import type { RunDetail } from "../contract";
import { useConfirm } from "../parts/dialog";
import { useRefusal } from "../session";
import { confirmationOf, WORDS } from "./confirmations";
import { SendDialog } from "./send_dialog";

// Those for one node are where the node is.
const ORDER = ["retry", "resume", "send", "pause", "fork", "cancel"];

const BY_NODE = new Set(["dag", "flow"]); // forked from a node, in its panel

export function RunActions({ run, changed }: { run: RunDetail; changed: () => void }) {
  const [ask, dialog] = useConfirm();
  const [sending, setSending] = useState(false);
  const refusal = useRefusal("operate");
  // Resuming a run that a failure paused tries what gave up again: two buttons for one thing would be one too many.
  const shown = ORDER.filter((action) => run.actions.includes(action) && !(action === "retry" && run.actions.includes("resume")) && !(action === "fork" && BY_NODE.has(run.model)));
  if (shown.length === 0) return null;
  const lead = shown[0] === "retry" || shown[0] === "resume" ? shown[0] : "";
  const press = (action: string) => {
    const confirmation = confirmationOf(action, run, changed);
    if (confirmation) ask(confirmation);
    else setSending(true);
  };
  return (
    <div class="run-actions" role="toolbar" aria-label="Actions for this run">
      {shown.map((action) => (
        <button
          key={action}
          type="button"
          class={action === lead ? "primary" : action === "cancel" ? "danger-quiet" : ""}
          disabled={refusal !== null}
          title={refusal ?? ""}
          onClick={() => press(action)}
        >
          {WORDS[action]}
        </button>
      ))}
      {dialog}
      {sending && <SendDialog run={run} changed={changed} onClose={() => setSending(false)} />}
    </div>
  );
}
