# The set-up is part of every target: on a new machine `make demo` and `make test` are all it takes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MODEL ?=

.DEFAULT_GOAL := help
.PHONY: help demo test slow-test train-test lint docs bench check clean

## help: list the targets
help:
	@grep -E '^## [a-z-]+:' $(MAKEFILE_LIST) | sed 's/^## //' | awk -F': ' '{printf "make %-10s %s\n", $$1, $$2}'

$(VENV)/.installed: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[embedded,evaluate,cluster,dev]'
	-$(BIN)/pemand doctor --fetch > /dev/null
	@touch $@

## demo: run the first study with the embedded model (MODEL=scripted for none)
demo: $(VENV)/.installed
	$(if $(MODEL),,$(BIN)/pemand doctor --fetch)
	$(BIN)/pemand run scenarios/baseline.yaml $(if $(MODEL),--model $(MODEL))

## test: run the tests (offline once installed)
test: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

## slow-test: run the tests that take ten seconds or more
slow-test: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

## train-test: run the tests of training, which need torch
train-test: $(VENV)/.installed
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[train]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_training_torch.py -m 'not gpu'

## lint: check style and types
lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

## check: lint and test
check: lint test

## docs: build the documentation into site/
docs: $(VENV)/.installed
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/mkdocs build --quiet --strict

## bench: measure against a peer in the same run
bench: $(VENV)/.installed
	$(BIN)/python benchmarks/first_study.py
	$(BIN)/python benchmarks/negotiations.py

## clean: remove what the targets made, except outputs
clean:
	rm -rf $(VENV) build dist *.egg-info site .pytest_cache .mypy_cache .ruff_cache
