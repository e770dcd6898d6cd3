/** A piece of time on the screen: zooming it, keeping it inside the whole, and where the marks go. */

import { clock, duration } from "../format";

export interface Span {
  from: number;
  to: number;
}

const SHORTEST_MS = 2;

/** The span made `factor` times as long around the point at this share of it. */
export function zoomed(span: Span, factor: number, at: number): Span {
  const length = Math.max(SHORTEST_MS, (span.to - span.from) * factor);
  const fixed = span.from + (span.to - span.from) * at;
  return { from: fixed - length * at, to: fixed + length * (1 - at) };
}

/** The span inside the whole; null when it is all of it, so that it grows with it. */
export function clipped(span: Span, whole: Span): Span | null {
  const length = span.to - span.from;
  if (length >= (whole.to - whole.from) * 0.999) return null;
  const from = Math.min(Math.max(span.from, whole.from), whole.to - length);
  return { from, to: from + length };
}

const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000,
  1_800_000, 3_600_000, 7_200_000, 14_400_000, 21_600_000, 43_200_000, 86_400_000, 172_800_000, 604_800_000, 2_592_000_000,
];

export interface Mark {
  at: number;
  /** Short pieces are told from the beginning of the run, long ones by the clock. */
  label: (begin: number) => string;
}

export function ticks(span: Span, wanted: number, begin: number): Mark[] {
  const length = span.to - span.from;
  const step = STEPS.find((each) => length / each <= wanted) ?? length / wanted;
  const marks: Mark[] = [];
  const origin = step < 1_000 ? begin : 0; // round numbers of what the marks say
  for (let at = origin + Math.ceil((span.from - origin) / step) * step; at <= span.to; at += step) marks.push({ at, label: (begin) => label(at, begin, step) });
  return marks;
}

function label(at: number, begin: number, step: number): string {
  if (step >= 86_400_000) return new Date(at).toLocaleDateString(undefined, { month: "short", day: "numeric" });
  if (step >= 1_000) return clock(at);
  const since = at - begin;
  return since < 0 ? "" : `+${duration(since)}`;
}
