# Antiphon. `make run` and `make test` are all a fresh machine needs; the rest is for those who change it.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
ARGS ?=

.PHONY: help install install-dev run test test-vllm check bench lock format clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.runtime: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Antiphon needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@[ -x $(PY) ] || $(PYTHON) -m venv $(VENV) || { echo "python3 cannot make virtual environments here; on Debian or Ubuntu: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }
	@echo "installing the pinned packages into $(VENV) (a minute or two, once)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@echo "installing the pinned development packages"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

install: $(VENV)/.runtime ## .venv with everything pinned, and the models in the cache
	@$(PY) -m peer.models fetch

install-dev: $(VENV)/.dev

run: install ## everything to a working call page on a fresh machine
	@$(PY) signaling_server.py $(ARGS)

test: install $(VENV)/.dev ## everything to a green test run on a fresh machine
	@$(PY) -m tests.browser.install
	$(PY) -m pytest $(ARGS)

test-vllm: install $(VENV)/.dev ## the vLLM engines against a real vLLM on CPU, in a venv of its own
	@$(PY) -m tests.engines.vllm_venv
	$(PY) -m pytest -m vllm tests/engines $(ARGS)

check: $(VENV)/.dev ## ruff, mypy --strict, import-linter, no marks of a merge left behind
	! git grep -n -E '^(<<<<<<<|>>>>>>>) '
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

bench: install $(VENV)/.dev ## the benchmarks, side by side, printed as tables and written to bench/results/*.json
	$(PY) -m bench

format: $(VENV)/.dev ## let ruff rewrite what it can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

lock: ## resolve pyproject.toml into both lock files again (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dev -o requirements-dev.lock pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes -c requirements-dev.lock -o requirements.lock pyproject.toml

clean: ## remove the virtual environments and every cache of the tools
	rm -rf $(VENV) .venv-vllm .mypy_cache .ruff_cache .pytest_cache .hypothesis build
