/** The graph of a run with its live states, and a panel for the node that was chosen. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, segment } from "../api";
import type { GraphView, RunDetail } from "../contract";
import { count } from "../format";
import { GraphCanvas, shownState } from "../graph/canvas";
import { withOpened } from "../graph/groups";
import { useKeys } from "../parts/keys";
import { Empty, Loading, Trouble } from "../parts/states";
import { lookOf, StatusBadge } from "../parts/status";
import { complain } from "../parts/toast";
import { useResource } from "../resource";
import { type Place, setQuery } from "../router";
import { NodePanel } from "./node_panel";

interface Props {
  run: RunDetail;
  place: Place;
  version: number;
  changed: () => void;
}

export function GraphTab({ run, place, version, changed }: Props) {
  const all = place.query.get("all") === "1";
  const graph = useResource<GraphView>(`runs/${segment(run.id)}/graph`, { all: all ? 1 : null });
  const [opened, setOpened] = useState<Map<string, GraphView>>(new Map());
  const selected = place.query.get("node");
  const choose = (id: string | null) => setQuery({ node: id });

  const open = async (id: string) => {
    try {
      const members = await get<GraphView>(`runs/${segment(run.id)}/graph`, { group: id });
      setOpened((held) => new Map(held).set(id, members));
    } catch (error) {
      complain(error, "Open the group");
    }
  };
  const close = (id: string) =>
    setOpened((held) => {
      const rest = new Map(held);
      rest.delete(id);
      return rest;
    });
  useEffect(() => {
    if (version === 0) return;
    graph.refresh();
    for (const id of opened.keys()) void open(id);
  }, [version]);
  useKeys({ Escape: () => choose(null) });

  // A graph that is asked for again stays on the screen.
  const held = useRef<GraphView | null>(null);
  if (graph.value) held.current = graph.value;
  const view = graph.value ?? held.current;
  const shown = useMemo(() => view && withOpened(view, opened), [view, opened]);

  if (!view || !shown) return graph.error ? <Trouble error={graph.error} again={graph.refresh} /> : <Loading what="Loading the graph" />;
  if (view.nodes.length === 0) {
    return (
      <Empty title="There is no graph to draw yet" icon="definitions">
        <p>{run.model === "function" ? "A function's graph are the calls it has made, and it has made none." : "Nothing of this run is known here yet."}</p>
      </Empty>
    );
  }
  const node = shown.nodes.find((each) => each.id === selected) ?? null;
  return (
    <div class="graph-tab">
      <div class="chart-tools">
        <StateCounts view={shown} />
        <span class="graph-options">
          {[...opened.keys()].map((id) => (
            <button key={id} type="button" class="small" onClick={() => close(id)}>
              Close {view.nodes.find((each) => each.id === id)?.label ?? id}
            </button>
          ))}
          {(view.truncated || all) && (
            <button type="button" class="small" onClick={() => setQuery({ all: all ? null : "1" })}>
              {all ? "Group wide fan-outs" : "Show every node"}
            </button>
          )}
        </span>
      </div>
      <div class={`graph-and-panel ${node ? "with-panel" : ""}`}>
        <GraphCanvas view={shown} selected={selected} choose={choose} label={`Graph of ${run.workflow}, ${count(shown.nodes.length)} nodes`} />
        {node && <NodePanel key={node.id} run={run} node={node} version={version} changed={changed} close={() => choose(null)} open={() => open(node.id)} choose={choose} />}
      </div>
    </div>
  );
}

function StateCounts({ view }: { view: GraphView }) {
  const counts = new Map<string, number>();
  for (const node of view.nodes) {
    for (const [state, number] of node.states ? Object.entries(node.states) : [[shownState(node), 1] as const]) {
      const word = lookOf(state).word;
      if (word) counts.set(state, (counts.get(state) ?? 0) + number);
    }
  }
  return (
    <p class="inline-list" aria-label="Nodes by state">
      {[...counts].map(([state, number]) => (
        <StatusBadge key={state} state={state} note={`${count(number)} ${lookOf(state).word}`} />
      ))}
    </p>
  );
}
