# make bench            measure torch and numpy of requirements.txt on this machine, build the page, print the answers
# make bench-here       the same for the torch and numpy you already have: make bench-here PYTHON=python3
# make test             lint and all tests
# make report           build the pages of all machines, and of their histories, from reports/results
# make benchmarks.json  describe benchmarks/ anew in reports/results, after a change there
# make check            is the suite's timing honest here? compares it with torch.utils.benchmark
PYTHON ?= python3
PROFILE ?= quick
VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS := --quiet --disable-pip-version-check
ARGS ?=

.PHONY: bench bench-here test lint report benchmarks.json check clean

bench: $(VENV)/installed
	$(BIN)/python scripts/run.py --profile $(PROFILE) $(ARGS)

# Installs asv and asv_runner, whose versions the timing rests on, into your environment and leaves the rest of it
# alone; the page is built by an environment of its own.
bench-here: .venv-report/installed
	$(PYTHON) -m pip install $(PIP_FLAGS) -c requirements.txt asv asv_runner
	$(PYTHON) scripts/run.py --profile $(PROFILE) --report-with .venv-report/bin/python $(ARGS)

test: lint
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

report: $(VENV)/installed
	$(BIN)/python scripts/report.py

benchmarks.json: $(VENV)/installed
	$(BIN)/python scripts/describe.py

check: $(VENV)/installed
	$(BIN)/python scripts/check_timing.py $(ARGS)

clean:
	rm -rf $(VENV) .venv-report .asv

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_FLAGS) -r requirements.txt
	@touch $@

$(VENV)/installed-dev: tests/requirements.txt $(VENV)/installed
	$(BIN)/python -m pip install $(PIP_FLAGS) -r tests/requirements.txt
	@touch $@

.venv-report/installed: requirements.txt
	$(PYTHON) -m venv .venv-report
	.venv-report/bin/python -m pip install $(PIP_FLAGS) -c requirements.txt pandas scipy matplotlib jinja2 rich
	@touch $@
