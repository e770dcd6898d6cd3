/** All keys, and what the shapes mean. */

import { Dialog } from "./dialog";
import { lookOf, StatusBadge } from "./status";
import { STATUSES } from "../contract";

const KEYS: [string, string][] = [
  ["j k", "down and up in a list"],
  ["Enter", "open what is marked"],
  ["x", "select what is marked"],
  ["/", "search"],
  ["1 … 5", "the tabs of a run"],
  ["g r", "runs"],
  ["g q", "queues and workers"],
  ["g t", "timers"],
  ["g d", "dead letters"],
  ["g p", "projections"],
  ["g w", "definitions"],
  ["g s", "settings"],
  ["+ − 0", "zoom a graph or a timeline, 0 fits it"],
  ["← ↑ → ↓", "move a graph that has the focus"],
  ["Escape", "close a panel, a dialog or this"],
];

// Of nodes and attempts; those that runs have too mean the same there.
const NODE_STATES = ["blocked", "ready", "leased", "timed_out", "lost", "skipped", "dead"];

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys and shapes" onClose={onClose} wide>
      <div class="help">
        <dl class="keys">
          {KEYS.map(([keys, meaning]) => (
            <div key={keys}>
              <dt>
                {keys.split(" ").map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
        <div>
          <Shapes title="Runs" states={STATUSES} />
          <Shapes title="Nodes and attempts" states={NODE_STATES} />
        </div>
      </div>
      <div class="dialog-buttons">
        <button type="button" class="primary" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function Shapes({ title, states }: { title: string; states: readonly string[] }) {
  return (
    <>
      <h3>{title}</h3>
      <dl class="shapes">
        {states.map((state) => (
          <div key={state}>
            <dt>
              <StatusBadge state={state} />
            </dt>
            <dd>{lookOf(state).meaning}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}
