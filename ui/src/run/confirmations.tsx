/** What an action will do, in words, and how it is done: the same wherever its button is. */

import { post, segment } from "../api";
import type { Done, RunDetail } from "../contract";
import type { Confirmation } from "../parts/dialog";
import { say } from "../parts/toast";
import { to } from "../router";

export const WORDS: Record<string, string> = {
  pause: "Pause",
  resume: "Resume",
  retry: "Retry",
  cancel: "Cancel",
  fork: "Fork",
  send: "Send event",
  skip: "Skip",
  reattempt: "Do again",
};

export function confirmationOf(action: string, run: RunDetail, changed: () => void, node: string = ""): Confirmation | null {
  const act = (path: string, body: unknown) => async () => {
    const answer = await post<Done>(`runs/${segment(run.id)}/${path}`, body);
    say(answer.message);
    changed();
  };
  switch (action) {
    case "pause":
      return {
        title: "Pause this run?",
        text: "Nothing new of it begins until somebody resumes it. What is running now goes on to its end.",
        button: "Pause",
        command: `holdfast pause ${run.id}`,
        field: { label: "Why (kept in the history)", placeholder: "optional" },
        act: (reason) => act("pause", reason ? { reason } : {})(),
      };
    case "resume":
      return {
        title: "Resume this run?",
        text: "It goes on where it was paused. What gave up gets fresh attempts.",
        button: "Resume",
        command: `holdfast resume ${run.id}`,
        act: act("resume", {}),
      };
    case "retry":
      return {
        title: "Retry this run?",
        text: "What failed in it is tried again, with fresh attempts. What was done stays done.",
        button: "Retry",
        command: `holdfast retry ${run.id}`,
        act: act("retry", {}),
      };
    case "cancel":
      return {
        title: "Cancel this run?",
        text: "It is asked to stop. What it registered to undo is undone, runs that it started are cancelled too, and it ends as cancelled. This cannot be taken back.",
        button: "Cancel the run",
        danger: true,
        command: `holdfast cancel ${run.id}`,
        act: act("cancel", {}),
      };
    case "fork":
      return {
        title: node ? `Fork from ${node}?` : "Fork this run?",
        text:
          run.model === "graph"
            ? "A new run begins with the state after its last finished step. This one stays as it is. The State tab forks from earlier steps."
            : `A new run with the same input takes over what is done before ${node || "the node that you name"}, and does the rest itself. This one stays as it is.`,
        button: "Fork",
        ...(run.model === "graph" || node ? {} : { field: { label: "From node", placeholder: "the id of a node", required: true } }),
        act: async (named) => {
          const from = node || named;
          const answer = await post<{ id: string }>(`runs/${segment(run.id)}/fork`, from ? { from_node: from } : {});
          say("Forked.", { text: "Open the new run", address: to(["runs", answer.id]) });
          changed();
        },
      };
    case "reattempt":
      return {
        title: `Do ${node} again?`,
        text: "It gets a fresh attempt. What gave up for its sake goes on afterwards; the rest stays done.",
        button: "Do it again",
        command: `holdfast reattempt ${run.id} ${node}`,
        act: act("reattempt", { node }),
      };
    case "skip":
      return {
        title: `Skip ${node}?`,
        text: `It is taken as done without a result, and what depends on it may begin.${run.status === "paused" ? " The run is paused because of it: skipping it lets the run go on." : ""}`,
        button: "Skip it",
        danger: true,
        command: `holdfast skip ${run.id} ${node}`,
        act: act("skip", { node }),
      };
    default:
      return null;
  }
}
