/** Groups that are opened in the drawing: their members take their place. */

import type { GraphEdge, GraphView } from "../contract";

export function withOpened(view: GraphView, opened: Map<string, GraphView>): GraphView {
  let shown = view;
  for (const [id, members] of opened) shown = withOne(shown, id, members);
  return shown;
}

function withOne(view: GraphView, id: string, members: GraphView): GraphView {
  if (!view.nodes.some((node) => node.id === id)) return view;
  const inside = members.nodes.filter((node) => node.id !== id);
  const ids = new Set(inside.map((node) => node.id));
  const between = members.edges.filter((edge) => ids.has(edge.from) && ids.has(edge.to));
  const entered = new Set(between.map((edge) => edge.to));
  const left = new Set(between.map((edge) => edge.from));
  const first = inside.filter((node) => !entered.has(node.id));
  const last = inside.filter((node) => !left.has(node.id));
  const edges: GraphEdge[] = [];
  for (const edge of view.edges) {
    if (edge.from === id && edge.to === id) continue;
    if (edge.to === id) for (const node of first) edges.push({ ...edge, to: node.id });
    else if (edge.from === id) for (const node of last) edges.push({ ...edge, from: node.id });
    else edges.push(edge);
  }
  const place = view.nodes.findIndex((node) => node.id === id);
  const nodes = [...view.nodes.slice(0, place), ...inside, ...view.nodes.slice(place + 1)];
  return { ...view, nodes, edges: [...edges, ...between] };
}
