.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

BIN   := .venv/bin
STAMP := .venv/.setup
# Made once: the class archives with which Spark and Kafka start sooner, the servers of tests, and
# the bytecode of the tests, which else each process of `make test` would compile.
WARM  := .venv/.warm
# What exists of the code: mypy and ruff stop at a folder that is not there.
CODE  := $(wildcard src tests bench pipelines)
# Spark and the tests start hundreds of Pythons: without bytecode, each would compile every module.
unexport PYTHONDONTWRITEBYTECODE
# Extra arguments: make test ARGS="-n auto -k windows"
ARGS  ?=

COMPILE := env -u PIP_FIND_LINKS -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Make .venv from the locked packages, and find a Java
	@echo "setup: done"

$(STAMP): pyproject.toml requirements.lock requirements-java.lock scripts/setup scripts/java
	@scripts/setup
	@scripts/java
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Run the demo; ARGS="--once" and the like go to it
	@$(BIN)/headrace demo $(ARGS)

.PHONY: test
test: $(WARM) ## Run the tests, all but the slow ones
	@$(BIN)/pytest -n 5 --dist load $(ARGS)

$(WARM): $(STAMP) scripts/services tests/servers/packages.py
	@$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 & \
	scripts/services quick && $(BIN)/python -m headrace.application.warm && wait
	@touch $@

.PHONY: test-slow
test-slow: $(WARM) ## Run the slow tests: crashes by the hundred, big logs, half an hour of everything
	@$(BIN)/pytest -m slow -n 2 --dist load -rP --timeout=1800 --durations=50 $(ARGS)

.PHONY: test-mutations
test-mutations: $(STAMP) ## Break the source in many small ways; ARGS="-k recovery" for some of them
	@$(BIN)/python -m tests.mutations $(ARGS)

.PHONY: check
check: $(STAMP) ## Check format, lint, types, import layers and the locks
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy $(CODE)
	@$(BIN)/lint-imports --no-logo
	@$(MAKE) check-locks

.PHONY: check-locks
check-locks:
	@if grep -n '://' requirements.lock requirements-d*.lock requirements-java.lock src/headrace/servers/java/*.lock; then \
		echo "a lock names an address; see docs/decisions/0001-locked-without-addresses.md" >&2; \
		exit 1; \
	fi

.PHONY: format
format: $(STAMP) ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix-only --quiet $(CODE)
	@$(BIN)/ruff format $(CODE)

.PHONY: bench
bench: $(STAMP) ## Measure the log; ARGS="--json" for numbers to keep
	@$(BIN)/headrace bench log $(ARGS)

.PHONY: docs
docs: $(STAMP) ## Build the docs site into build/docs/site
	@scripts/docs

.PHONY: services
services: $(WARM) ## Fetch what the tests marked `service` start
	@scripts/services

.PHONY: lock
lock: | $(BIN)/uv ## Renew the locks from pyproject.toml; ARGS="--upgrade" for newer versions
	@$(COMPILE) $(ARGS) --group dev pyproject.toml --output-file requirements.lock
	@$(COMPILE) $(ARGS) --group docs --output-file requirements-docs.lock
	@$(COMPILE) $(ARGS) --group debezium --output-file requirements-debezium.lock
	@$(COMPILE) $(ARGS) --group java --output-file requirements-java.lock
	@if command -v mvn >/dev/null; then scripts/jars; else echo "lock: no Maven, so the locks of jars stay"; fi
	@$(MAKE) check-locks
	@echo "lock: wrote requirements.lock and those of docs, debezium and java"
	@echo "lock: make setup installs the first and the last, make docs and scripts/services debezium the others"

# Made apart from the stamp: renewing a lock that is out of date must not install it first.
$(BIN)/uv:
	@$(MAKE) setup

.PHONY: clean
clean: ## Remove .venv, caches and builds; never the data
	@rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +
