/** What was given up: work that failed for good and events that nobody could take. It waits for a person. */

import { useEffect, useState } from "preact/hooks";
import { get, post, segment } from "../api";
import type { Done, Letter, NodePage } from "../contract";
import { useConfirm } from "../parts/dialog";
import { FailureView, Payload } from "../parts/payload";
import { Empty, Loading, Trouble } from "../parts/states";
import { StatusBadge } from "../parts/status";
import { Ago } from "../parts/time";
import { say } from "../parts/toast";
import { to } from "../router";
import { useRefusal } from "../session";
import { usePaged } from "./paged";

const AT_ONCE = 100;

/** Whether nobody is left to take it. Work of a failed run can be done all the same: a projection's, for example. */
function isTooLate(letter: Letter): boolean {
  const status = letter.run_status ?? "";
  return status === "completed" || status === "cancelled" || (status === "failed" && letter.kind === "event");
}

/** What became of one that was replayed while somebody looked. */
interface Replayed {
  letter: Letter;
  outcome: "under way" | "worked";
}

/** The same when it died again: an event that is replayed comes back in another row, with the id of its message. */
function identityOf(letter: Letter): string {
  const message = letter.kind === "event" ? letter.id.slice(letter.id.indexOf("/") + 1) : letter.id;
  return [letter.kind, letter.run, letter.name, letter.node, message].join(" ");
}

export function DeadPage() {
  const letters = usePaged<Letter>("dead", "letters", AT_ONCE);
  const [replayed, setReplayed] = useState<ReadonlyMap<string, Replayed>>(new Map());
  const tell = (letter: Letter, outcome: Replayed["outcome"]) => setReplayed((held) => new Map(held).set(identityOf(letter), { letter, outcome }));
  const forget = (letter: Letter) =>
    setReplayed((held) => {
      const rest = new Map(held);
      rest.delete(identityOf(letter));
      return rest;
    });
  const listed = new Set(letters.items?.map(identityOf));
  // Those that are not dead any more keep their cards until the page is left: the outcome is what one waits for.
  const gone = [...replayed.values()].filter(({ letter }) => !listed.has(identityOf(letter)));
  return (
    <section class="page" aria-labelledby="dead-title">
      <header class="page-head">
        <h1 id="dead-title">Dead letters</h1>
        <p class="muted">Work that was given up and events that could not be taken. Replay them once the cause is gone.</p>
      </header>
      {letters.error && <Trouble error={letters.error} again={letters.refresh} />}
      {!letters.items && !letters.error && <Loading />}
      {letters.items?.length === 0 && gone.length === 0 && (
        <Empty title="No dead letters" icon="completed">
          <p>Nothing was given up. What fails for good without failing its run comes here.</p>
        </Empty>
      )}
      <ul class="letters">
        {gone.map(({ letter, outcome }) => (
          <ReplayedView key={identityOf(letter)} letter={letter} outcome={outcome} tell={tell} refresh={letters.refresh} />
        ))}
        {letters.items?.map((letter) => (
          <LetterView key={identityOf(letter)} letter={letter} before={replayed.get(identityOf(letter))?.letter ?? null} changed={letters.refresh} replayed={() => tell(letter, "under way")} discarded={() => forget(letter)} />
        ))}
      </ul>
      {letters.more && (
        <p class="more">
          <button type="button" onClick={letters.loadMore} disabled={letters.loading}>
            Load older ones
          </button>
        </p>
      )}
    </section>
  );
}

const LOOKS_MS = [300, 700, 1_500, 3_000, 6_000];

interface ReplayedProps extends Replayed {
  tell: (letter: Letter, outcome: Replayed["outcome"]) => void;
  refresh: () => void;
}

function ReplayedView({ letter, outcome, tell, refresh }: ReplayedProps) {
  useEffect(() => {
    if (outcome !== "under way") return;
    let timer = 0;
    let stopped = false;
    const look = (at: number) => {
      const wait = LOOKS_MS[at];
      if (wait === undefined) return;
      timer = window.setTimeout(async () => {
        // One that died again at once may be back before anybody tells us of a change.
        refresh();
        const done = await worked(letter).catch(() => false); // asked again, and told as under way until then
        if (stopped) return;
        if (done && at > 0) tell(letter, "worked");
        else look(at + 1);
      }, wait);
    };
    look(0);
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [outcome]);
  const good = outcome === "worked";
  return (
    <li class={`letter replayed ${good ? "good" : ""}`} data-letter={letter.id}>
      <Head letter={letter} />
      <p class="letter-outcome" role="status">
        <StatusBadge state={good ? "completed" : "running"} note={good ? "replayed: worked" : "replayed: under way"} />{" "}
        <span class="muted">{good ? "It is no dead letter any more." : "If it fails again, it comes back to this list."}</span>
      </p>
    </li>
  );
}

/** An event that is not dead was taken; work has to be done first. */
async function worked(letter: Letter): Promise<boolean> {
  if (letter.kind === "event" || letter.run === null || letter.node === null) return true;
  const { nodes } = await get<NodePage>(`runs/${segment(letter.run)}/nodes`, { node: letter.node });
  const state = nodes.at(-1)?.state;
  return state === undefined || state === "completed"; // what is done may have been cleared away
}

function Head({ letter }: { letter: Letter }) {
  return (
    <div class="letter-head">
      <span class="tag">{letter.kind}</span>
      <span class="strong">{letter.name}</span>
      {letter.workflow && letter.workflow !== letter.name && <span class="muted">{letter.workflow}</span>}
      {letter.run && <a href={to(["runs", letter.run], letter.node ? { tab: "graph", node: letter.node } : {})}>{letter.key ? `run ${letter.key}` : "open its run"}</a>}
      {letter.run_status && <StatusBadge state={letter.run_status} />}
      <span class="muted small">
        died <Ago at={letter.died_at} />
      </span>
    </div>
  );
}

interface LetterProps {
  letter: Letter;
  /** As it was when somebody here replayed it. */
  before: Letter | null;
  changed: () => void;
  replayed: () => void;
  discarded: () => void;
}

function LetterView({ letter, before, changed, replayed, discarded }: LetterProps) {
  const [ask, dialog] = useConfirm();
  const [open, setOpen] = useState(false);
  const mayReplay = useRefusal("operate");
  const mayDiscard = useRefusal("admin");
  const act = (path: string, then: () => void) => async () => {
    const answer = await post<Done>(`dead/${path}`, { id: letter.id, ...(letter.node === null ? {} : { node: letter.node }) });
    say(answer.message);
    then();
    changed();
  };
  const again = before !== null && before.died_at !== letter.died_at;
  const ended = isTooLate(letter);
  const replay = (
    <button
      key="replay"
      type="button"
      class={ended ? "" : "primary"}
      disabled={mayReplay !== null}
      title={mayReplay ?? ""}
      onClick={() =>
        ask({
          title: `Replay ${letter.name}?`,
          text: (
            <>
              {ended && <p class="bad-text">Its run has ended ({letter.run_status}): nothing of it may be left to take this.</p>}
              <p>{letter.kind === "work" ? "It is tried again from the beginning of its attempts. If the cause is not gone, it comes back here." : "The event is offered again to whoever waits for it. If nobody can take it, it comes back here."}</p>
            </>
          ),
          button: "Replay",
          command: `holdfast dead replay ${letter.id}`,
          act: act("replay", replayed),
        })
      }
    >
      Replay
    </button>
  );
  const discard = (
    <button
      key="discard"
      type="button"
      class="danger-quiet"
      disabled={mayDiscard !== null}
      title={mayDiscard ?? ""}
      onClick={() =>
        ask({
          title: `Discard ${letter.name}?`,
          text: "It is taken off this list for good and will not be done. The history of its run says who did that.",
          button: "Discard",
          danger: true,
          command: `holdfast dead discard ${letter.id}`,
          act: act("discard", discarded),
        })
      }
    >
      Discard
    </button>
  );
  return (
    <li class="letter" data-letter={letter.id}>
      <Head letter={letter} />
      {again && (
        <p class="letter-outcome" role="status">
          <StatusBadge state="failed" note="replayed: failed again" />
        </p>
      )}
      <p class="prewrap letter-reason">{letter.reason}</p>
      {ended && <p class="bad-text small">Its run has ended ({letter.run_status}): a replay will hardly help.</p>}
      {letter.payload !== null && letter.payload !== undefined && <Payload value={letter.payload} bare />}
      {letter.error && (
        <>
          <button type="button" class="bare link small" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Hide the error" : `Show the error: ${letter.error.type}`}
          </button>
          {open && <FailureView failure={letter.error} open />}
        </>
      )}
      <div class="letter-actions">{ended ? [discard, replay] : [replay, discard]}</div>
      {dialog}
    </li>
  );
}
