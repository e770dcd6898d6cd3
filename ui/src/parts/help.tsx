/** All keys, and what the shapes mean. */

import { Dialog } from "./dialog";
import { StatusBadge, lookOf } from "./status";
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
        <dl class="shapes">
          {STATUSES.map((status) => (
            <div key={status}>
              <dt>
                <StatusBadge state={status} />
              </dt>
              <dd>{lookOf(status).meaning}</dd>
            </div>
          ))}
        </dl>
      </div>
      <div class="dialog-buttons">
        <button type="button" class="primary" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
