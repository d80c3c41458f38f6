# `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help dev servers test lint fix accept
SHELL := /bin/bash

VENV ?= .venv
PYTHON ?= python3.11
BIN := $(VENV)/bin

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

$(BIN)/python: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[fast,test]'
	touch $@

dev: $(BIN)/python ## Install for development into .venv

servers: ## Build test servers into a cache (Go 1.26; a quarter of an hour, once)
	$(PYTHON) tests/servers/build

test: dev ## Build the test servers where Go is there; run the tests
	@if command -v go >/dev/null; then $(PYTHON) tests/servers/build; fi
	$(BIN)/python -m pytest -q -n 2

lint: dev ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

fix: dev ## Let ruff repair and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

accept: dev ## Rewrite the generated files: README example, completions, gold pages
	$(BIN)/python tests/accept.py
