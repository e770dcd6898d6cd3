"""The list of what is measured, with the targets that the project has set itself (issues 1 and 3)."""

from __future__ import annotations

from benchmarks.figures import Measure

POSTGRES, SQLITE = "postgresql", "sqlite"

ONE_COMMIT = Measure(name="limit", what="one row, one commit, without an engine", unit="ms")
BATCHED = Measure(name="limit", what="100 completions a commit, without an engine", unit="steps/s", more_is_better=True)

W1 = Measure(
    name="W1",
    what="one run of 100 steps, a step",
    unit="ms",
    limit="one_commit",
    targets={POSTGRES: 0.65, SQLITE: 0.45},
)
W2 = Measure(
    name="W2",
    what="runs of 3 steps, all submitted at once",
    unit="steps/s",
    more_is_better=True,
    limit="batched",
    targets={POSTGRES: 12_000, SQLITE: 15_000},
)
W3_FEW = Measure(
    name="W3",
    what="1,000 parallel steps and an aggregate",
    unit="s",
    targets={POSTGRES: 0.12, SQLITE: 0.1},
)
W3_MANY = Measure(
    name="W3",
    what="10,000 parallel steps and an aggregate",
    unit="s",
    targets={POSTGRES: 1.2, SQLITE: 1.0},
)
W4_HERE_P50 = Measure(
    name="W4",
    what="start to result, same process, p50",
    unit="ms",
    limit="one_commit",
    commits=2,
    targets={POSTGRES: 2.0, SQLITE: 1.5},
)
W4_HERE_P99 = Measure(
    name="W4", what="start to result, same process, p99", unit="ms", targets={POSTGRES: 5.0, SQLITE: 4.0}
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
W7_STEP = Measure(name="W7", what="one long run, a step", unit="ms", limit="one_commit")
W7_GROWTH = Measure(
    name="W7", what="a step of a long run to one of a tenth", unit="x", targets={POSTGRES: 1.3, SQLITE: 1.3}
)
W7_LAST = Measure(name="W7", what="the last 500 steps to the first 500", unit="x", targets={POSTGRES: 1.1, SQLITE: 1.1})
W9_IMPORT = Measure(name="W9", what="import, with the driver", unit="ms", targets={POSTGRES: 130.0, SQLITE: 90.0})
W9_FIRST = Measure(name="W9", what="process start to first result", unit="s", targets={POSTGRES: 0.35, SQLITE: 0.25})
W9_MEMORY = Measure(name="W9", what="memory when idle", unit="MB", targets={POSTGRES: 40.0, SQLITE: 32.0})
W9_PYTHON = Measure(name="W9", what="python -c pass, for comparison", unit="s")

# What the bare database did where the targets were set. A slower machine is allowed to be slower by as much.
REFERENCE_ONE_COMMIT_MS = {POSTGRES: 0.28, SQLITE: 0.13}
REFERENCE_BATCHED = {POSTGRES: 36_000.0, SQLITE: 76_000.0}
