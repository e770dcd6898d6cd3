/** Things to take along: a button that copies, and a command line with one. */

import { useEffect, useState } from "preact/hooks";
import { Icon } from "./icons";

const SHOWN_MS = 1_500;

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [state, setState] = useState<"" | "copied" | "failed">("");
  useEffect(() => {
    if (!state) return;
    const timer = setTimeout(() => setState(""), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = async (event: Event) => {
    event.stopPropagation();
    try {
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch {
      setState("failed"); // Without https or a focus there is no clipboard; the text can still be selected.
    }
  };
  return (
    <button type="button" class={`bare copy ${state}`} onClick={copy} aria-label={label} title={state === "failed" ? "this browser does not let a page copy" : label}>
      <Icon name={state === "copied" ? "tick" : state === "failed" ? "close" : "copy"} size={14} />
    </button>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <span class="command">
      <code>{text}</code>
      <CopyButton text={text} label="Copy this command" />
    </span>
  );
}
