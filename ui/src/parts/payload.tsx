/** Payloads: a tree that folds, or the text as it is. They are always text; nothing of them is ever taken as markup. */

import { useMemo, useState } from "preact/hooks";
import type { Json } from "../contract";
import { Exact, writeJson } from "../exact";
import { CopyButton } from "./copy";

const CHILDREN_AT_ONCE = 100;
const OPEN_BELOW = 24;
const LONG_TEXT = 400;
const OPEN_DEPTH = 4;

export function Payload({ value, label, open = true, bare = false }: { value: Json; label?: string; open?: boolean; bare?: boolean }) {
  const [raw, setRaw] = useState(false);
  const text = useMemo(() => pretty(value), [value]);
  const simple = isSimple(value);
  return (
    <div class="payload">
      {!bare && <div class="payload-head">
        {label && <span class="payload-label">{label}</span>}
        {!simple && (
          <div class="switch" role="group" aria-label="How to show it">
            <button type="button" aria-pressed={!raw} onClick={() => setRaw(false)}>
              Tree
            </button>
            <button type="button" aria-pressed={raw} onClick={() => setRaw(true)}>
              Raw
            </button>
          </div>
        )}
        <CopyButton text={text} label={label ? `Copy ${label.toLowerCase()}` : "Copy"} />
      </div>}
      {raw ? (
        <pre class="raw" tabindex={0}>
          {text}
        </pre>
      ) : (
        <div class="tree">
          <Branch value={value} name={null} depth={0} open={open} />
        </div>
      )}
    </div>
  );
}

function pretty(value: Json): string {
  if (value === undefined) return "";
  try {
    return writeJson(value, 2);
  } catch {
    return String(value);
  }
}

function isSimple(value: Json): boolean {
  return value === null || typeof value !== "object" || value instanceof Exact;
}

interface BranchProps {
  value: Json;
  name: string | null;
  depth: number;
  open: boolean;
}

function Branch({ value, name, depth, open }: BranchProps) {
  if (isSimple(value)) return <Leaf name={name} value={value} />;
  return <Folder name={name} value={value as object} depth={depth} open={open} />;
}

function Folder({ value, name, depth, open }: BranchProps & { value: object }) {
  const list = Array.isArray(value);
  const entries: [string, Json][] = list ? value.map((each: Json, at: number) => [String(at), each]) : Object.entries(value);
  const [unfolded, setUnfolded] = useState(open && depth < OPEN_DEPTH && (depth === 0 || entries.length <= OPEN_BELOW));
  const [shown, setShown] = useState(CHILDREN_AT_ONCE);
  const [before, after] = list ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return <Leaf name={name} value={value} text={`${before}${after}`} />;
  return (
    <div class="branch">
      <button type="button" class="bare fold" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>
        <span class="twist" aria-hidden="true">
          {unfolded ? "▾" : "▸"}
        </span>
        {name !== null && <span class="name">{name}: </span>}
        <span class="muted">
          {unfolded ? before : `${before} ${entries.length} ${list ? (entries.length === 1 ? "item" : "items") : entries.length === 1 ? "field" : "fields"} ${after}`}
        </span>
      </button>
      {unfolded && (
        <div class="inside">
          {entries.slice(0, shown).map(([key, each]) => (
            <Branch key={key} name={key} value={each} depth={depth + 1} open={open} />
          ))}
          {entries.length > shown && (
            <button type="button" class="bare link" onClick={() => setShown(shown + CHILDREN_AT_ONCE * 5)}>
              {entries.length - shown} more
            </button>
          )}
        </div>
      )}
      {unfolded && <span class="muted closing">{after}</span>}
    </div>
  );
}

function Leaf({ name, value, text }: { name: string | null; value: Json; text?: string }) {
  const [whole, setWhole] = useState(false);
  const kind = value === null ? "null" : value instanceof Exact ? "number" : typeof value;
  const all = text ?? (kind === "string" ? JSON.stringify(value) : String(value));
  const long = all.length > LONG_TEXT && !whole;
  return (
    <div class="leaf">
      {name !== null && <span class="name">{name}: </span>}
      <span class={`value ${kind}`}>{long ? `${all.slice(0, LONG_TEXT)}…` : all}</span>
      {long && (
        <button type="button" class="bare link" onClick={() => setWhole(true)}>
          show all {all.length} characters
        </button>
      )}
    </div>
  );
}

/** An error with its type, message, and the traceback, folded away unless somebody asked for it. */
export function FailureView({ failure, open = false }: { failure: { type: string; message: string; traceback: string | null }; open?: boolean }) {
  return (
    <div class="failure">
      <p>
        <strong>{failure.type}</strong> <span class="prewrap">{failure.message}</span>
      </p>
      {failure.traceback && (
        <details open={open}>
          <summary>Traceback</summary>
          <pre tabindex={0}>{failure.traceback}</pre>
        </details>
      )}
    </div>
  );
}
