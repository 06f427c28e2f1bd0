# Verbs only; every setting is in pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

PRODUCTION := .venv-production

.PHONY: setup demo test check bench test-gpu test-emulated test-kills test-integrations test-production test-distributed docs docs-serve docs-pages docs-pictures docs-gallery test-release

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# The native engine again where its C files have changed.
NATIVE := src/manyhot/engines/native
$(NATIVE)/_native.so: $(wildcard $(NATIVE)/*.[ch]) | $(STAMP)
	@$(BIN)/python hatch_build.py || true

setup: $(NATIVE)/_native.so

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
# One thread for each test process: they multiply, and so do the workers of torch's compiler. Neighbouring tests share kernels,
# so each process gets a stretch of them, and takes from others when it is done.
test-gpu:
	PYTHONPATH=src CUBLAS_WORKSPACE_CONFIG=:4096:8 OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1 $(PYTHON) -m pytest -m gpu -n 14 --dist worksteal -p no:benchmark tests

# The native engine in every instruction set: those of this processor as they are, NEON on an emulated ARM processor. Debian:
# qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross.
test-emulated: setup
	@for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do command -v $$tool > /dev/null || { echo "needs $$tool"; exit 1; }; done
	@$(BIN)/python -c "from manyhot.engines.native.library import variants; print('here:', *variants())"
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/engines/native

# Fifty kills of every command that writes, where make test has a few.
test-kills: setup
	MANYHOT_KILLS=50 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/training/run/test_kills.py tests/training/run/test_rank_kills.py tests/cli/test_kills.py tests/cli/test_writing.py

# What a model in production needs (serve, onnx), in an environment of its own. torch comes first: that takes a CPU build.
$(PRODUCTION)/.installed: pyproject.toml constraints.txt constraints-production.txt
	$(PYTHON) -m venv $(PRODUCTION)
	$(PRODUCTION)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(PRODUCTION)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --constraint constraints-production.txt --editable '.[test-production]'
	touch $@

test-production: $(PRODUCTION)/.installed
	OMP_NUM_THREADS=1 $(PRODUCTION)/bin/pytest -n 2 tests/serve tests/export src/manyhot/serve src/manyhot/export

# Ray and Spark in an environment of their own; Spark wants a Java runtime (Debian: default-jre-headless).
DISTRIBUTED := .venv-distributed
$(DISTRIBUTED)/.installed: pyproject.toml constraints.txt constraints-distributed.txt
	$(PYTHON) -m venv $(DISTRIBUTED)
	$(DISTRIBUTED)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(DISTRIBUTED)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --constraint constraints-distributed.txt --editable '.[test-distributed]'
	touch $@

test-distributed: $(DISTRIBUTED)/.installed
	OMP_NUM_THREADS=1 $(DISTRIBUTED)/bin/pytest tests/distributed

# Other people's frameworks in an environment of their own. torch comes first: that takes a CPU build. The rest is pinned whole and
# installed as it stands: nothing is to be resolved, and fastai does not bring a torchvision that does not fit this torch.
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
	OMP_NUM_THREADS=1 $(WITH)/pytest --integrations -n 2 tests/integrations tests/test_estimator_frames.py \
	  docs/integrations docs/coming-from/huggingface.md docs/coming-from/spacy.md src/manyhot/integrations

# The documentation site, in an environment of its own that is pinned whole and has no torch: pages that need one are made by
# make docs-pages and kept in docs/.
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

# The parts of docs/ that Python knows: public names, commands and flags, facts and pictures of the losses. Tests hold them in step.
docs-pages: setup
	$(BIN)/python tests/api_page.py
	$(BIN)/python website/command_page.py
	$(BIN)/python website/loss_pages.py
	$(BIN)/python website/loss_pictures.py
	$(BIN)/python website/step_picture.py
	$(BIN)/python website/gallery_page.py

# The pictures of the start page, and the runs of the gallery. MANYHOT_DATA names the folder with the data sets.
docs-pictures: setup
	$(BIN)/python website/pictures.py --data $(MANYHOT_DATA)

docs-gallery: setup $(DOCS)/.installed
	$(BIN)/python website/gallery.py --data $(MANYHOT_DATA)
	$(DOCS)/bin/python website/gallery_pictures.py
	$(BIN)/python website/gallery_page.py

# Source distribution and wheels as a release has them: built in a clean copy, installed in clean environments without and with a
# compiler, typed from outside, licences of all dependencies.
.venv-release/.installed: constraints-release.txt
	$(PYTHON) -m venv --clear .venv-release
	.venv-release/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement constraints-release.txt
	touch $@

test-release: setup .venv-release/.installed
	$(BIN)/pytest --release tests/release tests/website/test_version.py
