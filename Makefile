# The two commands:  make rehearsal   make test   (while you work: make quick)
# The real thing:    make deploy INVENTORY=inventories/lab.py   (= pyinfra INVENTORY deploy.py)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: gpu-kit rehearsal test quick night check deploy clean requirements

rehearsal: $(VENV)/installed
	@$(BIN)/pyinfra-gpu rehearsal run

# In two calls, since importing pyinfra's command line, as unit and fake do, has gevent replace the
# parts of Python that start and watch processes, which is what the other folders test. Three at a
# time, also on two cores: what hangs, boots or answers late is waited for.
PYTEST = $(BIN)/python -m pytest -q -n 3 --durations=50
ON_HOSTS = tests/on_host tests/rehearsal tests/gpu

# Types are checked while torch is unpacked: each keeps one core busy, for half a minute.
test: $(VENV)/installed
	@$(MAKE) --no-print-directory --jobs=2 check $(VENV)/torch
	@$(BIN)/python -m tests.needs --all
	@$(PYTEST) --no-skips tests/unit tests/fake
	@$(PYTEST) --no-skips $(ON_HOSTS)

# The long tables: every drift and field case, a fault before each command of a run.
night: $(VENV)/torch
	@$(BIN)/python -m tests.needs --all
	@$(PYTEST) --no-skips -m night tests/unit tests/fake
	@$(PYTEST) --no-skips -m night $(ON_HOSTS)

quick: check
	@$(BIN)/python -m tests.needs
	@$(PYTEST) tests/unit tests/fake

check: $(VENV)/installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# What `tests/gpu/run OUT` needs on a machine with GPUs, where nothing of this project is installed.
gpu-kit: $(VENV)/installed
	@$(BIN)/python tests/gpu/pack.py build/gpu-kit

deploy: $(VENV)/installed
	@test -n "$(INVENTORY)" || { echo "usage: make deploy INVENTORY=inventories/lab.py" >&2; exit 1; }
	@$(BIN)/pyinfra $(INVENTORY) deploy.py

clean:
	@test ! -x $(BIN)/pyinfra-gpu || $(BIN)/pyinfra-gpu rehearsal clean
	@rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache

# Brings requirements.lock up to date with pyproject.toml: what runs here, and what builds the project.
requirements: $(VENV)/installed
	@$(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | \
	  $(BIN)/uv pip compile --no-config --no-header --quiet --universal --generate-hashes \
	    --python-version 3.11 --extra test --extra lock --output-file requirements.lock \
	    pyproject.toml -

# Everything that runs here is locked by version and hash, and so is what builds the project itself;
# without isolation, since for a build of its own pip would fetch that without asking for a hash.
$(VENV)/installed: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  package="$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; \
	  test "$$(id -u)" = 0 && apt-get install -y -qq --no-install-recommends "$$package" || { \
	  echo "Python cannot make virtual environments; run: apt-get install $$package" >&2; exit 1; }; }
	@echo "installing the project into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# torch is for the tests of what runs on the hosts; the controller never imports it. The CPU build
# is on PyTorch's own index, unless pip is already configured with a place that has it. What is
# imported of its 2,400 modules is compiled then: all of them take 10 s of a processor.
$(VENV)/torch: $(VENV)/installed
	@echo "installing torch 2.13.0 (CPU) for the tests ..."
	@$(PIP) install --no-compile "torch==2.13.0+cpu" numpy 2>/dev/null || \
	  $(PIP) install --no-compile --extra-index-url https://download.pytorch.org/whl/cpu "torch==2.13.0+cpu" numpy
	@touch $@
