/** State over time: of a decider's instance after any event, of a state graph after any step. */

import type { RunDetail } from "../contract";
import type { Place } from "../router";
import { DeciderState } from "./state_decider";
import { GraphSteps } from "./state_steps";

interface Props {
  run: RunDetail;
  place: Place;
  version: number;
  changed: () => void;
}

export function StateTab({ run, place, version, changed }: Props) {
  return run.model === "decider" ? (
    <DeciderState run={run} place={place} version={version} />
  ) : (
    <GraphSteps run={run} place={place} version={version} changed={changed} />
  );
}
