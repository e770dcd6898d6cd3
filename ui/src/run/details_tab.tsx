/** Input, result and error, and whatever else is known. */

import type { Json, RunDetail } from "../contract";
import { FailureView, Payload } from "../parts/payload";
import { lookOf, StatusBadge } from "../parts/status";
import { Moment } from "../parts/time";
import { to } from "../router";

export function DetailsTab({ run }: { run: RunDetail }) {
  const states = Object.entries(run.counts).filter(([, number]) => number > 0);
  return (
    <div class="details">
      {run.error && (
        <section>
          <h2>Error</h2>
          <FailureView failure={run.error} open />
        </section>
      )}
      <section>
        <Payload label="Input" value={argumentsOf(run)} />
      </section>
      {run.finished_at && !run.error && (
        <section>
          <Payload label="Result" value={run.result} />
        </section>
      )}
      <section>
        <h2>Times</h2>
        <dl class="facts stacked">
          <When word="Created" at={run.created_at} />
          <When word="Due" at={run.due_at} />
          <When word="Started" at={run.started_at} />
          <When word="Wakes" at={run.wakes_at} />
          <When word="Finished" at={run.finished_at} />
        </dl>
      </section>
      {run.reason && (
        <section>
          <h2>Reason</h2>
          <p class="prewrap">{run.reason}</p>
        </section>
      )}
      {states.length > 0 && (
        <section>
          <h2>Nodes</h2>
          <p class="inline-list">
            {states.map(([state, number]) => (
              <StatusBadge key={state} state={state} note={`${number} ${lookOf(state).word}`} />
            ))}
          </p>
        </section>
      )}
      {run.children.length > 0 && (
        <section>
          <h2>Runs that it started</h2>
          <table class="plain">
            <tbody>
              {run.children.map((child) => (
                <tr key={child.run}>
                  <td>
                    <StatusBadge state={child.status} />
                  </td>
                  <td>
                    <a href={to(["runs", child.run])}>{child.key ?? child.workflow}</a>
                  </td>
                  <td>
                    <code>{child.run}</code>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {run.timers.length > 0 && (
        <section>
          <h2>Timers</h2>
          <table class="plain">
            <tbody>
              {run.timers.map((timer) => (
                <tr key={`${timer.node}${timer.due_at}`}>
                  <td>{timer.kind}</td>
                  <td>
                    <code>{timer.node}</code>
                  </td>
                  <td>
                    <Moment at={timer.due_at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {run.instance !== null && run.instance !== undefined && (
        <section>
          <Payload label="Instance" value={run.instance} open={false} />
        </section>
      )}
      {run.graph !== null && run.graph !== undefined && (
        <section>
          <Payload label="Graph" value={run.graph} open={false} />
        </section>
      )}
    </div>
  );
}

/** The arguments of a call as somebody would write them, not as they are stored. */
function argumentsOf(run: RunDetail): Json {
  const { input } = run;
  if (!Array.isArray(input) || input.length !== 2 || !Array.isArray(input[0]) || typeof input[1] !== "object" || input[1] === null || Array.isArray(input[1])) return input;
  const [positional, named] = input as [Json[], Record<string, Json>];
  if (Object.keys(named).length === 0) return positional.length === 1 ? positional[0] : positional;
  return positional.length === 0 ? named : { "by position": positional, ...named };
}

function When({ word, at }: { word: string; at: string | null }) {
  if (at === null) return null;
  return (
    <div>
      <dt>{word}</dt>
      <dd>
        <Moment at={at} />
      </dd>
    </div>
  );
}
