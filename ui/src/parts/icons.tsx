/** Icons, drawn by hand on a 16 by 16 grid. Each status has a shape of its own: colour is never the only difference. */

import type { JSX } from "preact";

const LINE = { fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round", "stroke-linejoin": "round" } as const;

const SHAPES: Record<string, () => JSX.Element> = {
  // An empty, dotted ring: nothing has happened yet.
  waiting: () => <circle cx="8" cy="8" r="5.6" {...LINE} stroke-dasharray="1.2 3" />,
  // A ring that turns.
  running: () => (
    <g class="turning">
      <circle cx="8" cy="8" r="5.6" {...LINE} stroke-opacity="0.3" />
      <path d="M8 2.4a5.6 5.6 0 0 1 5.6 5.6" {...LINE} stroke-width={2} />
    </g>
  ),
  // An hourglass.
  suspended: () => <path d="M4.5 2.5h7M4.5 13.5h7M5.2 2.8c0 3 2 3.8 2.8 5.2.8-1.4 2.8-2.2 2.8-5.2M5.2 13.2c0-3 2-3.8 2.8-5.2.8 1.4 2.8 2.2 2.8 5.2" {...LINE} />,
  paused: () => <path d="M5.6 3.5v9M10.4 3.5v9" {...LINE} stroke-width={2.6} />,
  // A disc with a tick cut out of it.
  completed: () => (
    <g>
      <circle cx="8" cy="8" r="6.4" fill="currentColor" />
      <path d="M5.2 8.3l2 2 3.7-4.2" {...LINE} class="cut" stroke-width={1.8} />
    </g>
  ),
  // A square on its point with a cross cut out of it.
  failed: () => (
    <g>
      <path d="M8 1.2 14.8 8 8 14.8 1.2 8Z" fill="currentColor" stroke="currentColor" stroke-linejoin="round" />
      <path d="M6 6l4 4M10 6l-4 4" {...LINE} class="cut" stroke-width={1.8} />
    </g>
  ),
  cancelling: () => (
    <g>
      <circle cx="8" cy="8" r="5.6" {...LINE} stroke-dasharray="3 2.2" />
      <path d="M5.5 8h5" {...LINE} />
    </g>
  ),
  cancelled: () => (
    <g>
      <circle cx="8" cy="8" r="5.6" {...LINE} />
      <path d="M4.2 11.8l7.6-7.6" {...LINE} />
    </g>
  ),
  // Two arrows: stepped over.
  skipped: () => <path d="M3.5 4.5 7 8l-3.5 3.5M8.5 4.5 12 8l-3.5 3.5" {...LINE} />,
  // A broken ring: the worker vanished.
  lost: () => <path d="M3 10.5A5.6 5.6 0 0 1 8 2.4M13 5.5A5.6 5.6 0 0 1 8 13.6M6 6l4 4M10 6l-4 4" {...LINE} />,
  clock: () => (
    <g>
      <circle cx="8" cy="8" r="5.8" {...LINE} />
      <path d="M8 4.8V8l2.2 1.6" {...LINE} />
    </g>
  ),
  runs: () => <path d="M3 4h10M3 8h10M3 12h6" {...LINE} />,
  queues: () => <path d="M2.5 3.5h11v3h-11zM2.5 9.5h11v3h-11z" {...LINE} />,
  dead: () => <path d="M2.5 4h11v8h-11zM2.5 4.5 8 9l5.5-4.5" {...LINE} />,
  projections: () => <path d="M3 12.5V8M7 12.5v-9M11 12.5V6M2 13.5h12" {...LINE} />,
  definitions: () => <path d="M6 3.2h4v3H6zM2.5 10h4v3h-4zM9.5 10h4v3h-4zM8 6.2V8M4.5 10V8h7v2" {...LINE} />,
  settings: () => (
    <g>
      <path d="M2.5 5h6M12.5 5h1M2.5 11h1M7.5 11h6" {...LINE} />
      <circle cx="10.4" cy="5" r="1.8" {...LINE} />
      <circle cx="5.4" cy="11" r="1.8" {...LINE} />
    </g>
  ),
  copy: () => <path d="M5.5 5.5h7v7h-7zM3.5 10.5v-7h7" {...LINE} />,
  tick: () => <path d="M3.5 8.5l3 3 6-7" {...LINE} />,
  close: () => <path d="M4 4l8 8M12 4l-8 8" {...LINE} />,
  plus: () => <path d="M8 3.5v9M3.5 8h9" {...LINE} />,
  minus: () => <path d="M3.5 8h9" {...LINE} />,
  fit: () => <path d="M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3" {...LINE} />,
  sun: () => (
    <g>
      <circle cx="8" cy="8" r="2.8" {...LINE} />
      <path d="M8 1.8v1M8 13.2v1M1.8 8h1M13.2 8h1M3.6 3.6l.7.7M11.7 11.7l.7.7M12.4 3.6l-.7.7M4.3 11.7l-.7.7" {...LINE} />
    </g>
  ),
  moon: () => <path d="M12.9 9.7A5.4 5.4 0 1 1 6.3 3.1a4.3 4.3 0 0 0 6.6 6.6Z" {...LINE} />,
  half: () => (
    <g>
      <circle cx="8" cy="8" r="5.6" {...LINE} />
      <path d="M8 2.4a5.6 5.6 0 0 1 0 11.2Z" fill="currentColor" />
    </g>
  ),
  down: () => <path d="M4 6.5 8 10.5 12 6.5" {...LINE} />,
  question: () => <path d="M5.6 5.8a2.4 2.4 0 1 1 3.6 2.1c-.8.5-1.2.9-1.2 1.8M8 12.4v.1" {...LINE} stroke-width={1.8} />,
  search: () => (
    <g>
      <circle cx="7" cy="7" r="4.2" {...LINE} />
      <path d="M10.2 10.2 13.5 13.5" {...LINE} />
    </g>
  ),
};

export type IconName = string;

/** Decoration: a label beside it, or the button around it, says what it means. */
export function Icon({ name, size = 16, class: extra = "" }: { name: IconName; size?: number; class?: string }) {
  const shape = SHAPES[name] ?? SHAPES["waiting"];
  return (
    <svg class={`icon ${extra}`} width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      {shape?.()}
    </svg>
  );
}

/** The same inside another drawing, at a place of it. */
export function IconAt({ name, x, y, size }: { name: IconName; x: number; y: number; size: number }) {
  const shape = SHAPES[name] ?? SHAPES["waiting"];
  return (
    <svg x={x} y={y} width={size} height={size} viewBox="0 0 16 16">
      {shape?.()}
    </svg>
  );
}
