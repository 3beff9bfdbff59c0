# Every target makes the environment it needs; the second call finds a stamp and starts at once.
# All that must be there already is Python 3.11 or newer and make.

PYTHON ?= python3
VENV   ?= .venv
# What `make gpu-carry` fills, and `make gpu-check` uses where it is there.
CARRIED ?= out/gpu
# Test processes: as many as the smallest machine we care for has cores.
JOBS   ?= 2

BIN := $(VENV)/bin
# Modules that are imported are compiled then; all others never, which halves the time that an environment takes.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --quiet
# And kept, whatever the environment says: each of the processes that tests start would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-emulated lint types docs bench bench-jacobian bench-plans gpu-check gpu-carry public-names clean
.DELETE_ON_ERROR:
# Two pips in one environment get in each other's way.
.NOTPARALLEL:

help:
	@echo 'make demo          train a network on real handwritten digits; two pictures land in out/'
	@echo 'make test          the whole test suite, doctests included'
	@echo '                   a part of it: $(BIN)/python -m pytest tests/tape -k nested'
	@echo 'make test-emulated the tests whose tensors can be elsewhere, on the emulated CUDA device (needs g++)'
	@echo 'make lint          ruff and mypy (make types: mypy alone)'
	@echo 'make docs          the manual, into docs/_build/html'
	@echo 'make bench         time gradtape against the peers that are installed'
	@echo 'make bench-jacobian  only Jacobians; a table, JSON and a picture of growth land in out/'
	@echo 'make bench-plans   only whole programs, traced and compiled; a table, JSON and a picture land in out/'
	@echo 'make gpu-check     on a machine with an NVIDIA GPU: is everything right there, and how fast is it? Needs no network'
	@echo '                   DRY_RUN=1: the same on the emulated device; CARRIED=FOLDER, WHEELS=FOLDER: what came along'
	@echo 'make gpu-carry     fill CARRIED=$(CARRIED) for a machine without a network'
	@echo 'make public-names  rewrite the list of public names after a change that is meant'
	@echo 'make clean         remove environments, caches and build products'
	@echo 'Variables: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS)'

# ---- environments: one folder, one stamp for each set of extras ------------------------------------------------------

$(VENV)/made:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "gradtape needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Name another one: make PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/demo-installed: $(VENV)/made pyproject.toml
	$(PIP) -e '.[demo]'
	@touch $@

# dev includes demo, so that `make demo` after `make test` has nothing left to install.
$(VENV)/dev-installed: $(VENV)/made pyproject.toml
	$(PIP) -e '.[dev]'
	@touch $(VENV)/demo-installed $@

$(VENV)/docs-installed: $(VENV)/made pyproject.toml
	$(PIP) -e '.[docs]'
	@touch $@

# ---- what people call ------------------------------------------------------------------------------------------------

demo: $(VENV)/demo-installed
	$(BIN)/python examples/digits.py

# The processes share the cores; BLAS threads of their own would only wait for each other.
test: $(VENV)/dev-installed
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --doctest-modules tests gradtape

# All but the folders and files that tests/devices.py names, each with the reason why a device changes nothing there. Kernels are
# kept from one run to the next (tests/cuda_emulator), so that the second is faster.
test-emulated: $(VENV)/dev-installed
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --device emulated --doctest-modules tests gradtape

lint: $(VENV)/dev-installed types
	$(BIN)/ruff check .

types: $(VENV)/dev-installed
	$(BIN)/mypy

docs: $(VENV)/docs-installed
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "the manual starts at docs/_build/html/index.html"

bench: $(VENV)/dev-installed
	$(BIN)/python -m benchmarks.run

bench-jacobian: $(VENV)/dev-installed
	$(BIN)/python -m benchmarks.jacobian_run

bench-plans: $(VENV)/dev-installed
	$(BIN)/python -m benchmarks.plans_run

# On a GPU's machine the interpreter is the one that has CuPy: $(PYTHON), with wheels for what it lacks.
ifdef DRY_RUN
gpu-check: $(VENV)/dev-installed
	$(BIN)/python -m tools.gpu_check --dry-run
else
gpu-check:
	$(PYTHON) -m tools.gpu_check $(if $(wildcard $(CARRIED)),--carried $(CARRIED)) $(if $(WHEELS),--wheels $(WHEELS))
endif

gpu-carry: $(VENV)/dev-installed
	$(BIN)/python -m tools.gpu_check.prepare --folder $(CARRIED) $(if $(ARCHITECTURES),--architectures $(ARCHITECTURES))

public-names: $(VENV)/dev-installed
	$(BIN)/python tests/structure/test_public_names.py

clean:
	rm -rf $(VENV) build dist out docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
