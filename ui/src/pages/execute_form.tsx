/** Gives a decider an input: one of its types, and the fields as JSON. Which instance it is for follows from them. */

import { useState } from "preact/hooks";
import { post, segment } from "../api";
import type { Definition } from "../contract";
import { Refused } from "../parts/dialog";
import { say } from "../parts/toast";
import { to } from "../router";
import { JsonInput, readValue } from "../run/json_input";
import { useRefusal } from "../session";

export function ExecuteForm({ definition }: { definition: Definition }) {
  const types = definition.parameters.map((parameter) => parameter.name);
  const [type, setType] = useState(types[0] ?? "");
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState<unknown>(null);
  // One filling of the form is one command, however often the button is pressed.
  const [command, setCommand] = useState(() => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`);
  const refusal = useRefusal("operate");
  const fields = definition.parameters.find((parameter) => parameter.name === type)?.type ?? "";
  const read = readValue(text.trim() || "{}");
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setRefused(null);
    try {
      await post(`deciders/${segment(definition.name)}/execute`, { input: { type, ...(read.value as object) } }, command);
      say(`${type} was applied.`, { text: "See its instances", address: to(["runs"], { workflow: definition.name }) });
      setCommand(crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`);
    } catch (error) {
      setRefused(error);
    }
    setBusy(false);
  };
  return (
    <form class="start-form" onSubmit={submit}>
      <h2>Give it an input</h2>
      <label class="field">
        <span>Input</span>
        <select value={type} onChange={(event) => setType(event.currentTarget.value)}>
          {types.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
      <JsonInput label="Fields" hint="as JSON" text={text} onText={setText} rows={4} placeholder="{}" />
      {fields && (
        <p class="muted small">
          {type} has <code>{fields}</code>
        </p>
      )}
      <p class="muted small">An instance begins with its first input; which one it is for follows from the fields.</p>
      <Refused error={refused} />
      <div class="start-buttons">
        <button type="submit" class="primary" disabled={busy || refusal !== null || read.as !== "object"} title={refusal ?? (read.as !== "object" ? "the fields are a JSON object" : "")}>
          {busy ? "Working…" : "Execute"}
        </button>
      </div>
    </form>
  );
}
