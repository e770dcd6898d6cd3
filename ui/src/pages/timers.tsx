/** What will happen by itself, and when. */

import type { Timer } from "../contract";
import { seconds, shortId } from "../format";
import { Empty, Loading, Trouble } from "../parts/states";
import { Ago, Moment } from "../parts/time";
import { to } from "../router";
import { usePaged } from "./paged";

const LATE_SECONDS = 5; // less is a worker on its way

export function TimersPage() {
  const timers = usePaged<Timer>("timers", "timers", 100);
  return (
    <section class="page" aria-labelledby="timers-title">
      <header class="page-head">
        <h1 id="timers-title">Timers</h1>
        <p class="muted">Sleeps, deadlines and pauses before a retry. They are rows: no process has to stay for them.</p>
      </header>
      {timers.error && <Trouble error={timers.error} again={timers.refresh} />}
      {!timers.items && !timers.error && <Loading />}
      {timers.items?.length === 0 && (
        <Empty title="No timer is set" icon="clock">
          <p>A run that sleeps, waits with a timeout, or pauses before another attempt is listed here.</p>
        </Empty>
      )}
      {timers.items && timers.items.length > 0 && (
        <div class="table-wrap">
          <table class="narrow-cards">
            <thead>
              <tr>
                <th>Due</th>
                <th>Kind</th>
                <th>Workflow</th>
                <th>Key</th>
                <th>Node</th>
                <th>Run</th>
              </tr>
            </thead>
            <tbody>
              {timers.items.map((timer) => (
                <tr key={`${timer.run} ${timer.node} ${timer.kind}`}>
                  <td class="nowrap" data-label="Due">
                    <span class="strong">
                      <Ago at={timer.due_at} />
                    </span>{" "}
                    <span class="muted small">
                      <Moment at={timer.due_at} />
                    </span>
                    {timer.overdue_seconds > LATE_SECONDS && <span class="bad-text small"> overdue by {seconds(timer.overdue_seconds)}: does a worker serve its queue?</span>}
                  </td>
                  <td data-label="Kind">{timer.kind}</td>
                  <td data-label="Workflow">
                    <a href={to(["definitions", timer.workflow])}>{timer.workflow}</a>
                  </td>
                  <td data-label="Key" class="strong">
                    {timer.key ? <a href={to(["runs", timer.run])}>{timer.key}</a> : <span class="muted">–</span>}
                  </td>
                  <td data-label="Node">
                    <code>{timer.node}</code>
                  </td>
                  <td data-label="Run">
                    <a href={to(["runs", timer.run])} title={timer.run}>
                      <code>{shortId(timer.run)}</code>
                    </a>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {timers.more && (
        <p class="more">
          <button type="button" onClick={timers.loadMore} disabled={timers.loading}>
            Load later ones
          </button>
        </p>
      )}
    </section>
  );
}
