# `make demo` and `make test` are all a newcomer needs; both work from a fresh clone.
SHELL := /bin/bash
BIN := .venv/bin
DEMO := .venv/.demo-installed
TEST := .venv/.test-installed
PACKAGE := .venv/.package-installed

.PHONY: help demo test lint bench generated cluster clean

help:
	@sed -n 's/^#: //p' Makefile

#: make demo       two simulated nodes with two processes each train a small model here
demo: $(DEMO) $(PACKAGE)
	PATH="$(CURDIR)/$(BIN):$$PATH" slurm-adapter local --nodes 2 examples/modelarts/train.py --processes 2 --epochs 3

#: make test       everything, on a real Slurm cluster brought up for the tests (as root)
# In five processes, each with a cluster of its own: most tests wait for others' processes.
test: $(TEST) $(PACKAGE)
	$(BIN)/pytest -n 5 --dist worksteal $(PYTEST)

#: make lint       style, types, import rule
lint: $(TEST)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

#: make bench      the figures, side by side with their peers
bench: $(TEST) $(PACKAGE)
	tools/system-packages.sh bench
	$(BIN)/python bench/run.py

#: make generated  rewrite what is generated: sbatch/*.sbatch and parts of docs/
generated: $(TEST) $(PACKAGE)
	$(BIN)/python tools/generate.py

#: make cluster    a shell on the test cluster's head, as its ordinary user (as root)
cluster: $(TEST) $(PACKAGE)
	cd tests && ../$(BIN)/python -m testbed --project ..

#: make clean      take away what was made here
clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache slurm-adapter

# What is tried is the package as a user gets it, never the folder beside the tests: installed anew
# whenever a file of it has changed. flit is there already, so that no build needs a download.
$(PACKAGE): $(DEMO) $(shell find slurm_adapter -name '*.py' -o -type d ! -name __pycache__)
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall .
	touch $@

$(DEMO): pyproject.toml
	tools/system-packages.sh venv
	tools/make-venv.sh .
	touch $@

$(TEST): pyproject.toml
	tools/system-packages.sh venv tests
	tools/make-venv.sh '.[test]'
	touch $@ $(DEMO)
