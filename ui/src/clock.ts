/** One clock for the page, so that growing numbers grow together. It stands still while nobody looks. */

import { useEffect, useState } from "preact/hooks";

const TICK_MS = 1_000;
const listeners = new Set<(now: number) => void>();
let timer = 0;

function tick(): void {
  if (document.hidden) return;
  const now = Date.now();
  for (const listener of listeners) listener(now);
}

/** The time, once a second while `running`. */
export function useNow(running = true): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!running) return;
    listeners.add(setNow);
    if (!timer) timer = window.setInterval(tick, TICK_MS);
    setNow(Date.now());
    return () => {
      listeners.delete(setNow);
      if (listeners.size === 0) {
        clearInterval(timer);
        timer = 0;
      }
    };
  }, [running]);
  return now;
}
