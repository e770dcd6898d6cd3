/** The bar with the pages, how live this one is, and the colours. */

import { useEffect } from "preact/hooks";
import type { Letter, Projection } from "../contract";
import { plural } from "../format";
import { useConnection } from "../live";
import { useInterval, useResource } from "../resource";
import { type Place, to } from "../router";
import { useMe } from "../session";
import { type Theme, useTheme } from "../settings";
import { Icon } from "./icons";

const PAGES = [
  { section: "runs", title: "Runs", icon: "runs", key: "g r" },
  { section: "queues", title: "Queues & workers", icon: "queues", key: "g q" },
  { section: "timers", title: "Timers", icon: "clock", key: "g t" },
  { section: "dead", title: "Dead letters", icon: "dead", key: "g d" },
  { section: "projections", title: "Projections", icon: "projections", key: "g p" },
  { section: "definitions", title: "Definitions", icon: "definitions", key: "g w" },
  { section: "settings", title: "Settings", icon: "settings", key: "g s" },
] as const;

export function Navigation({ place, help }: { place: Place; help: () => void }) {
  const section = place.path[0] ?? "runs";
  const me = useMe();
  const waiting = useWaiting(me !== null, section);
  return (
    <nav class="navigation" aria-label="Pages">
      <a class="mark" href={to(["runs"])} aria-label="Holdfast: all runs">
        <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="8" class="mark-ground" />
          <path d="M10 7v18M22 7v18M10 16h12" class="mark-line" />
        </svg>
        <span>Holdfast</span>
      </a>
      <ul>
        {PAGES.map((page) => (
          <li key={page.section}>
            <a href={to([page.section])} aria-current={section === page.section ? "page" : undefined} title={`${page.title} (${page.key})`}>
              <Icon name={page.icon} />
              <span>{page.title}</span>
              <Badge told={waiting[page.section]} />
            </a>
          </li>
        ))}
      </ul>
      <div class="navigation-foot">
        <LiveMark />
        {me && (
          <span class="muted small about" title={`holdfast ${me.version}, signed in as ${me.name} with the role ${me.role}`}>
            {me.store} · {me.role}
          </span>
        )}
        <span class="navigation-buttons">
          <ThemeButton />
          <button type="button" class="bare" aria-label="Keys and help" title="Keys and help (?)" onClick={help}>
            <Icon name="question" />
          </button>
        </span>
      </div>
    </nav>
  );
}

/** What waits for a person, as a short number and in words. */
interface Told {
  number: string;
  words: string;
}

const AGAIN_MS = 10_000;
const MOST_LETTERS = 100;

function useWaiting(known: boolean, section: string): Partial<Record<string, Told>> {
  const dead = useResource<{ letters: Letter[]; cursor: string | null }>(known ? "dead" : null, { limit: MOST_LETTERS });
  const projections = useResource<{ projections: Projection[] }>(known ? "projections" : null);
  const refresh = () => {
    dead.refresh();
    projections.refresh();
  };
  useInterval(refresh, known ? AGAIN_MS : null);
  useEffect(refresh, [section]);
  const letters = dead.value?.letters.length ?? 0;
  const stopped = projections.value?.projections.filter((each) => each.error !== null).length ?? 0;
  const more = dead.value !== null && dead.value.cursor !== null;
  return {
    ...(letters > 0 ? { dead: { number: `${letters}${more ? "+" : ""}`, words: plural(letters, more ? "dead letter or more" : "dead letter", more ? "dead letters or more" : "dead letters") } } : {}),
    ...(stopped > 0 ? { projections: { number: String(stopped), words: `${plural(stopped, "projection")} stopped` } } : {}),
  };
}

function Badge({ told }: { told: Told | undefined }) {
  if (!told) return null;
  return (
    <b class="count-badge" title={told.words} aria-label={told.words}>
      {told.number}
    </b>
  );
}

function LiveMark() {
  const connection = useConnection();
  const words = {
    off: ["off", "nothing on this page changes by itself"],
    connecting: ["connecting", "the live stream is being opened"],
    open: ["live", "changes are shown as they happen"],
    polling: ["polling", "the live stream is not there; the page asks again every few seconds"],
  } as const;
  const [word, meaning] = words[connection];
  return (
    <span class={`live-mark ${connection}`} title={meaning}>
      <span class="dot" aria-hidden="true" />
      {word}
    </span>
  );
}

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const THEME_ICONS: Record<Theme, string> = { system: "half", light: "sun", dark: "moon" };

function ThemeButton() {
  const [theme, setTheme] = useTheme();
  return (
    <button
      type="button"
      class="bare"
      aria-label={`Colours: ${theme}. Change to ${NEXT[theme]}`}
      title={`Colours: ${theme}`}
      onClick={() => setTheme(NEXT[theme])}
    >
      <Icon name={THEME_ICONS[theme]} />
    </button>
  );
}
