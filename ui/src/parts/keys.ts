/** Keys: single ones and two in a row, never while somebody types and never together with Ctrl, Alt or Meta. */

import { useEffect, useRef } from "preact/hooks";

export type Bindings = Record<string, (event: KeyboardEvent) => void>;

const TOGETHER_MS = 1_200;

// Fields that take no text: after a click on one the keys go on working.
const CLICKED = ["checkbox", "radio", "button", "submit", "reset"];

function typing(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement && CLICKED.includes(target.type)) return false;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

/** Binds keys ("j", "Escape", "g r") while the component is shown. An open dialog has the keys for itself. */
export function useKeys(bindings: Bindings): void {
  const latest = useRef(bindings);
  latest.current = bindings;
  useEffect(() => {
    let first = "";
    let at = 0;
    const pressed = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey) return;
      if (document.querySelector("dialog[open]")) return;
      if (typing(event.target) && event.key !== "Escape") return;
      const together = first && Date.now() - at < TOGETHER_MS ? `${first} ${event.key}` : "";
      const action = (together && latest.current[together]) || latest.current[event.key];
      first = event.key.length === 1 && !together ? event.key : "";
      at = Date.now();
      action?.(event);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
