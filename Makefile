PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed

# Most tests wait for processes, so more of them than there are cores run together; those of a file share fixtures.
# The tests of the core and the engine are quick; those of clients and servers start many processes.
FAST := tests/core tests/service tests/stores tests/engine tests/test_docs.py
TOGETHER := -n 4 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help test test-fast check services bench demo clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target text; do \
		printf '  make %-10s %s\n' "$$target" "$$text"; done

test: check services ## Run the checks and every test, with real services
	$(BIN)/pytest $(TOGETHER)

test-fast: $(READY) ## Run the tests that need no service, no browser and little time
	$(BIN)/pytest $(TOGETHER) -m "not services and not browser and not slow" $(FAST)

check: $(READY) ## Lint, format, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Without root, or without the network, the tests say what is missing: they skip, and under CI=true they fail.
services: $(READY) ## Install what the tests use: services, when root and absent, and clients of others
	@missing=; \
	command -v npm >/dev/null || missing="$$missing nodejs npm"; \
	command -v tmux >/dev/null || missing="$$missing tmux"; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
		|| missing="$$missing postgresql"; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "services: not installed, and not root on Debian; install:$$missing"; \
	else \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -q && apt-get install -qy --no-install-recommends $$missing; } \
			|| echo "services: could not install:$$missing"; \
	fi
	@$(BIN)/python -m tests.interop.environment

bench: $(READY) ## Run the benchmarks
	$(BIN)/python -m benchmarks

demo: $(READY) ## Run the demo
	$(BIN)/backburner demo

clean: ## Remove the virtual environment, builds and caches
	rm -rf .venv .interop dist build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,postgres,fastmcp,files,science]'
	@touch $@
