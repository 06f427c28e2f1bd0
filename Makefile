# Verbs only; every setting is in pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test check bench test-gpu test-kills

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

setup: $(STAMP)

demo: setup
	$(BIN)/manyhot demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not gpu" -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks.cpu_engine --threads 2
	$(BIN)/python -m benchmarks.metrics --device cpu --threads 2
	$(BIN)/python -m benchmarks.tuning

# On a machine with a CUDA device and the dependencies installed; uses its own Python.
test-gpu:
	PYTHONPATH=src CUBLAS_WORKSPACE_CONFIG=:4096:8 $(PYTHON) -m pytest -m gpu -n 14 -p no:benchmark tests

# Fifty kills of a training run where make test has five.
test-kills: setup
	MANYHOT_KILLS=50 $(BIN)/pytest tests/training/run/test_kills.py
