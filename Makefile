# Every target does its own set-up: only Python >= 3.11 and a C compiler are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: demo test lint bench build clean

$(STAMPS)/venv: pyproject.toml
	@mkdir -p $(STAMPS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -U pip
	$(BIN)/python -m pip install -q --group dev
	@touch $@

# The compiled modules, rebuilt in place when their sources or the build mode change.
$(STAMPS)/built: $(STAMPS)/venv setup.py $(SOURCES)
	$(BIN)/python -m pip install -q --no-build-isolation -e .
	@touch $@

build: $(STAMPS)/built

demo: build
	$(BIN)/router demo

test: build
	$(BIN)/python -m pytest

lint: build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/cython-lint src
	$(BIN)/mypy

bench: build
	$(BIN)/python -m pytest bench --benchmark-only

clean:
	rm -rf $(VENV) $(STAMPS) build dist
