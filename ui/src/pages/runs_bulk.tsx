/** What can be done with many runs at once. It floats above the list, so that nothing moves when it comes. */

import { useState } from "preact/hooks";
import { post, type Query } from "../api";
import type { BulkDone } from "../contract";
import { plural } from "../format";
import { useConfirm } from "../parts/dialog";
import { complain, say } from "../parts/toast";
import { to } from "../router";
import { useRefusal } from "../session";
import { parametersOf, queryOf, type RunFilter } from "./run_filter";
import type { RunList } from "./run_list";

// The order of the buttons: what helps first, what cannot be taken back last. `of` are the statuses in which it does something.
const ACTIONS = {
  retry: { word: "Retry", done: "retried", text: "What failed in them is tried again; what was done stays done. Runs that did not fail are left alone.", danger: false, of: ["failed"] },
  resume: { word: "Resume", done: "resumed", text: "They go on where they were paused. Runs that are not paused are left alone.", danger: false, of: ["paused"] },
  pause: { word: "Pause", done: "paused", text: "Nothing new of them begins until they are resumed. What is running now goes on to its end.", danger: false, of: ["pending", "running", "suspended"] },
  cancel: { word: "Cancel", done: "cancelled", text: "Each of them is asked to stop; what it has to undo is undone first. Runs that have ended are left alone.", danger: true, of: ["pending", "running", "suspended", "paused"] },
} as const;
type Action = keyof typeof ACTIONS;

const LIMIT = 1_000;

/** Without what is not filtered by. */
function given(query: Query): Query {
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== "" && !(Array.isArray(value) && value.length === 0)));
}

interface Props {
  filter: RunFilter;
  list: RunList;
  selected: ReadonlySet<string>;
  everything: boolean;
  clear: () => void;
}

export function BulkBar({ filter, list, selected, everything, clear }: Props) {
  const [matching, setMatching] = useState(false);
  const [ask, dialog] = useConfirm();
  const refusal = useRefusal("admin");
  const all = matching && everything;
  const statuses = all ? filter.statuses : list.runs.filter((run) => selected.has(run.id)).map((run) => run.status);
  // Without a status to go by, all of them may fit some.
  const offered = (Object.keys(ACTIONS) as Action[]).filter((action) => (all && statuses.length === 0) || statuses.some((status) => (ACTIONS[action].of as readonly string[]).includes(status)));
  const what = all ? "all runs that match the filters" : plural(selected.size, "run");

  const confirm = (action: Action) => {
    const { word, done, text, danger } = ACTIONS[action];
    ask({
      title: `${word} ${what}?`,
      text: (
        <>
          <p>{text}</p>
          {all && <p>At most {LIMIT.toLocaleString()} at a time, the newest first.</p>}
        </>
      ),
      button: `${word} ${all ? "all" : selected.size}`,
      danger,
      act: async () => {
        const which = all ? { filter: given(queryOf(filter, Date.now())), limit: LIMIT } : { ids: [...selected] };
        const answer = await post<BulkDone>("runs/bulk", { action, ...which });
        const parts = [`${plural(answer.done, "run")} ${done}`];
        if (answer.skipped) parts.push(`${answer.skipped} left alone`);
        if (answer.more) parts.push("there are more: repeat it");
        say(parts.join(", "), answer.done > 0 ? whereabouts(filter, all ? [] : [...selected]) : null);
        for (const failed of answer.failed.slice(0, 2)) complain(new Error(failed.message), `${word} ${failed.id}`);
        clear();
        list.renew();
      },
    });
  };
  return (
    <div class="bulk" role="toolbar" aria-label="Actions for the selected runs">
      <strong>{all ? "All that match" : `${selected.size} selected`}</strong>
      {everything && list.more && (
        <button type="button" class="bare link" onClick={() => setMatching(!matching)}>
          {matching ? "only those shown" : "select all that match"}
        </button>
      )}
      <span class="bulk-actions">
        {offered.length === 0 && <span class="muted">They have ended: nothing can be done with them here.</span>}
        {offered.map((action) => (
          <button key={action} type="button" disabled={refusal !== null} title={refusal ?? ""} class={ACTIONS[action].danger ? "danger-quiet" : ""} onClick={() => confirm(action)}>
            {ACTIONS[action].word}
          </button>
        ))}
      </span>
      <button type="button" class="bare link" onClick={clear}>
        Clear
      </button>
      {dialog}
    </div>
  );
}

/** Where those are now: their status may have taken them out of the list. */
function whereabouts(filter: RunFilter, ids: string[]): { text: string; address: string } | null {
  if (ids.length === 1 && ids[0]) return { text: "Open it", address: to(["runs", ids[0]]) };
  if (filter.statuses.length === 0) return null;
  return { text: "Show them, in any status", address: to(["runs"], parametersOf({ ...filter, statuses: [] })) };
}
