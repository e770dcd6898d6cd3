/** What a page shows of the server: fetched, kept while it is fetched again, with the error beside it. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, type Query } from "./api";

export interface Resource<T> {
  value: T | null;
  error: Error | null;
  loading: boolean;
  /** Fetches again; what is shown stays until the answer is there. */
  refresh: () => void;
}

interface Asking {
  identity: string | null;
  controller: AbortController;
  again: boolean;
}

/** Loads `path`; null loads nothing. A change of path or query starts afresh. */
export function useResource<T>(path: string | null, query: Query = {}): Resource<T> {
  const identity = path === null ? null : `${path}?${JSON.stringify(query)}`;
  const [held, setHeld] = useState<{ identity: string | null; value: T | null; error: Error | null; loading: boolean }>({
    identity: null,
    value: null,
    error: null,
    loading: true,
  });
  const current = useRef<Asking | null>(null);

  const load = useCallback(() => {
    if (path === null) return;
    if (current.current?.identity === identity) {
      // Under a stream of changes a slow answer must still arrive: it is not given up for a newer question.
      current.current.again = true;
      return;
    }
    current.current?.controller.abort();
    const asking: Asking = { identity, controller: new AbortController(), again: false };
    current.current = asking;
    const done = () => {
      if (current.current === asking) current.current = null;
      if (asking.again) load();
    };
    setHeld((held) => ({ ...held, loading: true }));
    get<T>(path, query, asking.controller.signal).then(
      (value) => {
        if (asking.controller.signal.aborted) return;
        setHeld({ identity, value, error: null, loading: false });
        done();
      },
      (error: Error) => {
        if (asking.controller.signal.aborted) return;
        setHeld((held) => ({
          identity,
          value: held.identity === identity ? held.value : null,
          error,
          loading: false,
        }));
        done();
      },
    );
  }, [identity]);

  useEffect(() => {
    load();
    return () => {
      current.current?.controller.abort();
      current.current = null;
    };
  }, [load]);

  const fresh = held.identity === identity;
  return {
    value: fresh ? held.value : null,
    error: fresh ? held.error : null,
    loading: held.loading || !fresh,
    refresh: load,
  };
}

/** Calls `action` again and again, but not while nobody looks. */
export function useInterval(action: () => void, milliseconds: number | null): void {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    if (milliseconds === null) return;
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}
