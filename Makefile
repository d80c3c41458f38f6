# `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help dev servers test lint fix accept dist wheelhouse onefile
SHELL := /bin/bash

VENV ?= .venv
PYTHON ?= python3.11
BIN := $(VENV)/bin
INTERPRETER ?= build/interpreter

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

$(BIN)/python: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[fast,test]'
	touch $@

dev: $(BIN)/python ## Install for development into .venv

servers: ## Build test servers into a cache (Go 1.26; a quarter of an hour, once)
	$(PYTHON) tests/servers/build

test: dev ## Build the test servers where Go is there; run the tests
	@if command -v go >/dev/null; then $(PYTHON) tests/servers/build; fi
	$(BIN)/python -m pytest -q -n 4 --dist worksteal

lint: dev ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

fix: dev ## Let ruff repair and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

accept: dev ## Rewrite the generated files: manual, README example, completions, gold pages
	$(BIN)/python tests/accept.py

dist: dev ## Build wheel and sdist into dist/, look into them, and do the main job with the wheel
	rm -rf dist/*.whl dist/*.tar.gz
	$(BIN)/python -m build --no-isolation -o dist .
	$(BIN)/python packaging/check_dist.py dist/*.whl dist/gpufleet-*.tar.gz
	PYTHON=$(PYTHON) packaging/try_install venv dist/*.whl

wheelhouse: dist ## Gather what installs without a network into dist/wheelhouse, and try it
	PYTHON=$(BIN)/python packaging/wheelhouse dist/wheelhouse
	PYTHON=$(PYTHON) packaging/try_install wheelhouse dist/wheelhouse

onefile: dist ## Build dist/gpufleet-linux-amd64, which needs no Python, and try it (ten minutes; Debian, deb-src)
	test -x $(INTERPRETER)/python/bin/python3.11 || packaging/onefile/interpreter $(INTERPRETER)
	$(BIN)/python packaging/onefile/build.py --interpreter $(INTERPRETER)/python
	packaging/try_install onefile dist/gpufleet-linux-amd64
