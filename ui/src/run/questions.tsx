/** What a run asks a person, with the form to answer it. */

import { useState } from "preact/hooks";
import { post, segment } from "../api";
import type { Done, Question, RunDetail } from "../contract";
import { useConfirm } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { Payload } from "../parts/payload";
import { Ago } from "../parts/time";
import { complain, say } from "../parts/toast";
import { useRefusal } from "../session";
import { JsonInput, readValue } from "./json_input";

export function Questions({ run, changed }: { run: RunDetail; changed: () => void }) {
  return (
    <>
        {run.questions.map((question) => (
          <QuestionForm key={question.node} run={run} question={question} changed={changed} />
        ))}
    </>
  );
}

const QUICK = ["yes", "no"];

function QuestionForm({ run, question, changed }: { run: RunDetail; question: Question; changed: () => void }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [ask, dialog] = useConfirm();
  const refusal = useRefusal("operate");
  const read = readValue(text);
  const give = async (answer: unknown) => {
    const done = await post<Done>(`runs/${segment(run.id)}/answer`, { answer, node: question.node });
    say(done.message);
    setText("");
    changed();
  };
  const send = async (answer: unknown) => {
    setBusy(true);
    try {
      await give(answer);
    } catch (error) {
      complain(error, "Answer");
    }
    setBusy(false);
  };
  return (
    <>
      <form
        class="question"
        onSubmit={(event) => {
          event.preventDefault();
          void send(read.value);
        }}
      >
        <header>
          <Icon name="question" />
          <strong>{question.node} asks a person</strong>
          <span class="muted">
            since <Ago at={question.since} />
          </span>
        </header>
        <Payload value={question.payload} bare />
        <div class="question-row">
          <JsonInput label="Your answer" hint="JSON, or plain text" text={text} onText={setText} rows={1} />
          {QUICK.map((word) => (
            <button
              key={word}
              type="button"
              disabled={busy || refusal !== null}
              title={refusal ?? `Answer with the text ${word}`}
              onClick={() =>
                ask({
                  title: `Answer ${word}?`,
                  text: `${question.node} gets the text “${word}” and goes on. An answer cannot be taken back.`,
                  button: `Answer ${word}`,
                  act: () => give(word),
                })
              }
            >
              {word}
            </button>
          ))}
          <button type="submit" class="primary" disabled={busy || refusal !== null || text.trim() === "" || read.as === "not valid JSON"} title={refusal ?? ""}>
            {busy ? "Answering…" : "Answer"}
          </button>
        </div>
      </form>
      {/* Not inside the form: what is submitted there is not the answer here. */}
      {dialog}
    </>
  );
}
