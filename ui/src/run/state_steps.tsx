/** The steps of a state graph: what ran, what it changed, and the whole state after it. */

import { useEffect } from "preact/hooks";
import { post, segment } from "../api";
import type { Checkpoint, CheckpointDetail, RunDetail } from "../contract";
import { useConfirm } from "../parts/dialog";
import { Payload } from "../parts/payload";
import { Empty, Loading, Trouble } from "../parts/states";
import { say } from "../parts/toast";
import { Ago, Moment } from "../parts/time";
import { useResource } from "../resource";
import { type Place, setQuery, to } from "../router";
import { useRefusal } from "../session";

interface Props {
  run: RunDetail;
  place: Place;
  version: number;
  changed: () => void;
}

export function GraphSteps({ run, place, version, changed }: Props) {
  const base = `runs/${segment(run.id)}/checkpoints`;
  const list = useResource<{ checkpoints: Checkpoint[] }>(base);
  useEffect(() => {
    if (version > 0) list.refresh();
  }, [version]);
  const checkpoints = list.value?.checkpoints ?? [];
  const asked = place.query.get("step");
  const step = asked === null ? checkpoints.at(-1)?.step : Number(asked);
  const detail = useResource<CheckpointDetail>(step === undefined ? null : `${base}/${step}`);
  const refusal = useRefusal("operate");
  const [ask, dialog] = useConfirm();

  if (list.error && !list.value) return <Trouble error={list.error} again={list.refresh} />;
  if (!list.value) return <Loading what="Loading the steps" />;
  if (checkpoints.length === 0) {
    return (
      <Empty title="No step is finished yet" icon="waiting">
        <p>The state after each step is kept and shown here.</p>
      </Empty>
    );
  }
  const fork = () =>
    ask({
      title: `Fork after step ${step}?`,
      text: "A new run begins with the state after this step and goes on from there. This one stays as it is.",
      button: "Fork",
      command: `holdfast fork ${run.id} --step ${step}`,
      act: async () => {
        const answer = await post<{ id: string }>(`runs/${segment(run.id)}/fork`, { step });
        say("Forked.", { text: "Open the new run", address: to(["runs", answer.id]) });
        changed();
      },
    });
  return (
    <div class="state columns steps-first">
      <section aria-label="Steps">
        <ol class="stream">
          {checkpoints.map((each) => (
            <li key={each.step} aria-current={each.step === step ? "true" : undefined}>
              <button type="button" class="bare" onClick={() => setQuery({ step: String(each.step) })}>
                <span class="number">{each.step}</span>
                <span class="strong">{each.nodes.length ? named(each.nodes) : each.label || "input"}</span>
                {each.nodes.length > 0 && each.label && <span class="tag">{each.label}</span>}
                <span class="muted small">
                  <Ago at={each.at} />
                </span>
              </button>
            </li>
          ))}
        </ol>
      </section>
      <section aria-label="State after the step">
        {detail.error && <Trouble error={detail.error} again={detail.refresh} />}
        {detail.value ? (
          <>
            <header class="section-head">
              <h2>After step {detail.value.step}</h2>
              <span class="muted small">
                <Moment at={detail.value.at} />
              </span>
              <button type="button" class="small" onClick={fork} disabled={refusal !== null} title={refusal ?? ""}>
                Fork from here
              </button>
            </header>
            <Changes changed={detail.value.changed} />
            <Payload label="State" value={detail.value.state} />
          </>
        ) : (
          !detail.error && <Loading what="Loading the state" />
        )}
      </section>
      {dialog}
    </div>
  );
}

/** look_up@2.094e…, look_up@2.37a7… is look_up, twice. */
function named(items: string[]): string {
  const times = new Map<string, number>();
  for (const item of items) {
    const name = item.split("@")[0] ?? item;
    times.set(name, (times.get(name) ?? 0) + 1);
  }
  return [...times].map(([name, number]) => (number > 1 ? `${name} ×${number}` : name)).join(", ");
}

function Changes({ changed }: { changed: CheckpointDetail["changed"] }) {
  const fields = Object.entries(changed);
  if (fields.length === 0) return <p class="muted">This step changed nothing.</p>;
  return (
    <table class="diff">
      <caption class="muted small">What this step changed</caption>
      <tbody>
        {fields.map(([field, { before, after }]) => (
          <tr key={field}>
            <th scope="row">{field}</th>
            {appended(before, after) ? (
              <td class="after" colSpan={2}>
                <span class="kept">the {(before as unknown[]).length} before stay</span>
                <span class="sign" aria-label="added">
                  +
                </span>
                <Value value={(after as unknown[]).slice((before as unknown[]).length)} />
              </td>
            ) : (
              <>
                <td class="before">
                  <span class="sign" aria-label="before">
                    −
                  </span>
                  <Value value={before} />
                </td>
                <td class="after">
                  <span class="sign" aria-label="after">
                    +
                  </span>
                  <Value value={after} />
                </td>
              </>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A list that grew at its end, as most do: only what is new is worth showing. */
function appended(before: unknown, after: unknown): boolean {
  if (!Array.isArray(before) || !Array.isArray(after) || before.length === 0 || after.length <= before.length) return false;
  return JSON.stringify(after.slice(0, before.length)) === JSON.stringify(before);
}

function Value({ value }: { value: unknown }) {
  if (value === undefined || value === null) return <span class="muted">nothing</span>;
  if (typeof value === "object") return <Payload value={value} open={JSON.stringify(value).length < 400} bare />;
  return <span class="prewrap">{JSON.stringify(value)}</span>;
}
