# Commands only; all settings are in pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

PRODUCTION := .venv-production
# A test that hangs shows where after ten minutes, and fails.
BOUNDED := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

.PHONY: setup demo test check bench test-gpu test-emulated test-kills test-integrations test-production test-distributed docs docs-serve docs-pages docs-pictures docs-gallery test-release

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# Rebuilds the native engine if its C files have changed.
NATIVE := src/manyhot/engines/native
$(NATIVE)/_native.so: $(wildcard $(NATIVE)/*.[ch]) | $(STAMP)
	@$(BIN)/python hatch_build.py || true

setup: $(NATIVE)/_native.so

demo: setup
	$(BIN)/manyhot demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest $(BOUNDED) -m "not gpu" -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks.cpu_engine --threads 2
	$(BIN)/python -m benchmarks.metrics --device cpu --threads 2
	$(BIN)/python -m benchmarks.tuning

# For a machine with a CUDA device and the dependencies installed; uses the machine's own Python.
# Nearly all of the time is the compilation of kernels. The 16 test processes, for 16 cores, have one thread and one compiler worker
# each; more would compete for the cores. Neighbouring tests share kernels, so each process gets a contiguous block of tests, and
# takes tests from other processes when it is done.
test-gpu:
	PYTHONPATH=src CUBLAS_WORKSPACE_CONFIG=:4096:8 OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1 $(PYTHON) -m pytest -m gpu -n 16 --dist worksteal --durations=40 -p no:benchmark tests

# The native engine in every instruction set: those of this processor directly, NEON on an emulated ARM processor. Debian
# packages: qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross.
test-emulated: setup
	@for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do command -v $$tool > /dev/null || { echo "needs $$tool"; exit 1; }; done
	@$(BIN)/python -c "from manyhot.engines.native.library import variants; print('here:', *variants())"
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/engines/native

# Kills every command that writes fifty times; make test does so only a few times.
test-kills: setup
	MANYHOT_KILLS=50 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/training/run/test_kills.py tests/training/run/test_rank_kills.py tests/cli/test_kills.py tests/cli/test_writing.py

# Serving and ONNX export, in a separate environment. torch is installed first, to get its CPU build.
$(PRODUCTION)/.installed: pyproject.toml constraints.txt constraints-production.txt
	$(PYTHON) -m venv $(PRODUCTION)
	$(PRODUCTION)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(PRODUCTION)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --constraint constraints-production.txt --editable '.[test-production]'
	touch $@

test-production: $(PRODUCTION)/.installed
	OMP_NUM_THREADS=1 $(PRODUCTION)/bin/pytest $(BOUNDED) -n 2 tests/serve tests/export src/manyhot/serve src/manyhot/export

# Ray and Spark, in a separate environment; Spark needs a Java runtime (Debian: default-jre-headless).
DISTRIBUTED := .venv-distributed
$(DISTRIBUTED)/.installed: pyproject.toml constraints.txt constraints-distributed.txt
	$(PYTHON) -m venv $(DISTRIBUTED)
	$(DISTRIBUTED)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(DISTRIBUTED)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --constraint constraints-distributed.txt --editable '.[test-distributed]'
	touch $@

test-distributed: $(DISTRIBUTED)/.installed
	OMP_NUM_THREADS=1 $(DISTRIBUTED)/bin/pytest tests/distributed

# Other frameworks, in a separate environment. torch is installed first, to get its CPU build. All other packages are pinned and
# installed without resolving dependencies, because fastai would bring a torchvision that does not match this torch.
WITH := .venv-integrations/bin
PIP := pip install --quiet --disable-pip-version-check
.venv-integrations/.installed: constraints-integrations.txt
	$(PYTHON) -m venv --clear .venv-integrations
	$(WITH)/$(PIP) --constraint constraints-integrations.txt torch
	$(WITH)/$(PIP) --no-deps --requirement constraints-integrations.txt
	touch $@

.venv-integrations/.linked: .venv-integrations/.installed pyproject.toml
	$(WITH)/$(PIP) --no-deps --editable .
	touch $@

test-integrations: .venv-integrations/.linked
	OMP_NUM_THREADS=1 $(WITH)/pytest $(BOUNDED) --integrations -n 2 tests/integrations tests/test_estimator_frames.py \
	  docs/integrations docs/coming-from/huggingface.md docs/coming-from/spacy.md src/manyhot/integrations

# The documentation site, in a separate environment with pinned packages and without torch. Pages that need torch are generated by
# make docs-pages and stored in docs/.
DOCS := .venv-docs
$(DOCS)/.installed: constraints-docs.txt
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement constraints-docs.txt
	touch $@

docs: $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	$(DOCS)/bin/pytest website/tests

docs-serve: $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve

# The parts of docs/ that are generated from the code: public names, commands and flags, facts and pictures of the losses. Tests fail
# if they are out of date.
docs-pages: setup
	$(BIN)/python tests/api_page.py
	$(BIN)/python website/command_page.py
	$(BIN)/python website/loss_pages.py
	$(BIN)/python website/loss_pictures.py
	$(BIN)/python website/step_picture.py
	$(BIN)/python website/gallery_page.py

# The pictures of the start page, and the runs of the gallery. The variable MANYHOT_DATA names the folder with the data sets.
docs-pictures: setup
	$(BIN)/python website/pictures.py --data $(MANYHOT_DATA)

docs-gallery: setup $(DOCS)/.installed
	$(BIN)/python website/gallery.py --data $(MANYHOT_DATA)
	$(DOCS)/bin/python website/gallery_pictures.py
	$(BIN)/python website/gallery_page.py

# Tests of a release: source distribution and wheels are built in a clean copy and installed in clean environments, with and without a
# compiler; types are checked from outside the package, and the licences of all dependencies.
.venv-release/.installed: constraints-release.txt
	$(PYTHON) -m venv --clear .venv-release
	.venv-release/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement constraints-release.txt
	touch $@

test-release: setup .venv-release/.installed
	$(BIN)/pytest --release tests/release tests/website/test_version.py
