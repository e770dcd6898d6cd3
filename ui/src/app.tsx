/** The frame: who we are, where we are, and the page for it. */

import { lazy, Suspense } from "./parts/lazy";
import { useCallback, useEffect, useState } from "preact/hooks";
import { ApiError, get, onUnauthorised } from "./api";
import type { Me } from "./contract";
import { live } from "./live";
import { Navigation } from "./parts/navigation";
import { Help } from "./parts/help";
import { useKeys } from "./parts/keys";
import { Empty, Loading, Trouble } from "./parts/states";
import { dismissOld, Toasts } from "./parts/toast";
import { RunsPage } from "./pages/runs";
import { SignInPage } from "./pages/sign_in";
import { go, type Place, to, usePlace } from "./router";
import { Session } from "./session";

// What is not seen at once is fetched when it is.
const RunPage = lazy(() => import("./pages/run").then((page) => page.RunPage));
const QueuesPage = lazy(() => import("./pages/queues").then((page) => page.QueuesPage));
const TimersPage = lazy(() => import("./pages/timers").then((page) => page.TimersPage));
const DeadPage = lazy(() => import("./pages/dead").then((page) => page.DeadPage));
const ProjectionsPage = lazy(() => import("./pages/projections").then((page) => page.ProjectionsPage));
const DefinitionsPage = lazy(() => import("./pages/definitions").then((page) => page.DefinitionsPage));
const DefinitionPage = lazy(() => import("./pages/definition").then((page) => page.DefinitionPage));
const SettingsPage = lazy(() => import("./pages/settings").then((page) => page.SettingsPage));

export function App() {
  const place = usePlace();
  const [me, setMe] = useState<Me | null>(null);
  const [trouble, setTrouble] = useState<Error | null>(null);
  const [asked, setAsked] = useState(false);
  const [help, setHelp] = useState(false);

  const introduce = useCallback(() => {
    get<Me>("me").then(
      (me) => {
        setMe(me);
        setTrouble(null);
        setAsked(false);
        live.restart();
      },
      (error: Error) => {
        if (error instanceof ApiError && error.status === 401) setAsked(true);
        else setTrouble(error);
      },
    );
  }, []);
  useEffect(introduce, [introduce]);
  useEffect(() => (me ? live.listen(() => {}) : undefined), [me !== null]); // open, whatever page is shown
  useEffect(
    () =>
      onUnauthorised(() => {
        live.close();
        setMe(null);
        setAsked(true);
      }),
    [],
  );

  useEffect(dismissOld, [place.path.join("/")]);

  useKeys({
    "?": () => setHelp(true),
    "g r": () => go(to(["runs"])),
    "g q": () => go(to(["queues"])),
    "g t": () => go(to(["timers"])),
    "g d": () => go(to(["dead"])),
    "g p": () => go(to(["projections"])),
    "g w": () => go(to(["definitions"])),
    "g s": () => go(to(["settings"])),
    "/": (event) => {
      const search = document.querySelector<HTMLInputElement>("[data-search]");
      event.preventDefault();
      if (search) search.focus();
      else go(to(["runs"], { focus: "search" }));
    },
  });

  if (asked) {
    return (
      <>
        <SignInPage signedIn={introduce} />
        <Toasts />
      </>
    );
  }
  return (
    <Session.Provider value={me}>
      <a class="skip" href="#main" onClick={focusMain}>
        Skip to the content
      </a>
      <div class="frame">
        <Navigation place={place} help={() => setHelp(true)} />
        <main id="main" tabindex={-1}>
          {trouble && <Trouble error={trouble} again={introduce} />}
          {me && (
            <Suspense fallback={<Loading />}>
              <Page place={place} signedOut={() => setAsked(true)} />
            </Suspense>
          )}
          {!me && !trouble && <Loading />}
        </main>
      </div>
      {help && <Help onClose={() => setHelp(false)} />}
      <Toasts />
    </Session.Provider>
  );
}

function focusMain(event: Event): void {
  event.preventDefault(); // the address holds where we are, not where the focus is
  document.getElementById("main")?.focus();
}

function Page({ place, signedOut }: { place: Place; signedOut: () => void }) {
  const [section = "runs", name] = place.path;
  useEffect(() => {
    // A run's page follows that run, and names itself.
    if (section === "runs" && name) return;
    live.follow(null);
    document.title = `${TITLES[section] ?? "Holdfast"} · Holdfast`;
  }, [section, name]);
  switch (section) {
    case "runs":
      return name ? <RunPage key={name} id={name} place={place} /> : <RunsPage place={place} />;
    case "queues":
      return <QueuesPage />;
    case "timers":
      return <TimersPage />;
    case "dead":
      return <DeadPage />;
    case "projections":
      return <ProjectionsPage />;
    case "definitions":
      return name ? <DefinitionPage key={name} name={name} /> : <DefinitionsPage />;
    case "settings":
      return <SettingsPage signedOut={signedOut} />;
    default:
      return (
        <Empty title="There is no such page" icon="failed">
          <a href={to(["runs"])}>Go to the runs</a>
        </Empty>
      );
  }
}

const TITLES: Record<string, string> = {
  runs: "Runs",
  queues: "Queues and workers",
  timers: "Timers",
  dead: "Dead letters",
  projections: "Projections",
  definitions: "Definitions",
  settings: "Settings",
};
