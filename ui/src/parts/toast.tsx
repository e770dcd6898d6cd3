/** Short messages about what just happened. They are read out by screen readers and leave by themselves. */

import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api";
import { Icon } from "./icons";

export interface Toast {
  id: number;
  good: boolean;
  text: string;
  hint: string;
  link: { text: string; address: string } | null;
}

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

function show(toast: Omit<Toast, "id">): void {
  const id = next++;
  change([...toasts.slice(-3), { ...toast, id }]);
  setTimeout(() => dismiss(id), toast.good ? SHOWN_MS.good : SHOWN_MS.bad);
}

export function say(text: string, link: Toast["link"] = null): void {
  show({ good: true, text, hint: "", link });
}

export function complain(error: unknown, doing: string): void {
  const message = error instanceof Error ? error.message : String(error);
  show({ good: false, text: `${doing}: ${message}`, hint: error instanceof ApiError ? error.hint : "", link: null });
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
