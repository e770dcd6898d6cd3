/** What the list of runs is narrowed to. It lives in the address, so that a list can be sent to a colleague. */

import type { Query } from "../api";
import type { Parameters } from "../router";

export interface RunFilter {
  statuses: string[];
  workflow: string;
  model: string;
  tags: string[];
  search: string;
  since: string;
  queue: string;
}

export const SINCE: Record<string, [label: string, milliseconds: number]> = {
  "15m": ["last 15 minutes", 15 * 60_000],
  "1h": ["last hour", 3_600_000],
  "24h": ["last day", 24 * 3_600_000],
  "7d": ["last week", 7 * 24 * 3_600_000],
};

export function filterOf(query: URLSearchParams): RunFilter {
  return {
    statuses: query.getAll("status"),
    workflow: query.get("workflow") ?? "",
    model: query.get("model") ?? "",
    tags: query.getAll("tag"),
    search: query.get("q") ?? "",
    since: query.get("since") ?? "",
    queue: query.get("queue") ?? "",
  };
}

export function parametersOf(filter: RunFilter): Parameters {
  return {
    status: filter.statuses,
    workflow: filter.workflow,
    model: filter.model,
    tag: filter.tags,
    q: filter.search,
    since: filter.since,
    queue: filter.queue,
  };
}

/** The same for the server, which wants a moment; whatever is not a length of ours is one already. */
export function queryOf(filter: RunFilter, now: number): Query {
  const length = SINCE[filter.since]?.[1];
  return {
    status: filter.statuses,
    workflow: filter.workflow,
    model: filter.model,
    tag: filter.tags,
    q: filter.search,
    since: length === undefined ? filter.since : new Date(now - length).toISOString(),
    queue: filter.queue,
  };
}

export function isEmpty(filter: RunFilter): boolean {
  return !(filter.statuses.length || filter.workflow || filter.model || filter.tags.length || filter.search || filter.since || filter.queue);
}
