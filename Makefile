# `make demo` and `make test` work on a fresh machine that has Python 3.11 or newer and pip.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS_READY := .venv/.docs-ready

.PHONY: demo test test-all chaos planted mutants lint types imports check docs watch-picture clean

demo: $(READY)
	$(BIN)/basil compare demo --out runs/demo
	@echo "watch   $(BIN)/basil watch runs/demo"

test: $(READY)
	$(BIN)/pytest -n 2

test-all: $(READY)
	$(BIN)/pytest -n 2 -m "not figures"

# Real peer code through ruined nights: make chaos SEEDS=1000, and one again: make chaos SEED=17.
SEEDS ?= 100
FIRST ?= 0
chaos: $(READY)
	cd tests && ../$(BIN)/python -m chaos.run \
	  $(if $(SEED),--seed $(SEED) --without "$(WITHOUT)",--seeds $(SEEDS) --first $(FIRST))

# Would the nights notice?  Faults planted in peers' code, one at a time.
planted: $(READY)
	cd tests && ../$(BIN)/python -m chaos.planted --only "$(ONLY)"

# Would the tests notice?  Faults planted one at a time; ONLY="part of a name" for some of them.
mutants: $(READY)
	$(BIN)/python tests/mutants/run.py --only "$(ONLY)"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

check: test lint types imports

# Strict: a broken link or any other warning is an error.
docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site  build/site/index.html"

# The animated picture in the README, from the page itself; needs a Chromium on this machine.
watch-picture: $(READY)
	$(BIN)/python docs/watch_picture.py

# The environment is made again whenever what it is made from has changed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Basil needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	# Its rules are compared with ours; without its torchvision, which they do not need.
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps byzfl
	@touch $@

$(DOCS_READY): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

clean:
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis
