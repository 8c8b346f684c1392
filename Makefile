# `make demo` and `make test` set up everything they need in .venv. They need Python 3.11 or newer and nothing else.

# The first Python on PATH that is new enough; `make PYTHON=/path/to/python test` overrides it.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	if command -v $$python >/dev/null 2>&1 && $$python -c '$(NEW_ENOUGH)' 2>/dev/null; then echo $$python; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 3
ROUNDS ?= 20
SEED ?= 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test unit lint ruff mypy pytest archive bench soak constraints clean

help:
	@echo "make demo    set up, then watch Penstock copy a small shop into DuckDB"
	@echo "make test    set up, then lint and run all tests"
	@echo "make unit    the tests that need no server and no JVM, in a minute"
	@echo "make lint    ruff and mypy alone"
	@echo "make bench   throughput and latency on this machine"
	@echo "make soak    kill it at random moments, ROUNDS=20 SEED=1"
	@echo "make clean   remove what the others made, .venv included"

venv: $(STAMP)

# Installed again only when pyproject.toml or constraints.txt changed.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Penstock needs Python 3.11 or newer on PATH; install it, or name it: make PYTHON=…" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Making $(VENV) with $(PYTHON)" >&2; "$(PYTHON)" -m venv $(VENV); }
	@echo "Installing Penstock and what it needs into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: venv
	@$(BIN)/penstock demo

# mypy runs beside the tests; what it says comes as soon as it has it.
test: venv ruff
	@$(MAKE) --no-print-directory -j 2 mypy pytest

lint: ruff mypy

ruff: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: venv
	$(BIN)/mypy

archive: venv
	@$(BIN)/penstock prepare

# More workers than cores, since tests often wait for servers and JVMs. A file's tests stay together, for their fixtures.
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

pytest: archive
	$(PYTEST) -n $(JOBS) --durations=40

unit: venv
	$(PYTEST) -n 2 --unit -q

# The newest versions that pyproject.toml allows, in an environment of their own; `make test` tells whether they work.
constraints:
	@rm -rf build/constraints && "$(PYTHON)" -m venv build/constraints
	@build/constraints/bin/python -m pip install --quiet --disable-pip-version-check --no-input -e '.[dev]'
	@{ echo '# The versions that the tests run with. After a change of dependencies: make constraints'; \
		build/constraints/bin/python -m pip freeze --exclude-editable; } > constraints.txt
	@rm -rf build/constraints

bench: venv
	@$(BIN)/python -m bench

soak: venv
	@$(BIN)/python -m tests.recovery.soak --rounds $(ROUNDS) --seed $(SEED)
	@$(BIN)/python -m tests.recovery.soak --rounds $(ROUNDS) --seed $(SEED) --imports

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	find src tests bench -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
