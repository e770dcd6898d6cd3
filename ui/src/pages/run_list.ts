/** The list of runs: loaded page by page, changed in place, and never moved under somebody's mouse. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api";
import type { Run, RunCounts, RunPage } from "../contract";
import { live } from "../live";
import { queryOf, type RunFilter } from "./run_filter";

const PAGE = 50;
const DEBOUNCE_MS = 250;
const COUNTS_MS = 1_000;

export interface RunList {
  runs: Run[];
  more: boolean;
  /** How many came since, and are not in the list yet. */
  fresh: number;
  loading: boolean;
  error: Error | null;
  counts: RunCounts | null;
  loadMore: () => void;
  /** Loads the first page anew, with everything that came. */
  renew: () => void;
}

/** `held` says whether somebody is busy with the list, so that rows must stay where they are. */
export function useRunList(filter: RunFilter, held: () => boolean): RunList {
  const identity = JSON.stringify(filter);
  const [runs, setRuns] = useState<Run[]>([]);
  const [cursor, setCursor] = useState<string | null>(null);
  const [fresh, setFresh] = useState(0);
  const [loading, setLoading] = useState(true);
  const [error, setError] = useState<Error | null>(null);
  const [counts, setCounts] = useState<RunCounts | null>(null);
  const latest = useRef({ runs, held, identity, filter });
  latest.current = { runs, held, identity, filter };

  const fetchCounts = useCallback(() => {
    const asked = latest.current.identity;
    const { status: _, ...query } = queryOf(latest.current.filter, Date.now());
    get<RunCounts>("runs/counts", query).then(
      (counts) => asked === latest.current.identity && setCounts(counts),
      () => {}, // the list itself tells what is wrong
    );
  }, []);

  const renew = useCallback(() => {
    const asked = latest.current.identity;
    setLoading(true);
    get<RunPage>("runs", { ...queryOf(latest.current.filter, Date.now()), limit: PAGE }).then(
      (page) => {
        if (asked !== latest.current.identity) return;
        setRuns(page.runs);
        setCursor(page.cursor);
        setFresh(0);
        setError(null);
        setLoading(false);
      },
      (error: Error) => {
        if (asked !== latest.current.identity) return;
        setError(error);
        setLoading(false);
      },
    );
    fetchCounts();
  }, []);
  useEffect(renew, [identity]);

  const loadMore = useCallback(() => {
    if (cursor === null) return;
    const asked = latest.current.identity;
    setLoading(true);
    get<RunPage>("runs", { ...queryOf(latest.current.filter, Date.now()), limit: PAGE, cursor }).then(
      (page) => {
        if (asked !== latest.current.identity) return;
        setRuns((runs) => joined(runs, page.runs));
        setCursor(page.cursor);
        setLoading(false);
      },
      (error: Error) => {
        setError(error);
        setLoading(false);
      },
    );
  }, [cursor]);

  /** Looks at the newest page again and takes from it what may be taken now. */
  const looking = useRef({ now: false, again: false });
  const look = useCallback(() => {
    if (looking.current.now) {
      looking.current.again = true; // one question at a time, however fast things change
      return;
    }
    looking.current = { now: true, again: false };
    const asked = latest.current.identity;
    get<RunPage>("runs", { ...queryOf(latest.current.filter, Date.now()), limit: PAGE }).then(
      (page) => {
        const { runs, held, identity } = latest.current;
        if (asked !== identity) return;
        setError(null);
        const known = new Set(runs.map((run) => run.id));
        const unknown = page.runs.filter((run) => !known.has(run.id)).length;
        if (held()) {
          setRuns(updated(runs, page.runs));
          setFresh(unknown);
        } else {
          setRuns(withOlder(page, runs));
          if (runs.length <= PAGE) setCursor(page.cursor);
          setFresh(0);
        }
      },
      (error: Error) => setError(error),
    ).finally(() => {
      const { again } = looking.current;
      looking.current = { now: false, again: false };
      if (again) look();
    });
  }, []);

  useEffect(() => {
    let timer = 0;
    let countsTimer = 0;
    const stop = live.listen((heard) => {
      if (heard.kind === "runs") {
        const statuses = new Map(heard.change.changed.map((change) => [change.id, change.status]));
        if (latest.current.runs.some((run) => statuses.has(run.id) && statuses.get(run.id) !== run.status)) {
          setRuns((runs) => runs.map((run) => ({ ...run, status: statuses.get(run.id) ?? run.status })));
        }
      }
      timer ||= window.setTimeout(() => {
        timer = 0;
        look();
      }, DEBOUNCE_MS);
      countsTimer ||= window.setTimeout(() => {
        countsTimer = 0;
        fetchCounts();
      }, COUNTS_MS);
    });
    return () => {
      clearTimeout(timer);
      clearTimeout(countsTimer);
      stop();
    };
  }, []);

  return { runs, more: cursor !== null, fresh, loading, error, counts, loadMore, renew };
}

function joined(runs: Run[], more: Run[]): Run[] {
  const known = new Set(runs.map((run) => run.id));
  return [...runs, ...more.filter((run) => !known.has(run.id))];
}

function updated(runs: Run[], page: Run[]): Run[] {
  const newer = new Map(page.map((run) => [run.id, run]));
  return runs.map((run) => newer.get(run.id) ?? run);
}

/** The newest page, and behind it those that were loaded beyond it. */
function withOlder(page: RunPage, runs: Run[]): Run[] {
  const last = page.runs.at(-1);
  if (!last || runs.length <= PAGE) return page.runs;
  const place = runs.findIndex((run) => run.id === last.id);
  return place < 0 ? page.runs : [...page.runs, ...runs.slice(place + 1)];
}
