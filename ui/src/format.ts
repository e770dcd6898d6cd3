/** Times, lengths and numbers for people. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** "340 ms", "12.4 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
export function duration(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${(ms / SECOND).toFixed(ms < 10 * SECOND ? 1 : 0)} s`;
  if (ms < HOUR) return two(ms, MINUTE, "min", SECOND, "s");
  if (ms < DAY) return two(ms, HOUR, "h", MINUTE, "min");
  return two(ms, DAY, "d", HOUR, "h");
}

function two(ms: number, large: number, largeName: string, small: number, smallName: string): string {
  const whole = Math.floor(ms / large);
  const rest = Math.floor((ms % large) / small);
  return rest ? `${whole} ${largeName} ${rest} ${smallName}` : `${whole} ${largeName}`;
}

export const seconds = (value: number): string => duration(value * SECOND);

/** "just now", "5 min ago", "in 2 h". */
export function relative(iso: string, now: number): string {
  const apart = Date.parse(iso) - now;
  const length = Math.abs(apart);
  if (length < 5 * SECOND) return apart > SECOND ? "in a moment" : "just now";
  const text = coarse(length);
  return apart > 0 ? `in ${text}` : `${text} ago`;
}

function coarse(ms: number): string {
  if (ms < MINUTE) return `${Math.round(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.round(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.round(ms / HOUR)} h`;
  return `${Math.round(ms / DAY)} d`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DATE = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

export function clock(iso: string | number): string {
  return CLOCK.format(new Date(iso));
}

/** The whole of a moment in the reader's own time zone, with milliseconds. */
export function moment(iso: string): string {
  const date = new Date(iso);
  return `${DATE.format(date)}, ${CLOCK.format(date)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

const COUNT = new Intl.NumberFormat(undefined);

export function count(value: number, more = false): string {
  return `${COUNT.format(value)}${more ? "+" : ""}`;
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** The end of an id is what tells runs of the same minute apart. */
export function shortId(id: string): string {
  return id.length > 13 ? `…${id.slice(-8)}` : id;
}

export function short(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
