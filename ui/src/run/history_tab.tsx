/** What happened to the run, in sentences, page by page. */

import { useEffect, useRef, useState } from "preact/hooks";
import { get, segment } from "../api";
import type { HistoryEntry, HistoryPage, RunDetail } from "../contract";
import { clock, duration, moment } from "../format";
import { Payload } from "../parts/payload";
import { Empty, Loading, Trouble } from "../parts/states";

const PAGE = 200;
const LONG_GAP_MS = 5_000;

export function HistoryTab({ run, version }: { run: RunDetail; version: number }) {
  const [entries, setEntries] = useState<HistoryEntry[]>([]);
  const [cursor, setCursor] = useState<number | null>(null);
  const [loading, setLoading] = useState(true);
  const [error, setError] = useState<Error | null>(null);
  const latest = useRef(entries);
  latest.current = entries;

  // Entries are only ever added: what comes after the last one is all that has to be asked for.
  const load = () => {
    const after = latest.current.at(-1)?.sequence ?? 0;
    setLoading(true);
    get<HistoryPage>(`runs/${segment(run.id)}/history`, { after, limit: PAGE }).then(
      (page) => {
        setEntries((held) => [...held, ...page.entries.filter((entry) => entry.sequence > (held.at(-1)?.sequence ?? 0))]);
        setCursor(page.cursor);
        setError(null);
        setLoading(false);
      },
      (error: Error) => {
        setError(error);
        setLoading(false);
      },
    );
  };
  useEffect(() => {
    // More pages are there anyway: what was added now is at their end.
    if (cursor === null) load();
  }, [version]);

  if (entries.length === 0 && loading) return <Loading what="Loading the history" />;
  if (entries.length === 0 && !error) return (
      <Empty title="There are no entries" icon="runs">
        <p>What people do to a run, and what it decides, is recorded here. Attempts are in the Timeline.</p>
      </Empty>
    );
  return (
    <div class="history">
      <ol>
        {entries.map((entry, at) => (
          <Entry key={entry.sequence} entry={entry} before={entries[at - 1]} />
        ))}
      </ol>
      {error && <Trouble error={error} again={load} />}
      {cursor !== null && (
        <p class="more">
          <button type="button" onClick={load} disabled={loading}>
            {loading ? "Loading…" : "Load what came next"}
          </button>
        </p>
      )}
    </div>
  );
}

function Entry({ entry, before }: { entry: HistoryEntry; before: HistoryEntry | undefined }) {
  const gap = before ? Date.parse(entry.at) - Date.parse(before.at) : 0;
  const [open, setOpen] = useState(false);
  const held = hasContent(entry.payload);
  return (
    <>
      {gap >= LONG_GAP_MS && (
        <li class="gap muted" aria-label={`${duration(gap)} later`}>
          {duration(gap)} later
        </li>
      )}
      <li class="entry">
        <time dateTime={entry.at} title={moment(entry.at)}>
          {clock(entry.at)}
        </time>
        <span class="kind">{entry.kind.replaceAll("_", " ")}</span>
        <span class="sentence prewrap">
          {entry.text}
          {entry.by && <span class="by muted"> by {entry.by}</span>}
        </span>
        {held ? (
          <button type="button" class="bare link small" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "less" : "more"}
          </button>
        ) : (
          <span />
        )}
        {open && (
          <div class="entry-payload">
            <Payload value={entry.payload} />
          </div>
        )}
      </li>
    </>
  );
}

function hasContent(payload: unknown): boolean {
  if (payload === null || payload === undefined) return false;
  return typeof payload !== "object" || Object.keys(payload).length > 0;
}
