# Diode's tasks. Each sets up what it needs in .venv; `make` alone lists them.

PYTHON ?= python3
TORCH := 2.13.0
TRITON := 3.7.1
OLDEST = $(shell sed -n 's/.*"torch>=\([0-9.]*\)".*/\1/p' pyproject.toml)

VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak quick check lint size phrases bench docs try-torch try-versions zoo clean
.SUFFIXES:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(VENV)/.installed ## install Diode and its tools into .venv

demo: setup ## run the whole of Diode on the shipped timings
	@$(BIN)/diode-engine demo

# The tests that drive Inductor with a fake GPU change torch for their whole process, so they have
# processes of their own. Each test process fits with one thread: several, with several each, wait
# for each other most of the time.
test: export OMP_NUM_THREADS := 1
test: setup ## run the tests
	@echo "Testing (1 of 2): all but Inductor ..."
	@$(BIN)/pytest -q -n auto --maxprocesses 4
	@echo "Testing (2 of 2): Inductor's lowering, without a GPU ..."
	@$(BIN)/pytest -q -n auto --maxprocesses 4 --dist loadfile tests/inductor_nogpu

soak: export OMP_NUM_THREADS := 1
soak: setup ## run the long tests in full: kills, full disks, damaged files, many processes
	@echo "Soaking: an hour and more ..."
	@$(BIN)/pytest -q -s --timeout 0 tests/soak --tries full
	@$(BIN)/pytest -q -n auto --timeout 0 tests/inductor_nogpu/test_random_products.py --tries 2000

quick: lint ## lint, and run the tests nearest to the change: two minutes
	@echo "Testing what is near the change ..."
	@OMP_NUM_THREADS=1 $(BIN)/python tools/nearest_tests.py

check: lint phrases size test ## lint, check phrases and sizes, run all tests: before a review

lint: setup ## check style, format, types and import rules
	@echo "Linting ..."
	@$(BIN)/ruff check .
	@echo "Checking the format ..."
	@$(BIN)/ruff format --check .
	@echo "Checking the types ..."
	@$(BIN)/mypy
	@echo "Checking the import rules ..."
	@$(BIN)/lint-imports --no-logo

size: setup ## print the lines of each package beside their budget
	@$(BIN)/python tools/size.py

phrases: setup ## refuse phrases whose meaning a reader has to guess
	@$(BIN)/python tools/phrases.py

# The others need a GPU, or time and arguments: benchmarks/README.md.
BENCHMARKS := import_cost hook predict store store_queries dashboard

bench: setup ## run the benchmarks that need no GPU
	@set -e; for name in $(BENCHMARKS); do echo "$$name"; $(BIN)/python benchmarks/$$name.py; done

docs: setup ## build the documentation's site into build/docs
	@$(BIN)/sphinx-build -q -W --keep-going -c docs . build/docs
	@echo "The site is build/docs/index.html."

# What pip installs for TORCH=: a version, or one of these words. For nightly, PIP_INDEX_URL names the
# index of PyTorch's nightly builds (https://pytorch.org/get-started).
TORCH_oldest = torch==$(OLDEST)
TORCH_newest = torch
TORCH_nightly = --pre torch
TORCH_WANTED = $(or $(TORCH_$(TORCH)),torch==$(TORCH))

# torch brings the Triton that belongs to it, but for its CPU builds, which get the newest.
try-torch: ## run the tests of the integration with another torch: TORCH=x.y.z, oldest, newest or nightly
	@set -e; try=.try-torch; rm -rf $$try; trap 'rm -rf $$try' EXIT; \
	$(PYTHON) -m venv $$try; \
	echo "Installing torch $(TORCH), some minutes ..."; \
	$$try/bin/pip install -qq $(TORCH_WANTED); \
	$$try/bin/python -c 'import triton' 2>/dev/null || $$try/bin/pip install -qq triton; \
	$$try/bin/pip install -qq -e '.[dev]'; \
	$$try/bin/python -c 'import torch, triton; print("torch", torch.__version__, "with Triton", triton.__version__)'; \
	$$try/bin/pytest -q -p no:cacheprovider tests/inductor_nogpu

# For a scheduler: tells whether a new release still fits, and the oldest as well.
try-versions: ## run try-torch with the oldest torch that Diode works with, and with the newest
	@failed=; for version in $(OLDEST) newest; do \
	  $(MAKE) --no-print-directory try-torch TORCH=$$version || failed="$$failed $$version"; done; \
	test -z "$$failed" || { echo "Diode does not fit torch:$$failed (see above)."; exit 1; }

# torch brings the torchvision and Triton that belong to it; a CPU build of torch gets the newest Triton.
zoo: ## lower the zoo's models for a pretended H200: TORCH=x.y.z, or newest; hours on two cores
	@set -e; mkdir -p build; try=.zoo; rm -rf $$try build/zoo-$(TORCH).jsonl; trap 'rm -rf $$try' EXIT; \
	$(PYTHON) -m venv $$try; \
	echo "Installing torch $(TORCH), transformers, timm and torchvision, some minutes ..."; \
	$$try/bin/pip install -qq "torch$(if $(filter newest,$(TORCH)),,==$(TORCH))" -e '.[zoo,train]'; \
	$$try/bin/python -c 'import triton' 2>/dev/null || $$try/bin/pip install -qq triton; \
	$$try/bin/python benchmarks/zoo.py --lower --workers $$(nproc) --seconds 1e6 --limit 1800 \
	  --products build/zoo-products.json --json build/zoo-$(TORCH).jsonl

clean: ## remove .venv and everything that was made
	@echo "Removing .venv and caches ..."
	@rm -rf $(VENV) .try-torch .zoo .demo build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp a step, so that a second run is quick and an interrupted one goes on where it was.

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "There is no $(PYTHON) here: install Python 3.11 or newer, or name one: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) -V): Diode needs Python 3.11 or newer; name one: make PYTHON=..."; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) -V) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make virtual environments: install its venv module (python3-venv)."; exit 1; }
	@touch $@

$(VENV)/.torch-$(TORCH)-triton-$(TRITON): $(VENV)/.created
	@echo "Installing torch $(TORCH) and triton $(TRITON), once: some minutes ..."
	@$(BIN)/pip install -qq -c constraints.txt torch==$(TORCH) triton==$(TRITON)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch-$(TORCH)-triton-$(TRITON) pyproject.toml constraints.txt hatch_build.py
	@echo "Installing Diode and its tools ..."
	@$(BIN)/pip install -qq -c constraints.txt -e '.[all,dev,docs,baselines,postgres]'
	@touch $@
