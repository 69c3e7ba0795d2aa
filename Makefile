# Needs Python 3.11 or later; everything else is set up by the targets themselves.
SHELL := /bin/sh
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
SETUP := $(if $(PYTHON),$(PYTHON),python3) dev/environment.py setup
RUN := $(if $(PYTHON),$(PYTHON),python3) dev/environment.py run
OTHERS := $(if $(PYTHON),$(PYTHON),python3) dev/versions.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full test-times check lint format types unit test-changed test-long test-versions test-newest large fuzz chaos soak dml races mutants vacuum-attack bench bench-reading bench-commits bench-dml bench-maintenance bench-starts bench-storage bench-workers bench-limits bench-iceberg serve lock helm helm-files docs wheel clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Create .venv from requirements.lock; find or install Java
	@$(SETUP) --java

demo: ## Delete rows from a two-million-row table, on Spark and through the service
	@$(SETUP) --java
	@$(RUN) python dev/demo.py

test: ## Run the gate, which every change must pass (15 minutes)
	@$(SETUP) --java --jars
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) python dev/tests.py gate  # with a smoke on the newest PySpark, in an environment of its own

test-full: ## Run the whole suite in parts, resuming where it stopped; PART="spark docs" chooses (about 50 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python dev/tests.py full $(if $(PART),--part $(PART))

test-times: ## Run the gate, and print which modules, fixtures and tests took the most CPU time, and what they started
	@$(SETUP) --java --jars
	@$(RUN) python dev/tests.py gate --costs

check: ## Lint, types and unit tests, within a minute
	@$(SETUP)
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@DELVEC_TEST_EXAMPLES=0.1 $(RUN) pytest tests/unit -m "not long" -n 2 -q

lint: ## Lint and check formatting
	@$(SETUP)
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .

format: ## Format the code
	@$(SETUP)
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

types: ## Check types
	@$(SETUP)
	@$(RUN) mypy

unit: ## Run the unit tests
	@$(SETUP)
	@$(RUN) pytest tests/unit -m "not long" -n 2 -q

test-changed: ## Run the tests of what has changed since main
	@$(SETUP) --java --jars
	@$(RUN) python dev/changed.py

test-long: ## Run the slow tests
	@$(SETUP) --java --jars
	@$(RUN) pytest -m long

test-versions: ## Run tests on other PySparks and Pythons; VERSIONS="4.0 4.3" PYTHONS="3.13" TESTS="tests/integration/spark" choose
	@$(OTHERS) $(if $(VERSIONS),--pyspark $(VERSIONS)) $(if $(PYTHONS),--python $(PYTHONS)) $(if $(TESTS),--tests $(TESTS))

test-newest: ## Run tests on the newest PySpark and the newest installed Python
	@$(OTHERS) --newest $(if $(TESTS),--tests $(TESTS))

large: ## Delete from 100 million rows, and measure memory (about 20 minutes)
	@$(SETUP) --java
	@$(RUN) pytest -m long tests/integration/large -s

fuzz: ## Damage tables in 100,000 ways, and footers in 20,000 (about an hour; resumes where it was stopped)
	@$(SETUP)
	@$(RUN) python -m tests.fuzz --cases 100000
	@$(RUN) python -m tests.fuzz --footers --cases 20000 --results .build/fuzz-footers.jsonl
	@DELVEC_FUZZ_CASES=20000 $(RUN) pytest tests/integration/service/test_openapi_fuzz.py --timeout 3600 -q
	@DELVEC_CONFORMANCE_EXAMPLES=100 $(RUN) pytest tests/integration/service/test_openapi_conformance.py --timeout 3600 -n 0 -q

vacuum-attack: ## Test what VACUUM keeps on 100,000 random tables (about 20 minutes)
	@$(SETUP)
	@DELVEC_VACUUM_CASES=100000 $(RUN) pytest tests/unit/kernel/vacuum/test_vacuum_attack.py --timeout 7200 -n 0 -q

chaos: ## Run 1,000 rounds of faults of replicas, their store and the network (about an hour)
	@$(SETUP)
	@$(RUN) python -m tests.chaos --rounds 1000

soak: ## Eight clients on three replicas that are replaced, and whose database restarts (an hour; MINUTES=60)
	@$(SETUP)
	@$(RUN) python -m tests.chaos.soak $(if $(MINUTES),--minutes $(MINUTES))

dml: ## Run random DML on both engines and delta-spark against a model (about an hour)
	@$(SETUP) --java --jars
	@$(RUN) python -m tests.interop.dml_campaign --scripts 300

races: ## Race row changes against OPTIMIZE, PURGE, Z-order, RESTORE, VACUUM, ALTER TABLE and clean-up (300 rounds each, about an hour)
	@$(SETUP) --java --jars
	@$(RUN) python -m tests.chaos.race_campaign --rounds 300 --spark-rounds 40

mutants: ## Mutate the modules whose bugs lose rows, and see whether tests notice; ONLY="skipping" COUNT=5 SEED=0 SUITE=gate
	@$(SETUP)
	@$(RUN) python dev/mutants.py $(if $(ONLY),--only $(ONLY)) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(SUITE),--suite $(SUITE))

bench: ## Measure against delta-spark and write docs/benchmarks.md (about 65 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python -m benchmarks

bench-reading: ## Measure plans of large tables and scans with deletion vectors again (about 15 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python -m benchmarks --only large vectors

bench-commits: ## Measure commits again (about 20 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python -m benchmarks --only commits

bench-dml: ## Measure row changes side by side again (about 45 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python -m benchmarks.dml

bench-maintenance: ## Measure OPTIMIZE, Z-order, PURGE and VACUUM against deltalake and delta-spark (about 30 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python -m benchmarks.maintenance

bench-starts: ## Measure starts again; AGAINST=DIR measures another checkout in turn (about 2 minutes)
	@$(SETUP)
	@$(RUN) python -m benchmarks.starts $(if $(AGAINST),--against $(AGAINST))

bench-storage: ## Measure commits on storage that is as slow as object stores (about 5 minutes)
	@$(SETUP)
	@$(RUN) python -m benchmarks.slow_storage

bench-workers: ## Measure commits by the number of workers; POSTGRESQL=URL of an empty database (about 10 minutes)
	@$(SETUP)
	@$(RUN) python -m benchmarks.workers --postgresql $(POSTGRESQL)

bench-limits: ## Measure what appends, change feeds and scans cost Spark alone (about 4 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python -m benchmarks.spark_limits

bench-iceberg: ## Measure conversions to Iceberg, how far they lag behind, and scans on Spark (about 7 minutes)
	@$(SETUP) --java --jars
	@$(RUN) python -m benchmarks.iceberg
	@$(RUN) python -m benchmarks.iceberg_readers

serve: ## Serve the tables under ./data on port 8710
	@$(SETUP)
	@mkdir -p data
	@$(RUN) delvec serve --roots ./data

lock: ## Update requirements.lock from pyproject.toml
	@$(RUN) pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --upgrade \
	  --extra service --extra spark --extra postgres --extra aws --extra traces --extra docs --extra dev --output-file requirements.lock pyproject.toml
	@cp requirements.lock requirements-image.lock
	@$(RUN) pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --all-build-deps \
	  --extra local --extra postgres --extra aws --extra traces --output-file requirements-image.lock pyproject.toml

helm: ## Build Helm with Go, for the tests of the chart (about 4 minutes, once)
	@test -x .build/helm/helm || GOBIN=$(CURDIR)/.build/helm GOFLAGS=-p=2 go install helm.sh/helm/v3/cmd/helm@v3.22.0
	@$(RUN) pytest tests/helm -q

helm-files: ## Copy dashboards and alert rules into the chart, which cannot refer to files outside it
	@mkdir -p helm/delvec/files/dashboards helm/delvec/files/rules
	@cp monitoring/grafana/*.json helm/delvec/files/dashboards/
	@cp monitoring/prometheus/*.yaml helm/delvec/files/rules/

docs: ## Build the documentation as a site into .build/site, with strict links
	@$(SETUP)
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build

wheel: ## Build the wheel into dist/
	@$(SETUP)
	@$(RUN) python -m build --wheel --outdir dist

clean: ## Remove what the targets made, except .venv
	rm -rf dist .build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
