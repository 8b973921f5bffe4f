PYTHON ?= python3
VENV := .venv
EXTRAS := dev,postgres,fastmcp,files,science,dramatiq,celery,s3,aws
BIN := $(VENV)/bin
READY := $(VENV)/.installed
VERSIONS := 3.12 3.13

# Most tests wait for processes, so more of them than there are cores run together. The tests of a file share
# fixtures, and so a worker.
TOGETHER := -n 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help test test-fast test-whole soak test-versions test-version test-hosts check services bench bench-fast docs demo clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target text; do \
		printf '  make %-13s %s\n' "$$target" "$$text"; done

# A test that fails in the crowd is run once more by itself, and named: one that passes then depends on timing.
test: check services ## Run the checks and the tests, with real services: under ten minutes on two cores
	@$(BIN)/pytest $(TOGETHER); code=$$?; \
	if [ $$code -ne 1 ]; then exit $$code; fi; \
	echo "test: once more, each by itself; those that pass now depend on timing and need mending:"; \
	$(BIN)/pytest --last-failed --last-failed-no-failures=none -v

test-fast: $(READY) ## Run the unit tests: under a minute
	$(BIN)/pytest $(TOGETHER) tests/unit

# Every program starts cold here, and nothing shares a warm process.
test-whole: check services ## Run all tests: each engine, framework and client, long faults, other versions of Python
	BACKBURNER_WHOLE_SUITE=1 BACKBURNER_TEST_COLD=1 BACKBURNER_ARTIFACT_MIB=1024 $(BIN)/pytest $(TOGETHER)
	@$(MAKE) --no-print-directory test-versions

soak: services ## Run the fuzz tests and the chaos for long
	BACKBURNER_WHOLE_SUITE=1 BACKBURNER_FUZZ_CASES=10000 BACKBURNER_CHAOS_S=120 $(BIN)/pytest -n 2 --dist loadfile --timeout 1800 -k "fuzz or chaos"

# A shim of pyenv answers only for the version that is chosen, so those that it has are looked up as well.
test-versions: ## Run the unit and engine tests on newer versions of Python, where they are installed
	@for version in $(VERSIONS); do \
		for python in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python none; do \
			"$$python" -c '' 2>/dev/null && break; \
		done; \
		if [ "$$python" = none ]; then \
			echo "test-versions: Python $$version is not installed, and left out"; continue; \
		fi; \
		echo "test-versions: Python $$version"; \
		$(MAKE) --no-print-directory test-version PYTHON="$$python" VENV=.venv-$$version EXTRAS=test,postgres,fastmcp || exit 1; \
	done

test-version: $(READY)
	$(BIN)/pytest $(TOGETHER) tests/unit tests/integration/engine tests/integration/stores

test-hosts: $(READY) ## Run real hosts with a scripted model, and write docs/explanation/hosts.md: 45 minutes
	$(BIN)/python -m tests.hosts $(HOSTS)

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
	command -v strace >/dev/null || missing="$$missing strace"; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
		|| missing="$$missing postgresql"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	ls /usr/lib/rabbitmq/bin/rabbitmq-server >/dev/null 2>&1 || missing="$$missing rabbitmq-server"; \
	command -v slurmctld >/dev/null && command -v munged >/dev/null || missing="$$missing slurm-wlm munge"; \
	ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || missing="$$missing libfaketime"; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "services: not installed, and not root on Debian; install:$$missing"; \
	else \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -q && apt-get install -qy --no-install-recommends $$missing; } \
			|| echo "services: could not install:$$missing"; \
	fi
	@$(BIN)/python -m tests.system.interop.environment

bench: services ## Run the benchmarks, beside what others offer (benchmarks/README.md)
	$(BIN)/python -m benchmarks

bench-fast: services ## Run those beside others, with fewer tasks: two minutes
	BENCHMARK_TASKS=300 BENCHMARK_ROUNDS=1 $(BIN)/python -m benchmarks peers over_mcp

docs: ## Build the documentation site in site/; broken links fail
	@test -d .venv-docs || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.7,<10' 'mkdocs-llmstxt>=0.4'
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

demo: $(READY) ## Run the demo
	$(BIN)/backburner demo

clean: ## Remove the virtual environments, builds and caches
	rm -rf .venv .venv-* .interop .hosts dist build site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@
