# Two commands for a fresh machine with Python 3.11, git and make:
#   make run     installs fedcmoo and trains FedCMOO on the embedded two-digit problem
#   make test    installs fedcmoo with everything optional and passes the tests
PYTHON ?= python3
VENV ?= .venv
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: run test deployment lint types docs notebooks package clean

run: $(VENV)/.installed
	$(VENV)/bin/fedcmoo run

test: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pytest -n 2 --dist worksteal -m "not deployment"

deployment: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pytest -m deployment

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

types: $(VENV)/.installed-dev
	$(VENV)/bin/mypy

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

# Run the tutorials and store their outputs.
notebooks: $(VENV)/.installed-dev
	cd docs/tutorials && PATH="$(abspath $(VENV)/bin):$$PATH" jupyter execute --inplace *.ipynb

package: $(VENV)/.installed-dev
	.ci/package $(VENV)/bin/python

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache
