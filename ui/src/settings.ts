/** What this browser remembers: the colours. The token is not among it, that is in a cookie no script can read. */

import { useEffect, useState } from "preact/hooks";

export type Theme = "system" | "light" | "dark";
const KEY = "holdfast.theme";

export function storedTheme(): Theme {
  try {
    const held = localStorage.getItem(KEY);
    return held === "light" || held === "dark" ? held : "system";
  } catch {
    return "system";
  }
}

export function applyTheme(theme: Theme): void {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = theme;
}

const listeners = new Set<(theme: Theme) => void>();

/** The colours, the same for everything that shows or changes them. */
export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState(storedTheme);
  useEffect(() => {
    listeners.add(setTheme);
    return () => {
      listeners.delete(setTheme);
    };
  }, []);
  return [
    theme,
    (chosen) => {
      try {
        localStorage.setItem(KEY, chosen);
      } catch {
        // A browser that keeps nothing still shows the colours that were chosen now.
      }
      applyTheme(chosen);
      for (const listener of listeners) listener(chosen);
    },
  ];
}
