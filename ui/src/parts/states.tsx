/** What a page shows when it has nothing to show: loading, nothing there, or why not. */

import type { ComponentChildren } from "preact";
import { ApiError } from "../api";
import { Command } from "./copy";
import { Icon } from "./icons";

export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <p class="loading muted" aria-busy="true">
      <Icon name="running" /> {what}…
    </p>
  );
}

export function Empty({ title, children, command, icon = "waiting" }: { title: string; children?: ComponentChildren; command?: string; icon?: string }) {
  return (
    <div class="empty">
      <Icon name={icon} size={28} />
      <h2>{title}</h2>
      {children && <div class="muted">{children}</div>}
      {command && <Command text={command} />}
    </div>
  );
}

export function Trouble({ error, again }: { error: Error; again?: () => void }) {
  const hint = error instanceof ApiError ? error.hint : "";
  const kind = error instanceof ApiError ? error.kind : error.name;
  return (
    <div class="trouble" role="alert">
      <Icon name="failed" />
      <div>
        <strong>{error.message || kind}</strong>
        {hint && <p>{hint}</p>}
        {error instanceof ApiError && error.status === 0 && <Command text="holdfast ui" />}
        <p class="muted small">{kind}</p>
      </div>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}
