/** When what happened: attempts, waits, retries and the gaps between them, as bars that grow while one looks. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { segment } from "../api";
import { useNow } from "../clock";
import type { Bar, RunDetail, Timeline } from "../contract";
import { clock, duration, moment } from "../format";
import { Icon } from "../parts/icons";
import { useKeys } from "../parts/keys";
import { Empty, Loading, Trouble } from "../parts/states";
import { lookOf } from "../parts/status";
import { useResource } from "../resource";
import { clipped, ticks, type Span, zoomed } from "./time_scale";

const ROW = 28;
const BEYOND = 10; // rows that are drawn beyond the edge, so that scrolling shows no holes
const LIMIT = 1_000; // lanes
const MOST = 5_000;
const BAR_MARGIN = 0.02;

export function TimelineTab({ run, version }: { run: RunDetail; version: number }) {
  const [limit, setLimit] = useState(LIMIT);
  const timeline = useResource<Timeline>(`runs/${segment(run.id)}/timeline`, { limit });
  useEffect(() => {
    if (version > 0) timeline.refresh();
  }, [version]);
  const held = useRef<Timeline | null>(null);
  if (timeline.value) held.current = timeline.value;
  const shown = timeline.value ?? held.current;
  if (!shown) return timeline.error ? <Trouble error={timeline.error} again={timeline.refresh} /> : <Loading what="Loading the timeline" />;
  if (shown.bars.length === 0 && run.finished_at !== null) {
    return (
      <Empty title="Nothing took time" icon="clock">
        <p>This run called nothing and waited for nothing. Its history says what it did.</p>
      </Empty>
    );
  }
  if (shown.bars.length === 0) {
    return (
      <Empty title="Nothing has begun yet" icon="clock">
        <p>As soon as a worker takes something of this run, it is shown here.</p>
      </Empty>
    );
  }
  return (
    <>
      {timeline.error && <Trouble error={timeline.error} again={timeline.refresh} />}
      <Chart timeline={shown} />
      {shown.more && (
        <p class="more muted">
          Only the first {shown.lanes.length.toLocaleString()} lanes are shown.{" "}
          {limit < MOST && (
            <button type="button" disabled={timeline.loading} onClick={() => setLimit(MOST)}>
              {timeline.loading ? "Loading…" : "Load more"}
            </button>
          )}
        </p>
      )}
    </>
  );
}

function Chart({ timeline }: { timeline: Timeline }) {
  const growing = timeline.end === null;
  const here = useNow(growing);
  // The server's clock decides: what is between its and ours was measured when the answer came.
  const apart = useMemo(() => Date.parse(timeline.now) - Date.now(), [timeline]);
  const now = here + apart;
  const begin = Date.parse(timeline.begin);
  const lastEnd = useMemo(() => Math.max(...timeline.bars.map((bar) => Date.parse(bar.end ?? bar.begin))), [timeline]);
  const end = Math.max(timeline.end === null ? now : Date.parse(timeline.end), lastEnd, begin + 1);
  const whole: Span = { from: begin - (end - begin) * BAR_MARGIN, to: end + (end - begin) * BAR_MARGIN };
  const [window, setWindow] = useState<Span | null>(null);
  const view = window ?? whole;
  const [chosen, setChosen] = useState<Bar | null>(null);
  const [scroll, setScroll] = useState(0);
  const body = useRef<HTMLDivElement>(null);
  const track = useRef<HTMLDivElement>(null);

  const zoom = (factor: number, at = 0.5) => setWindow(clipped(zoomed(view, factor, at), whole));
  const pan = (share: number) => {
    const by = (view.to - view.from) * share;
    if (window) setWindow(clipped({ from: view.from + by, to: view.to + by }, whole));
  };
  useKeys({
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    "0": () => setWindow(null),
    ArrowLeft: () => pan(-0.15),
    ArrowRight: () => pan(0.15),
  });
  const latest = useRef({ zoom, pan });
  latest.current = { zoom, pan };
  useEffect(() => {
    const element = body.current;
    // Plain scrolling moves the rows; with Ctrl, as browsers zoom, it zooms, and sideways it moves in time.
    const wheel = (event: WheelEvent) => {
      const box = track.current?.getBoundingClientRect();
      if (!box) return;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        latest.current.zoom(Math.exp(event.deltaY * 0.004), (event.clientX - box.left) / box.width);
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        latest.current.pan(event.deltaX / box.width);
      }
    };
    element?.addEventListener("wheel", wheel, { passive: false });
    return () => element?.removeEventListener("wheel", wheel);
  }, []);

  const dragged = useRef<{ x: number; view: Span } | null>(null);
  const drag = (event: PointerEvent) => {
    const box = track.current?.getBoundingClientRect();
    if (!dragged.current || !box) return;
    const { x, view: from } = dragged.current;
    const by = ((x - event.clientX) / box.width) * (from.to - from.from);
    if (window) setWindow(clipped({ from: from.from + by, to: from.to + by }, whole));
  };

  const lanes = useMemo(() => {
    const bars = new Map<string, Bar[]>();
    for (const told of timeline.bars) {
      // What never began waited until the run ended, and no longer.
      const bar = told.end === null && timeline.end !== null ? { ...told, end: timeline.end } : told;
      const lane = bars.get(bar.lane);
      if (lane) lane.push(bar);
      else bars.set(bar.lane, [bar]);
    }
    return timeline.lanes.map((lane) => ({ ...lane, bars: bars.get(lane.id) ?? [] }));
  }, [timeline]);
  const first = Math.max(0, Math.floor(scroll / ROW) - BEYOND);
  const visible = lanes.slice(first, first + Math.ceil(720 / ROW) + 2 * BEYOND);
  const marks = ticks(view, 6, begin);
  return (
    <div class="timeline">
      <div class="chart-tools">
        <Legend />
        <span class="zoom-buttons" role="group" aria-label="Zoom">
          <button type="button" aria-label="Zoom in" title="Zoom in (+, or Ctrl and the wheel)" onClick={() => zoom(0.5)}>
            <Icon name="plus" size={14} />
          </button>
          <button type="button" aria-label="Zoom out" title="Zoom out (−)" onClick={() => zoom(2)} disabled={!window}>
            <Icon name="minus" size={14} />
          </button>
          <button type="button" aria-label="Show all" title="Show all (0)" onClick={() => setWindow(null)} disabled={!window}>
            <Icon name="fit" size={14} />
          </button>
        </span>
      </div>
      <div class="chart">
        <div class="chart-axis" aria-hidden="true">
          <div class="lane-label muted small">{duration(view.to - view.from)} shown</div>
          <div class="track" ref={track}>
            {marks.map((mark) => (
              <span key={mark.at} class="tick" style={{ left: `${place(mark.at, view)}%` }}>
                {place(mark.at, view) > 3 && place(mark.at, view) < 95 ? mark.label(begin) : ""}
              </span>
            ))}
          </div>
        </div>
        <div
          class={`chart-body ${window ? "movable" : ""}`}
          ref={body}
          onScroll={(event) => setScroll(event.currentTarget.scrollTop)}
          onPointerDown={(event) => {
            if (event.button === 0 && window) dragged.current = { x: event.clientX, view };
          }}
          onPointerMove={drag}
          onPointerUp={() => (dragged.current = null)}
          onPointerLeave={() => (dragged.current = null)}
        >
          <div class="chart-rows" style={{ height: `${lanes.length * ROW}px` }} role="list" aria-label="Lanes">
            {visible.map((lane, at) => (
              <div key={lane.id} class="lane" role="listitem" style={{ top: `${(first + at) * ROW}px` }}>
                <div class="lane-label" title={lane.id}>
                  {lane.label}
                </div>
                <div class="track">
                  {marks.map((mark) => (
                    <span key={mark.at} class="grid-line" style={{ left: `${place(mark.at, view)}%` }} />
                  ))}
                  {lane.bars.map((bar) => (
                    <BarView key={`${bar.kind}${bar.attempt}${bar.begin}`} bar={bar} view={view} now={now} chosen={bar === chosen} choose={setChosen} />
                  ))}
                </div>
              </div>
            ))}
          </div>
        </div>
        <p class="chosen-bar" aria-live="polite">
          {chosen ? <Told bar={chosen} now={now} /> : <span class="muted">Choose a bar for its times. Ctrl and the wheel zoom.</span>}
        </p>
      </div>
    </div>
  );
}

const place = (at: number, view: Span) => ((at - view.from) / (view.to - view.from)) * 100;

// What is no attempt looks the same whatever comes of it.
const LOOKS: Partial<Record<Bar["kind"], string>> = { retry: "lost", wait: "suspended", timer: "suspended", queued: "pending" };

interface BarProps {
  bar: Bar;
  view: Span;
  now: number;
  chosen: boolean;
  choose: (bar: Bar) => void;
}

function BarView({ bar, view, now, chosen, choose }: BarProps) {
  const begin = Date.parse(bar.begin);
  const end = bar.end === null ? Math.max(now, begin) : Date.parse(bar.end);
  if (end < view.from || begin > view.to) return null;
  const left = Math.max(-1, place(begin, view));
  const right = Math.min(101, place(end, view));
  const look = lookOf(LOOKS[bar.kind] ?? bar.state);
  return (
    <button
      type="button"
      class={`bar ${bar.kind} state-${bar.state} tone-${look.tone} ${bar.end === null ? "open" : ""} ${chosen ? "chosen" : ""}`}
      style={{ left: `${left}%`, width: `${right - left}%` }}
      title={told(bar, now)}
      aria-label={told(bar, now)}
      onClick={() => choose(bar)}
    >
      {bar.kind === "attempt" && bar.attempt > 1 && <span class="bar-number">{bar.attempt}</span>}
      {bar.kind === "attempt" && look.tone === "bad" && <span class="bar-mark">✕</span>}
    </button>
  );
}

const WORDS: Record<string, string> = {
  attempt: "attempt",
  wait: "waits",
  retry: "pause before the next attempt",
  timer: "timer",
  child: "another run",
  queued: "ready, waits for a worker",
};

function told(bar: Bar, now: number): string {
  const begin = Date.parse(bar.begin);
  const end = bar.end === null ? now : Date.parse(bar.end);
  const what = bar.kind === "attempt" ? `attempt ${bar.attempt}, ${lookOf(bar.state).word}` : (WORDS[bar.kind] ?? bar.kind);
  return `${bar.label}: ${what}, ${duration(end - begin)}${bar.end === null ? " so far" : ""}`;
}

function Told({ bar, now }: { bar: Bar; now: number }) {
  return (
    <>
      <strong>{told(bar, now)}</strong>{" "}
      <span class="muted">
        from {moment(bar.begin)} {bar.end ? `to ${clock(bar.end)}` : "until now"}
      </span>
    </>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="What the bars mean">
      <li>
        <span class="swatch bar attempt tone-good" /> attempt
      </li>
      <li>
        <span class="swatch bar attempt tone-bad" /> failed
      </li>
      <li>
        <span class="swatch bar queued tone-idle" /> ready
      </li>
      <li>
        <span class="swatch bar retry tone-held" /> pause before a retry
      </li>
      <li>
        <span class="swatch bar wait tone-waiting" /> waits
      </li>
    </ul>
  );
}
