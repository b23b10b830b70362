# Everything a person or a CI needs; `make` alone lists the targets.
PYTHON ?= $(shell command -v python3 || command -v python3.11)
VENV   := .venv
BIN    := $(VENV)/bin
# Test processes; each has a PostgreSQL of its own.
JOBS   ?= 3
# Where `make run` listens; empty: the usual port.
PORT   ?=
# What is slow is named, so that it is noticed.
SLOW   := --durations=15

.DEFAULT_GOAL := help
.PHONY: help run test faults lint types rooms bench clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# What takes a minute says what it does: each package as pip gets to it.
INSTALL := $(BIN)/pip install --disable-pip-version-check --progress-bar off

$(VENV)/.run: pyproject.toml
	@echo "Setting up $(VENV) once, with the packages that pyproject.toml names; this may take some minutes."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml
	@echo "Setting up $(VENV) once, for tests, too; this may take some minutes."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/.run

run: $(VENV)/.run ## Set up, load the examples into an empty database and serve on 127.0.0.1:8778 (PORT=9000 elsewhere)
	$(BIN)/placement serve --demo $(if $(PORT),--port $(PORT))

lint: $(VENV)/.test ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test ## Static types, strict in the pure rooms
	$(BIN)/mypy

rooms: $(VENV)/.test ## Who may import whom
	$(BIN)/lint-imports

test: lint types rooms ## Everything that decides whether a change lands
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --ignore=tests/faults $(SLOW)

faults: $(VENV)/.test ## Storms, kills and lost connections, one after another
	$(BIN)/python -m pytest tests/faults $(SLOW)

bench: $(VENV)/.test ## Compare with the incumbent (takes long; BENCH="--data flat:1000" for less)
	$(INSTALL) --editable '.[bench]'
	$(BIN)/python -m benchmarks $(BENCH)

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
