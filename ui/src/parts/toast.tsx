/** Short messages about what just happened. They are read out by screen readers, and leave by themselves or with the page they were about. */

import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api";
import { Icon } from "./icons";

export interface Toast {
  id: number;
  good: boolean;
  text: string;
  hint: string;
  link: { text: string; address: string } | null;
  since: number;
}

const MOST = 3;
// What was said in the moment of leaving ("Started …") is about the page that comes.
const LEAVING_MS = 700;
const SHOWN_MS = { good: 6_000, bad: 14_000 };
let next = 1;
let toasts: Toast[] = [];
const listeners = new Set<(toasts: Toast[]) => void>();

function change(to: Toast[]): void {
  toasts = to;
  for (const listener of listeners) listener(toasts);
}

export function dismiss(id: number): void {
  change(toasts.filter((toast) => toast.id !== id));
}

function show(toast: Omit<Toast, "id" | "since">): void {
  const id = next++;
  change([...toasts.slice(1 - MOST), { ...toast, id, since: Date.now() }]);
  setTimeout(() => dismiss(id), toast.good ? SHOWN_MS.good : SHOWN_MS.bad);
}

/** Ends what was said about the page that is left. */
export function dismissOld(): void {
  const now = Date.now();
  if (toasts.some((toast) => now - toast.since > LEAVING_MS)) change(toasts.filter((toast) => now - toast.since <= LEAVING_MS));
}

/** A capital at the beginning and a stop at the end, whoever wrote it. */
export function sentence(text: string): string {
  // Names keep their letters: "order-1013 was resumed" begins with a key.
  const first = /^[a-z]+[ ,:]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}

export function say(text: string, link: Toast["link"] = null): void {
  show({ good: true, text: sentence(text), hint: "", link });
}

export function complain(error: unknown, doing: string): void {
  const message = error instanceof Error ? error.message : String(error);
  show({ good: false, text: sentence(`${doing}: ${message}`), hint: error instanceof ApiError ? error.hint : "", link: null });
}

export function Toasts() {
  const [shown, setShown] = useState(toasts);
  useEffect(() => {
    listeners.add(setShown);
    return () => {
      listeners.delete(setShown);
    };
  }, []);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.map((toast) => (
        <div key={toast.id} class={`toast ${toast.good ? "good" : "bad"}`}>
          <Icon name={toast.good ? "completed" : "failed"} />
          <div class="toast-text">
            <span>{toast.text}</span>
            {toast.hint && <span class="muted">{toast.hint}</span>}
            {toast.link && <a href={toast.link.address}>{toast.link.text}</a>}
          </div>
          <button type="button" class="bare" aria-label="Dismiss this message" onClick={() => dismiss(toast.id)}>
            <Icon name="close" size={12} />
          </button>
        </div>
      ))}
    </div>
  );
}
