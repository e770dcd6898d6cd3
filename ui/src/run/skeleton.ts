/** A value with every field that has to be given, to be filled in rather than guessed. */

import type { Parameter } from "../contract";

export function skeletonOf(fields: Parameter[]): string {
  const needed = fields.filter((field) => field.default === null);
  if (needed.length === 0) return fields.length > 0 ? "{}" : "";
  return JSON.stringify(Object.fromEntries(needed.map((field) => [field.name, emptyOf(field.type)])), null, 2);
}

function emptyOf(type: string): unknown {
  if (/\bNone\b|^Optional\b|^Any$/.test(type)) return null;
  if (/^(int|float|Decimal)\b/.test(type)) return 0;
  if (/^bool\b/.test(type)) return false;
  if (/^(list|tuple|set|frozenset|Sequence|Iterable)\b/.test(type)) return [];
  if (/^str\b/.test(type)) return "";
  if (/^(dict|Mapping)\b/.test(type)) return {};
  return null;
}
