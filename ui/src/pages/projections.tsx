/** Projections: how far each has come, how far it is behind, and what holds it up. */

import { post, segment } from "../api";
import type { Done, Projection } from "../contract";
import { count, seconds } from "../format";
import { useLive } from "../live";
import { type Confirmation, useConfirm } from "../parts/dialog";
import { FailureView } from "../parts/payload";
import { Empty, Loading, Trouble } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { say } from "../parts/toast";
import { useInterval, useResource } from "../resource";
import { useRefusal } from "../session";

const AGAIN_MS = 5_000;

export function ProjectionsPage() {
  const projections = useResource<{ projections: Projection[] }>("projections");
  useLive(projections.refresh);
  useInterval(projections.refresh, AGAIN_MS);
  return (
    <section class="page" aria-labelledby="projections-title">
      <header class="page-head">
        <h1 id="projections-title">Projections</h1>
        <p class="muted">Tables that are kept from the events of deciders, each event exactly once and in order.</p>
      </header>
      {projections.error && <Trouble error={projections.error} again={projections.refresh} />}
      {!projections.value && !projections.error && <Loading />}
      {projections.value?.projections.length === 0 && (
        <Empty title="There are no projections" icon="projections" command="holdfast worker app.workflows">
          <p>A projection is listed here once a worker that knows it has run. Start one:</p>
        </Empty>
      )}
      {projections.value && projections.value.projections.length > 0 && (
        <div class="table-wrap">
          <table class="narrow-cards">
            <thead>
              <tr>
                <th>Status</th>
                <th>Projection</th>
                <th>Of</th>
                <th class="right">Position</th>
                <th class="right">Behind</th>
                <th class="right">Lag</th>
                <th>Actions</th>
              </tr>
            </thead>
            <tbody>
              {projections.value.projections.map((projection) => (
                <ProjectionRow key={projection.name} projection={projection} changed={projections.refresh} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function ProjectionRow({ projection, changed }: { projection: Projection; changed: () => void }) {
  const [ask, dialog] = useConfirm();
  const operate = useRefusal("operate");
  const admin = useRefusal("admin");
  const act = (path: string) => async () => {
    const answer = await post<Done>(`projections/${segment(projection.name)}/${path}`);
    say(answer.message);
    changed();
  };
  const stopped = projection.error !== null;
  const paused = projection.status === "paused";
  const offered: { word: string; refusal: string | null; confirm: Confirmation }[] = [];
  if (paused) {
    offered.push({ word: "Resume", refusal: operate, confirm: { title: `Resume ${projection.name}?`, text: "It goes on with the event after the last that it took.", button: "Resume", act: act("resume") } });
  } else {
    offered.push({ word: "Pause", refusal: operate, confirm: { title: `Pause ${projection.name}?`, text: "It takes no event until it is resumed. Nothing is lost: the events wait.", button: "Pause", act: act("pause") } });
  }
  if (stopped) {
    offered.push({ word: "Retry", refusal: operate, confirm: { title: `Retry ${projection.name}?`, text: "The event at which it stopped is given to it again.", button: "Retry", act: act("retry") } });
    offered.push({ word: "Skip the event", refusal: admin, confirm: { title: "Skip the event at which it stopped?", text: "The projection goes on with the next event. What this one should have changed in its table is missing from it until it is rebuilt.", button: "Skip the event", danger: true, act: act("skip") } });
  }
  offered.push({ word: "Rebuild", refusal: admin, confirm: { title: `Rebuild ${projection.name}?`, text: "Its table is emptied and built again from all events. Until it has caught up, readers see a part of it.", button: "Rebuild", danger: true, act: act("rebuild") } });
  return (
    <>
      <tr>
        <td data-label="Status">
          <StatusBadge state={projection.status} />
        </td>
        <td class="strong" data-label="Projection">{projection.name}</td>
        <td data-label="Of">{projection.decider}</td>
        <td class="right" data-label="Position">{count(projection.position)}</td>
        <td data-label="Behind" class={`right ${projection.behind > 0 ? "strong" : "muted"}`}>{projection.behind > 0 ? count(projection.behind) : "up to date"}</td>
        <td class="right" data-label="Lag">{projection.lag_seconds ? seconds(projection.lag_seconds) : <span class="muted">–</span>}</td>
        <td class="row-actions">
          {offered.map(({ word, refusal, confirm }) => (
            <button key={word} type="button" class="small" disabled={refusal !== null} title={refusal ?? ""} onClick={() => ask(confirm)}>
              {word}
            </button>
          ))}
          {dialog}
        </td>
      </tr>
      {projection.error !== null && (
        <tr class="row-error">
          <td />
          <td colSpan={6}>
            {typeof projection.error === "string" ? <p class="bad-text prewrap">{projection.error}</p> : <FailureView failure={projection.error} />}
          </td>
        </tr>
      )}
    </>
  );
}
