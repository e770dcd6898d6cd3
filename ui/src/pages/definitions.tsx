/** Every workflow that is known, whether it was ever run or not. */

import { useState } from "preact/hooks";
import { type Definition, STATUSES } from "../contract";
import { Empty, Loading, Trouble } from "../parts/states";
import { StatusIcon } from "../parts/status";
import { useResource } from "../resource";
import { to } from "../router";
import { count } from "../format";

export function DefinitionsPage() {
  const list = useResource<{ definitions: Definition[] }>("definitions");
  const [search, setSearch] = useState("");
  const wanted = search.trim().toLowerCase();
  const shown = list.value?.definitions.filter((each) => `${each.name} ${each.model} ${each.doc}`.toLowerCase().includes(wanted)) ?? [];
  return (
    <section class="page" aria-labelledby="definitions-title">
      <header class="page-head">
        <h1 id="definitions-title">Definitions</h1>
        <p class="muted">The workflows that this server knows or has seen runs of.</p>
      </header>
      {list.error && <Trouble error={list.error} again={list.refresh} />}
      {!list.value && !list.error && <Loading />}
      {list.value?.definitions.length === 0 && (
        <Empty title="No workflow is known here" icon="definitions" command="holdfast ui --app app.workflows">
          <p>Name the modules that hold your workflows, and their graphs can be seen before they run:</p>
        </Empty>
      )}
      {list.value && list.value.definitions.length > 0 && (
        <>
          <div class="filters wide-search">
            <input type="search" data-search value={search} placeholder="Name, model or description…" aria-label="Search definitions" onInput={(event) => setSearch(event.currentTarget.value)} />
          </div>
          <ul class="cards">
            {shown.map((definition) => (
              <li key={definition.name}>
                <a class="card" href={to(["definitions", definition.name])}>
                  <span class="card-head">
                    <span class="strong">{definition.name}</span>
                    <span class="model">{definition.model}</span>
                  </span>
                  <span class="muted card-doc">{definition.doc.split("\n")[0] || (definition.known_here ? "Without a description." : "Its code is not loaded here.")}</span>
                  <Counts definition={definition} />
                </a>
              </li>
            ))}
          </ul>
          {shown.length === 0 && <p class="muted">Nothing matches “{search}”.</p>}
        </>
      )}
    </section>
  );
}

function Counts({ definition }: { definition: Definition }) {
  const runs = definition.runs;
  const present = runs ? STATUSES.filter((status) => (runs[status] ?? 0) > 0) : [];
  if (!runs) return null; // not counted for the list
  if (present.length === 0) return <span class="card-counts muted small">no runs</span>;
  return (
    <span class="card-counts">
      {present.map((status) => (
        <span key={status} class="nowrap small">
          <StatusIcon state={status} /> {count(runs[status] ?? 0)}
        </span>
      ))}
    </span>
  );
}
