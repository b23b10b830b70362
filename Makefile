# Everything a person or a CI needs; `make` alone lists the targets.
PYTHON ?= $(shell command -v python3 || command -v python3.11)
VENV   := .venv
BIN    := $(VENV)/bin
# Test processes; each has a PostgreSQL of its own.
JOBS   ?= 3
# Where `make run` listens; empty: the usual port.
PORT   ?=
# Which pinned release `make constraints` renews; empty: all.
PACKAGE ?=
RENEW   := $(if $(PACKAGE),--upgrade-package $(PACKAGE),--upgrade)
# How many requests `make fuzz` makes for each operation.
EXAMPLES ?= 100
# How long `make soak` runs.
MINUTES ?= 120
# What `make kubernetes` downloads; tests against a real Kubernetes run where this folder is, or another is named.
KUBERNETES_VERSION ?= 1.36.2
ETCD_VERSION ?= 3.5.21
KUBERNETES := build/kubernetes
export PLACEMENT_TEST_KUBERNETES ?= $(abspath $(wildcard $(KUBERNETES)))
# Where this is set, each of the thousand processes that tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# What is slow is named, so that it is noticed.
SLOW   := --durations=15

.DEFAULT_GOAL := help
.PHONY: help run test announced check faults fuzz random installs lint types rooms kubernetes house bench bench-full soak screenshots wheel image docs constraints sbom clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# Only files whose hashes are known are installed; the checkout itself has none. uv installs if it is on PATH.
INSTALL := $(PYTHON) constraints/install.py
SET_UP   = @echo "Setting up $(VENV) once, with the packages of $(1); this may take some minutes." \
    && $(PYTHON) -m venv $(2) $(VENV) && $(INSTALL) $(VENV) $(1) && $(INSTALL) $(VENV) --checkout

$(VENV)/.run: pyproject.toml constraints/build.txt constraints/run.txt
	$(call SET_UP,constraints/run.txt constraints/build.txt,$(if $(shell command -v uv),--without-pip))
	@touch $@

# Tests build wheels with pip.
$(VENV)/.test: pyproject.toml constraints/test.txt
	$(call SET_UP,constraints/test.txt)
	@touch $@ $(VENV)/.run

run: $(VENV)/.run ## Set up, load the examples into an empty database and serve on 127.0.0.1:8778 (PORT=9000 elsewhere)
	$(BIN)/placement serve --demo $(if $(PORT),--port $(PORT))

lint: $(VENV)/.test ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test ## Static types, strict
	$(BIN)/mypy

rooms: $(VENV)/.test ## Who may import whom
	$(BIN)/lint-imports

test: announced lint types rooms ## Everything that decides whether a change lands
	@$(BIN)/python -m tests.browser
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --ignore=tests/faults $(SLOW)
	@echo "The last run here took $$(( ($$(date +%s) - $$(cat $(BEGAN))) / 60 + 1 )) minutes." > $(LAST)

BEGAN := build/test-began
LAST  := build/test-took
announced: $(VENV)/.test
	@mkdir -p build && date +%s > $(BEGAN)
	@echo "make test: style, types, imports, then $$(find tests -name 'test_*.py' ! -path '*/faults/*' | wc -l) files of" \
	    "tests in $(JOBS) processes, on SQLite and PostgreSQL. make check is the short one."
	@cat $(LAST) 2>/dev/null || echo "It takes about ten minutes on two cores with nothing beside it."

check: lint types rooms ## The short one, before each commit: style, types, imports, and the unit tests on SQLite
	PLACEMENT_TEST_EMBEDDED=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m 'not thorough' tests/unit

# They wait a third of the time: for servers to start, for leases to end. More of them at once would slow each other.
faults: $(VENV)/.test ## Storms, kills and lost connections, three files at a time
	$(BIN)/python -m pytest tests/faults -n 3 --dist loadfile $(SLOW)

kubernetes: ## Fill build/kubernetes with the programs of a real Kubernetes for the tests (KUBERNETES_VERSION=1.35.0 for another)
	.ci/kubernetes $(KUBERNETES) $(KUBERNETES_VERSION) $(ETCD_VERSION)

fuzz: $(VENV)/.test ## Try every operation of /openapi.json with many requests (takes long; EXAMPLES=20 for less)
	$(BIN)/python -m tests.fuzzing $(EXAMPLES)

random: $(VENV)/.test ## Run the property tests with examples that no run had before; make test has the same each time
	$(BIN)/python -m pytest -n $(JOBS) -m hypothesis --hypothesis-profile=random

installs: $(VENV)/.test ## Try the wheel with each extra alone in clean environments, from the package index
	$(BIN)/python -m tests.installations

house: $(VENV)/.test ## Print figures of the whole: size, modules that a request crosses
	$(BIN)/python -m tests.house

bench: $(VENV)/.test ## Measure what is asked of the service (ten minutes; BENCH="pods changed" for some of it)
	$(BIN)/python -m benchmarks $(BENCH)

bench-full: $(VENV)/.test ## Compare with the incumbent (takes long; BENCH="--data flat:1000" for less)
	$(BIN)/python -m benchmarks.comparison $(BENCH)

soak: $(VENV)/.test ## Watch memory, files, threads, tables and p99 under mixed calls for two hours (MINUTES=30 for less)
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

screenshots: $(VENV)/.test ## Write pictures of every page to build/screenshots, and of the documents to docs/pictures (needs Chromium)
	$(BIN)/python -m tests.screenshots

# What builds stays apart from what is built.
BUILDER := build/builder
$(BUILDER)/.made: constraints/build.txt
	$(PYTHON) -m venv $(BUILDER)
	$(INSTALL) $(BUILDER) constraints/build.txt
	@touch $@

wheel: $(BUILDER)/.made ## Build the wheel of this checkout into build/wheels
	@rm -f build/wheels/placement_forest-*.whl
	$(BUILDER)/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/wheels .
	@ls build/wheels/placement_forest-*.whl

image: ## Build the image placement:latest with podman or docker
	@engine=$$(command -v podman || command -v docker) || \
	    { echo "make image: needs podman or docker, and neither is installed" >&2; exit 1; }; \
	$$engine build -f Containerfile --build-arg VERSION=$$($(PYTHON) constraints/version.py) -t placement:latest .

# In an environment of its own: what builds the site is no part of what is tested.
SITE := build/site-tools
$(SITE)/.made: constraints/docs.txt
	$(PYTHON) -m venv $(SITE)
	$(INSTALL) $(SITE) constraints/docs.txt
	@touch $@

docs: $(SITE)/.made ## Build the documentation as a site in build/site, with every link checked
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build
	@echo "The site is in build/site; python3 -m http.server --directory build/site shows it, with search."

# In an environment of its own: what resolves and describes is no part of what is described.
TOOLS   := build/tools
EXTRAS  := --extra docs --extra keystone --extra kubernetes --extra mysql
# The demonstration shows its API at /docs.
DEMO    := --extra docs
COMPILE := $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
$(TOOLS)/.made: pyproject.toml
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check uv 'cyclonedx-bom>=7'
	@touch $@

constraints: $(TOOLS)/.made ## Pin the newest releases that fit, with their hashes (PACKAGE=flask: only that one)
	$(COMPILE) $(RENEW) pyproject.toml $(EXTRAS) --output-file constraints/extras.txt
	$(COMPILE) $(RENEW) pyproject.toml $(DEMO) --constraint constraints/extras.txt --output-file constraints/run.txt
	$(COMPILE) $(RENEW) constraints/build.in --constraint constraints/extras.txt --output-file constraints/build.txt
	$(COMPILE) $(RENEW) constraints/docs.in --output-file constraints/docs.txt
	$(COMPILE) $(RENEW) pyproject.toml constraints/build.in --extra test --output-file constraints/test.txt

sbom: $(TOOLS)/.made ## Write build/sbom.json, what the service consists of (CycloneDX)
	$(TOOLS)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
	    --output-file build/sbom.json constraints/extras.txt

clean: ## Remove the virtual environments and caches
	rm -rf $(VENV) $(TOOLS) $(BUILDER) $(SITE) build/site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
