/** A field for a value: JSON where it is JSON, and plain text where it is not. */

import { useId } from "preact/hooks";
import { Exact, readTyped } from "../exact";

export interface Read {
  value: unknown;
  /** What the text was taken for, shown beside the field. */
  as: string;
}

export function readValue(text: string): Read {
  const trimmed = text.trim();
  if (trimmed === "") return { value: null, as: "null" };
  try {
    const value = readTyped(trimmed);
    return { value, as: Array.isArray(value) ? "list" : value === null ? "null" : value instanceof Exact ? "number" : typeof value };
  } catch {
    // Whoever began an object or a list meant JSON, and should hear that it is not.
    return { value: text, as: /^[[{"]/.test(trimmed) ? "not valid JSON" : "text" };
  }
}

interface Props {
  label: string;
  text: string;
  onText: (text: string) => void;
  rows?: number;
  placeholder?: string;
  hint?: string;
}

export function JsonInput({ label, text, onText, rows = 2, placeholder = "", hint = "" }: Props) {
  const id = useId();
  const read = readValue(text);
  const broken = read.as === "not valid JSON";
  return (
    <div class="field">
      <label for={id}>
        {label} {hint && <span class="muted small">{hint}</span>}
      </label>
      <div class="json-input">
        <textarea
          id={id}
          rows={rows}
          value={text}
          spellcheck={false}
          placeholder={placeholder}
          aria-invalid={broken}
          onInput={(event) => onText(event.currentTarget.value)}
        />
        <span class={`as ${broken ? "bad-text" : "muted"}`} aria-live="polite">
          {text.trim() === "" ? "" : broken ? "not valid JSON" : `sent as ${read.as}`}
        </span>
      </div>
    </div>
  );
}
