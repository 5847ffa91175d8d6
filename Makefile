# make bench            measure torch and numpy of requirements.txt on this machine, build the page, print the answers
# make bench-here       the same for the torch and numpy you already have: make bench-here PYTHON=python3
# make wheels           what bench-here installs, for a machine without network: make wheels PYTHON=python3.12 here, then
#                       make bench-here WHEELS=wheels there
# make test             lint and all tests
# make test-fast        the tests that start no asv, make no environment, build no whole pages and take no seconds
# make test-oldest      contracts and a quick run with the oldest Python, torch and numpy that the suite supports
# make test-newest      the same with the newest there are, on Python 3.14 or newer; both take some minutes, and a PYTHON=...
# make test-libraries   arrays of pandas, polars, JAX and others, of the releases in tests/libraries.txt
# make report           build the pages of all machines, and of their histories, from reports/results
# make site             pages, feed, data and asv's own site in .asv/site, for any web server
# make benchmarks.json  describe benchmarks/ anew in reports/results, after a change there
# make check            is the suite's timing honest here? compares it with torch.utils.benchmark
PYTHON ?= python3
PROFILE ?= quick
VENV := .venv
BIN := $(VENV)/bin
WHEELS ?=
PIP_FLAGS := --quiet --disable-pip-version-check $(if $(WHEELS),--no-index --find-links $(WHEELS))
TIMES := asv asv_runner psutil msgspec packaging
REPORTS := pandas scipy matplotlib jinja2 psutil msgspec pyyaml packaging
# Tests on all cores. Those of a file stay together and in order: some share a project that the ones before have filled
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
ARGS ?=

# Where venv finds no pip to put in, as on Debian without python3-venv, it fails and leaves a Python behind
.DELETE_ON_ERROR:
.PHONY: bench bench-here wheels can-install test test-fast test-oldest test-newest test-libraries lint report site benchmarks.json check clean newest-releases

bench: $(VENV)/installed
	$(BIN)/python scripts/run.py --profile $(PROFILE) $(ARGS)

# Installs asv and asv_runner, whose versions the timing rests on, into your environment and leaves the rest of it
# alone; the page is built by an environment of its own.
bench-here: can-install .venv-report/installed
	$(PYTHON) -m pip install $(PIP_FLAGS) -c requirements.txt $(TIMES)
	$(PYTHON) scripts/run.py --profile $(PROFILE) --report-with .venv-report/bin/python $(ARGS)

wheels:
	$(PYTHON) -m pip download $(PIP_FLAGS) -c requirements.txt -d $@ $(TIMES) $(REPORTS)

# Before anything is made: a system's own Python may refuse pip (PEP 668), a virtual environment never does
can-install:
	@$(PYTHON) -c 'import os, sys, sysconfig; managed = os.path.exists(sysconfig.get_path("stdlib") + "/EXTERNALLY-MANAGED"); \
	    allowed = sys.prefix != sys.base_prefix or os.environ.get("PIP_BREAK_SYSTEM_PACKAGES"); sys.exit(managed and not allowed and \
	    "pip may not install into this system Python: $(PYTHON) -m venv --system-site-packages ~/here && make bench-here PYTHON=~/here/bin/python")'

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# One thread each: there is a process a core already
test-fast: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(ARGS)

test-oldest: PYTHON = python3.10
test-newest: PYTHON = $(notdir $(firstword $(shell command -v python3.15 python3.14) python3.14))
test-oldest test-newest: test-%: .venv-%/installed
	.venv-$*/bin/python -m pytest -s tests/test_contracts.py tests/quick_run.py $(ARGS)

test-libraries: .venv-libraries/installed
	OMP_NUM_THREADS=1 .venv-libraries/bin/python -m pytest tests/test_libraries.py $(ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m benchmarks.core.versions
	PYTHONPATH=scripts $(BIN)/lint-imports

report: $(VENV)/installed
	$(BIN)/python scripts/report.py

site: $(VENV)/installed
	$(BIN)/python scripts/report.py --site .asv/site $(ARGS)

benchmarks.json: $(VENV)/installed
	$(BIN)/python scripts/run.py --describe

check: $(VENV)/installed
	$(BIN)/python scripts/check.py timing $(ARGS)

clean:
	rm -rf $(VENV) .venv-report .venv-oldest .venv-newest .venv-libraries .asv

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
	.venv-report/bin/python -m pip install $(PIP_FLAGS) -c requirements.txt $(REPORTS)
	@touch $@

# Of the suite's own requirements all but what is measured and what lints
.venv-oldest/installed .venv-newest/installed: .venv-%/installed: tests/%.txt requirements.txt tests/requirements.txt
	test -x $(@D)/bin/pip || $(PYTHON) -m venv $(@D)
	grep -hvE '^(torch|numpy|-r|ruff|mypy)' requirements.txt tests/requirements.txt > $(@D)/rest.txt
	$(@D)/bin/python -m pip install $(PIP_FLAGS) --upgrade -r tests/$*.txt -r $(@D)/rest.txt
	@touch $@

# tests/libraries.txt narrows what the suite's requirements leave open
.venv-libraries/installed: tests/libraries.txt requirements.txt tests/requirements.txt
	test -x $(@D)/bin/pip || $(PYTHON) -m venv $(@D)
	grep -hvE '^(-r|ruff|mypy)' requirements.txt tests/requirements.txt > $(@D)/rest.txt
	$(@D)/bin/python -m pip install $(PIP_FLAGS) -r tests/libraries.txt -r $(@D)/rest.txt
	@touch $@

.venv-newest/installed: newest-releases  # looked for anew each time
