# `make demo` and `make test` need Python 3.11+ and nothing else of ours; both say what they do.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo test lint bench docs clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(VENV)/.run ## embedded broker + simulated traffic with a bad deploy + monitor + page; Ctrl-C ends it
	@echo "== demo: embedded broker, simulated traffic, monitor and page in one process"
	$(BIN)/streameval demo $(DEMO_ARGS)

test: $(VENV)/.dev lint ## lint, type check and all tests
	@echo "== tests (parts that this machine lacks are skipped by name; STREAMEVAL_REQUIRE_ALL=1 makes that a failure)"
	$(BIN)/python -m pytest $(TEST_ARGS)

lint: $(VENV)/.dev ## ruff and mypy
	@echo "== lint"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev ## the benchmarks' tables of ratios
	@echo "== benchmarks"
	$(BIN)/python -m benchmarks

docs: $(VENV)/.dev ## the docs as a site, in build/site
	@echo "== docs: build/site/index.html"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean: ## remove the virtual environment and what was built
	rm -rf $(VENV) build

$(VENV)/bin/python:
	@echo "== creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "streameval needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python requirements.lock pyproject.toml
	@echo "== installing the locked runtime packages"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.lock
	@echo "== installing the locked development packages"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@
