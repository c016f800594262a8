# Each target does its own set-up: Python 3.11+ and make are all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check bench clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

demo: $(READY)  ## the main job on a shipped real log
	$(BIN)/ds4scope triage fixtures/captures/a-steal-sequential-11k/server.log
	$(BIN)/ds4scope triage fixtures/seeds/slot-steal.md
	$(BIN)/ds4scope triage fixtures/seeds/image-tail-miss.md

test: $(READY)  ## all tests
	$(BIN)/pytest -n auto

check: $(READY)  ## lint, format, types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## the figures in docs/performance.md
	$(BIN)/python benchmarks/parse.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/mlx.py
	$(BIN)/python benchmarks/tui.py

clean:
	rm -rf $(VENV) dist build bench-data
