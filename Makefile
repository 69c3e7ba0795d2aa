# Needs Python 3.11 or later; everything else is set up by the targets themselves.
SHELL := /bin/sh
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
SETUP := $(if $(PYTHON),$(PYTHON),python3) dev/environment.py setup
RUN := $(if $(PYTHON),$(PYTHON),python3) dev/environment.py run
OTHERS := $(if $(PYTHON),$(PYTHON),python3) dev/versions.py

.DEFAULT_GOAL := help
.PHONY: help setup demo serve check format test test-full test-times test-changed test-long test-versions attack mutants bench bench-yardsticks docs lock helm wheel release clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Every day

setup: ## Create .venv from requirements.lock; find or install Java
	@$(SETUP) --java

demo: ## Delete rows from a two-million-row table, on Spark and through the service
	@$(SETUP) --java
	@$(RUN) python dev/demo.py

serve: ## Serve the tables under ./data on port 8710
	@$(SETUP)
	@mkdir -p data
	@$(RUN) delvec serve --roots ./data

check: ## Lint, types and unit tests, within a minute
	@$(SETUP)
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@DELVEC_TEST_EXAMPLES=0.1 $(RUN) pytest tests/unit tests/architecture/test_layers.py tests/architecture/test_names.py -m "not long" -n 2 -q

format: ## Format the code
	@$(SETUP)
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

test-changed: ## Run the tests of what has changed since main
	@$(SETUP) --java --jars
	@$(RUN) python dev/changed.py

test: ## Run the gate, which every change must pass (10 to 20 minutes)
	@$(SETUP) --java --jars
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) python dev/tests.py gate  # with a smoke on the newest PySpark, in an environment of its own

##@ More tests

test-full: ## Run the whole suite in parts, resuming where it stopped; PART="spark docs" chooses (about 50 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python dev/tests.py full $(if $(PART),--part $(PART))

test-times: ## Run the gate, and print which modules, fixtures and tests took the most CPU time, and what they started
	@$(SETUP) --java --jars
	@$(RUN) python dev/tests.py gate --costs

test-long: ## Run what takes many minutes; TESTS="tests/integration/large" chooses
	@$(SETUP) --java --jars
	@$(RUN) pytest -m long $(TESTS)

test-versions: ## Run tests on other PySparks and Pythons; VERSIONS="4.0 4.3" or newest, PYTHONS="3.13" and TESTS choose
	@$(OTHERS) $(if $(filter newest,$(VERSIONS)),--newest,$(if $(VERSIONS),--pyspark $(VERSIONS))) $(if $(PYTHONS),--python $(PYTHONS)) $(if $(TESTS),--tests $(TESTS))

# What each attack runs.
ATTACK_fuzz = tests.fuzz --cases 100000
ATTACK_footers = tests.fuzz --footers --cases 20000 --results .build/fuzz-footers.jsonl
ATTACK_requests = pytest tests/integration/service/test_openapi_fuzz.py tests/integration/service/test_openapi_conformance.py --timeout 3600 -n 0 -q
ATTACK_vacuum = pytest tests/unit/maintenance/vacuum/test_vacuum_attack.py --timeout 7200 -n 0 -q
ATTACK_chaos = tests.chaos --rounds 1000
ATTACK_soak = tests.chaos.soak $(if $(MINUTES),--minutes $(MINUTES))
ATTACK_dml = tests.interop.dml_campaign --scripts 300
ATTACK_races = tests.chaos.race_campaign --rounds 300 --spark-rounds 40
ATTACK_transactions = tests.chaos.transaction_campaign --histories 10000
ATTACK_catalog = tests.interop.catalog_campaign --rounds 300
ATTACKS := fuzz footers requests vacuum chaos soak dml races transactions catalog
attack: export DELVEC_FUZZ_CASES := 20000
attack: export DELVEC_CONFORMANCE_EXAMPLES := 100
attack: export DELVEC_VACUUM_CASES := 100000

attack: ## Attack with thousands of random cases, about an hour each; ON="fuzz footers requests vacuum chaos soak dml races transactions catalog" chooses
	@$(SETUP) --java --jars
	@$(foreach name,$(or $(ON),$(ATTACKS)),$(RUN) python -m $(ATTACK_$(name)) &&) true

mutants: ## Mutate the modules whose bugs lose rows, and see whether tests notice; ONLY="skipping" COUNT=5 SEED=0 SUITE=gate
	@$(SETUP)
	@$(RUN) python dev/mutants.py $(if $(ONLY),--only $(ONLY)) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(SUITE),--suite $(SUITE))

##@ Figures, documentation and delivery

# What each part of the benchmarks runs.
BENCH_reading = benchmarks --only large vectors
BENCH_commits = benchmarks --only commits
BENCH_dml = benchmarks.dml
BENCH_maintenance = benchmarks.maintenance
BENCH_starts = benchmarks.starts $(if $(AGAINST),--against $(AGAINST))
BENCH_storage = benchmarks.slow_storage
BENCH_workers = benchmarks.workers --postgresql $(POSTGRESQL)
BENCH_limits = benchmarks.spark_limits
BENCH_conversion = benchmarks.iceberg
BENCH_iceberg = benchmarks.iceberg_readers
BENCH_wide = benchmarks.wide_tables
BENCH_ratifications = benchmarks.ratifications
BENCH_merge-grid = benchmarks.merge_grid
BENCH_longevity = benchmarks.longevity
BENCH_small-writes = benchmarks.small_writes

bench: ## Measure beside peers for docs/benchmarks.md (an hour); PART="reading commits dml maintenance starts storage workers limits conversion iceberg wide ratifications merge-grid longevity small-writes" chooses
	@$(SETUP) --java --jars
	@$(if $(PART),$(foreach name,$(PART),$(RUN) python -m $(BENCH_$(name)) &&) true,$(RUN) python -m benchmarks)

bench-yardsticks: ## Measure work that others defined: Delta's MERGE benchmark, a table that lives, small writes (about 50 minutes)
	@$(MAKE) bench PART="merge-grid longevity small-writes"

docs: ## Build the documentation as a site into .build/site, with strict links
	@$(SETUP)
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build

lock: ## Update requirements.lock from pyproject.toml
	@$(RUN) pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --upgrade \
	  --extra service --extra spark --extra postgres --extra aws --extra traces --extra docs --extra dev --output-file requirements.lock pyproject.toml
	@cp requirements.lock requirements-image.lock
	@$(RUN) pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --all-build-deps \
	  --extra local --extra postgres --extra aws --extra traces --output-file requirements-image.lock pyproject.toml

helm: ## Build Helm with Go (about 4 minutes, once), copy dashboards and rules into the chart, and test it
	@test -x .build/helm/helm || GOBIN=$(CURDIR)/.build/helm GOFLAGS=-p=2 go install helm.sh/helm/v3/cmd/helm@v3.22.0
	@mkdir -p helm/delvec/files/dashboards helm/delvec/files/rules
	@cp monitoring/grafana/*.json helm/delvec/files/dashboards/
	@cp monitoring/prometheus/*.yaml helm/delvec/files/rules/
	@$(RUN) pytest tests/helm -q

wheel: ## Build the wheel into dist/
	@$(SETUP)
	@$(RUN) python -m build --wheel --outdir dist

release: ## Build wheel, sdist, chart, SBOM, notes and checksums into dist/, which must be empty
	@$(SETUP)
	@$(RUN) python dev/release.py

clean: ## Remove what the targets made, except .venv
	rm -rf dist .build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
