# The two commands a newcomer needs: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEV_STAMP := .venv/.installed-dev

.PHONY: run setup verified test docs coverage browser bench storm peers lock audit sbom clean

run: setup
	$(BIN)/fedadb compare --algorithms fedavg,fedadb --seeds 0,1,2

setup: $(STAMP)
	@$(BIN)/python -m fedadb.kernels

test: $(DEV_STAMP) browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n auto --dist loadgroup -m 'not slow' --durations 12

# The documentation site, in build/site: open index.html there. Any warning fails.
docs: $(DEV_STAMP)
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build

# Lines that the tests reach, without the processes of a real federation.
coverage: $(DEV_STAMP)
	$(BIN)/pytest -n auto --dist loadgroup -m 'not slow' --cov --cov-report term:skip-covered

# As `setup`, but every package except torch must have a hash of constraints.hashes.txt.
verified:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep ^torch== constraints.txt)"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement constraints.hashes.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(STAMP) $(DEV_STAMP)

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
	$(BIN)/python -m benchmarks.filter_cost
	$(BIN)/python -m benchmarks.data_loading
	$(BIN)/python -m benchmarks.report_size
	$(BIN)/python benchmarks/federation_overhead.py
	$(BIN)/python benchmarks/ray_overhead.py
	$(BIN)/python -m benchmarks.speed --peers .venv-peers/bin/python --blazefl .venv-blazefl/bin/python --leave-out '$(LEAVE_OUT)'

# Searches for holes, for minutes to hours; docs/reliability.md has what it found. Every part runs, also if one fails.
storm: $(DEV_STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[storm]'
	@status=0; for part in kills federations fuzz guided hostile stranger network ray load; do \
		$(BIN)/python -m storm $$part --seed $(or $(SEED),0) --out $(or $(OUT),storm-results) || status=1; \
	done; exit $$status

# Other simulators, in environments of their own.
peers: .venv-peers/.installed
	@$(if $(findstring blazefl,$(LEAVE_OUT)),true,$(MAKE) --no-print-directory .venv-blazefl/.installed) \
	|| echo "BlazeFL cannot be installed here: the comparison leaves it out"

.venv-peers/.installed: constraints.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check "$$(grep ^torch== constraints.txt)"
	.venv-peers/bin/pip install --quiet --disable-pip-version-check 'flwr[simulation]==1.41.0' pfl==0.6.0 nvflare==2.9.0
	touch $@

# BlazeFL needs Python 3.14: the one that is installed, otherwise Debian's.
PYTHON_314 ?= $(firstword $(shell command -v python3.14t; command -v python3.14))

.venv-blazefl/.installed: constraints.txt
	$(or $(PYTHON_314),.venv-blazefl/python/usr/bin/python3.14) --version 2>/dev/null || sh benchmarks/speed/debian_python.sh .venv-blazefl/python
	$(or $(PYTHON_314),.venv-blazefl/python/usr/bin/python3.14) -m venv --without-pip .venv-blazefl
	$(PYTHON) -m pip --python .venv-blazefl/bin/python install --quiet --disable-pip-version-check \
		"$$(grep ^torch== constraints.txt)" 'blazefl[contrib,reproducibility]==3.0.0'
	touch $@

# The hashes of what is in constraints.txt. uv comes with Flower.
lock: $(DEV_STAMP)
	(echo "# The packages of constraints.txt with the hashes of all their files at PyPI: \`make lock\` writes it."; \
	echo "# torch is not in it, because its builds for CPUs and GPUs differ: pip install torch first, of your choice."; \
	grep -v ^torch== constraints.txt | $(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate \
		--python-version 3.11.5 --default-index https://pypi.org/simple -) > constraints.hashes.txt.partial
	mv constraints.hashes.txt.partial constraints.hashes.txt

# Known vulnerabilities of what is in constraints.hashes.txt. It fails if it cannot ask for them.
audit: .venv-tools/.installed
	.venv-tools/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes --requirement constraints.hashes.txt

# The software bill of materials, as CycloneDX: sbom.json.
sbom: .venv-tools/.installed
	(cat constraints.hashes.txt; grep ^torch== constraints.txt) | .venv-tools/bin/cyclonedx-py requirements \
		--pyproject pyproject.toml --output-reproducible --output-format JSON --output-file sbom.json -

.venv-tools/.installed:
	test -x .venv-tools/bin/python || $(PYTHON) -m venv .venv-tools
	.venv-tools/bin/pip install --quiet --disable-pip-version-check pip-audit==2.10.1 cyclonedx-bom==7.5.0
	touch $@

clean:
	rm -rf .venv .venv-tools .venv-peers .venv-blazefl build src/*.egg-info

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $(STAMP)

$(DEV_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(DEV_STAMP)
