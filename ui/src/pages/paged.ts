/** Lists that come page by page: the first page is kept current, older ones are added on request. */

import { useCallback, useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { useLive } from "../live";

export interface Paged<T> {
  items: T[] | null;
  error: Error | null;
  more: boolean;
  loading: boolean;
  loadMore: () => void;
  refresh: () => void;
}

/** Loads `path`; the list is under `field` of the answer. */
export function usePaged<T>(path: string, field: string, limit: number): Paged<T> {
  const [items, setItems] = useState<T[] | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [loading, setLoading] = useState(true);

  const load = useCallback((from: string | null) => {
    setLoading(true);
    get<Record<string, unknown>>(path, { limit, cursor: from }).then(
      (page) => {
        const found = page[field] as T[];
        setItems((held) => (from === null ? found : [...(held ?? []), ...found]));
        setCursor((page["cursor"] as string | null | undefined) ?? null);
        setError(null);
        setLoading(false);
      },
      (error: Error) => {
        setError(error);
        setLoading(false);
      },
    );
  }, [path]);
  const refresh = useCallback(() => {
    load(null);
  }, [load]);
  useEffect(refresh, [refresh]);
  useLive(() => {
    // Whoever has gone further down keeps the place; the first page alone would take it away.
    if ((items?.length ?? 0) <= limit) refresh();
  });
  return { items, error, more: cursor !== null, loading, loadMore: () => load(cursor), refresh };
}
