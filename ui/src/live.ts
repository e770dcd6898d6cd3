/** The live stream: one connection for the whole page, whatever it shows, and a slow poll where there is none. */

import { useEffect, useRef, useState } from "preact/hooks";
import { apiAddress } from "./api";
import type { RunsChanged } from "./contract";

export type Heard = { kind: "runs"; change: RunsChanged } | { kind: "run"; id: string } | { kind: "reset" };
type Listener = (heard: Heard) => void;
export type Connection = "off" | "connecting" | "open" | "polling";

const POLL_MS = 5_000;
const AGAIN_MS = [1_000, 2_000, 5_000, 10_000, 30_000];

class Live {
  private readonly listeners = new Set<Listener>();
  private readonly watchers = new Set<(state: Connection) => void>();
  private source: EventSource | null = null;
  private run: string | null = null;
  private failures = 0;
  private wasOpen = false;
  private timer = 0;
  state: Connection = "off";

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    if (this.state === "off") this.open();
    return () => {
      this.listeners.delete(listener);
    };
  }

  watch(watcher: (state: Connection) => void): () => void {
    this.watchers.add(watcher);
    return () => {
      this.watchers.delete(watcher);
    };
  }

  /** Follows one run closely; null follows all of them. */
  follow(run: string | null): void {
    if (run === this.run) return;
    this.run = run;
    if (this.state !== "off") this.open();
  }

  /** Forgets what failed and connects anew, after signing in for example. */
  restart(): void {
    this.failures = 0;
    if (this.listeners.size > 0) this.open();
  }

  /** Connects again if it was closed while somebody still listens; what changed meanwhile is asked for. */
  wake(): void {
    if (this.state === "off" && this.listeners.size > 0) this.open();
  }

  close(): void {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    this.become("off");
  }

  private open(): void {
    clearTimeout(this.timer);
    this.source?.close();
    this.become("connecting");
    const source = new EventSource(apiAddress("live", { run: this.run }));
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      this.become("open");
      // Whatever changed while nobody listened was not told.
      if (this.wasOpen) this.tell({ kind: "reset" });
      this.wasOpen = true;
    };
    source.addEventListener("runs", (event) => {
      const change = read<RunsChanged>(event);
      if (change) this.tell({ kind: "runs", change });
    });
    source.addEventListener("run", (event) => {
      const change = read<{ id: string }>(event);
      if (change) this.tell({ kind: "run", id: change.id });
    });
    source.addEventListener("reset", () => this.tell({ kind: "reset" }));
    source.onerror = () => {
      if (source !== this.source) return;
      // A browser repeats by itself only what was open once; a refusal is final, and too fast is rude.
      source.close();
      this.source = null;
      this.again();
    };
  }

  private again(): void {
    const pause = AGAIN_MS[Math.min(this.failures, AGAIN_MS.length - 1)] ?? POLL_MS;
    this.failures += 1;
    if (this.failures > 2) this.become("polling");
    else this.become("connecting");
    this.timer = window.setTimeout(() => {
      if (this.state === "polling") this.tell({ kind: "reset" });
      this.open();
    }, Math.min(pause, POLL_MS));
  }

  private become(state: Connection): void {
    if (state === this.state) return;
    this.state = state;
    for (const watcher of this.watchers) watcher(state);
  }

  private tell(heard: Heard): void {
    for (const listener of this.listeners) listener(heard);
  }
}

function read<T>(event: Event): T | null {
  try {
    return JSON.parse((event as MessageEvent<string>).data) as T;
  } catch {
    return null;
  }
}

export const live = new Live();
addEventListener("pagehide", () => live.close());
addEventListener("pageshow", () => live.wake());

// A browser has few connections to one server, and tabs that nobody looks at should not hold one each.
const HIDDEN_MS = 30_000;
let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = window.setTimeout(() => live.close(), HIDDEN_MS);
  else live.wake();
});

const DEBOUNCE_MS = 250;

/** Calls `changed` a moment after something was heard that `concerns` us; bursts are one call. */
export function useLive(changed: () => void, concerns: (heard: Heard) => boolean = () => true): void {
  const latest = useRef({ changed, concerns });
  latest.current = { changed, concerns };
  useEffect(() => {
    let timer = 0;
    const stop = live.listen((heard) => {
      if (timer || !(heard.kind === "reset" || latest.current.concerns(heard))) return;
      timer = window.setTimeout(() => {
        timer = 0;
        latest.current.changed();
      }, DEBOUNCE_MS);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
}

export function useConnection(): Connection {
  const [state, setState] = useState(live.state);
  useEffect(() => live.watch(setState), []);
  return state;
}
