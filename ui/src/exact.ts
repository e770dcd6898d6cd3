/** JSON without a loss: a number that JavaScript cannot hold stays the text that it was, in answers and in what is sent. */

// No payload holds it: it is another one at every visit.
const MARK = `exact${Math.random().toString(36).slice(2)}:`;
const MARKED = new RegExp(`"${MARK}([^"]*)"`, "g");
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
const PERHAPS_TOO_LARGE = /\d{16}|[eE]\+?\d{3}/;

/** A number as it was written. */
export class Exact {
  constructor(readonly text: string) {}

  toString(): string {
    return this.text;
  }

  toJSON(): string {
    return MARK + this.text;
  }
}

/** A document of the server's. SyntaxError if it is none. */
export function readAnswer(text: string): unknown {
  // Most answers have no such number, and some are long.
  return PERHAPS_TOO_LARGE.test(text) ? read(text, isTooLarge) : JSON.parse(text);
}

/** What somebody typed. It is written again as it was, also 1.0, which is another number than 1 where it arrives. */
export function readTyped(text: string): unknown {
  return read(text, (token) => String(Number(token)) !== token);
}

export function writeJson(value: unknown, indent?: number): string {
  return (JSON.stringify(value, null, indent) ?? "").replace(MARKED, "$1");
}

function read(text: string, keeps: (token: string) => boolean): unknown {
  JSON.parse(text); // or numbers that are none, such as 01, would pass as texts
  const marked = text.replace(TOKENS, (token) => (token.startsWith('"') || !keeps(token) ? token : `"${MARK}${token}"`));
  return JSON.parse(marked, (_, value: unknown) => (typeof value === "string" && value.startsWith(MARK) ? new Exact(value.slice(MARK.length)) : value));
}

function isTooLarge(token: string): boolean {
  const number = Number(token);
  return !Number.isFinite(number) || (/^-?\d+$/.test(token) && !Number.isSafeInteger(number));
}
