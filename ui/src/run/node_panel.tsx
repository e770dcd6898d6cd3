/** A node of a run: its attempts with their errors and outcomes, and what can be done about it. */

import { useEffect } from "preact/hooks";
import { segment } from "../api";
import type { Attempt, GraphNode, GraphView, Node, NodePage, RunDetail } from "../contract";
import { count, shortId } from "../format";
import { useConfirm } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { FailureView, Payload } from "../parts/payload";
import { Loading, Trouble } from "../parts/states";
import { lookOf, StatusBadge, StatusIcon } from "../parts/status";
import { Lasted, Moment } from "../parts/time";
import { useResource } from "../resource";
import { useRefusal } from "../session";
import { confirmationOf, WORDS } from "./confirmations";

interface Props {
  run: RunDetail;
  node: GraphNode;
  version: number;
  changed: () => void;
  close: () => void;
  open: () => void;
  choose: (id: string | null) => void;
}

export function NodePanel(props: Props) {
  const { node, close } = props;
  return (
    <aside class="panel" aria-label={`Node ${node.label}`}>
      <header>
        <h2>{node.label}</h2>
        <button type="button" class="bare" aria-label="Close the panel" title="Close (Escape)" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      {node.id.startsWith("group:") ? <Group {...props} /> : <Single {...props} />}
    </aside>
  );
}

function Single({ run, node, version, changed }: Props) {
  const page = useResource<NodePage>(`runs/${segment(run.id)}/nodes`, { node: node.id });
  useEffect(() => {
    if (version > 0) page.refresh();
  }, [version]);
  if (!page.value) return page.error ? <Trouble error={page.error} again={page.refresh} /> : <Loading />;
  if (page.value.nodes.length === 0) {
    return (
      <>
        <p>
          <StatusBadge state={node.state} />
        </p>
        <p class="muted">{node.detail || "Nothing of it has begun yet."}</p>
      </>
    );
  }
  // Of a loop the newest pass is what people look for.
  const nodes = [...page.value.nodes].reverse();
  return (
    <>
      {nodes.map((each, at) => (
        <One key={each.id} run={run} node={each} several={nodes.length > 1} open={at === 0} changed={changed} />
      ))}
    </>
  );
}

function One({ run, node, several, open, changed }: { run: RunDetail; node: Node; several: boolean; open: boolean; changed: () => void }) {
  const [ask, dialog] = useConfirm();
  const refusal = useRefusal("operate");
  const offered = ["reattempt", "skip", "fork"].filter((action) => run.actions.includes(action) && !(action === "fork" && run.model === "graph") && !(action === "skip" && ["completed", "skipped"].includes(node.state)));
  const body = (
    <>
      <p class="inline-list">
        <StatusBadge state={node.state} />
        {node.detail && <span class="muted">{node.detail}</span>}
      </p>
      {node.does && <p class="muted small">{node.does}</p>}
      {node.after.length > 0 && <p class="muted small">after {node.after.join(", ")}</p>}
      {node.id !== node.name && (
        <p class="muted small">
          <code>{node.id}</code>
        </p>
      )}
      {offered.length > 0 && (
        <div class="panel-actions">
          {offered.map((action) => (
            <button
              key={action}
              type="button"
              disabled={refusal !== null}
              title={refusal ?? ""}
              onClick={() => {
                const confirmation = confirmationOf(action, run, changed, node.id);
                if (confirmation) ask({ ...confirmation, title: confirmation.title.replace(node.id, node.name) });
              }}
            >
              {action === "fork" ? "Fork from here" : WORDS[action]}
            </button>
          ))}
        </div>
      )}
      <ol class="attempts">
        {[...node.attempts].reverse().map((attempt, at) => (
          <AttemptView key={`${attempt.attempt}-${at}`} attempt={attempt} />
        ))}
      </ol>
      {node.attempts.length === 0 && <p class="muted">No attempt was made yet.</p>}
      {dialog}
    </>
  );
  if (!several) return body;
  return (
    <details class="pass" open={open}>
      <summary>
        <StatusIcon state={node.state} /> {node.id}
      </summary>
      {body}
    </details>
  );
}

function AttemptView({ attempt }: { attempt: Attempt }) {
  const hasOutcome = attempt.outcome !== null && attempt.outcome !== undefined;
  return (
    <li class={`attempt tone-${lookOf(attempt.state).tone}`}>
      <header>
        <strong>Attempt {attempt.attempt}</strong>
        <StatusBadge state={attempt.state} />
        <Lasted begin={attempt.started_at} end={attempt.finished_at ?? (attempt.state === "leased" ? null : attempt.started_at)} />
      </header>
      <p class="muted small">
        {attempt.started_at ? (
          <>
            began <Moment at={attempt.started_at} />
          </>
        ) : attempt.queued_at ? (
          <>
            ready since <Moment at={attempt.queued_at} />
          </>
        ) : (
          "not begun"
        )}
        {attempt.worker && (
          <>
            {" "}
            by worker <code title={attempt.worker}>{shortId(attempt.worker)}</code>
          </>
        )}
      </p>
      {attempt.error && <FailureView failure={attempt.error} />}
      {hasOutcome && <Payload label="Outcome" value={attempt.outcome} open={false} />}
    </li>
  );
}

const MEMBERS = 200;

function Group({ run, node, open, choose, version }: Props) {
  const members = useResource<GraphView>(`runs/${segment(run.id)}/graph`, { group: node.id });
  useEffect(() => {
    if (version > 0) members.refresh();
  }, [version]);
  const nodes = members.value?.nodes.filter((each) => each.id !== node.id) ?? [];
  // Those that need somebody come first.
  const order = ["bad", "held", "active", "waiting", "idle", "good", "gone"];
  const sorted = [...nodes].sort((a, b) => order.indexOf(lookOf(a.state).tone) - order.indexOf(lookOf(b.state).tone));
  return (
    <>
      <p class="inline-list">
        {Object.entries(node.states ?? {}).map(([state, number]) => (
          <StatusBadge key={state} state={state} note={`${count(number)} ${lookOf(state).word}`} />
        ))}
      </p>
      <p>
        <button type="button" onClick={open}>
          Open these {count(node.count ?? 0)} in the graph
        </button>
      </p>
      {members.error && <Trouble error={members.error} again={members.refresh} />}
      {!members.value && !members.error && <Loading />}
      <ul class="members">
        {sorted.slice(0, MEMBERS).map((each) => (
          <li key={each.id}>
            <button
              type="button"
              class="bare"
              onClick={() => {
                open();
                choose(each.id);
              }}
            >
              <StatusIcon state={each.state} /> {each.label}
              {each.attempts > 1 && <span class="muted small">{each.attempts} attempts</span>}
            </button>
          </li>
        ))}
      </ul>
      {sorted.length > MEMBERS && <p class="muted small">and {count(sorted.length - MEMBERS)} more</p>}
    </>
  );
}
