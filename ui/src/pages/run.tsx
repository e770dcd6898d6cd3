/** One run: what it is, why it is as it is, what can be done about it, and everything it did. */

import { useEffect, useState } from "preact/hooks";
import type { Model, RunDetail } from "../contract";
import { shortId } from "../format";
import { live, useLive } from "../live";
import { CopyButton } from "../parts/copy";
import { useKeys } from "../parts/keys";
import { lazy } from "../parts/lazy";
import { Empty, Loading, Trouble } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Ago, Lasted } from "../parts/time";
import { ApiError } from "../api";
import { useResource } from "../resource";
import { type Place, setQuery, to } from "../router";
import { RunActions } from "../run/actions";
import { DetailsTab } from "../run/details_tab";
import { Explanation } from "../run/explanation";
import { HistoryTab } from "../run/history_tab";
import { Questions } from "../run/questions";
import { StateTab } from "../run/state_tab";
import { TimelineTab } from "../run/timeline_tab";

// Laying out and drawing graphs is the largest part of the page, and not every visit needs it.
const GraphTab = lazy(() => import("../run/graph_tab").then((tab) => tab.GraphTab));

const TABS = { graph: "Graph", timeline: "Timeline", history: "History", state: "State", details: "Details" } as const;
export type Tab = keyof typeof TABS;

const FIRST: Partial<Record<Model, Tab>> = { function: "timeline", decider: "state", projection: "details" };

export function tabsOf(model: Model): Tab[] {
  const stateful = model === "decider" || model === "graph";
  return (Object.keys(TABS) as Tab[]).filter((tab) => tab !== "state" || stateful);
}

export function RunPage({ id, place }: { id: string; place: Place }) {
  const run = useResource<RunDetail>(`runs/${encodeURIComponent(id)}`);
  // What the tabs watch: it grows with every change that was heard of.
  const [version, setVersion] = useState(0);
  const changed = () => {
    run.refresh();
    setVersion((version) => version + 1);
  };
  useEffect(() => live.follow(id), [id]);
  useLive(changed, (heard) =>
    heard.kind === "run" ? heard.id === id : heard.kind === "runs" && heard.change.changed.some((each) => each.id === id),
  );
  useEffect(() => {
    if (run.value) document.title = `${run.value.status}: ${run.value.key ?? run.value.workflow} · Holdfast`;
  }, [run.value?.status]);

  if (!run.value) {
    if (run.error instanceof ApiError && run.error.status === 404) {
      return (
        <Empty title="There is no such run" icon="search" command={`holdfast show ${id}`}>
          <p>
            No run has the id <code>{id}</code>. It may have been pruned, or belong to another database.{" "}
            <a href={to(["runs"], { q: id.slice(0, 8) })}>Search for similar ids</a>
          </p>
        </Empty>
      );
    }
    return run.error ? <Trouble error={run.error} again={run.refresh} /> : <Loading what="Loading the run" />;
  }
  return <Shown run={run.value} place={place} version={version} changed={changed} error={run.error} />;
}

interface ShownProps {
  run: RunDetail;
  place: Place;
  version: number;
  changed: () => void;
  error: Error | null;
}

function Shown({ run, place, version, changed, error }: ShownProps) {
  const tabs = tabsOf(run.model);
  const asked = place.query.get("tab") as Tab | null;
  const tab = asked && tabs.includes(asked) ? asked : (FIRST[run.model] ?? "graph");
  const open = (to: Tab) => setQuery({ tab: to }, { push: true });
  useKeys(Object.fromEntries(tabs.map((each, at) => [String(at + 1), () => open(each)])));
  return (
    <article class="page run-page">
      <nav class="crumbs" aria-label="Where this is">
        <a href={to(["runs"])}>Runs</a>
        <span aria-hidden="true">/</span>
        <a href={to(["runs"], { workflow: run.workflow })}>{run.workflow}</a>
        {run.parent && (
          <>
            <span aria-hidden="true">/</span>
            <a href={to(["runs", run.parent])} title={`the run that started this one: ${run.parent}`}>
              parent {shortId(run.parent)}
            </a>
          </>
        )}
      </nav>
      <header class="run-head">
        <div class="run-title">
          <h1>{run.key ?? run.workflow}</h1>
          <StatusBadge state={run.status} />
        </div>
        <RunActions run={run} changed={changed} />
        <Facts run={run} />
      </header>
      {error && <Trouble error={error} again={changed} />}
      <Questions run={run} changed={changed} />
      <Explanation run={run} changed={changed} />
      <div class="tabs" role="tablist" aria-label="What to look at">
        {tabs.map((each, at) => (
          <button
            key={each}
            type="button"
            role="tab"
            id={`tab-${each}`}
            aria-selected={each === tab}
            aria-controls="tab-panel"
            tabindex={each === tab ? 0 : -1}
            title={`${TABS[each]} (${at + 1})`}
            onClick={() => open(each)}
            onKeyDown={(event) => {
              const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
              const next = tabs[(at + step + tabs.length) % tabs.length];
              if (!step || !next) return;
              open(next);
              document.getElementById(`tab-${next}`)?.focus();
            }}
          >
            {TABS[each]}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`} class={`tab-panel tab-${tab}`}>
        {tab === "graph" && <GraphTab run={run} place={place} version={version} changed={changed} />}
        {tab === "timeline" && <TimelineTab run={run} version={version} />}
        {tab === "history" && <HistoryTab run={run} version={version} />}
        {tab === "state" && <StateTab run={run} place={place} version={version} changed={changed} />}
        {tab === "details" && <DetailsTab run={run} />}
      </div>
    </article>
  );
}

function Facts({ run }: { run: RunDetail }) {
  return (
    <dl class="facts">
      {run.key !== null && (
        <div>
          <dt>Workflow</dt>
          <dd>
            <a href={to(["definitions", run.workflow])}>{run.workflow}</a>
          </dd>
        </div>
      )}
      <div>
        <dt>Model</dt>
        <dd>{run.model}</dd>
      </div>
      <div>
        <dt>Created</dt>
        <dd>
          <Ago at={run.created_at} />
        </dd>
      </div>
      <div>
        <dt>{run.finished_at ? "Took" : "For"}</dt>
        <dd>
          <Lasted begin={run.started_at ?? run.created_at} end={run.finished_at} />
        </dd>
      </div>
      {run.wakes_at && !run.finished_at && (
        <div>
          <dt>Wakes</dt>
          <dd>
            <Ago at={run.wakes_at} />
          </dd>
        </div>
      )}
      <div>
        <dt>Queue</dt>
        <dd>
          {run.queue}
          {run.priority !== 0 && <span class="muted"> priority {run.priority}</span>}
        </dd>
      </div>
      <div>
        <dt>Run</dt>
        <dd>
          <code>{run.id}</code>
          <CopyButton text={run.id} label="Copy the id of the run" />
        </dd>
      </div>
      {Object.keys(run.tags).length > 0 && (
        <div>
          <dt>Tags</dt>
          <dd>
            {Object.entries(run.tags).map(([name, value]) => (
              <a key={name} class="tag" href={to(["runs"], { tag: `${name}:${value}` })}>
                {name}:{value}
              </a>
            ))}
          </dd>
        </div>
      )}
    </dl>
  );
}
