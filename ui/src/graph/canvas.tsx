/** A graph as one drawing: only what is in view is drawn, and from far away only colours are. */

import { useMemo, useRef } from "preact/hooks";
import type { GraphNode, GraphView } from "../contract";
import { short } from "../format";
import { Icon, IconAt } from "../parts/icons";
import { useKeys } from "../parts/keys";
import { Loading, Trouble } from "../parts/states";
import { lookOf } from "../parts/status";
import type { Placed, Point } from "./layout";
import { cornered, middle, smooth } from "./shapes";
import { badgeOf, badgeWidth, fitted, type Laid, NODE_HEIGHT, secondLine, useLayout } from "./use_layout";
import { useViewport, type Viewport } from "./viewport";

const FAR = 0.28; // below this scale words cannot be read
const MANY = 300;
const STEP = 60;
const FAR_LINES = 2_000; // more of them are a smear, and slow
const LINES = 500;

interface Props {
  view: GraphView;
  selected: string | null;
  choose: (id: string | null) => void;
  label: string;
  /** Without states: how it would run. */
  plain?: boolean;
}

export function GraphCanvas({ view, selected, choose, label, plain = false }: Props) {
  const { laid, error } = useLayout(view);
  if (error) return <Trouble error={error} />;
  if (!laid) return <Loading what="Laying out the graph" />;
  return <Drawing laid={laid} selected={selected} choose={choose} label={label} plain={plain} />;
}

function Drawing({ laid, selected, choose, label, plain }: Omit<Props, "view"> & { laid: Laid; plain: boolean }) {
  const svg = useRef<SVGSVGElement>(null);
  const { view: graph, placed, widths } = laid;
  const control = useViewport(svg, placed);
  const { view, size } = control;
  useKeys({
    "+": () => control.zoom(1.3),
    "=": () => control.zoom(1.3),
    "-": () => control.zoom(1 / 1.3),
    "0": () => control.fit(),
  });
  const arrows = (event: KeyboardEvent) => {
    const by: Record<string, [number, number]> = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    const move = by[event.key];
    if (!move || event.target !== svg.current) return;
    event.preventDefault();
    control.pan(...move);
  };
  const far = view.scale < FAR && graph.nodes.length > MANY;
  const inView = useMemo(() => visible(placed, widths, view, size), [placed, widths, view, size]);
  const shown = far ? "" : inView.join(",");

  const lines = useMemo(() => edgePaths(graph, placed), [graph, placed]);
  const nodes = useMemo(
    () =>
      far
        ? null
        : inView.map((at) => (
            <NodeView key={graph.nodes[at]?.id} node={graph.nodes[at] as GraphNode} at={placed.points[at] as Point} width={widths[at] ?? 0} selected={graph.nodes[at]?.id === selected} plain={plain} choose={choose} />
          )),
    [graph, placed, widths, shown, selected, far],
  );
  const blocks = useMemo(() => (far ? farBlocks(graph, placed, widths) : null), [graph, placed, widths, far]);

  const drawn = useMemo(() => (far ? [] : linesInView(lines, new Set(inView.map((at) => graph.nodes[at]?.id ?? "")), view, size)), [lines, shown, far, view, size]);

  const clicked = (event: MouseEvent) => {
    if (control.dragged()) return;
    const id = (event.target as Element).closest("[data-node]")?.getAttribute("data-node");
    if (id) return choose(id === selected ? null : id);
    if (!far || !svg.current) return choose(null);
    // From far away there are no nodes to click at, only places.
    const box = svg.current.getBoundingClientRect();
    const x = (event.clientX - box.left - view.x) / view.scale;
    const y = (event.clientY - box.top - view.y) / view.scale;
    const hit = placed.points.findIndex((point, at) => Math.abs(point.x - x) <= (widths[at] ?? 0) / 2 + 12 && Math.abs(point.y - y) <= NODE_HEIGHT / 2 + 10);
    choose(graph.nodes[hit]?.id ?? null);
  };
  return (
    <div class="graph">
      {/* A drawing that can be moved with the keys has to be reachable by them. */}
      <svg ref={svg} class="graph-drawing" role="application" aria-label={label} tabindex={0} onClick={clicked} onKeyDown={arrows}>
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0.8 7 4 0 7.2Z" class="arrow-head" />
          </marker>
          <marker id="arrow-taken" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0.8 7 4 0 7.2Z" class="arrow-head taken" />
          </marker>
        </defs>
        <g transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
          {far ? (
            <>
              {lines.length <= FAR_LINES && <path class="edge" d={lines.map((line) => line.path).join("")} />}
              {blocks?.map((block) => <path key={block.tone} class={`far tone-${block.tone}`} d={block.path} />)}
              {selected && <FarMark graph={graph} placed={placed} widths={widths} selected={selected} />}
            </>
          ) : (
            <>
              {drawn.map((line) => (
                  <g key={line.key}>
                    <path class={`edge ${line.taken ? "taken" : ""} ${line.loop ? "loop" : ""}`} d={line.path} marker-end={line.taken ? "url(#arrow-taken)" : "url(#arrow)"} />
                    {line.label && (
                      <text class="edge-label" x={line.middle.x} y={line.middle.y} dy="0.32em">
                        {short(line.label, 24)}
                      </text>
                    )}
                  </g>
              ))}
              {nodes}
            </>
          )}
        </g>
      </svg>
      <div class="graph-tools" role="group" aria-label="Zoom">
        <button type="button" aria-label="Zoom in" title="Zoom in (+)" onClick={() => control.zoom(1.3)}>
          <Icon name="plus" size={14} />
        </button>
        <button type="button" aria-label="Zoom out" title="Zoom out (−)" onClick={() => control.zoom(1 / 1.3)}>
          <Icon name="minus" size={14} />
        </button>
        <button type="button" aria-label="Show all" title="Show all (0)" onClick={control.fit}>
          <Icon name="fit" size={14} />
        </button>
      </div>
    </div>
  );
}

const WAITS = new Set(["wait", "sleep", "timer", "child"]);

/** What waits by its nature is not held up by anything. */
export function shownState(node: GraphNode): string {
  return node.state === "blocked" && WAITS.has(node.kind) ? "waiting" : node.state;
}

interface NodeProps {
  node: GraphNode;
  at: Point;
  width: number;
  selected: boolean;
  plain: boolean;
  choose: (id: string | null) => void;
}

function NodeView({ node, at, width, selected, plain, choose }: NodeProps) {
  const look = lookOf(shownState(node));
  const group = node.count !== null;
  const stateless = plain || node.state === ""; // a line of a flow that is no work of its own, for example
  const text = stateless ? 14 : 36;
  const left = at.x - width / 2;
  const top = at.y - NODE_HEIGHT / 2;
  const second = secondLine(node);
  const badge = badgeOf(node);
  const badgeRoom = badgeWidth(badge);
  const room = width - text - 8 - badgeRoom;
  const words = `${node.label}${stateless ? "" : `, ${look.word}`}${group ? `, ${node.count} nodes` : node.attempts > 1 ? `, ${node.attempts} attempts` : ""}`;
  return (
    <g
      class={`node tone-${look.tone} ${selected ? "selected" : ""} ${group ? "group" : ""} ${stateless ? "stateless" : ""}`}
      data-node={node.id}
      role="button"
      tabindex={0}
      aria-label={words}
      aria-pressed={selected}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        choose(node.id);
      }}
    >
      <title>{node.detail ? `${words}: ${node.detail}` : words}</title>
      {group && <rect class="behind" x={left + 5} y={top + 5} width={width} height={NODE_HEIGHT} rx="7" />}
      <rect class="ground" x={left} y={top} width={width} height={NODE_HEIGHT} rx="7" />
      {!stateless && (
        <g class="node-icon">
          <rect class="edge-mark" x={left + 5} y={top + 8} width="3" height={NODE_HEIGHT - 16} rx="1.5" />
          <IconAt name={look.icon} x={left + 14} y={at.y - 8} size={16} />
        </g>
      )}
      <text class="node-label" x={left + text} y={at.y - (node.states || second ? 3 : -4)}>
        {fitted(node.label, room)}
      </text>
      {!node.states && second && (
        <text class="node-detail" x={left + text} y={at.y + 13}>
          {fitted(second, width - text - 8, 0.82)}
        </text>
      )}
      {badge && (
        <g class="badge">
          <rect x={left + width - badgeRoom - 6} y={top + 5} width={badgeRoom} height="16" rx="8" />
          <text x={left + width - badgeRoom / 2 - 6} y={top + 16.5}>
            {badge}
          </text>
        </g>
      )}
      {node.states && <Shares states={node.states} x={left + 36} y={top + NODE_HEIGHT - 14} width={width - 48} />}
    </g>
  );
}

/** How many of a group are in which state. */
function Shares({ states, x, y, width }: { states: Record<string, number>; x: number; y: number; width: number }) {
  const total = Object.values(states).reduce((sum, number) => sum + number, 0) || 1;
  let from = x;
  return (
    <g class="shares">
      {Object.entries(states).map(([state, number]) => {
        if (number === 0) return null;
        const length = Math.max(4, (number / total) * (width - 4 * Object.keys(states).length)); // one of a thousand is seen
        const begin = from;
        from += length;
        return <rect key={state} class={`tone-${lookOf(state).tone}`} x={begin} y={y} width={length} height="5" />;
      })}
    </g>
  );
}

interface Line {
  key: string;
  from: string;
  to: string;
  path: string;
  points: Point[];
  middle: Point;
  label: string;
  taken: boolean;
  loop: boolean;
}

function edgePaths(graph: GraphView, placed: Placed): Line[] {
  const lines = graph.edges.map((edge, at) => {
    const points = placed.ways[at] ?? [];
    const loop = edge.loop || edge.from === edge.to;
    return { key: `${at}`, from: edge.from, to: edge.to, points, middle: middle(points), label: edge.label, taken: edge.taken, loop, path: loop ? cornered(points) : smooth(points, graph.direction) };
  });
  // What was taken is drawn last, above the rest.
  return lines.filter((line) => line.path).sort((a, b) => Number(a.taken) - Number(b.taken));
}

const NEAR = 80;

function visible(placed: Placed, widths: number[], view: Viewport, size: { width: number; height: number }): number[] {
  const [left, top] = [(-view.x - NEAR) / view.scale, (-view.y - NEAR) / view.scale];
  const [right, bottom] = [(size.width - view.x + NEAR) / view.scale, (size.height - view.y + NEAR) / view.scale];
  const found: number[] = [];
  for (const [at, point] of placed.points.entries()) {
    const half = (widths[at] ?? 0) / 2;
    if (point.x + half >= left && point.x - half <= right && point.y + NODE_HEIGHT >= top && point.y - NODE_HEIGHT <= bottom) found.push(at);
  }
  return found;
}

function touches(points: Point[], view: Viewport, size: { width: number; height: number }): boolean {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const { x, y } of points) {
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  return (
    right * view.scale + view.x >= -NEAR && left * view.scale + view.x <= size.width + NEAR && bottom * view.scale + view.y >= -NEAR && top * view.scale + view.y <= size.height + NEAR
  );
}

/** Lines that pass through what is shown; where a fan-out has thousands of them, those between nodes that are shown. */
function linesInView(lines: Line[], shown: Set<string>, view: Viewport, size: { width: number; height: number }): Line[] {
  const touching = lines.filter((line) => touches(line.points, view, size));
  if (touching.length <= LINES) return touching;
  const one = touching.filter((line) => shown.has(line.from) || shown.has(line.to));
  return (one.length <= LINES ? one : one.filter((line) => shown.has(line.from) && shown.has(line.to))).slice(0, LINES);
}

/** All nodes of a colour as one path: thousands of them cost no more than one. */
function farBlocks(graph: GraphView, placed: Placed, widths: number[]): { tone: string; path: string }[] {
  const paths = new Map<string, string[]>();
  for (const [at, node] of graph.nodes.entries()) {
    const point = placed.points[at] as Point;
    const width = widths[at] ?? 0;
    const tone = lookOf(shownState(node)).tone;
    const piece = `M${Math.round(point.x - width / 2)} ${Math.round(point.y - NODE_HEIGHT / 2)}h${width}v${NODE_HEIGHT}h-${width}Z`;
    const held = paths.get(tone);
    if (held) held.push(piece);
    else paths.set(tone, [piece]);
  }
  return [...paths].map(([tone, pieces]) => ({ tone, path: pieces.join("") }));
}

function FarMark({ graph, placed, widths, selected }: { graph: GraphView; placed: Placed; widths: number[]; selected: string }) {
  const at = graph.nodes.findIndex((node) => node.id === selected);
  const point = placed.points[at];
  if (!point) return null;
  const width = (widths[at] ?? 0) + 60;
  return <rect class="far-mark" x={point.x - width / 2} y={point.y - NODE_HEIGHT} width={width} height={NODE_HEIGHT * 2} rx="20" />;
}
