/** What was given up: work that failed for good and events that nobody could take. It waits for a person. */

import { useState } from "preact/hooks";
import { post } from "../api";
import type { Done, Letter } from "../contract";
import { useConfirm } from "../parts/dialog";
import { FailureView } from "../parts/payload";
import { Empty, Loading, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { say } from "../parts/toast";
import { to } from "../router";
import { useRefusal } from "../session";
import { usePaged } from "./paged";

export function DeadPage() {
  const letters = usePaged<Letter>("dead", "letters", 100);
  return (
    <section class="page" aria-labelledby="dead-title">
      <header class="page-head">
        <h1 id="dead-title">Dead letters</h1>
        <p class="muted">Work that was given up and events that could not be taken. Replay them once the cause is gone.</p>
      </header>
      {letters.error && <Trouble error={letters.error} again={letters.refresh} />}
      {!letters.items && !letters.error && <Loading />}
      {letters.items?.length === 0 && (
        <Empty title="No dead letters" icon="completed">
          <p>Nothing was given up. What fails for good without failing its run comes here.</p>
        </Empty>
      )}
      <ul class="letters">
        {letters.items?.map((letter) => (
          <LetterView key={`${letter.id} ${letter.node ?? ""}`} letter={letter} changed={letters.refresh} />
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

function LetterView({ letter, changed }: { letter: Letter; changed: () => void }) {
  const [ask, dialog] = useConfirm();
  const [open, setOpen] = useState(false);
  const mayReplay = useRefusal("operate");
  const mayDiscard = useRefusal("admin");
  const act = (path: string) => async () => {
    const answer = await post<Done>(`dead/${path}`, { id: letter.id, ...(letter.node === null ? {} : { node: letter.node }) });
    say(answer.message);
    changed();
  };
  return (
    <li class="letter" data-letter={letter.id}>
      <div class="letter-head">
        <span class="tag">{letter.kind}</span>
        <span class="strong">{letter.name}</span>
        {letter.workflow && <span class="muted">{letter.workflow}</span>}
        {letter.run && <a href={to(["runs", letter.run], letter.node ? { tab: "graph", node: letter.node } : {})}>open its run</a>}
        <span class="muted small">
          died <Ago at={letter.died_at} />
        </span>
      </div>
      <p class="prewrap letter-reason">{letter.reason}</p>
      {letter.error && (
        <>
          <button type="button" class="bare link small" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Hide the error" : `Show the error: ${letter.error.type}`}
          </button>
          {open && <FailureView failure={letter.error} />}
        </>
      )}
      <div class="letter-actions">
        <button
          type="button"
          class="primary"
          disabled={mayReplay !== null}
          title={mayReplay ?? ""}
          onClick={() =>
            ask({
              title: `Replay ${letter.name}?`,
              text: letter.kind === "work" ? "It is tried again from the beginning of its attempts. If the cause is not gone, it comes back here." : "The event is offered again to whoever waits for it. If nobody can take it, it comes back here.",
              button: "Replay",
              command: `holdfast dead replay ${letter.id}`,
              act: act("replay"),
            })
          }
        >
          Replay
        </button>
        <button
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
              act: act("discard"),
            })
          }
        >
          Discard
        </button>
      </div>
      {dialog}
    </li>
  );
}
