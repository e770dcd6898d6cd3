/** Dialogs: the browser's own element, which keeps the focus inside, closes on Escape and gives the focus back. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";

export function Dialog({ title, onClose, children, wide = false }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? "wide" : ""}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === element.current) onClose();
      }}
    >
      <div class="dialog-body">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** A refusal, where it was caused: what is behind an open dialog is not read. */
export function Refused({ error }: { error: unknown }) {
  if (error === null || error === undefined) return null;
  const message = error instanceof Error ? error.message : String(error);
  return (
    <div class="refused" role="alert">
      <p class="bad-text prewrap">{message}</p>
      {error instanceof ApiError && error.hint && <p class="muted prewrap">{error.hint}</p>}
    </div>
  );
}

export interface Confirmation {
  title: string;
  /** What will happen, in one or two sentences. */
  text: ComponentChildren;
  /** The words on the button that does it. */
  button: string;
  danger?: boolean;
  /** The same from a terminal. */
  command?: string;
  /** A line of text that goes with it. */
  field?: { label: string; placeholder?: string; required?: boolean };
  /** Does it. The dialog stays open while it is under way and closes afterwards; a refusal is told and keeps it open. */
  act: (text: string) => Promise<void>;
}

export function ConfirmDialog({ asked, onClose }: { asked: Confirmation; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const [text, setText] = useState("");
  const [refused, setRefused] = useState<unknown>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setRefused(null);
    try {
      await asked.act(text);
      onClose();
    } catch (error) {
      setRefused(error);
      setBusy(false);
    }
  };
  return (
    <Dialog title={asked.title} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-text">{asked.text}</div>
        {asked.field && (
          <label class="field">
            <span>{asked.field.label}</span>
            <input
              type="text"
              value={text}
              required={asked.field.required ?? false}
              placeholder={asked.field.placeholder ?? ""}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
        )}
        {asked.command && (
          <p class="muted small">
            From a terminal: <code>{asked.command}</code>
          </p>
        )}
        <Refused error={refused} />
        <div class="dialog-buttons">
          <button type="button" onClick={onClose} disabled={busy}>
            Not now
          </button>
          <button type="submit" class={asked.danger ? "danger" : "primary"} disabled={busy} autofocus>
            {busy ? "Working…" : asked.button}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** `const [ask, dialog] = useConfirm()`: show `dialog` somewhere, call `ask` to open it. */
export function useConfirm(): [(asked: Confirmation) => void, ComponentChildren] {
  const [asked, setAsked] = useState<Confirmation | null>(null);
  return [setAsked, asked && <ConfirmDialog asked={asked} onClose={() => setAsked(null)} />];
}
