/** Lines of a graph as SVG paths. */

import type { Point } from "./layout";

const round = (value: number) => Math.round(value * 10) / 10;
const spot = (point: Point) => `${round(point.x)} ${round(point.y)}`;

/** Smooth through the points of a layout, leaving and arriving in the direction of the graph. */
export function smooth(way: Point[], direction: "TB" | "LR"): string {
  const [first, ...rest] = way;
  const last = way.at(-1);
  if (!first || !last || rest.length === 0) return "";
  if (way.length === 2) {
    const middle = direction === "TB" ? (first.y + last.y) / 2 : (first.x + last.x) / 2;
    const [a, b] = direction === "TB" ? [{ x: first.x, y: middle }, { x: last.x, y: middle }] : [{ x: middle, y: first.y }, { x: middle, y: last.y }];
    return `M${spot(first)}C${spot(a)} ${spot(b)} ${spot(last)}`;
  }
  let path = `M${spot(first)}`;
  for (let at = 1; at < way.length - 1; at += 1) {
    const here = way[at] as Point;
    const next = way[at + 1] as Point;
    const end = at === way.length - 2 ? next : { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 };
    path += `Q${spot(here)} ${spot(end)}`;
  }
  return path;
}

const CORNER = 10;

/** Straight pieces with rounded corners, for loops. */
export function cornered(way: Point[]): string {
  const first = way[0];
  const last = way.at(-1);
  if (!first || !last) return "";
  let path = `M${spot(first)}`;
  for (let at = 1; at < way.length - 1; at += 1) {
    const before = way[at - 1] as Point;
    const here = way[at] as Point;
    const after = way[at + 1] as Point;
    path += `L${spot(towards(here, before))}Q${spot(here)} ${spot(towards(here, after))}`;
  }
  return `${path}L${spot(last)}`;
}

function towards(from: Point, to: Point): Point {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const by = Math.min(CORNER, length / 2) / length;
  return { x: from.x + (to.x - from.x) * by, y: from.y + (to.y - from.y) * by };
}

export function middle(way: Point[]): Point {
  if (way.length === 0) return { x: 0, y: 0 };
  if (way.length % 2 === 1) return way[(way.length - 1) / 2] as Point;
  const a = way[way.length / 2 - 1] as Point;
  const b = way[way.length / 2] as Point;
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}
