/** Places for nodes. Small graphs are laid out by dagre; for thousands of nodes ranks and rows have to do. */

import { Graph, layout as dagre } from "@dagrejs/dagre";

export interface Box {
  id: string;
  width: number;
  height: number;
}

export interface Link {
  from: string;
  to: string;
  /** Back to what came before: drawn beside the graph, and not part of its order. */
  loop: boolean;
  label: string;
}

export interface Asked {
  boxes: Box[];
  links: Link[];
  direction: "TB" | "LR";
}

export interface Point {
  x: number;
  y: number;
}

export interface Placed {
  /** The middle of each box, in the order of the question. */
  points: Point[];
  /** The way of each link, in the order of the question; empty for what has none. */
  ways: Point[][];
  width: number;
  height: number;
}

const MARGIN = 24;
// Beyond these dagre takes seconds: its time grows with the square of what is in one rank.
const MOST_BOXES = 600;
const MOST_LINKS = 1_500;
const MOST_CROSSING = 20_000;

export function layout(asked: Asked): Placed {
  const forward = asked.links.filter((link) => !link.loop && link.from !== link.to);
  const heavy = asked.boxes.length > MOST_BOXES || forward.length > MOST_LINKS || widest(asked, forward) ** 2 > MOST_CROSSING;
  const placed = heavy ? inRows(asked, forward) : withDagre(asked, forward);
  return withLoops(asked, placed);
}

function withDagre(asked: Asked, forward: Link[]): Placed {
  const graph = new Graph({ multigraph: true, compound: false });
  graph.setGraph({ rankdir: asked.direction, nodesep: 28, ranksep: asked.direction === "TB" ? 46 : 64, edgesep: 14, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const box of asked.boxes) graph.setNode(box.id, { width: box.width, height: box.height });
  for (const [at, link] of forward.entries()) {
    const width = link.label ? Math.min(140, link.label.length * 6.2 + 10) : 0;
    graph.setEdge(link.from, link.to, { width, height: link.label ? 14 : 0, labelpos: "c" }, `${at}`);
  }
  dagre(graph);
  const points = asked.boxes.map((box) => at(graph.node(box.id)));
  const names = new Map(forward.map((link, at) => [link, `${at}`]));
  const ways = asked.links.map((link) => {
    const name = names.get(link);
    if (name === undefined) return [];
    const edge = graph.edge({ v: link.from, w: link.to, name }) as { points?: Point[] } | undefined;
    return (edge?.points ?? []).map(at);
  });
  return { points, ways, ...extent(asked.boxes, points) };
}

function at(point: unknown): Point {
  const { x, y } = point as Point;
  return { x, y };
}

/** Ranks below each other; a rank that is too wide is broken into rows. */
function inRows(asked: Asked, forward: Link[]): Placed {
  const ranks = ranksOf(asked.boxes, forward);
  const rows: Box[][] = [];
  for (const box of asked.boxes) {
    const rank = ranks.get(box.id) ?? 0;
    (rows[rank] ??= []).push(box);
  }
  const places = new Map<string, Point>();
  const parents = new Map<string, string[]>();
  for (const link of forward) parents.set(link.to, [...(parents.get(link.to) ?? []), link.from]);
  const widestBox = Math.max(1, ...asked.boxes.map((box) => box.width));
  const highestBox = Math.max(1, ...asked.boxes.map((box) => box.height));
  const inRow = Math.max(8, Math.ceil(Math.sqrt(asked.boxes.length) * 0.9));
  const [along, across] = asked.direction === "TB" ? [widestBox + 24, highestBox + 20] : [highestBox + 16, widestBox + 40];
  let down = MARGIN + across / 2;
  for (const row of rows) {
    if (!row) continue;
    // Below what it comes from, as far as that goes.
    const wish = (box: Box) => {
      const above = (parents.get(box.id) ?? []).map((id) => places.get(id)?.x ?? 0);
      return above.length ? above.reduce((sum, x) => sum + x, 0) / above.length : 0;
    };
    const sorted = row.map((box, at) => ({ box, wish: wish(box), at })).sort((a, b) => a.wish - b.wish || a.at - b.at);
    for (let first = 0; first < sorted.length; first += inRow) {
      const line = sorted.slice(first, first + inRow);
      const begin = (Math.min(inRow, asked.boxes.length) * along) / 2 - ((line.length - 1) * along) / 2;
      for (const [place, { box }] of line.entries()) places.set(box.id, { x: begin + place * along, y: down });
      down += across;
    }
    down += 36;
  }
  const turn = (point: Point): Point => (asked.direction === "TB" ? point : { x: point.y, y: point.x });
  const found = asked.boxes.map((box) => places.get(box.id) ?? { x: 0, y: 0 });
  const left = Math.min(0, ...found.map((point, at) => point.x - (asked.boxes[at]?.width ?? 0) / 2)) - MARGIN;
  const points = found.map((point) => turn({ x: point.x - left, y: point.y }));
  const byId = new Map(asked.boxes.map((box, at) => [box.id, { box, point: points[at] as Point }]));
  const ways = asked.links.map((link) => {
    const from = byId.get(link.from);
    const to = byId.get(link.to);
    if (!from || !to || link.loop || link.from === link.to) return [];
    return straight(from.point, from.box, to.point, to.box, asked.direction);
  });
  return { points, ways, ...extent(asked.boxes, points) };
}

function straight(from: Point, fromBox: Box, to: Point, toBox: Box, direction: "TB" | "LR"): Point[] {
  if (direction === "TB") return [{ x: from.x, y: from.y + fromBox.height / 2 }, { x: to.x, y: to.y - toBox.height / 2 }];
  return [{ x: from.x + fromBox.width / 2, y: from.y }, { x: to.x - toBox.width / 2, y: to.y }];
}

/** How long the longest way to each box is. What is on a cycle that is not marked as one comes first. */
export function ranksOf(boxes: Box[], links: Link[]): Map<string, number> {
  const open = new Map(boxes.map((box) => [box.id, 0]));
  const next = new Map<string, string[]>();
  for (const link of links) {
    if (!open.has(link.from) || !open.has(link.to)) continue;
    open.set(link.to, (open.get(link.to) ?? 0) + 1);
    const after = next.get(link.from);
    if (after) after.push(link.to);
    else next.set(link.from, [link.to]);
  }
  const ranks = new Map<string, number>();
  const ready = boxes.filter((box) => open.get(box.id) === 0).map((box) => box.id);
  for (const id of ready) ranks.set(id, 0);
  for (let at = 0; at < ready.length; at += 1) {
    const id = ready[at] as string;
    for (const after of next.get(id) ?? []) {
      ranks.set(after, Math.max(ranks.get(after) ?? 0, (ranks.get(id) ?? 0) + 1));
      const left = (open.get(after) ?? 1) - 1;
      open.set(after, left);
      if (left === 0) ready.push(after);
    }
  }
  return ranks;
}

function widest(asked: Asked, forward: Link[]): number {
  const sizes = new Map<number, number>();
  for (const rank of ranksOf(asked.boxes, forward).values()) sizes.set(rank, (sizes.get(rank) ?? 0) + 1);
  return Math.max(0, ...sizes.values());
}

/** Loops go back beside the graph, outside of everything between their ends. */
function withLoops(asked: Asked, placed: Placed): Placed {
  const index = new Map(asked.boxes.map((box, at) => [box.id, at]));
  let { width, height } = placed;
  let lane = 0;
  const ways = placed.ways.map((way, at) => {
    const link = asked.links[at] as Link;
    const from = index.get(link.from);
    const to = index.get(link.to);
    if (from === undefined || to === undefined || (!link.loop && link.from !== link.to)) return way;
    const a = placed.points[from] as Point;
    const b = placed.points[to] as Point;
    const aBox = asked.boxes[from] as Box;
    const bBox = asked.boxes[to] as Box;
    if (from === to) {
      const right = a.x + aBox.width / 2;
      width = Math.max(width, right + 40 + MARGIN);
      return [{ x: right, y: a.y + 8 }, { x: right + 34, y: a.y + 8 }, { x: right + 34, y: a.y - 8 }, { x: right, y: a.y - 8 }];
    }
    // Out at the far side, along the gap between two ranks, back beside everything, and in where others come in.
    const shift = 26 + (lane % 4) * 12;
    const gap = 16 + (lane % 3) * 4;
    lane += 1;
    const beside = (low: number, high: number, along: "x" | "y") =>
      asked.boxes.flatMap((box, at) => {
        const point = placed.points[at] as Point;
        if (point[along] < low || point[along] > high) return [];
        return [along === "y" ? point.x + box.width / 2 : point.y + box.height / 2];
      });
    if (asked.direction === "TB") {
      const [out, back] = [a.y + aBox.height / 2 + gap, b.y - bBox.height / 2 - gap];
      const x = Math.max(...beside(Math.min(a.y, b.y) - 30, Math.max(a.y, b.y) + 30, "y")) + shift;
      width = Math.max(width, x + MARGIN);
      height = Math.max(height, out + MARGIN);
      const [leave, enter] = [a.x + aBox.width / 4, b.x + bBox.width / 4];
      return [{ x: leave, y: a.y + aBox.height / 2 }, { x: leave, y: out }, { x, y: out }, { x, y: back }, { x: enter, y: back }, { x: enter, y: b.y - bBox.height / 2 }];
    }
    const [out, back] = [a.x + aBox.width / 2 + gap, b.x - bBox.width / 2 - gap];
    const y = Math.max(...beside(Math.min(a.x, b.x) - 30, Math.max(a.x, b.x) + 30, "x")) + shift;
    height = Math.max(height, y + MARGIN);
    width = Math.max(width, out + MARGIN);
    return [{ x: a.x + aBox.width / 2, y: a.y + 8 }, { x: out, y: a.y + 8 }, { x: out, y }, { x: back, y }, { x: back, y: b.y + 8 }, { x: b.x - bBox.width / 2, y: b.y + 8 }];
  });
  return { points: placed.points, ways, width, height };
}

function extent(boxes: Box[], points: Point[]): { width: number; height: number } {
  let width = 0;
  let height = 0;
  for (const [at, point] of points.entries()) {
    width = Math.max(width, point.x + (boxes[at]?.width ?? 0) / 2 + MARGIN);
    height = Math.max(height, point.y + (boxes[at]?.height ?? 0) / 2 + MARGIN);
  }
  return { width, height };
}
