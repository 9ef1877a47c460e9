# make demo    a small checkpoint from convert to text, in ./demo
# make test    all tests
# make lint    ruff, mypy and file checks, the way pre-commit runs them
# make clean   removes what the above made, the environment included
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
# what an environment is made from: it is reused while these are unchanged
INSTALL := pyproject.toml scripts/install_torch.sh

.PHONY: demo test lint clean
demo: $(VENV)/.demo
	bash scripts/demo.sh $(BIN)/dsv4-trt

test: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) $(PYTEST_ARGS)

lint: $(VENV)/.test $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pre-commit run --all-files

# cleared: an environment over one of another Python is of neither
$(VENV)/.torch: $(INSTALL)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dsv4-trt needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	bash scripts/install_torch.sh $(BIN)/python
	touch $@

$(VENV)/.demo $(VENV)/.test $(VENV)/.dev $(VENV)/.cuda: $(VENV)/.%: $(VENV)/.torch
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
