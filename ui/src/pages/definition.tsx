/** One workflow: what it is, how it would run, and a form that starts it. */

import type { DefinitionDetail } from "../contract";
import { ApiError, segment } from "../api";
import { useState } from "preact/hooks";
import { CopyButton } from "../parts/copy";
import { lazy } from "../parts/lazy";
import { Empty, Loading, Trouble } from "../parts/states";
import { useResource } from "../resource";
import { to } from "../router";
import { ExecuteForm } from "./execute_form";
import { StartForm } from "./start_form";

const GraphCanvas = lazy(() => import("../graph/canvas").then((graph) => graph.GraphCanvas));

export function DefinitionPage({ name }: { name: string }) {
  const found = useResource<DefinitionDetail>(`definitions/${segment(name)}`);
  const [selected, setSelected] = useState<string | null>(null);
  const definition = found.value;
  if (!definition) {
    if (found.error instanceof ApiError && found.error.status === 404) {
      return (
        <Empty title="This workflow is not known here" icon="definitions" command="holdfast ui --app app.workflows">
          <p>
            <code>{name}</code> is in none of the modules that were loaded. <a href={to(["runs"], { workflow: name })}>See its runs</a>, or start the server with the module that holds it:
          </p>
        </Empty>
      );
    }
    return found.error ? <Trouble error={found.error} again={found.refresh} /> : <Loading />;
  }
  return (
    <article class="page definition-page">
      <nav class="crumbs" aria-label="Where this is">
        <a href={to(["definitions"])}>Definitions</a>
      </nav>
      <header class="run-head">
        <div class="run-title">
          <h1>{definition.name}</h1>
          <span class="model">{definition.model}</span>
        </div>
        <div class="run-actions">
          <a class="button" href={to(["runs"], { workflow: definition.name })}>
            See its runs
          </a>
        </div>
      </header>
      {definition.doc && <p class="prewrap doc">{definition.doc}</p>}
      <p class="muted small">
        Signature <code>{definition.signature || "–"}</code>
      </p>
      <div class="definition-columns">
        <section aria-label="Graph">
          {definition.graph && definition.graph.nodes.length > 0 ? (
            <GraphCanvas view={definition.graph} selected={selected} choose={setSelected} plain label={`Graph of ${definition.name}`} />
          ) : (
            <Empty title="It has no graph before it runs" icon="definitions">
              <p>{definition.known_here ? "What it does is decided while it runs; each of its runs shows what it did." : "Its code is not loaded here."}</p>
            </Empty>
          )}
          {definition.mermaid && (
            <details class="mermaid">
              <summary>As Mermaid</summary>
              <CopyButton text={definition.mermaid} label="Copy the Mermaid text" />
              <pre tabindex={0}>{definition.mermaid}</pre>
            </details>
          )}
        </section>
        <section aria-label="Start" class="start">
          {definition.model === "decider" && definition.known_here ? <ExecuteForm definition={definition} /> : <StartForm definition={definition} />}
        </section>
      </div>
    </article>
  );
}
