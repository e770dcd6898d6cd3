"""The list of what is measured, with the targets that the project has set itself (issues 1 and 3 to 7)."""

from __future__ import annotations

from benchmarks.figures import Measure

POSTGRES, SQLITE = "postgresql", "sqlite"

ONE_COMMIT = Measure(name="limit", what="one row, one commit, without an engine", unit="ms")
BATCHED = Measure(name="limit", what="100 completions a commit, without an engine", unit="steps/s", more_is_better=True)
COMPUTING = Measure(name="limit", what="a fixed piece of Python, processor", unit="ms")

W1 = Measure(
    name="W1",
    quantity="W1 step_ms",
    what="one run of 100 steps, a step",
    unit="ms",
    limit="one_commit",
    targets={POSTGRES: 0.65, SQLITE: 0.45},
)
W1_FUNCTION = Measure(
    name="W1",
    quantity="W1 step_ms",
    what="one function of 100 steps, a step",
    unit="ms",
    limit="one_commit",
    targets={POSTGRES: 0.45, SQLITE: 0.35},
)
W1_FLOW = Measure(
    name="W1",
    quantity="W1 step_ms",
    what="one flow of 100 steps, a step",
    unit="ms",
    limit="one_commit",
    targets={POSTGRES: 0.65, SQLITE: 0.45},
)
W1_CPU = Measure(name="W1", what="one run of 100 steps, a step, processor", unit="ms")
W1_FUNCTION_CPU = Measure(name="W1", what="one function of 100 steps, a step, processor", unit="ms")
W1_FLOW_CPU = Measure(name="W1", what="one flow of 100 steps, a step, processor", unit="ms")
W2 = Measure(
    name="W2",
    quantity="W2 steps_per_second",
    what="runs of 3 steps, all submitted at once",
    unit="steps/s",
    more_is_better=True,
    limit="batched",
    targets={POSTGRES: 12_000, SQLITE: 15_000},
)
W2_FUNCTIONS = Measure(
    name="W2",
    quantity="W2 steps_per_second",
    what="functions of 3 steps, all submitted at once",
    unit="steps/s",
    more_is_better=True,
    limit="batched",
    targets={POSTGRES: 12_000, SQLITE: 15_000},
)
W2_FLOWS = Measure(
    name="W2",
    quantity="W2 steps_per_second",
    what="flows of 3 steps, all submitted at once",
    unit="steps/s",
    more_is_better=True,
    limit="batched",
    targets={POSTGRES: 12_000, SQLITE: 15_000},
)
W2_GRAPHS = Measure(
    name="W2",
    what="graphs of 3 nodes, all submitted at once",
    unit="steps/s",
    more_is_better=True,
    limit="batched",
)
W2_CPU = Measure(name="W2", what="runs of 3 steps, a step, processor", unit="ms")
W2_FUNCTIONS_CPU = Measure(name="W2", what="functions of 3 steps, a step, processor", unit="ms")
W2_FLOWS_CPU = Measure(name="W2", what="flows of 3 steps, a step, processor", unit="ms")
W2_GRAPHS_CPU = Measure(name="W2", what="graphs of 3 nodes, a step, processor", unit="ms")
W3_FEW = Measure(
    name="W3",
    quantity="W3 seconds",
    what="1,000 parallel steps and an aggregate",
    unit="s",
    limit="batched",
    steps=1000,
    targets={POSTGRES: 0.12, SQLITE: 0.1},
)
W3_MANY = Measure(
    name="W3",
    what="10,000 parallel steps and an aggregate",
    unit="s",
    limit="batched",
    steps=10_000,
    targets={POSTGRES: 1.2, SQLITE: 1.0},
)
W3_FUNCTION_FEW = Measure(
    name="W3",
    quantity="W3 seconds",
    what="a function's gather of 1,000",
    unit="s",
    limit="batched",
    steps=1000,
    targets={POSTGRES: 0.12, SQLITE: 0.1},
)
W3_FUNCTION_MANY = Measure(
    name="W3",
    what="a function's gather of 10,000",
    unit="s",
    limit="batched",
    steps=10_000,
    targets={POSTGRES: 1.2, SQLITE: 1.0},
)
W3_FLOW_FEW = Measure(
    name="W3",
    quantity="W3 seconds",
    what="a flow's spread of 1,000",
    unit="s",
    limit="batched",
    steps=1000,
    targets={POSTGRES: 0.12, SQLITE: 0.1},
)
W3_FLOW_MANY = Measure(
    name="W3",
    what="a flow's spread of 10,000",
    unit="s",
    limit="batched",
    steps=10_000,
    targets={POSTGRES: 1.2, SQLITE: 1.0},
)
W3_GRAPH_FEW = Measure(name="W3", what="a graph that sends 1,000 items", unit="s", limit="batched", steps=1000)
W3_GRAPH_MANY = Measure(name="W3", what="a graph that sends 10,000 items", unit="s", limit="batched", steps=10_000)
W4_HERE_P50 = Measure(
    name="W4",
    quantity="W4 p50",
    what="start to result, same process, p50",
    unit="ms",
    limit="one_commit",
    commits=2,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_HERE_P99 = Measure(
    name="W4",
    quantity="W4 p99",
    what="start to result, same process, p99",
    unit="ms",
    targets={POSTGRES: 5.0, SQLITE: 4.0},
)
W4_OTHER_P50 = Measure(
    name="W4",
    what="start to result, other process, p50",
    unit="ms",
    limit="one_commit",
    commits=2,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_OTHER_P99 = Measure(
    name="W4", what="start to result, other process, p99", unit="ms", targets={POSTGRES: 5.0, SQLITE: 4.0}
)
W4_FUNCTION_HERE_P50 = Measure(
    name="W4",
    quantity="W4 p50",
    what="a function's start to result, same process, p50",
    unit="ms",
    limit="one_commit",
    commits=3,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_FUNCTION_HERE_P99 = Measure(
    name="W4",
    quantity="W4 p99",
    what="a function's start to result, same process, p99",
    unit="ms",
    targets={POSTGRES: 5.0, SQLITE: 4.0},
)
W4_FUNCTION_OTHER_P50 = Measure(
    name="W4",
    what="a function's start to result, other process, p50",
    unit="ms",
    limit="one_commit",
    commits=3,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_FUNCTION_OTHER_P99 = Measure(
    name="W4", what="a function's start to result, other process, p99", unit="ms", targets={POSTGRES: 5.0, SQLITE: 4.0}
)
W4_DAG_HERE_P50 = Measure(
    name="W4",
    quantity="W4 p50",
    what="a DAG's start to result, same process, p50",
    unit="ms",
    limit="one_commit",
    commits=2,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_DAG_HERE_P99 = Measure(
    name="W4",
    quantity="W4 p99",
    what="a DAG's start to result, same process, p99",
    unit="ms",
    targets={POSTGRES: 5.0, SQLITE: 4.0},
)
W4_DAG_OTHER_P50 = Measure(
    name="W4",
    what="a DAG's start to result, other process, p50",
    unit="ms",
    limit="one_commit",
    commits=2,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_DAG_OTHER_P99 = Measure(
    name="W4", what="a DAG's start to result, other process, p99", unit="ms", targets={POSTGRES: 5.0, SQLITE: 4.0}
)
W4_FLOW_HERE_P50 = Measure(
    name="W4",
    quantity="W4 p50",
    what="a flow's start to result, same process, p50",
    unit="ms",
    limit="one_commit",
    commits=2,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_FLOW_HERE_P99 = Measure(
    name="W4",
    quantity="W4 p99",
    what="a flow's start to result, same process, p99",
    unit="ms",
    targets={POSTGRES: 5.0, SQLITE: 4.0},
)
W4_FLOW_OTHER_P50 = Measure(
    name="W4",
    what="a flow's start to result, other process, p50",
    unit="ms",
    limit="one_commit",
    commits=2,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_FLOW_OTHER_P99 = Measure(
    name="W4", what="a flow's start to result, other process, p99", unit="ms", targets={POSTGRES: 5.0, SQLITE: 4.0}
)
W4_GRAPH_HERE_P50 = Measure(
    name="W4", what="a graph's start to result, same process, p50", unit="ms", limit="one_commit", commits=2
)
W4_GRAPH_HERE_P99 = Measure(name="W4", what="a graph's start to result, same process, p99", unit="ms")
W4_GRAPH_OTHER_P50 = Measure(
    name="W4", what="a graph's start to result, other process, p50", unit="ms", limit="one_commit", commits=2
)
W4_GRAPH_OTHER_P99 = Measure(name="W4", what="a graph's start to result, other process, p99", unit="ms")
W5 = Measure(
    name="W5",
    quantity="W5 seconds",
    what="runs waiting, events sent, all finished",
    unit="s",
    targets={POSTGRES: 0.3, SQLITE: 0.25},
)
W5_FLOWS = Measure(
    name="W5",
    quantity="W5 seconds",
    what="flows waiting, events sent, all finished",
    unit="s",
    targets={POSTGRES: 0.3, SQLITE: 0.25},
)
W5_GRAPHS = Measure(name="W5", what="graphs that ask, all answered, all finished", unit="s")
W6_P50 = Measure(
    name="W6",
    quantity="W6 p50",
    what="runs sleeping 1 s, lateness p50",
    unit="ms",
    targets={POSTGRES: 5.0, SQLITE: 5.0},
)
W6_P99 = Measure(
    name="W6",
    quantity="W6 p99",
    what="runs sleeping 1 s, lateness p99",
    unit="ms",
    targets={POSTGRES: 20.0, SQLITE: 20.0},
)
W6_FLOWS_P50 = Measure(
    name="W6",
    quantity="W6 p50",
    what="flows sleeping 1 s, lateness p50",
    unit="ms",
    targets={POSTGRES: 5.0, SQLITE: 5.0},
)
W6_FLOWS_P99 = Measure(
    name="W6",
    quantity="W6 p99",
    what="flows sleeping 1 s, lateness p99",
    unit="ms",
    targets={POSTGRES: 20.0, SQLITE: 20.0},
)
W6_STEADY_P50 = Measure(
    name="W6", quantity="W6 steady_p50", what="runs sleeping 1 s, 100 started a second, lateness p50", unit="ms"
)
W6_STEADY_P99 = Measure(
    name="W6", quantity="W6 steady_p99", what="runs sleeping 1 s, 100 started a second, lateness p99", unit="ms"
)
W6_FLOWS_STEADY_P50 = Measure(
    name="W6", quantity="W6 steady_p50", what="flows sleeping 1 s, 100 started a second, lateness p50", unit="ms"
)
W6_FLOWS_STEADY_P99 = Measure(
    name="W6", quantity="W6 steady_p99", what="flows sleeping 1 s, 100 started a second, lateness p99", unit="ms"
)
W6_DAGS_P50 = Measure(
    name="W6", what="DAGs started for 1 s later, lateness p50", unit="ms", targets={POSTGRES: 5.0, SQLITE: 5.0}
)
W6_DAGS_P99 = Measure(
    name="W6", what="DAGs started for 1 s later, lateness p99", unit="ms", targets={POSTGRES: 20.0, SQLITE: 20.0}
)
W6_GRAPHS_P50 = Measure(
    name="W6", what="graphs started for 1 s later, lateness p50", unit="ms", targets={POSTGRES: 5.0, SQLITE: 5.0}
)
W6_GRAPHS_P99 = Measure(
    name="W6", what="graphs started for 1 s later, lateness p99", unit="ms", targets={POSTGRES: 20.0, SQLITE: 20.0}
)
W6_DECIDERS_P50 = Measure(
    name="W6", what="timers of deciders in 1 s, lateness p50", unit="ms", targets={POSTGRES: 5.0, SQLITE: 5.0}
)
W6_DECIDERS_P99 = Measure(
    name="W6", what="timers of deciders in 1 s, lateness p99", unit="ms", targets={POSTGRES: 20.0, SQLITE: 20.0}
)
W7_STEP = Measure(name="W7", what="one long run, a step", unit="ms", limit="one_commit")
W7_GROWTH = Measure(
    name="W7", what="a step of a long run to one of a tenth", unit="x", targets={POSTGRES: 1.3, SQLITE: 1.3}
)
W7_LAST = Measure(name="W7", what="the last 500 steps to the first 500", unit="x", targets={POSTGRES: 1.1, SQLITE: 1.1})
W7_FUNCTION = Measure(name="W7", what="one long function, a step", unit="ms", limit="one_commit")
W7_FUNCTION_LAST = Measure(
    name="W7", what="a long function, last 500 steps to first", unit="x", targets={POSTGRES: 1.1, SQLITE: 1.1}
)
W7_FLOW = Measure(name="W7", what="one long flow, a step", unit="ms", limit="one_commit")
W7_FLOW_LAST = Measure(
    name="W7", what="a long flow, last 500 steps to first", unit="x", targets={POSTGRES: 1.1, SQLITE: 1.1}
)
W7_GRAPH = Measure(name="W7", what="one long graph, a step", unit="ms", limit="one_commit")
W7_GRAPH_LAST = Measure(
    name="W7", what="a long graph, last 500 steps to first", unit="x", targets={POSTGRES: 1.1, SQLITE: 1.1}
)
W7_FUNCTION_RESTART = Measure(
    name="W7", what="a long function, killed: restart to new step", unit="s", targets={POSTGRES: 0.5, SQLITE: 0.5}
)
W7_FUNCTION_MEMORY = Measure(
    name="W7", what="a long function, killed: memory of who went on", unit="MB", targets={POSTGRES: 70.0, SQLITE: 70.0}
)
W7_FLOW_RESTART = Measure(
    name="W7", what="a long flow, killed: restart to new step", unit="s", targets={POSTGRES: 0.5, SQLITE: 0.5}
)
W7_FLOW_MEMORY = Measure(
    name="W7", what="a long flow, killed: memory of who went on", unit="MB", targets={POSTGRES: 70.0, SQLITE: 70.0}
)
W7_DAG_RESTART = Measure(
    name="W7", what="a long DAG, killed: restart to new step", unit="s", targets={POSTGRES: 0.5, SQLITE: 0.5}
)
W7_DAG_MEMORY = Measure(
    name="W7", what="a long DAG, killed: memory of who went on", unit="MB", targets={POSTGRES: 70.0, SQLITE: 70.0}
)
W7_GRAPH_RESTART = Measure(
    name="W7", what="a long graph, killed: restart to new step", unit="s", targets={POSTGRES: 0.5, SQLITE: 0.5}
)
W7_GRAPH_MEMORY = Measure(
    name="W7", what="a long graph, killed: memory of who went on", unit="MB", targets={POSTGRES: 70.0, SQLITE: 70.0}
)
EXECUTE_ALONE = Measure(name="deciders", what="execute, one caller", unit="ms", limit="one_commit")
EXECUTE_TO_COMMIT = Measure(
    name="deciders", what="execute, one caller, to one bare commit", unit="x", targets={POSTGRES: 2.0, SQLITE: 2.0}
)
EXECUTE_CPU = Measure(name="deciders", what="execute, one caller, processor", unit="ms")
EXECUTE = Measure(
    name="deciders",
    what="execute, 64 callers",
    unit="inputs/s",
    more_is_better=True,
    limit="batched",
    targets={POSTGRES: 5000, SQLITE: 8000},
)
EXECUTE_64_CPU = Measure(name="deciders", what="execute, 64 callers, processor", unit="ms")
EXECUTE_FRESH = Measure(
    name="deciders",
    what="execute, 64 callers, new instances",
    unit="inputs/s",
    more_is_better=True,
    limit="batched",
)
EFFECTS = Measure(
    name="deciders",
    what="effects, input to settled follow-up",
    unit="effects/s",
    more_is_better=True,
    limit="batched",
    targets={POSTGRES: 5000, SQLITE: 5000},
)
EFFECTS_CPU = Measure(name="deciders", what="effects, processor", unit="ms")
ENQUEUE = Measure(
    name="deciders", what="enqueue_input, 64 callers", unit="inputs/s", more_is_better=True, limit="batched"
)
DRAIN = Measure(name="deciders", what="inboxes drained", unit="inputs/s", more_is_better=True, limit="batched")
LONG_STREAM = Measure(
    name="deciders", what="execute, long stream to short one", unit="x", targets={POSTGRES: 1.3, SQLITE: 1.3}
)
LONG_REBUILT = Measure(
    name="deciders", what="the same, after its snapshot was rebuilt", unit="x", targets={POSTGRES: 1.3, SQLITE: 1.3}
)
LONG_FIRST = Measure(
    name="deciders", what="the same, first input of a process", unit="x", targets={POSTGRES: 1.3, SQLITE: 1.3}
)
REBUILD = Measure(name="deciders", what="a long stream folded anew", unit="s")
PROJECTION = Measure(
    name="deciders",
    what="a projection that catches up",
    unit="events/s",
    more_is_better=True,
    limit="batched",
    targets={POSTGRES: 20_000, SQLITE: 20_000},
)
CROWD_START = Measure(
    name="crowd", what="a new worker beside waiting runs", unit="s", targets={POSTGRES: 1.0, SQLITE: 1.0}
)
CROWD_MEMORY = Measure(name="crowd", what="memory of that worker", unit="MB", targets={POSTGRES: 100.0, SQLITE: 100.0})
CROWD_EVENT = Measure(
    name="crowd", what="one event to the result of its run", unit="ms", targets={POSTGRES: 20.0, SQLITE: 20.0}
)
CROWD_WEIGHT = Measure(
    name="crowd", what="memory for a function that waits here", unit="kB", targets={POSTGRES: 8.0, SQLITE: 8.0}
)
W8_CHAIN = Measure(
    name="W8",
    quantity="W8 chain_ms",
    what="a graph of 100 nodes in a chain, a step",
    unit="ms",
    limit="one_commit",
    targets={POSTGRES: 0.6, SQLITE: 0.45},
)
W8_CHAIN_CPU = Measure(name="W8", what="a graph of 100 nodes in a chain, a step, processor", unit="ms")
W8_WIDE = Measure(
    name="W8",
    quantity="W8 wide_ms",
    what="a graph with a step of 100 nodes, a run",
    unit="ms",
    targets={POSTGRES: 15, SQLITE: 12},
)
W8_STORED = Measure(name="W8", quantity="W8 stored_mb", what="stored for 1,000 steps with a state of 100 kB", unit="MB")
W9_IMPORT = Measure(
    name="W9",
    quantity="W9 import_ms",
    what="import, with the driver",
    unit="ms",
    targets={POSTGRES: 130.0, SQLITE: 90.0},
)
W9_FIRST = Measure(
    name="W9",
    quantity="W9 first_seconds",
    what="process start to first result",
    unit="s",
    targets={POSTGRES: 0.35, SQLITE: 0.25},
)
W9_MEMORY = Measure(
    name="W9", quantity="W9 megabytes", what="memory when idle", unit="MB", targets={POSTGRES: 40.0, SQLITE: 32.0}
)
W9_PYTHON = Measure(name="W9", what="python -c pass, for comparison", unit="s")

# What the bare database did where the targets were set. A slower machine is allowed to be slower by as much.
REFERENCE_ONE_COMMIT_MS = {POSTGRES: 0.28, SQLITE: 0.13}
REFERENCE_BATCHED = {POSTGRES: 36_000.0, SQLITE: 76_000.0}
REFERENCE_COMPUTING_MS = 10.4


def by_key() -> dict[str, Measure]:
    """Every measure by the name that it has in this file; cells and reports name them so."""
    return {key: value for key, value in globals().items() if isinstance(value, Measure)}
