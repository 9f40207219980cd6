# The two commands a newcomer needs: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEV_STAMP := .venv/.installed-dev

.PHONY: run setup test browser bench peers clean

run: setup
	$(BIN)/fedadb compare --algorithms fedavg,fedadb

setup: $(STAMP)

test: $(DEV_STAMP) browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n auto --dist loadgroup -m 'not slow' --durations 12

# For the tests of the report's page; where it cannot be installed they are skipped.
browser:
	@command -v chromedriver >/dev/null \
	|| { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 \
	|| echo "no chromium here: the page is not tested in a browser"

# LEAVE_OUT=flower,resnet18 leaves out parts of the longest two.
bench: $(DEV_STAMP) peers
	$(BIN)/python benchmarks/engine_overhead.py
	$(BIN)/python -m benchmarks.kernels
	$(BIN)/python -m benchmarks.breakdown
	$(BIN)/python benchmarks/scaling.py --leave-out '$(LEAVE_OUT)'
	$(BIN)/python -m benchmarks.round_memory
	$(BIN)/python benchmarks/fedadb_cost.py
	$(BIN)/python benchmarks/algorithm_cost.py
	$(BIN)/python -m benchmarks.data_loading
	$(BIN)/python -m benchmarks.report_size
	$(BIN)/python benchmarks/federation_overhead.py
	$(BIN)/python benchmarks/ray_overhead.py
	$(BIN)/python -m benchmarks.speed --peers .venv-peers/bin/python --leave-out '$(LEAVE_OUT)'

# Other simulators, in an environment of their own.
peers: .venv-peers/.installed

.venv-peers/.installed: constraints.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check "$$(grep ^torch== constraints.txt)"
	.venv-peers/bin/pip install --quiet --disable-pip-version-check 'flwr[simulation]==1.41.0' pfl==0.6.0 nvflare==2.9.0
	touch $@

clean:
	rm -rf .venv .venv-peers build src/*.egg-info

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $(STAMP)

$(DEV_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(DEV_STAMP)
