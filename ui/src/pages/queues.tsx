/** Queues, with how much waits in them and for how long, and the workers that serve them. */

import type { Held, Queue, Worker } from "../contract";
import { count, seconds, shortId } from "../format";
import { useLive } from "../live";
import { Command, CopyButton } from "../parts/copy";
import { Empty, Loading, Trouble } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Ago } from "../parts/time";
import { useInterval, useResource } from "../resource";
import { to } from "../router";

const AGAIN_MS = 5_000;
const LATE_SECONDS = 60;

export function QueuesPage() {
  const queues = useResource<{ queues: Queue[] }>("queues");
  const workers = useResource<{ workers: Worker[] }>("workers");
  const refresh = () => {
    queues.refresh();
    workers.refresh();
  };
  useLive(refresh);
  useInterval(refresh, AGAIN_MS); // ages grow without an event
  const dead = workers.value?.workers.filter((worker) => !worker.alive).length ?? 0;
  return (
    <section class="page" aria-labelledby="queues-title">
      <header class="page-head">
        <h1 id="queues-title">Queues &amp; workers</h1>
      </header>
      {queues.error && <Trouble error={queues.error} again={refresh} />}
      <h2>Queues</h2>
      {!queues.value && !queues.error && <Loading />}
      {queues.value?.queues.length === 0 && (
        <Empty title="Nothing waits in any queue" icon="queues">
          <p>A queue is shown while there is work in it, or a worker that serves it.</p>
        </Empty>
      )}
      {queues.value && queues.value.queues.length > 0 && (
        <div class="table-wrap">
          <table class="narrow-cards">
            <thead>
              <tr>
                <th>Queue</th>
                <th class="right">Ready</th>
                <th class="right">Delayed</th>
                <th class="right">Running</th>
                <th class="right">Oldest ready</th>
                <th class="right">Workers</th>
              </tr>
            </thead>
            <tbody>
              {queues.value.queues.map((queue) => (
                <QueueRow key={queue.name} queue={queue} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      <h2>
        Workers{" "}
        {workers.value && (
          <span class="muted small">
            {count(workers.value.workers.length - dead)} alive{dead > 0 && `, ${dead} gone`}
          </span>
        )}
      </h2>
      {workers.error && <Trouble error={workers.error} again={refresh} />}
      {workers.value?.workers.length === 0 && (
        <Empty title="No worker is running" icon="queues" command="holdfast worker app.workflows">
          <p>Runs are accepted and kept, and nothing is done until a worker comes. Start one:</p>
        </Empty>
      )}
      {workers.value && workers.value.workers.length > 0 && (
        <div class="table-wrap">
          <table class="narrow-cards">
            <thead>
              <tr>
                <th>State</th>
                <th>Worker</th>
                <th>Serves</th>
                <th class="right">Busy</th>
                <th>Started</th>
                <th class="right">Last sign</th>
                <th>Lease until</th>
                <th>Version</th>
              </tr>
            </thead>
            <tbody>
              {workers.value.workers.map((worker) => (
                <WorkerRow key={worker.id} worker={worker} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function QueueRow({ queue }: { queue: Queue }) {
  const late = (queue.oldest_ready_seconds ?? 0) > LATE_SECONDS;
  const unserved = queue.workers === 0 && queue.ready > 0;
  return (
    <>
      <tr>
        <td class="strong" data-label="Queue">
          <a href={to(["runs"], { queue: queue.name })} title="Runs of this queue">
            {queue.name}
          </a>
        </td>
        <Amount label="Ready" number={queue.ready} queue={queue.name} status={["pending", "running"]} />
        <Amount label="Delayed" number={queue.delayed} queue={queue.name} status={["running", "suspended"]} />
        <Amount label="Running" number={queue.leased} queue={queue.name} status={["running", "cancelling"]} />
        <td data-label="Oldest ready" class={`right ${late ? "bad-text" : ""}`}>{queue.oldest_ready_seconds === null || queue.ready === 0 ? <span class="muted">–</span> : seconds(queue.oldest_ready_seconds)}</td>
        <td data-label="Workers" class={`right ${unserved ? "bad-text" : ""}`}>
          {count(queue.workers)}
          {unserved && <span class="small"> nobody serves it</span>}
        </td>
      </tr>
      {unserved && (
        <tr class="row-more">
          <td colSpan={6}>
            <span class="muted">What is ready in {queue.name} waits for a worker. Start one:</span> <Command text={`holdfast worker app.workflows --queue ${queue.name}`} />
          </td>
        </tr>
      )}
    </>
  );
}

/** How many, and the way to the runs they belong to: a run may have many of them, or some on other queues. */
function Amount({ label, number, queue, status }: { label: string; number: number; queue: string; status: string[] }) {
  return (
    <td class="right" data-label={label}>
      {number === 0 ? (
        "0"
      ) : (
        <a href={to(["runs"], { queue, status })} title={`Runs of ${queue} that are ${status.join(" or ")}`}>
          {count(number)}
        </a>
      )}
    </td>
  );
}

function WorkerRow({ worker }: { worker: Worker }) {
  const share = worker.concurrency > 0 ? Math.min(1, worker.running / worker.concurrency) : 0;
  const held = worker.runs ?? [];
  return (
    <>
      <tr class={worker.alive ? "" : "dimmed"}>
        <td data-label="State">
          <StatusBadge state={worker.alive ? "live" : "lost"} note={worker.alive ? "alive" : "gone"} />
        </td>
        <td data-label="Worker">
          <span class="strong">
            {worker.host}:{worker.pid}
          </span>{" "}
          <code class="muted small" title={worker.id}>
            {worker.id.slice(-8)}
          </code>
          <CopyButton text={worker.id} label="Copy the id of the worker" />
        </td>
        <td data-label="Serves">
          {worker.queues.map((queue, at) => (
            <span key={queue}>
              {at > 0 && ", "}
              <a href={to(["runs"], { queue })}>{queue}</a>
            </span>
          ))}
        </td>
        <td class="right nowrap" data-label="Busy">
          {worker.running} of {worker.concurrency}
          <span class="meter" aria-hidden="true">
            <span style={{ width: `${share * 100}%` }} />
          </span>
        </td>
        <td data-label="Started">
          <Ago at={worker.started_at} />
        </td>
        <td class="right" data-label="Last sign">{seconds(worker.heartbeat_age_seconds)} ago</td>
        <td data-label="Lease until">
          <Ago at={worker.lease_expires_at} />
        </td>
        <td class="muted" data-label="Version">
          {worker.version || "–"}
        </td>
      </tr>
      {held.length > 0 && (
        <tr class="row-more">
          <td colSpan={8}>
            <Doing held={held} running={worker.running} />
          </td>
        </tr>
      )}
    </>
  );
}

function Doing({ held, running }: { held: Held[]; running: number }) {
  return (
    <p class="inline-list doing">
      <span class="muted">runs now:</span>
      {held.map((each) => (
        <a key={`${each.run} ${each.node}`} href={to(["runs", each.run])} title={`${each.node} of ${each.run}`}>
          {each.key ?? `${each.workflow} ${shortId(each.run)}`}
        </a>
      ))}
      {running > held.length && <span class="muted">and {count(running - held.length)} more</span>}
    </p>
  );
}
