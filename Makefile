# Everything here works on a fresh machine with Python 3.11, make and git. All targets use .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Three times the cores of a small machine: tests of phones and servers wait more than they compute.
WORKERS ?= 6
PHONE_TESTS := tests/android tests/contract/test_device_contract.py tests/contract/test_phone_contract.py

.PHONY: install develop sbom test test-fast test-core omissions test-lowest test-newest test-android test-phone soak fault-matrix check quickstart docs format lock benchmarks evidence wheels release-check clean

# What running needs, and both packages of this checkout.
install: $(VENV)/installed

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/installed: requirements/runtime.txt requirements/build.txt pyproject.toml virtual/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "benchfarm needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable . --editable virtual
	touch $@

# And what tests, checks and the lock need.
develop: $(VENV)/developing

$(VENV)/developing: $(VENV)/installed requirements/pinned.txt
	$(PIP) --require-hashes -r requirements/pinned.txt
	touch $@

# LiteRT-LM's command, in an environment of its own: it needs another protobuf than TensorFlow.
$(VENV)/litert-lm/installed: requirements/litert_lm.txt
	$(PYTHON) -m venv $(VENV)/litert-lm
	$(VENV)/litert-lm/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

# A file's tests go to one worker, so that what they share is made once.
# What tests use beside Python packages: Debian's adb (an old server), Chromium, PostgreSQL, a C compiler, mksh, toybox. Tests that need one that
# is missing are skipped on a laptop and fail where CI is set.
test: develop $(VENV)/litert-lm/installed
	sh tests/system_packages.sh
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS)

# For the daily loop: no servers, no processes, nothing that computes for a second: one worker for each core.
test-fast: develop
	$(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder -m "not slow" $(or $(TESTS),tests/unit tests/extensions)

# The device contract and the real benchmark_model over phones made of Android's own adbd, mksh and toybox (Debian's
# packages, fetched once), each in namespaces of its own. It takes root with CAP_SYS_ADMIN, else all is skipped.
test-android: develop
	sh tests/system_packages.sh
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --phone=real $(or $(TESTS),$(PHONE_TESTS))

# The same contract over your own phone: make test-phone SERIAL=... ; DESTRUCTIVE=1 reboots it, too.
test-phone: develop
	$(BIN)/python -m pytest --force-reruns 0 --phone=cable --serial=$(SERIAL) $(if $(DESTRUCTIVE),--destructive) \
		$(filter-out tests/android,$(PHONE_TESTS))

# A night of many virtual phones with faults from a seed: what is stored must be as without faults.
soak: develop
	SOAK_PHONES=$${SOAK_PHONES:-50} SOAK_CASES=$${SOAK_CASES:-2000} $(BIN)/python -m pytest -q -s --force-reruns 0 tests/e2e/soak.py

# Every fault of a virtual phone at every phase of a run, the run and the adb server killed, a full disk, a clock that
# jumps, each step of preparing a phone; prints how often each happened and what was lost (nothing, or it fails).
# `make test` draws six cells and a few of the others.
# The same for a farm of many hosts on PostgreSQL.
fault-matrix: develop
	FAULT_MATRIX=all $(BIN)/python -m pytest -q -s --force-reruns 0 tests/e2e/test_fault_matrix.py tests/e2e/test_fault_deaths.py \
		tests/extensions/farm/e2e/test_farm_matrix.py tests/extensions/farm/e2e/test_farm_kills.py \
		tests/integration/test_conditioning_faults.py

# The fast tests with other versions than the pinned ones: the lowest that pyproject.toml allows (a bound that doesn't hold
# is told), or the newest, on the Python that PYTHON names.
EXTRAS := --extra analytics --extra farm --extra serve
UV := $(VENV)/uv/bin/uv
$(UV):
	$(PYTHON) -m venv $(VENV)/uv
	$(VENV)/uv/bin/python -m pip install --quiet --disable-pip-version-check uv

test-lowest: RESOLUTION := lowest-direct
test-newest: RESOLUTION := highest
test-lowest test-newest: OTHER = $(VENV)/$(RESOLUTION)
test-lowest test-newest: $(UV)
	$(UV) venv --quiet --clear --python $(PYTHON) $(OTHER)
	$(UV) pip compile --quiet --python $(OTHER) --resolution $(RESOLUTION) $(EXTRAS) --no-emit-package benchfarm-virtual \
		--output-file $(OTHER)/requirements.txt pyproject.toml virtual/pyproject.toml
	$(UV) pip install --quiet --python $(OTHER) -r $(OTHER)/requirements.txt
	$(UV) pip install --quiet --python $(OTHER) --no-deps --editable . --editable virtual
	$(UV) pip install --quiet --python $(OTHER) --constraints $(OTHER)/requirements.txt \
		hypothesis packaging perfetto==0.59.1 pytest pytest-rerunfailures pytest-timeout pytest-xdist
	$(OTHER)/bin/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder -m "not slow" \
		$(or $(TESTS),tests/unit tests/extensions)

# The core's tests in a copy of this checkout without its extensions.
test-core: develop
	$(BIN)/python -m tests.without_extensions $(TESTS)

# Six first changes, each place that they need left out in turn: a test or mypy tells.
omissions: develop
	$(BIN)/python -m tests.omissions

# Benchmarks are run by hand: what they call of ours, and what they take of tests, is there, and takes what it is given by name.
NAMES_ONLY := --explicit-package-bases --allow-any-generics --no-warn-return-any --implicit-reexport \
	--disable-error-code arg-type --disable-error-code assignment --disable-error-code misc \
	--disable-error-code var-annotated --disable-error-code import-untyped --no-warn-unused-ignores

check: develop
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy $(NAMES_ONLY) benchmarks/*.py tests/samples/known_truth.py tests/samples/sample_lab.py
	MYPYPATH=benchmarks/evidence $(BIN)/mypy $(NAMES_ONLY) benchmarks/evidence/*.py
	$(BIN)/python -m pytest -q tests/test_architecture.py

quickstart: install
	$(BIN)/benchfarm quickstart

docs: install
	$(BIN)/python docs/write_commands.py

format: develop
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Pin what both pyproject.toml allow, with hashes, and without naming where packages come from. UPGRADE= keeps the
# versions that are pinned and still fit.
UPGRADE ?= --upgrade
lock: develop
	$(BIN)/uv pip compile --quiet $(UPGRADE) --python $(BIN)/python --generate-hashes --no-header --group dev $(EXTRAS) --extra models \
		--no-emit-package benchfarm-virtual --output-file requirements/pinned.txt pyproject.toml virtual/pyproject.toml
	$(PIP) --require-hashes -r requirements/pinned.txt
	$(BIN)/python requirements/bill.py

# Pins for those who only run it, and a CycloneDX bill with licences, both from the pins.
sbom: develop
	$(BIN)/python requirements/bill.py

# All that need no store that somebody filled (dictionaries.py and history.py do).
benchmarks: develop
	for file in $(filter-out %/dictionaries.py %/history.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$file || exit 1; done

# Writes docs/evidence.md from recorded noise; fails when a stated bound is missed. RECORD=--record takes the noise anew.
evidence: develop
	$(BIN)/python benchmarks/evidence $(RECORD)

# What a release publishes, in dist/.
wheels: develop
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	cd virtual && ../$(BIN)/python -m hatchling build -d ../dist

# Whether a tag, both versions and CHANGELOG.md name one release: make release-check TAG=v1.2.3
release-check:
	$(PYTHON) requirements/release.py $(TAG)

clean:
	rm -rf $(VENV) reports/out .mypy_cache .ruff_cache .pytest_cache .hypothesis
