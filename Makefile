# `make demo` and `make test` need Python 3.11+ and nothing else of ours; both say what they do.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# where there is uv, it installs in a tenth of the time that pip takes; it does not read pip's settings, and what it fails at pip does
UV     ?= $(shell command -v uv)
install = $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python $(1) || )$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) $(1)

# a test is in exactly one of these parts: what waits for brokers, clocks and pages, and all the rest. Side by side they use
# what each leaves of the processor; every part has brokers, ports and folders of its own
WAITING := tests/integration tests/chaos tests/browser tests/dashboards tests/deploy tests/house/test_golden.py tests/outlets/test_killed.py
LONG    := tests/laws tests/fuzz
# those with a process of ours of their own, and waits of a minute and more: beside the other tests of Kafka, not behind them
RUNS    := $(addprefix tests/integration/test_,alerts.py alerts_of_troubles.py run_process.py wrong_broker.py)
# the longest first, so that none of them is left alone in the end
PARTS   := part-rest part-deploy part-browser part-kafka part-kill part-run part-soak part-disk part-broker part-groups part-golden
# two for each core: with all eleven, what has deadlines of its own (sessions of Kafka, a browser) met them late
SIDE_BY_SIDE ?= $(shell echo $$((2 * $$(nproc))))
WORKERS ?= $(shell nproc)
READY   ?= ready# what comes before the tests; empty where it has been made
PYTEST  := $(BIN)/python -m pytest
FAST    := not slow and not kafka and not promtool
# the tests start some hundreds of processes, each with a thousand modules: nobody compiles them twice
unexport PYTHONDONTWRITEBYTECODE
# brokers that live for minutes: what the JVM's second compiler takes is never earned back
$(PARTS): export KAFKA_OPTS ?= -XX:TieredStopAtLevel=1
# they start the program some hundred times, and as its users do: without pandas
$(filter-out part-rest,$(PARTS)): export PYTHONPATH := $(CURDIR)/tests/hidden$(addprefix :,$(PYTHONPATH))

.PHONY: help demo test test-fast check lint types kernels bytecode ready bench bench-record bench-compare docs clean $(PARTS)

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: $(VENV)/.run ## embedded broker + simulated traffic with a bad deploy + monitor + page; Ctrl-C ends it
	@echo "== demo: embedded broker, simulated traffic, monitor and page in one process"
	$(BIN)/streameval demo $(DEMO_ARGS)

test: $(READY) ## lint, type check and all tests
	@echo "== tests (parts that this machine lacks are skipped by name; STREAMEVAL_REQUIRE_ALL=1 makes that a failure)"
	$(MAKE) --no-print-directory --keep-going --output-sync=target -j $(SIDE_BY_SIDE) $(PARTS)

ready: $(VENV)/.dev # what comes before the tests
	$(MAKE) --no-print-directory --output-sync=target -j 2 lint kernels bytecode

test-fast: $(VENV)/.dev ## the tests that need no broker and no patience; one process more than cores, for some of them wait
	$(PYTEST) -q -n $$(($(WORKERS) + 1)) --dist worksteal -m "$(FAST)" $(addprefix --ignore=,$(WAITING) $(LONG)) $(TEST_ARGS)

check: $(VENV)/.dev lint ## before a commit: lint, types, and the tests of what differs from BASE (main)
	@tests=$$($(BIN)/python -m tests.changed $(BASE)) && echo "== tests of what has changed:" $${tests:-none} && \
	  if [ -n "$$tests" ]; then $(PYTEST) -q -n $(WORKERS) --dist loadfile -m "not kafka and not promtool" $(TEST_ARGS) $$tests; fi

lint: $(VENV)/.dev types ## ruff and mypy
	@echo "== lint"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy; its cache makes the second time quick
	$(BIN)/mypy

kernels: $(VENV)/.dev # compiled once, before several processes need them
	$(BIN)/python -m tests.kernels

bytecode: $(VENV)/.dev # of tests and what they import: written once, before three processes do so at the same time
	-@$(PYTEST) --collect-only -qq >/dev/null 2>&1 # what is wrong is said by its part

part-rest: # wants the processor, and gives way to those that wait; one process more than cores, for some of them wait, too
	nice -n 5 $(PYTEST) -n $$(($(WORKERS) + 1)) --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(WAITING)) $(TEST_ARGS)
part-kafka: # one Kafka for nearly all of them
	$(PYTEST) tests/integration $(addprefix --ignore=,$(RUNS)) $(TEST_ARGS)
part-run: # the program as its users run it, and a click that pages somebody
	$(PYTEST) $(RUNS) $(TEST_ARGS)
part-soak:
	$(PYTEST) tests/chaos/test_soak.py tests/chaos/test_chaos.py -k "soak" $(TEST_ARGS)
part-kill:
	$(PYTEST) tests/chaos/test_chaos.py tests/outlets/test_killed.py -k "kill" $(TEST_ARGS)
part-groups:
	$(PYTEST) tests/chaos/test_chaos.py -k "rebalance" $(TEST_ARGS)
part-broker:
	$(PYTEST) tests/chaos/test_chaos.py -k "broker or every_fault" $(TEST_ARGS)
part-disk:
	$(PYTEST) tests/chaos/test_chaos.py -k "disk" $(TEST_ARGS)
part-browser: # Chromium, before a demo and servers of made-up snapshots
	$(PYTEST) tests/browser $(TEST_ARGS)
part-deploy: # Prometheus, Alertmanager, the compose file's programs, and the wheel
	$(PYTEST) tests/dashboards tests/deploy $(TEST_ARGS)
part-golden:
	$(PYTEST) tests/house/test_golden.py $(TEST_ARGS)

bench: $(VENV)/.dev ## the benchmarks' tables of ratios
	@echo "== benchmarks"
	$(BIN)/python -m benchmarks

bench-record: $(VENV)/.dev ## this commit's numbers into benchmarks/results.jsonl, and the drawing anew: NAMES="pipeline compare"
	$(BIN)/python -m benchmarks record $(NAMES)

bench-compare: $(VENV)/.dev ## this tree against another commit, in turn: BASE=commit NAMES="pipeline compare"
	$(BIN)/python -m benchmarks against $(BASE) $(NAMES)

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
	$(call install,--require-hashes -r requirements.lock)
	$(call install,--no-deps -e .)
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.lock
	@echo "== installing the locked development packages"
	$(call install,--require-hashes -r requirements-dev.lock)
	@touch $@
