/** Starts a run: one field for each parameter, each of them JSON or plain text. */

import { useState } from "preact/hooks";
import { post } from "../api";
import type { Definition, Parameter } from "../contract";
import { Refused } from "../parts/dialog";
import { say } from "../parts/toast";
import { go, to } from "../router";
import { JsonInput, readValue } from "../run/json_input";
import { useRefusal } from "../session";

export function StartForm({ definition }: { definition: Definition }) {
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [key, setKey] = useState("");
  const [tags, setTags] = useState("");
  const [paused, setPaused] = useState(false);
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState<unknown>(null);
  const refusal = useRefusal("operate");
  const cannot = !definition.known_here ? "the code of this workflow is not loaded here" : definition.model === "projection" ? "it runs by itself, wherever a worker knows it" : null;
  if (cannot) {
    return (
      <>
        <h2>Start a run</h2>
        <p class="muted">It cannot be started from here: {cannot}.</p>
      </>
    );
  }
  const given = definition.parameters.filter((parameter) => (texts[parameter.name] ?? "").trim() !== "");
  const missing = definition.parameters.filter((parameter) => required(parameter) && !given.includes(parameter));
  const broken = given.some((parameter) => readValue(texts[parameter.name] ?? "").as === "not valid JSON");
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setRefused(null);
    try {
      const kwargs = Object.fromEntries(given.map((parameter) => [parameter.name, valueFor(parameter, texts[parameter.name] ?? "")]));
      const labels = Object.fromEntries(tags.split(/[\s,]+/).filter(Boolean).map((tag) => tag.split(/:(.*)/s).slice(0, 2)));
      const started = await post<{ id: string; created: boolean }>("runs", {
        workflow: definition.name,
        kwargs,
        ...(key ? { key } : {}),
        ...(tags.trim() ? { tags: labels } : {}),
        ...(paused ? { paused } : {}),
      });
      say(started.created ? `Started ${definition.name}.` : `There was a run with the key ${key} already; nothing was started.`);
      go(to(["runs", started.id]));
    } catch (error) {
      setRefused(error);
      setBusy(false);
    }
  };
  return (
    <form class="start-form" onSubmit={submit}>
      <h2>Start a run</h2>
      {definition.parameters.length === 0 && <p class="muted">It takes no arguments.</p>}
      {definition.parameters.map((parameter) => (
        <JsonInput
          key={parameter.name}
          label={parameter.name}
          hint={`${parameter.type}${required(parameter) ? "" : ", optional"}`}
          text={texts[parameter.name] ?? ""}
          onText={(text) => setTexts({ ...texts, [parameter.name]: text })}
          rows={1}
          placeholder={parameter.default ?? ""}
        />
      ))}
      <label class="field">
        <span>
          Key <span class="muted small">the same key twice is one run</span>
        </span>
        <input type="text" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>
          Tags <span class="muted small">name:value, separated by spaces</span>
        </span>
        <input type="text" value={tags} onInput={(event) => setTags(event.currentTarget.value)} />
      </label>
      <label class="check-field">
        <input type="checkbox" checked={paused} onChange={(event) => setPaused(event.currentTarget.checked)} /> paused, so that nothing begins yet
      </label>
      <Refused error={refused} />
      <div class="start-buttons">
        <button type="submit" class="primary" disabled={busy || refusal !== null || missing.length > 0 || broken} title={refusal ?? (missing.length ? `missing: ${missing.map((each) => each.name).join(", ")}` : "")}>
          {busy ? "Starting…" : "Start"}
        </button>
      </div>
    </form>
  );
}

function required(parameter: Parameter): boolean {
  return parameter.default === null;
}

/** A parameter that takes text gets text, also where it looks like a number. */
function valueFor(parameter: Parameter, text: string): unknown {
  return /^str\b/.test(parameter.type) && !/^\s*"/.test(text) ? text : readValue(text).value;
}
