/** A layout for a graph that changes: computed in a worker, anew only when its shape or the size of a box is another one. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { GraphNode, GraphView } from "../contract";
import type { Asked, Placed } from "./layout";

let worker: Worker | null = null;
let number = 0;
const waiting = new Map<number, { resolve: (placed: Placed) => void; reject: (error: Error) => void }>();

function ask(asked: Asked): Promise<Placed> {
  if (!worker) {
    worker = new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (event: MessageEvent<{ number: number; placed?: Placed; trouble?: string }>) => {
      const { number, placed, trouble } = event.data;
      const asker = waiting.get(number);
      waiting.delete(number);
      if (placed) asker?.resolve(placed);
      else asker?.reject(new Error(`the graph could not be laid out: ${trouble}`));
    };
    worker.onerror = () => {
      worker = null;
      for (const { reject } of waiting.values()) reject(new Error("the graph could not be laid out; reload the page"));
      waiting.clear();
    };
  }
  const mine = ++number;
  worker.postMessage({ number: mine, asked });
  return new Promise((resolve, reject) => waiting.set(mine, { resolve, reject }));
}

export const NODE_HEIGHT = 42;
const NARROWEST = 116;
const WIDEST = 280;
const BESIDE_TEXT = 52;
const DETAIL_WIDEST = 190;
const STEP = 8;

let canvas: CanvasRenderingContext2D | null = null;
const widths = new Map<string, number>();

function textWidth(text: string): number {
  let width = widths.get(text);
  if (width === undefined) {
    canvas ??= document.createElement("canvas").getContext("2d");
    if (canvas) canvas.font = "600 13px system-ui, sans-serif";
    width = canvas?.measureText(text).width ?? text.length * 7.2;
    widths.set(text, width);
  }
  return width;
}

/** The text, or as much of it as fits, with an ellipsis. `scale` is how much smaller than a label it is written. */
export function fitted(text: string, room: number, scale = 1): string {
  if (textWidth(text) * scale <= room) return text;
  let length = Math.max(1, Math.floor((text.length * room) / (textWidth(text) * scale)));
  while (length > 1 && textWidth(`${text.slice(0, length)}…`) * scale > room) length -= 1;
  return `${text.slice(0, length)}…`;
}

export function widthOf(node: GraphNode): number {
  const second = textWidth(secondLine(node)) * 0.82;
  const first = textWidth(node.label) + badgeWidth(badgeOf(node));
  const width = Math.max(first, Math.min(second, DETAIL_WIDEST)) + BESIDE_TEXT;
  // In steps: a number that grows from 9 to 10 moves nothing.
  return Math.max(NARROWEST, Math.min(WIDEST, Math.ceil(width / STEP) * STEP));
}

// What nearly every node is explains none of them.
const ORDINARY = new Set(["method", "function", "node", "step"]);

/** What stands below the label. */
export function secondLine(node: GraphNode): string {
  return node.detail || (ORDINARY.has(node.kind) ? "" : node.kind);
}

/** How many there are of it, or how often it was tried, unless its label says so. */
export function badgeOf(node: GraphNode): string {
  if (node.count === null) return node.attempts > 1 ? String(node.attempts) : "";
  const told = node.label.replace(/[.,\s\u00a0\u202f](?=\d{3})/g, "");
  return told.endsWith(`(${node.count})`) ? "" : `×${node.count}`;
}

export function badgeWidth(badge: string): number {
  return badge ? badge.length * 7 + 10 : 0;
}

export interface Laid {
  view: GraphView;
  placed: Placed;
  widths: number[];
}

/** The latest layout, kept while the next one is computed. States are always those of `view`. */
export function useLayout(view: GraphView): { laid: Laid | null; error: Error | null } {
  const shape = useMemo(
    () => JSON.stringify([view.direction, view.nodes.map((node) => node.id), view.edges.map((edge) => [edge.from, edge.to, edge.loop, edge.label])]),
    [view],
  );
  const sizes = useMemo(() => view.nodes.map(widthOf).join(), [view]);
  const [held, setHeld] = useState<{ shape: string; placed: Placed; widths: number[]; view: GraphView } | null>(null);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    let stale = false;
    const widths = view.nodes.map(widthOf);
    const boxes = view.nodes.map((node, at) => ({ id: node.id, width: widths[at] ?? NARROWEST, height: NODE_HEIGHT }));
    const known = new Set(view.nodes.map((node) => node.id));
    const links = view.edges.map(({ from, to, loop, label }) => ({ from, to, label, loop: loop || !known.has(from) || !known.has(to) }));
    ask({ boxes, links, direction: view.direction }).then(
      (placed) => {
        if (stale) return;
        setHeld({ shape, placed, widths, view });
        setError(null);
      },
      (error: Error) => !stale && setError(error),
    );
    return () => {
      stale = true;
    };
  }, [shape, sizes]);
  if (!held) return { laid: null, error };
  // While a new shape is laid out, the old one is shown with the states that it had; a box that only grows shows its new
  // state at once, and its whole text a moment later.
  return { laid: { view: held.shape === shape ? view : held.view, placed: held.placed, widths: held.widths }, error };
}
