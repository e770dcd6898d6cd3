/** The events of a decider's instance, and the state after any of them. */

import { useEffect } from "preact/hooks";
import { segment } from "../api";
import type { RunDetail, StateView, StreamPage } from "../contract";
import { count, moment } from "../format";
import { Payload } from "../parts/payload";
import { Empty, Loading, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { useResource } from "../resource";
import { type Place, setQuery } from "../router";

const AROUND = 50;

export function DeciderState({ run, place, version }: { run: RunDetail; place: Place; version: number }) {
  const asked = place.query.get("at");
  const base = `runs/${segment(run.id)}`;
  const now = useResource<StateView>(`${base}/state`);
  const last = now.value?.last ?? 0;
  const at = asked === null ? last : Math.max(0, Math.min(last, Number(asked) || 0));
  const then = useResource<StateView>(asked === null ? null : `${base}/state`, { sequence: at });
  const from = Math.max(0, Math.floor((at - 1) / AROUND) * AROUND);
  const events = useResource<StreamPage>(now.value ? `${base}/events` : null, { after: from, limit: AROUND });
  useEffect(() => {
    if (version === 0) return;
    now.refresh();
    events.refresh();
  }, [version]);

  if (now.error && !now.value) return <Trouble error={now.error} again={now.refresh} />;
  if (!now.value) return <Loading what="Loading the state" />;
  const view = asked === null ? now.value : then.value;
  const choose = (sequence: number) => setQuery({ at: sequence >= last ? null : String(sequence) });
  return (
    <div class="state">
      <div class="slider">
        <button type="button" aria-label="One event back" disabled={at <= 0} onClick={() => choose(at - 1)}>
          ‹
        </button>
        <input
          type="range"
          min={0}
          max={last}
          value={at}
          aria-label="State after this many events"
          aria-valuetext={`after event ${at} of ${last}`}
          onInput={(event) => choose(Number(event.currentTarget.value))}
        />
        <button type="button" aria-label="One event forward" disabled={at >= last} onClick={() => choose(at + 1)}>
          ›
        </button>
        <output>
          after event {count(at)} of {count(last)}
          {asked === null && <span class="muted"> · now</span>}
        </output>
      </div>
      <div class="columns">
        <section aria-label="State">
          {view && !view.available ? (
            <Empty title="The state is not known here" icon="question" command="holdfast ui --app app.workflows">
              <p>{view.why}</p>
            </Empty>
          ) : view ? (
            <Payload label="State" value={view.state} />
          ) : (
            <Loading what="Folding the events" />
          )}
        </section>
        <section aria-label="Events">
          <h2>Events</h2>
          {events.error && <Trouble error={events.error} again={events.refresh} />}
          {last === 0 && <p class="muted">No event was recorded yet.</p>}
          <ol class="stream">
            {events.value?.events.map((event) => (
              <li key={event.sequence} aria-current={event.sequence === at ? "true" : undefined}>
                <button type="button" class="bare" onClick={() => choose(event.sequence)} title={moment(event.at)}>
                  <span class="number">{event.sequence}</span>
                  <span class="strong">{event.type}</span>
                  {event.system && <span class="muted small">the engine's own</span>}
                  <span class="muted small">
                    <Ago at={event.at} />
                  </span>
                </button>
                {event.sequence === at && <Payload value={event.data} />}
              </li>
            ))}
          </ol>
          {last > AROUND && (
            <p class="muted small">
              {count(from + 1)} to {count(Math.min(last, from + AROUND))} of {count(last)}; move the slider for others.
            </p>
          )}
        </section>
      </div>
    </div>
  );
}
