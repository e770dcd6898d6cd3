/** Calls to the server. Addresses are relative to the page, so that it works under any prefix. */

import { readAnswer, writeJson } from "./exact";

const BASE = new URL("api/v1/", document.baseURI.split("#")[0]);
const ROOT = new URL(".", document.baseURI.split("#")[0]);
const PATIENCE_MS = 30_000;

export type Query = Record<string, string | number | boolean | string[] | null | undefined>;

/** A refusal with the server's own words: the fact, and what to do about it. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

type Listener = () => void;
const unauthorised = new Set<Listener>();

/** Calls `listener` whenever the server asks who we are. */
export function onUnauthorised(listener: Listener): () => void {
  unauthorised.add(listener);
  return () => unauthorised.delete(listener);
}

export function apiAddress(path: string, query: Query = {}): string {
  const address = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    for (const each of Array.isArray(value) ? value : [value]) address.searchParams.append(name, String(each));
  }
  return address.href;
}

export function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return request<T>(apiAddress(path, query), { method: "GET", signal: signal ?? null });
}

/** Sends one operation. `key` makes a repetition of it harmless. */
export function post<T>(path: string, body: unknown = {}, key?: string): Promise<T> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (key) headers["Idempotency-Key"] = key;
  return request<T>(apiAddress(path), { method: "POST", headers, body: writeJson(body) });
}

export function signIn(token: string): Promise<unknown> {
  const headers = { "Content-Type": "application/json" };
  return request(new URL("session", ROOT).href, { method: "POST", headers, body: JSON.stringify({ token }) }, false);
}

export function signOut(): Promise<unknown> {
  return request(new URL("session", ROOT).href, { method: "DELETE" }, false);
}

/** One path segment: ids of nodes hold slashes and bars. */
export const segment = encodeURIComponent;

async function request<T>(address: string, init: RequestInit, tell = true): Promise<T> {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const signal = init.signal ? AbortSignal.any([init.signal, patience]) : patience;
  let response: Response;
  try {
    response = await fetch(address, { ...init, signal, credentials: "same-origin" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "Unreachable", "the server does not answer", "Is it still running? Start it again with: holdfast ui");
  }
  const text = await response.text();
  const document = parsed(text);
  if (response.ok) return document as T;
  const told = (document as { error?: { type?: string; message?: string; hint?: string } } | null)?.error;
  if (response.status === 401 && tell) for (const listener of unauthorised) listener();
  throw new ApiError(
    response.status,
    told?.type ?? `HTTP ${response.status}`,
    told?.message ?? (response.statusText || `the server answered ${response.status}`),
    told?.hint ?? "",
  );
}

function parsed(text: string): unknown {
  try {
    return text ? readAnswer(text) : null;
  } catch {
    return null;
  }
}
