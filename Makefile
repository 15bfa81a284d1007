# Everything sets itself up: a virtual environment in .venv, made again when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := build/tools
# Each core has a worker, so linear algebra has one thread, and there is one more: tests of servers mostly wait.
# Neighbouring tests share a worker, and what it has made. Bytecode is kept, for the commands that tests start.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else os.cpu_count() + 1)')
TESTS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help demo docs linkcheck test suite attacks processors lint bytecode types audit mutate crash bench wheels release clean

help:  ## say what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/'

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Quorate needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(READY)

# What the demo needs, and no more: the rest of the tests' environment is ten times as much to download.
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Quorate needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(READY) || $(BIN)/python -m pip install --quiet --editable '.[report]'
	touch $(VENV)/.demo

demo: $(VENV)/.demo  ## the main job on a generated clinic of 200,000 records, with a report
	$(BIN)/quorate demo

docs: $(READY)  ## the documentation site, strictly, into site/VERSION; its map and its links are checked
	site=site/$$($(BIN)/quorate --version) && \
	rm -rf $$site docs/proofs docs/project docs/reference/api && \
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/docs docs $$site && \
	QUORATE_SITE=$$site $(BIN)/python -m pytest -q tests/report/test_site.py

linkcheck: $(READY)  ## links to other sites; one that cannot be reached from here is named, one that is dead fails
	$(BIN)/python -m sphinx -q -b linkcheck -d build/docs docs build/links || true
	$(BIN)/python packaging/links.py build/links/output.json

lint: $(READY)  ## style, types and layers
	$(BIN)/ruff format --check src tests benchmarks packaging docs/conf.py
	$(BIN)/ruff check src tests benchmarks packaging docs/conf.py
	$(BIN)/mypy
	$(BIN)/lint-imports

types: $(READY) $(TOOLS)/.ready  ## the public API under pyright, and whether its types are complete
	$(BIN)/python packaging/types_of_api.py $(TOOLS)/bin/basedpyright

test: $(READY)  ## lint and the fast suite, under ten minutes on two cores; `make attacks` has the rest of the gate
	$(MAKE) --jobs=2 lint suite

# The fast suite alone. Tests of servers wait at its beginning, which leaves a core to the types of `lint`.
suite: bytecode
	$(TESTS) -m 'not long and not crash and not attack'

attacks: $(READY)  ## games against claims, planted bugs, and one unit replaced in every predictor and container
	$(TESTS) -m 'attack and not long and not crash' tests/auditing

# The tests of what NumPy and BLAS compute, once more with the kernels of a processor without AVX-512 (tests/core/processors.py).
# A few that take long and test something else are left out: all of it takes less than a minute on two cores.
PROCESSORS := $(addprefix tests/core/test_,noisy_max.py quorum.py thresholds.py) tests/planner/test_planner.py \
	tests/release/test_release_engines.py tests/release/test_release_engines_laws.py tests/models/test_linear.py \
	-k 'not (command or saved or reach or large_scales or suggested or weights or columns_never)'

processors: $(READY)  ## the tests of mechanisms, planner, release engines and linear models on a second kind of processor
	@if $(BIN)/python tests/core/processors.py; then \
		echo "once more with the kernels of a processor without AVX-512:" && \
		OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES=X86_V4 $(TESTS) -m 'not long and not crash' $(PROCESSORS); \
	fi

# Workers that begin together would each compile every test, asserts and all. One does it before them.
bytecode: $(READY)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -q >/dev/null || true

audit: $(READY)  ## every claim attacked a million times, planted bugs caught, the long suites; writes quorate-audit.html
	$(BIN)/quorate audit --report quorate-audit.html
	cd tests && ../$(BIN)/python -m planted
	HYPOTHESIS_PROFILE=search $(TESTS) -m 'long or hypothesis'

mutate: $(READY)  ## sixty lines that proofs cite are changed, one at a time: what does nothing notice? ALL=1: all of them
	$(BIN)/python tests/mutate.py $(if $(ALL),--all)

crash: $(READY)  ## servers killed a thousand times, system calls, many clients on several workers; both stores
	$(BIN)/python -m pytest -rP -m crash tests/crash

bench: $(READY)  ## every promised figure against its bar
	$(BIN)/python -m benchmarks mechanisms
	$(BIN)/python -m benchmarks classifier
	$(BIN)/python -m benchmarks models
	$(BIN)/python -m benchmarks neighbours
	$(BIN)/python -m benchmarks concepts
	$(BIN)/python -m benchmarks service
	$(BIN)/python -m benchmarks everlasting
	$(BIN)/python -m benchmarks release
	$(BIN)/python -m benchmarks text
	$(BIN)/python -m benchmarks audit
	$(BIN)/python -m benchmarks scale

# Tools that package have an environment of their own.
$(TOOLS)/.ready: packaging/requirements.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --requirement packaging/requirements.txt
	touch $@

wheels: $(TOOLS)/.ready  ## build wheel and sdist into dist/; try them on every Python here, and each extra by itself
	$(TOOLS)/bin/python packaging/wheels.py $(WHEELS)

release: $(TOOLS)/.ready  ## say whether this commit can be released; build it twice, compare, and write dist/
	$(TOOLS)/bin/python packaging/release.py $(RELEASE)

clean:  ## remove what was made
	rm -rf $(VENV) dist build site docs/proofs docs/project docs/reference/api .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache quorate-demo.html quorate-audit.html
