/** Moments and lengths that grow while one looks. */

import { useNow } from "../clock";
import { duration, moment, relative } from "../format";

export function Ago({ at }: { at: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={`${moment(at)} (${at})`}>
      {relative(at, now)}
    </time>
  );
}

export function Moment({ at }: { at: string }) {
  return (
    <time dateTime={at} title={at}>
      {moment(at)}
    </time>
  );
}

/** From begin to end, or to now. */
export function Lasted({ begin, end }: { begin: string | null; end: string | null }) {
  const now = useNow(begin !== null && end === null);
  if (begin === null) return <span class="muted">–</span>;
  const until = end === null ? now : Date.parse(end);
  return <span class="nowrap">{duration(until - Date.parse(begin))}</span>;
}
