/** What can be done with many runs at once. It floats above the list, so that nothing moves when it comes. */

import { useState } from "preact/hooks";
import { post, type Query } from "../api";
import type { BulkDone } from "../contract";
import { plural } from "../format";
import { useConfirm } from "../parts/dialog";
import { complain, say } from "../parts/toast";
import { useRefusal } from "../session";
import { queryOf, type RunFilter } from "./run_filter";
import type { RunList } from "./run_list";

const ACTIONS = {
  cancel: { word: "Cancel", done: "cancelled", text: "Each of them is asked to stop; what it has to undo is undone first. Runs that have ended are left alone.", danger: true },
  pause: { word: "Pause", done: "paused", text: "Nothing new of them begins until they are resumed. What is running now goes on to its end.", danger: false },
  resume: { word: "Resume", done: "resumed", text: "They go on where they were paused. Runs that are not paused are left alone.", danger: false },
  retry: { word: "Retry", done: "retried", text: "What failed in them is tried again; what was done stays done. Runs that did not fail are left alone.", danger: false },
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
        say(parts.join(", "));
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
        {(Object.keys(ACTIONS) as Action[]).map((action) => (
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
