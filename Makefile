# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# The tests start Python often, and each would compile FedLoom's modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-long lint types format docs dist bench bench-peers clean

demo: .venv/installed
	$(BIN)/fedloom compare

test: .venv/dev lint types
	$(BIN)/pytest

# What takes too long for every change: the remainder, not the tests of `make test` again; then engines against each
# other, and reductions of methods to others, compiled as users compile.
test-all: .venv/dev
	$(BIN)/pytest -m exhaustive $$(grep -l exhaustive tests/test_*.py)
	XLA_FLAGS= $(BIN)/pytest tests/test_engines.py tests/test_reductions.py

# Federations of many processes: hundreds of exchanges, kills at random moments, every method. Needs the extra `flower`.
test-long: .venv/dev
	$(BIN)/pytest -m long $$(grep -l 'mark.long' tests/test_*.py)

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/dev
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Pages that a registry determines are written first, then the site is built into site/.
docs: .venv/docs
	$(BIN)/python -m docs.algorithms
	$(BIN)/python -m docs.tasks
	$(BIN)/python -m docs.reproductions
	$(BIN)/python -m docs.papers
	$(BIN)/python -m docs.build

dist: .venv/dev
	rm -rf dist
	$(BIN)/python -m build

bench: .venv/installed
	$(BIN)/python -m benchmarks.speed.bench

bench-peers: .venv/installed
	$(BIN)/python -m benchmarks.speed.bench --peers

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "FedLoom needs Python 3.11 or newer; try, for example: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/dev: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.venv/docs: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

clean:
	rm -rf build dist site .cache .venv .venv-peers .mypy_cache .pytest_cache .ruff_cache .hypothesis .jax_cache
