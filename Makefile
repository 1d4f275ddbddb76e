# One word a task. ARGS goes to the tool behind it: make lab ARGS=--no-browser.

PYTHON ?= python3
# It is quoted below, because a folder may have a space in its name, and some shells leave ~/ to the recipe.
override PYTHON := $(PYTHON:~/%=$(HOME)/%)
BIN := .venv/bin
# nbgrader calls alembic by its name.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests and benchmarks start hundreds of Pythons, of which only the first should have to compile the course.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install lab test test-all build check-build bundle site wheel bench nodes soak mutation compat class tiers cluster gpu lint format clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

install: # .venv with everything in requirements.txt, and nothing to do when it is there already
	@command -v "$(PYTHON)" >/dev/null || { echo "$(PYTHON) was not found. On Debian: apt install python3 python3-venv" >&2; exit 1; }
	@"$(PYTHON)" tools/install.py

lab: install ## open the course in JupyterLab
	@JUPYTER_CONFIG_PATH="$(CURDIR)/.jupyter" $(BIN)/python -m jupyterlab $(ARGS)

test: install ## run all tests
	@$(BIN)/python -m pytest --numprocesses=auto --dist=loadfile --no-loadscope-reorder $(ARGS)

test-all: test tiers cluster soak mutation class compat ## run all tests, then all that takes hours

build: install ## make lectures/, exercises/ and solutions/ from source/
	@$(BIN)/autograder build $(ARGS)

check-build: install ## fail when the built folders are out of date
	@$(BIN)/autograder build --check

bundle: install ## make four_ranks.zip, to hand out: no solutions, no hidden tests
	@$(BIN)/autograder bundle $(ARGS)

site: install .venv/site .venv/pyodide ## make the course's pages in site/, to be read without a kernel
	@PYTHONPATH=.venv/site $(BIN)/python -m website

wheel: install ## make dist/fourranks-*.whl, to install without the course: pip install dist/fourranks-*.whl
	@rm -rf build dist # what was removed from the sources would still be in the wheel
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@rm -rf build; ls dist/*

bench: install .venv/peers ## measure the course beside its peers, into benchmarks/results.md
	@$(BIN)/python -m benchmarks $(ARGS)

nodes: install .venv/cluster .venv/monarch ## measure worlds over two nodes, all on this machine, into benchmarks/nodes.md
	@$(BIN)/python -m benchmarks.nodes

soak: install ## run 10,000 random programs, half of them faulty, into benchmarks/soak.md
	@$(BIN)/python -m benchmarks.soak $(ARGS)

mutation: install ## count small faults in solutions that checks catch, into benchmarks/mutation/results/
	@$(BIN)/python -m benchmarks.mutation $(ARGS)

compat: install ## try the course on each Python and torch that can be had, into docs/compat.md
	@$(BIN)/python -m benchmarks.compat $(ARGS)

class: install ## grade a class of 300, and compare every grade with what the answer deserves
	@$(BIN)/python -m benchmarks.classes --grade $(ARGS)

tiers: install ## run the tests of hostile submissions in each tier of sandbox
	@ALL_TIERS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=loadfile tests/hostile $(ARGS)

cluster: install .venv/cluster ## grade on a Ray cluster of several nodes, all on this machine, and kill some
	@PYTHONPATH="$(CURDIR)/.venv/cluster" $(BIN)/python -m pytest tests/cluster $(ARGS)

gpu: install ## run tests, lectures, checks and benchmarks on GPUs, into evidence/
	@$(BIN)/python -m benchmarks.gpu $(ARGS)

.venv/peers: benchmarks/requirements.txt tests/cluster/requirements.txt # a folder of their own; the course never sees them
	@$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $@ --requirement $< && touch $@ || \
	echo "The peers could not be installed; pip's reason is above. Their lines will be empty." >&2

.venv/cluster: tests/cluster/requirements.txt | install # and so is Ray
	@$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $@ --requirement $< && touch $@ || \
	{ echo "Ray could not be installed; pip's reason is above." >&2; rm -rf $@; exit 1; }

.venv/monarch: benchmarks/nodes/requirements.txt | install # and Monarch
	@$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $@ --requirement $< && touch $@ || \
	{ echo "Monarch could not be installed; pip's reason is above. Its lines will be empty." >&2; mkdir -p $@; }

.venv/site: website/requirements.txt | install # a folder of their own, too
	@$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $@ --requirement $< && touch $@ || \
	{ echo "What builds the site could not be installed; pip's reason is above." >&2; rm -rf $@; exit 1; }

.venv/pyodide: website/package.json | install # Python for browsers: with it, boards are played in the page
	@mkdir -p $@ && cp $< $@ && npm install --silent --ignore-scripts --prefix $@ && touch $@ || { rm -rf $@; \
	echo "npm could not install Pyodide, so the pages of boards to play will show what is stored." >&2; }

lint: install ## look for mistakes, unformatted code and wrong types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: install ## format the code, sort the imports
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: ## remove .venv, build/, dist/, site/ and all caches
	rm -rf .venv build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
