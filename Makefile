# The one door. `make help` lists what is behind it; CI calls `make test`.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
QUICK ?=
PEERS ?=
WORKLOADS ?=
MINUTES ?=
FRESH ?=
CHROMIUM ?= /usr/bin/chromium

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
STAMP := $(VENV)/.setup-done
BENCH_STAMP := $(VENV)/.bench-done
SIZE := $(if $(QUICK),quick,full)
RUN_PEERS := $(BIN)/python -m benchmarks.peers
PAGE := src/trine/dashboard/static/index.html
PAGE_TOOLS := dashboard/node_modules/.package-lock.json
PAGE_SOURCES := $(shell find dashboard -name node_modules -prune -o -type f -print)

export CHROMIUM # the tests of the dashboard ask where it is

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup dashboard run run-embedded test check test-slow test-soak screenshots bench bench-small bench-peers \
	bench-audit bench-report format generate lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) $(PAGE) ## make .venv, install Trine and its tools into it, build the dashboard

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Trine needs Python 3.11 or newer; set PYTHON=... to one.")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt -e ".[dev]"
	@touch $@

dashboard: $(PAGE) ## build the dashboard into the package, if its sources changed

$(PAGE_TOOLS): dashboard/package.json dashboard/package-lock.json dashboard/.npmrc
	@node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' 2>/dev/null || \
	{ echo "The dashboard is built with Node.js 20 or newer, and npm; on Debian and Ubuntu: apt-get install nodejs npm"; exit 1; }
	@cd dashboard && npm ci --silent
	@touch $@

$(PAGE): $(PAGE_TOOLS) $(PAGE_SOURCES)
	@cd dashboard && npx --no-install vite build --logLevel warn

$(CHROMIUM):
	@echo "The tests of the dashboard need Chromium, and there is no $@: installing Debian's"
	@as_root=; [ "$$(id -u)" = 0 ] || as_root=sudo; \
	$$as_root apt-get update -qq && $$as_root apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core

run: setup ## a server, a producer and two consumers: a tour, then yours to try until Ctrl-C
	@$(BIN)/python examples/server_tour.py

run-embedded: setup ## a tour of the embedded library: no server, every feature, and a real crash
	@$(BIN)/python examples/embedded_tour.py

test: check $(CHROMIUM) ## check, then the tests in two processes, then the benchmarks at a small size
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)
	$(BIN)/python -m benchmarks --small

check: setup ## lint, format, types, rooms, and whether generated code is up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/unasync_broker.py --check
	cd dashboard && npm run --silent check && npm run --silent test

test-slow: setup $(CHROMIUM) ## the slow tests
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

test-soak: setup ## the tests that run for minutes
	$(BIN)/python -m pytest -m soak $(PYTEST_ARGS)

screenshots: setup $(CHROMIUM) ## take the pictures of the dashboard in docs/images/dashboard anew
	$(BIN)/python -m pytest tests/browser -m screenshots $(PYTEST_ARGS)

bench: setup ## the benchmarks at full size
	$(BIN)/python -m benchmarks

bench-small: setup ## the benchmarks at the size of `make test`
	$(BIN)/python -m benchmarks --small

bench-peers: $(BENCH_STAMP) ## Trine beside other brokers: QUICK=1, PEERS=a,b WORKLOADS=W1,W3 MINUTES=60 FRESH=1; goes on after Ctrl-C
	@$(RUN_PEERS) install
	$(RUN_PEERS) run --size $(SIZE) $(if $(PEERS),--peers '$(PEERS)') $(if $(WORKLOADS),--workloads '$(WORKLOADS)') \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(FRESH),--fresh)
	$(if $(PEERS)$(WORKLOADS),,$(RUN_PEERS) audit --size $(SIZE))
	$(RUN_PEERS) report --size $(SIZE)

bench-audit: $(BENCH_STAMP) ## how many syncs an ack of each broker has, counted by strace
	@$(RUN_PEERS) install
	$(RUN_PEERS) audit --size $(SIZE) $(if $(PEERS),--peers '$(PEERS)')

bench-report: $(BENCH_STAMP) ## docs/benchmarks from what was measured last, or QUICK=1
	$(RUN_PEERS) report --size $(SIZE)

$(BENCH_STAMP): $(STAMP)
	@$(PIP) install -c constraints.txt -e ".[dev,bench]"
	@touch $@

format: setup ## put imports and layout in order
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .
	cd dashboard && npm run --silent format

generate: setup ## write the sync broker from the async one
	$(BIN)/python tools/unasync_broker.py

lock: ## take the newest allowed versions into constraints.txt
	@clean=$$(mktemp -d) && trap 'rm -rf "$$clean"' EXIT && \
	$(PYTHON) -m venv "$$clean" && \
	"$$clean/bin/python" -m pip --quiet --disable-pip-version-check install --upgrade setuptools ".[dev,bench]" && \
	"$$clean/bin/python" -m pip --disable-pip-version-check freeze --all --exclude trine --exclude pip > "$$clean/constraints.txt" && \
	cp "$$clean/constraints.txt" constraints.txt && \
	echo "constraints.txt has $$(wc -l < constraints.txt) packages"

clean: ## remove caches and build products (not .venv and node_modules)
	rm -rf build dist src/trine/dashboard/static .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . \( -path ./$(VENV) -o -name node_modules \) -prune -o -name __pycache__ -type d -exec rm -rf {} +
