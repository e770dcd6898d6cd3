/** Where we are, as the part of the address behind the #. Everything that can be shared as a link is in it. */

import { useEffect, useState } from "preact/hooks";

export interface Place {
  /** Segments, decoded: /runs/ID is ["runs", "ID"]. */
  path: string[];
  query: URLSearchParams;
}

export function placeOf(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: new URLSearchParams(query),
  };
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export type Parameters = Record<string, string | string[] | null | undefined>;

/** The address of a place: `to(["runs", id], {tab: "graph"})`. */
export function to(path: string[], query: Parameters = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, each);
  }
  const tail = search.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${tail ? `?${tail}` : ""}`;
}

export function go(address: string): void {
  location.hash = address;
}

/** Changes parameters of the place we are at, without a new entry in the browser's history unless asked for. */
export function setQuery(changes: Parameters, { push = false } = {}): void {
  const { path, query } = placeOf(location.hash);
  const all: Parameters = {};
  for (const name of new Set(query.keys())) all[name] = query.getAll(name);
  const address = to(path, { ...all, ...changes });
  if (address === location.hash) return;
  if (push) {
    location.hash = address;
  } else {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

export function usePlace(): Place {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  useEffect(() => {
    const moved = () => setPlace(placeOf(location.hash));
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return place;
}
