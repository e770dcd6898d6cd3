# Every target works in a bare clone: the first call makes .venv from the hash-checked locks, later calls reuse it.
# `make check` and `make test` are what CI runs.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test check ledger lock bench big-dag flows simulate mutants crash soak ui screenshots clean setup-test setup-dev

demo: setup-test
	$(BIN)/python examples/demo/run.py

# loadgroup keeps tests that share an xdist_group mark on one worker. Minutes per area come from tests/support/minutes.py.
# What compares durations runs alone, afterwards; exit code 5 only says that ARGS selected none of it. Tests that did no
# more than miss a deadline get a second try, alone; a wrong result gets none.
test: setup-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not timing" $(ARGS) || $(BIN)/python tools/second_try.py
	$(BIN)/python -m pytest -m timing $(ARGS) || [ $$? -eq 5 ] || $(BIN)/python tools/second_try.py

# Format, lint, types, layers, generated files: under a minute.
check: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m mypy $(wildcard src/holdfast tests/typing)
	$(BIN)/python -m pytest -q tests/architecture
	$(if $(wildcard tools/generate_blocking.py),$(BIN)/python tools/generate_blocking.py --check)
	$(BIN)/python tools/check_ui.py

ledger: setup-test
	$(BIN)/python tools/ledger.py

# Needs uv. The locks name no index: each machine installs from its own, and the hashes decide.
UV ?= $(shell command -v uv || echo $(BIN)/uv)
COMPILE = $(UV) pip compile pyproject.toml --group build --universal --generate-hashes --no-emit-index-url --no-header --quiet
lock:
	$(COMPILE) --extra test --output-file requirements/test.txt
	$(COMPILE) --extra dev --constraint requirements/test.txt --output-file requirements/dev.txt

bench: setup-test
	$(BIN)/python -m benchmarks $(ARGS)

# One DAG of 100,000 nodes on each store, in a process that must stay below 1 GiB: a few minutes.
big-dag: setup-test
	BIG_DAG_NODES=100000 $(BIN)/python -m pytest -q -rP tests/dags/test_sizes.py

# Random programs as flows: simulated, and on the three stores with workers that vanish. 20,000 take about a quarter of an hour.
PROGRAMS ?= 20000
flows: setup-test
	FLOW_PROGRAMS=$(PROGRAMS) $(BIN)/python -m pytest -q -rP tests/flows/test_random_programs.py tests/flows/test_random_chaos.py

# Bugs made by hand, each of which some test must notice; ONLY=17 tries one of them and shows what its tests said.
mutants: setup-test
	$(BIN)/python -m tests.reliability.mutants $(if $(ONLY),$(ONLY) --show,--record)

# Real engines and workers on a seeded loop whose time jumps, with faults by dice: some forty seeds a second on two cores.
# SEEDS=17 repeats one seed, SEEDS=0:200000 runs many and adds them to docs/reliability.json; ARGS=--trace shows each commit.
SEEDS ?= 0:2000
simulate: setup-test
	$(BIN)/python tools/simulate.py $(SEEDS) --processes $(WORKERS) $(ARGS)

# Deaths at every place where one could matter, on both stores; the totals go to docs/reliability.json. All of it takes hours:
# ARGS="--figure killed --count 40" is a part, ARGS="--point …" one point, as a failure prints it.
crash: setup-test
	$(BIN)/python -m tests.reliability.crash $(if $(findstring --point,$(ARGS)),,--record) $(ARGS)

# Real processes on a real PostgreSQL behind a network that misbehaves, for so many minutes. It prints how to repeat it.
MINUTES ?= 5
SEED ?=
soak: setup-test
	$(BIN)/python -m tests.reliability.soak $(MINUTES) $(SEED)

# The page from its sources: needs Node.js and npm, which nobody needs who only uses it. The result is committed.
ui: setup-test
	$(BIN)/python tools/build_ui.py

# The pictures in docs/images, of a real server in a real browser.
screenshots: setup-test
	$(BIN)/python tools/screenshots.py

# Leaves .venv alone: it is expensive, and somebody may be working in it.
clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

setup-test:
	@$(PYTHON) tools/setup_environment.py test

setup-dev:
	@$(PYTHON) tools/setup_environment.py dev
