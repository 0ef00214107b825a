# The two commands:  make rehearsal   make test
# The real thing:    make deploy INVENTORY=inventories/lab.py   (= pyinfra INVENTORY deploy.py)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: rehearsal test test-on-hosts test-others check deploy clean

rehearsal: $(VENV)/installed
	@$(BIN)/pyinfra-gpu rehearse

# Two processes: what the first one tests starts and watches processes without gevent, and
# importing pyinfra's command line, as the second one does, replaces those parts of Python. The
# first one mostly waits for its hosts, so the second runs beside it and is shown after it. By make
# and not by the shell's &, which would have the second one, and all it starts, ignore Ctrl-C.
test: check $(VENV)/torch
	@echo "tests/unit and tests/fake run beside the tests on hosts; their result is shown at the end"
	@$(MAKE) --no-print-directory --keep-going --jobs=2 test-on-hosts test-others; \
	  result=$$?; cat $(VENV)/test.log; exit $$result

test-on-hosts:
	@$(BIN)/python -m pytest tests/on_host tests/rehearsal

test-others:
	@$(BIN)/python -m pytest tests/unit tests/fake >$(VENV)/test.log 2>&1

check: $(VENV)/installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

deploy: $(VENV)/installed
	@test -n "$(INVENTORY)" || { echo "usage: make deploy INVENTORY=inventories/lab.py" >&2; exit 1; }
	@$(BIN)/pyinfra $(INVENTORY) deploy.py

clean:
	@test ! -x $(BIN)/pyinfra-gpu || $(BIN)/pyinfra-gpu rehearsal clean
	@rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache

# Everything that runs here is locked by version and hash; only the project itself is not.
$(VENV)/installed: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "installing the project into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps -e .
	@touch $@

# torch is for the tests of what runs on the hosts; the controller never imports it. The CPU build
# is on PyTorch's own index, unless pip is already configured with a place that has it.
$(VENV)/torch: $(VENV)/installed
	@echo "installing torch 2.13.0 (CPU) for the tests ..."
	@$(PIP) install "torch==2.13.0+cpu" numpy 2>/dev/null || \
	  $(PIP) install --extra-index-url https://download.pytorch.org/whl/cpu "torch==2.13.0+cpu" numpy
	@touch $@
