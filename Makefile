# Everything sets itself up: a virtual environment in .venv, made again when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Each core has a worker, so linear algebra has one thread. Neighbouring tests share a worker, and what it has made.
TESTS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: help demo docs test lint audit crash bench wheel clean

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
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/docs docs $$site && \
	QUORATE_SITE=$$site $(BIN)/python -m pytest -q tests/test_site.py

lint: $(READY)  ## style, types and layers
	$(BIN)/ruff format --check src tests docs/conf.py
	$(BIN)/ruff check src tests docs/conf.py
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint  ## lint and the fast suite, under ten minutes on two cores
	$(TESTS) -m 'not long and not crash'

audit: $(READY)  ## every claim attacked a million times, planted bugs caught, the long suites; writes quorate-audit.html
	$(BIN)/quorate audit --planted --report quorate-audit.html
	HYPOTHESIS_PROFILE=search $(TESTS) -m 'long or hypothesis'

crash: $(READY)  ## servers killed a thousand times, system calls, many clients on several workers; both stores
	$(BIN)/python -m pytest -rP -m crash tests/crash

bench: $(READY)  ## every promised figure against its bar
	$(BIN)/quorate bench mechanisms
	$(BIN)/quorate bench classifier
	$(BIN)/quorate bench models
	$(BIN)/quorate bench concepts
	$(BIN)/quorate bench service
	$(BIN)/quorate bench everlasting
	$(BIN)/quorate bench release
	$(BIN)/quorate bench audit

wheel: $(READY)  ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## remove what was made
	rm -rf $(VENV) dist build site docs/proofs docs/project docs/reference/api .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache quorate-demo.html quorate-audit.html
