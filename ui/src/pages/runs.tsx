/** All runs: how many are in which state, narrowed down, opened, and operated many at a time. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api";
import { MODELS, type Definition, type Run, type RunPage, STATUSES } from "../contract";
import { count, shortId } from "../format";
import { Empty, Loading, Trouble } from "../parts/states";
import { Icon } from "../parts/icons";
import { useKeys } from "../parts/keys";
import { lookOf, StatusBadge } from "../parts/status";
import { Ago, Lasted } from "../parts/time";
import { useResource } from "../resource";
import { go, type Place, setQuery, to } from "../router";
import { BulkBar } from "./runs_bulk";
import { filterOf, isEmpty, parametersOf, queryOf, type RunFilter, SINCE } from "./run_filter";
import { type RunList, useRunList } from "./run_list";

export function RunsPage({ place }: { place: Place }) {
  const filter = useMemo(() => filterOf(place.query), [place.query.toString()]);
  const [marked, setMarked] = useState<string | null>(null);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const hovered = useRef(false);
  const busy = useRef(false);
  busy.current = selected.size > 0 || marked !== null;
  const list = useRunList(filter, () => hovered.current || busy.current);

  useEffect(() => {
    setSelected(new Set());
    setMarked(null);
  }, [JSON.stringify(filter)]);

  const move = (by: number) => {
    const at = list.runs.findIndex((run) => run.id === marked);
    const next = list.runs[Math.max(0, Math.min(list.runs.length - 1, at < 0 ? 0 : at + by))];
    if (!next) return;
    setMarked(next.id);
    requestAnimationFrame(() => document.getElementById(`run-${next.id}`)?.scrollIntoView({ block: "nearest" }));
  };
  const toggle = (id: string) => {
    const to = new Set(selected);
    if (!to.delete(id)) to.add(id);
    setSelected(to);
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    x: () => marked && toggle(marked),
    Enter: (event) => {
      const inside = event.target instanceof HTMLElement && event.target.closest("a,button,input");
      if (marked && !inside) go(to(["runs", marked]));
    },
    Escape: () => {
      if (document.activeElement instanceof HTMLInputElement) document.activeElement.blur();
      else if (selected.size) setSelected(new Set());
      else setMarked(null);
    },
  });

  const everything = list.runs.length > 0 && list.runs.every((run) => selected.has(run.id));
  return (
    <section class="page runs-page" aria-labelledby="runs-title">
      <header class="page-head">
        <h1 id="runs-title">Runs</h1>
        <FreshButton list={list} />
        <a class="button small start-link" href={to(["definitions"])}>
          <Icon name="plus" size={12} /> Start a run
        </a>
      </header>
      <Chips filter={filter} list={list} />
      <Filters filter={filter} focus={place.query.get("focus") === "search"} />
      {list.error && <Trouble error={list.error} again={list.renew} />}
      <div class="table-wrap" onPointerEnter={() => (hovered.current = true)} onPointerLeave={() => (hovered.current = false)}>
        {list.runs.length > 0 && (
          <table class="runs">
            <thead>
              <tr>
                <th class="check">
                  <input
                    type="checkbox"
                    aria-label="Select all runs that are shown"
                    checked={everything}
                    onChange={() => setSelected(everything ? new Set() : new Set(list.runs.map((run) => run.id)))}
                  />
                </th>
                <th class="c-status">Status</th>
                <th class="c-workflow">Workflow</th>
                <th class="c-key">Key</th>
                <th class="c-tags">Tags</th>
                <th class="c-created">Created</th>
                <th class="c-lasted">Duration</th>
                <th class="c-id">Run</th>
              </tr>
            </thead>
            <tbody>
              {list.runs.map((run) => (
                <Row key={run.id} run={run} marked={run.id === marked} selected={selected.has(run.id)} toggle={() => toggle(run.id)} />
              ))}
            </tbody>
          </table>
        )}
        {list.runs.length === 0 && list.loading && <Loading what="Loading runs" />}
        {list.runs.length === 0 && !list.loading && !list.error && <NoRuns filter={filter} />}
      </div>
      {list.more && (
        <p class="more">
          <button type="button" onClick={list.loadMore} disabled={list.loading}>
            {list.loading ? "Loading…" : "Load older runs"}
          </button>
        </p>
      )}
      {selected.size > 0 && (
        <BulkBar filter={filter} list={list} selected={selected} everything={everything} clear={() => setSelected(new Set())} />
      )}
    </section>
  );
}

function FreshButton({ list }: { list: RunList }) {
  return (
    <span class="fresh" aria-live="polite">
      {list.fresh > 0 && (
        <button type="button" class="primary small" onClick={list.renew}>
          {list.fresh >= 50 ? "50+" : list.fresh} new
        </button>
      )}
    </span>
  );
}

function Chips({ filter, list }: { filter: RunFilter; list: RunList }) {
  const counts = list.counts;
  const toggle = (status: string) => {
    const on = filter.statuses.includes(status);
    setQuery({ status: on ? filter.statuses.filter((each) => each !== status) : [...filter.statuses, status] }, { push: true });
  };
  return (
    <div class="chips" role="group" aria-label="Filter by status">
      <button type="button" class="chip" aria-pressed={filter.statuses.length === 0} onClick={() => setQuery({ status: [] }, { push: true })}>
        All <span class="number">{counts ? count(counts.total, counts.more) : "–"}</span>
      </button>
      {STATUSES.map((status) => {
        const look = lookOf(status);
        const number = counts?.counts[status] ?? 0;
        return (
          <button
            key={status}
            type="button"
            class={`chip tone-${look.tone} ${number === 0 ? "none" : ""}`}
            aria-pressed={filter.statuses.includes(status)}
            title={look.meaning}
            onClick={() => toggle(status)}
          >
            <Icon name={look.icon} size={14} />
            {look.word} <span class="number">{counts ? count(number) : "–"}</span>
          </button>
        );
      })}
    </div>
  );
}

function Filters({ filter, focus }: { filter: RunFilter; focus: boolean }) {
  const [search, setSearch] = useTyped(filter.search);
  const [workflow, setWorkflow] = useTyped(filter.workflow);
  const [tag, setTag] = useState("");
  const timer = useRef(0);
  const input = useRef<HTMLInputElement>(null);
  const known = useResource<{ definitions: Definition[] }>("definitions");
  useEffect(() => {
    if (!focus) return;
    input.current?.focus();
    setQuery({ focus: null });
  }, [focus]);
  const later = (changes: Record<string, string>) => {
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setQuery(changes), 250);
  };
  /** What was typed is looked for at once, and a single hit is opened. */
  const openOnly = async (text: string) => {
    clearTimeout(timer.current);
    const typed = { ...filter, search: text.trim(), workflow: workflow.trim() };
    setQuery({ q: typed.search, workflow: typed.workflow });
    if (typed.search === "") return;
    try {
      const { runs } = await get<RunPage>("runs", { ...queryOf(typed, Date.now()), limit: 2 });
      const only = runs[0];
      if (only && runs.length === 1 && input.current?.value.trim() === typed.search) go(to(["runs", only.id]));
    } catch {
      // The list asks the same, and tells what is wrong.
    }
  };
  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => event.preventDefault()}
    >
      <label class="search">
        <Icon name="search" />
        <input
          ref={input}
          type="search"
          data-search
          value={search}
          aria-label="Search by run id, key or workflow"
          placeholder="Run id, key or workflow…"
          onInput={(event) => {
            setSearch(event.currentTarget.value);
            later({ q: event.currentTarget.value.trim() });
          }}
          onKeyDown={(event) => {
            // What the field holds, not what was last drawn: Enter can come before the page caught up with the typing.
            if (event.key === "Enter") void openOnly(event.currentTarget.value);
          }}
        />
        <kbd aria-hidden="true">/</kbd>
      </label>
      <input
        type="text"
        list="workflows"
        value={workflow}
        aria-label="Workflow"
        placeholder="Any workflow"
        onInput={(event) => {
          setWorkflow(event.currentTarget.value);
          later({ workflow: event.currentTarget.value.trim() });
        }}
      />
      <datalist id="workflows">
        {known.value?.definitions.map((each) => <option key={each.name} value={each.name} />)}
      </datalist>
      <select aria-label="Model" value={filter.model} onChange={(event) => setQuery({ model: event.currentTarget.value })}>
        <option value="">Any model</option>
        {MODELS.map((model) => (
          <option key={model} value={model}>
            {model}
          </option>
        ))}
      </select>
      <select aria-label="Created" value={filter.since} onChange={(event) => setQuery({ since: event.currentTarget.value })}>
        <option value="">Any time</option>
        {Object.entries(SINCE).map(([value, [label]]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
        {filter.since && !SINCE[filter.since] && <option value={filter.since}>since {filter.since}</option>}
      </select>
      <input
        type="text"
        value={tag}
        class="tag-input"
        aria-label="Add a tag as name:value"
        placeholder="tag:value ⏎"
        onInput={(event) => setTag(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || !/^[^:]+:.+/.test(tag)) return;
          setQuery({ tag: [...new Set([...filter.tags, tag.trim()])] });
          setTag("");
        }}
      />
      {filter.queue && (
        <button type="button" class="tag removable" title="Remove this filter" onClick={() => setQuery({ queue: null })}>
          queue {filter.queue} <Icon name="close" size={10} />
        </button>
      )}
      {filter.tags.map((each) => (
        <button key={each} type="button" class="tag removable" title="Remove this filter" onClick={() => setQuery({ tag: filter.tags.filter((tag) => tag !== each) })}>
          {each} <Icon name="close" size={10} />
        </button>
      ))}
      {!isEmpty(filter) && (
        <a class="small" href={to(["runs"])}>
          Clear
        </a>
      )}
    </form>
  );
}

/** The text of a field whose filter is in the address. A change of the address is taken over before the next key can be
 * pressed (an effect after painting would overwrite what was typed meanwhile); the echo of the field's own text is not, since it has lost its spaces. */
function useTyped(filtered: string): [string, (text: string) => void] {
  const [text, setText] = useState(filtered);
  useLayoutEffect(() => {
    if (text.trim() !== filtered) setText(filtered);
  }, [filtered]);
  return [text, setText];
}

function Row({ run, marked, selected, toggle }: { run: Run; marked: boolean; selected: boolean; toggle: () => void }) {
  const address = to(["runs", run.id]);
  const why = whyOf(run);
  const open = (event: MouseEvent) => {
    const target = event.target as HTMLElement;
    if (target.closest("a,button,input,label") || getSelection()?.toString()) return;
    go(address);
  };
  return (
    <tr id={`run-${run.id}`} class={`${marked ? "marked" : ""} ${selected ? "selected" : ""}`} onClick={open} data-run={run.id}>
      <td class="check">
        <input type="checkbox" aria-label={`Select run ${run.id}`} checked={selected} onChange={toggle} />
      </td>
      <td class="c-status">
        <StatusBadge state={run.status} />
      </td>
      <td class="c-workflow">
        <a href={address} class="strong">
          {run.workflow}
        </a>{" "}
        <span class="model">{run.model}</span>
      </td>
      <td class="c-key" title={run.key ?? ""}>
        {run.key ?? <span class="muted">–</span>}
        {why && (
          <span class="why" title={why}>
            {why}
          </span>
        )}
      </td>
      <td class="c-tags">
        {Object.entries(run.tags).map(([name, value]) => (
          <button key={name} type="button" class="tag" title="Show the runs with this tag" onClick={() => setQuery({ tag: [`${name}:${value}`] })}>
            {name}:{value}
          </button>
        ))}
      </td>
      <td class="c-created">
        <Ago at={run.created_at} />
      </td>
      <td class="c-lasted">
        <Lasted begin={run.started_at ?? run.created_at} end={run.finished_at} />
      </td>
      <td class="c-id">
        <code title={run.id}>{shortId(run.id)}</code>
      </td>
    </tr>
  );
}

/** Why it stands still, or ended as it did. */
function whyOf(run: Run): string {
  if (run.status === "suspended" && run.waits_for) return /^(event|run|until)\b/.test(run.waits_for) ? `waits: ${run.waits_for}` : run.waits_for;
  if (!["paused", "failed", "suspended"].includes(run.status)) return "";
  // In a column there is room for which node and which error.
  return (run.reason ?? "").replace(/^node (\S+) gave up after \d+ attempts?: /, "$1: ").replace(/ \(path .*$/, "");
}

function NoRuns({ filter }: { filter: RunFilter }) {
  if (isEmpty(filter)) {
    return (
      <Empty title="No runs yet" icon="runs" command="holdfast start app.workflows:my_workflow">
        <p>Start one from your program, from the page of its definition, or from a terminal:</p>
      </Empty>
    );
  }
  const without = parametersOf({ ...filter, statuses: [], since: "" });
  return (
    <Empty title="No run matches these filters" icon="search">
      <p>
        <a href={to(["runs"])}>Show all runs</a>
        {(filter.statuses.length > 0 || filter.since) && (
          <>
            , or <a href={to(["runs"], without)}>any status at any time</a>
          </>
        )}
      </p>
    </Empty>
  );
}
