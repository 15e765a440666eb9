# One environment, made here. PYTHON chooses the interpreter: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
# As many test processes as there are cores, four at most: each imports torch.
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist worksteal
.PHONY: help demo test test-slow test-all check lint gallery figures bench docs site wheel baselines clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The package alone: what `make demo` needs.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "attnviz needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

# And what developing it needs.
$(READY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(INSTALLED) ## draw every kind of figure, of the sample images, into attnviz-out/
	$(BIN)/attnviz render configs/demo.toml --overwrite
	@echo "Look first at attnviz-out/car.heads.png, flower.layers.png and astronaut.features.png"

test: $(READY) ## run the quick tests: within five minutes on two cores
	$(PYTEST) -m "not slow"

test-slow: $(READY) ## run the tests that `test` leaves out: Ray, a browser, big inputs, many runs
	$(PYTEST) -m slow

test-all: $(READY) ## run all tests
	$(PYTEST)

check: lint gallery site wheel test test-slow ## everything that continuous integration runs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gallery: $(READY) ## compare the README's figures and pages with what the code draws now
	$(BIN)/attnviz render configs/gallery.toml --check

figures: $(READY) ## draw the README's figures and the explorer pages again
	$(BIN)/attnviz render configs/gallery.toml --overwrite
	$(BIN)/python tools/plant_outliers.py build/planted.safetensors
	$(BIN)/attnviz registers tests/data/demo_scenes/scene_0[0-9][0-9].png --model demo \
		--checkpoint build/planted.safetensors --device cpu --dpi 120 --top 5 --threshold 30 \
		-o docs/figures/planted.json

bench: $(READY) ## measure speed and memory against the plain pass, into docs/performance.md
	$(BIN)/python -m benchmarks --write

docs: $(READY) ## write docs/cli.md from --help, and build the site
	$(BIN)/python tools/generate_cli_docs.py
	$(MAKE) --no-print-directory site

# The theme's notice of its successor is not about this site.
site: $(READY) ## build the documents as a site, into build/site; warnings and broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

wheel: $(READY) ## build the sdist and the wheel into dist/, check them, and use the wheel alone
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/try_wheel.py dist

baselines: $(READY) ## draw the baselines of the figure tests again; look at each before a commit
	$(BIN)/python -m tests.figures.make_baselines

clean: ## remove what the targets made
	rm -rf $(VENV) attnviz-out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
