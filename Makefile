# Two commands need nothing but Python: `make demo` and `make test`. Everything else builds on them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

.PHONY: help
help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):[^#]*## /\1\t/' | sort | awk -F'\t' '{printf "  %-16s %s\n", $$1, $$2}'

# What the demo needs, and what development needs. Each is installed once, from its lock file.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Without Debian's python3-venv a folder is left that has a python and no pip: it is made again then.
ENVIRONMENT = test -x $(BIN)/pip || { $(PYTHON) -c '$(OLD)' && $(PYTHON) -m venv $(VENV); }
OLD = import sys; sys.version_info >= (3, 11) or sys.exit("$(PYTHON) is Python %d.%d, and 3.11 or newer is needed: \
	name another one, as in make demo PYTHON=python3.11" % sys.version_info[:2])
$(VENV)/demo.stamp: requirements/demo.lock requirements/build.lock pyproject.toml
	@$(ENVIRONMENT)
	@echo "installing the locked dependencies into $(VENV) (once) ..."
	@$(INSTALL) --require-hashes -r requirements/demo.lock -r requirements/build.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: requirements/dev.lock pyproject.toml
	@$(ENVIRONMENT)
	@echo "installing the locked development dependencies into $(VENV) (once) ..."
	@$(INSTALL) --require-hashes -r requirements/dev.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/demo.stamp

.PHONY: demo
demo: $(VENV)/demo.stamp ## See it work: an embedded cluster, the service and the sample pods (DEMO_ARGS=--tour, or --once)
	@$(BIN)/dra-extender demo $(DEMO_ARGS)

# Where it is set, every process of the tests would compile the whole code again.
unexport PYTHONDONTWRITEBYTECODE

# Every worker imports all modules of tests that it collects. Those in these folders all have a mark that is left out.
LEFT_OUT := --ignore tests/e2e --ignore tests/node

.PHONY: test
test: $(VENV)/dev.stamp ## All tests that need only Python
	@$(BIN)/python -m pytest -n auto --dist worksteal $(LEFT_OUT) -m "not e2e and not image and not node"

.PHONY: thorough
thorough: $(VENV)/dev.stamp ## The properties with twenty times as many examples, after a change of what they are about (TESTS=tests/allocation)
	@$(BIN)/python -m pytest -n auto --dist worksteal -m "hypothesis and not e2e" --hypothesis-profile=thorough --timeout 3600 $(TESTS)

.PHONY: truth
truth: $(VENV)/dev.stamp ## 24,000 random clusters: every statement of why is compared with the objects, and every remedy is tried
	@$(BIN)/python -m pytest -n auto tests/insight/why/test_truth.py --hypothesis-profile=exhaustive --timeout 7200

.PHONY: image
image: $(VENV)/dev.stamp ## Build the image of the Dockerfile on a base of Debian packages, and start it (as root; needs buildah, mmdebstrap, runc)
	@$(BIN)/python -m pytest tests/packaging -m image -vv -rs

.PHONY: controlplane
controlplane: ## Build the real control plane that the end-to-end tests use (needs Go; minutes the first time)
	@$(MAKE) --no-print-directory -C tests/controlplane

.PHONY: controlplanes
controlplanes: ## Build the control planes of the main and of the second release, side by side
	@$(MAKE) --no-print-directory -j2 -C tests/controlplane releases

.PHONY: charttools
charttools: ## Build Helm and promtool, which the tests of the chart use (needs Go; minutes the first time)
	@$(MAKE) --no-print-directory -C tests/controlplane tools

.PHONY: karpenter
karpenter: ## Build Karpenter, for its test (needs Go; minutes the first time)
	@$(MAKE) --no-print-directory -C tests/controlplane karpenter

.PHONY: chart
chart: $(VENV)/dev.stamp ## Write what is generated in the chart: table of values, schema of settings, dashboard
	@$(BIN)/python -m charts

.PHONY: reference
reference: $(VENV)/dev.stamp ## Write the references in docs: commands, settings, metrics, insight over HTTP
	@$(BIN)/python -m reference

# Only the command line of make names a cluster; KUBECONFIG in the environment does not count.
CLUSTER := $(if $(filter command,$(origin KUBECONFIG)),E2E_KUBECONFIG=$(KUBECONFIG))
# K8S_VERSION=v1.36.3 builds and uses that release instead of the main one. Without E2E both are built: an upgrade is tested.
RELEASE := $(if $(K8S_VERSION),KUBEBUILDER_ASSETS=$(CURDIR)/tests/controlplane/bin/$(K8S_VERSION))

.PHONY: e2e
e2e: $(VENV)/dev.stamp $(if $(KUBEBUILDER_ASSETS),,controlplane$(if $(E2E),,s) charttools) ## The tests on a real API server and kube-scheduler (E2E=PATH: some of them; KUBECONFIG=FILE: on that cluster; K8S_VERSION=v1.36.3)
	@$(CLUSTER) $(RELEASE) $(BIN)/python -m pytest $(or $(E2E),tests/e2e tests/contract tests/chart tests/flows) -m e2e -vv

# tests/controlplane/node/go.mod names the release of kubelet and of the control plane beside it.
NODE_RELEASE = $(or $(K8S_VERSION),$(shell sed -n 's|^.*k8s.io/kubernetes \(v[0-9.]*\)$$|\1|p' tests/controlplane/node/go.mod))

.PHONY: node
node: $(VENV)/dev.stamp build/driver/locked.stamp ## The tests on a real node: kubelet, containerd and DRA drivers on this machine (as root; needs Go, Debian packages; K8S_VERSION=v1.36.3)
	@! command -v go >/dev/null || $(MAKE) --no-print-directory -C tests/controlplane all node bin/helm K8S_VERSION=$(NODE_RELEASE)
	@KUBEBUILDER_ASSETS=$(CURDIR)/tests/controlplane/bin/$(NODE_RELEASE) $(BIN)/python -m pytest tests/node -m node -vv -rs

# The tests that need nothing newer, and the answers of the API server.
SECOND := $(shell sed -n 's/^SECOND := //p' tests/controlplane/Makefile)
OF_SECOND := tests/e2e/test_acceptance_*.py tests/e2e/test_features.py tests/e2e/test_podgroups.py tests/e2e/test_takeover.py tests/contract
.PHONY: e2e-second
e2e-second: ## The acceptance tests, the features and the recorded answers on the second release, which is older
	@$(MAKE) --no-print-directory e2e K8S_VERSION=$(SECOND) E2E="$(OF_SECOND)"

# FULL=1 plays as many orders of arrival as `docs/acceptance.md` says, and the whole load.
GANG_TESTS := tests/e2e/test_gangs.py tests/e2e/test_gang_*.py tests/e2e/test_preemption.py
# Shadow mode, migration, simulations and autoscalers. New tests of adoption belong here.
ADOPTION := tests/e2e/test_shadow.py tests/service/test_shadow*.py tests/cli/test_shadow.py \
	tests/chart/test_adopt.py tests/bench/test_shadow.py tests/e2e/test_migration.py tests/insight/test_migration.py tests/cli/test_migrate.py \
	tests/e2e/test_karpenter.py tests/insight/whatif tests/http/test_simulation.py tests/cli/test_simulate.py \
	tests/http/test_expander*.py tests/service/test_provisioning.py tests/e2e/test_provisioning.py
.PHONY: adopt
adopt: $(VENV)/dev.stamp controlplane charttools karpenter ## All tests of adoption, with Karpenter and 500 pods of the in-tree plugin on a real control plane (SHADOW_PODS=60, SHADOW_SEED=2; TRACE=DIR: predictions on a part of the trace; K8S_VERSION=v1.36.3)
	@TRACE=$(TRACE) SHADOW_PODS=$(or $(SHADOW_PODS),500) $(RELEASE) $(BIN)/python -m pytest $(ADOPTION) -m "" -v

.PHONY: gangs
gangs: ## The acceptance tests of gangs on a real control plane, T0 to T8 in docs/acceptance.md (FULL=1: in full size; K8S_VERSION=v1.36.3)
	@$(if $(FULL),ORDERS=50 GANGS=200 SINGLES=200 NODES=100) $(MAKE) --no-print-directory e2e E2E="$(GANG_TESTS)"

.PHONY: gangs-second
gangs-second: ## The acceptance tests of gangs on the second release
	@$(MAKE) --no-print-directory gangs K8S_VERSION=$(SECOND)

.PHONY: bench
bench: $(VENV)/dev.stamp ## Measure selectors, allocation and filter; writes docs/performance.md (BENCH_ARGS="--only filter")
	@$(BIN)/python -m bench $(BENCH_ARGS)

.PHONY: bench-startup
bench-startup: $(VENV)/dev.stamp ## Measure a start, the first questions and a new list, up to 15,000 nodes and 100,000 claims; writes docs/performance.md (BENCH_ARGS="--nodes 5000")
	@$(BIN)/python -m bench.startup $(BENCH_ARGS)

.PHONY: bench-ablation
bench-ablation: $(VENV)/dev.stamp ## Count what each proof saves the search; writes docs/decisions/search.md (BENCH_ARGS="--deep 100000")
	@$(BIN)/python -m bench.ablation $(BENCH_ARGS)

.PHONY: bench-why
bench-why: $(VENV)/dev.stamp ## Measure `why` of refused pods among 5,000 nodes of 8 devices, and of the most expensive pods there are
	@$(BIN)/python -m bench.why

.PHONY: bench-cluster
bench-cluster: $(VENV)/dev.stamp controlplane ## Measure pods/s on a real control plane, beside the in-tree plugin (BENCH_ARGS="--rounds 1")
	@$(BIN)/python -m bench.cluster $(BENCH_ARGS)

.PHONY: bench-backlog
bench-backlog: $(VENV)/dev.stamp controlplane ## Measure 500 refused pods and 100 updates/s for 5 minutes on a real control plane: which pods wait, which are forgotten (BENCH_ARGS="--seconds 60")
	@$(BIN)/python -m bench.backlog $(BENCH_ARGS)

.PHONY: bench-placement
bench-placement: $(VENV)/dev.stamp ## Measure how full each placement policy makes a cluster, and gangs in racks; writes docs/placement.md (TRACE=DIR, BENCH_ARGS="--seeds 10")
	@$(BIN)/python -m bench.placement $(if $(TRACE),--trace $(TRACE)) $(BENCH_ARGS)

.PHONY: bench-placement-departures
bench-placement-departures: $(VENV)/dev.stamp ## Measure how full a cluster stays that pods leave as well; writes docs/placement.md (TRACE=DIR, BENCH_ARGS="--seeds 3")
	@$(BIN)/python -m bench.placement.departures $(if $(TRACE),--trace $(TRACE)) $(BENCH_ARGS)

.PHONY: bench-placement-replay
bench-placement-replay: $(VENV)/dev.stamp ## A workload end to end on the embedded cluster, first-fit beside fragmentation (TRACE=DIR, BENCH_ARGS=--real: on the real control plane)
	@$(BIN)/python -m bench.placement.replay $(if $(TRACE),--trace $(TRACE)) $(BENCH_ARGS)

.PHONY: bench-placement-shadow
bench-placement-shadow: $(VENV)/dev.stamp ## Compare what shadow mode predicts of a policy with what bench-placement measures; writes docs/placement.md (TRACE=DIR, BENCH_ARGS="--nodes 120")
	@$(BIN)/python -m bench.placement.shadow $(if $(TRACE),--trace $(TRACE)) $(BENCH_ARGS)

.PHONY: bench-page
bench-page: $(VENV)/dev.stamp ## Measure the page in Chromium and what its feed costs, with 5,000 nodes of 8 devices; writes docs/performance.md (BENCH_ARGS="--nodes 500")
	@$(BIN)/python -m bench.page $(BENCH_ARGS)

.PHONY: screenshots
screenshots: $(VENV)/dev.stamp ## Take the pictures of the page for docs/insight-operators.md, in Chromium
	@$(BIN)/python -m tests.support.page.screenshots

.PHONY: recording
recording: $(VENV)/dev.stamp ## Take the pictures of the demo in a terminal for the README, in tmux
	@$(BIN)/python -m tests.support.demo.recording

.PHONY: loadtest
loadtest: $(VENV)/dev.stamp ## Measure 30 s of filter, prioritize and bind on an embedded cluster of 500 nodes (LOADTEST_ARGS="--users 8")
	@$(BIN)/python -m loadtest $(LOADTEST_ARGS)

.PHONY: chaos
chaos: $(VENV)/dev.stamp ## Faults, crashes, replicas and other allocators: simulated from fresh seeds, then with processes, 10 minutes each (CHAOS_ARGS="--seconds 60")
	@$(BIN)/python -m tools.chaos.endurance $(CHAOS_ARGS)
	@$(BIN)/python -m tools.chaos.frontdoor $(CHAOS_ARGS)

.PHONY: explore
explore: $(VENV)/dev.stamp ## All interleavings of binds and gangs in small worlds, the deep ones too: minutes each (EXPLORE_ARGS="--only gangs", or --large)
	@$(BIN)/python -m tools.exploration.explore $(EXPLORE_ARGS)

.PHONY: flakes
flakes: $(VENV)/dev.stamp ## Quick tests 5 times and end-to-end tests 3 times on a machine kept busy; counts failures by test (FLAKES_ARGS="--unit 2 --e2e 0")
	@$(BIN)/python -m tools.flakes $(FLAKES_ARGS)

.PHONY: contention
contention: $(VENV)/dev.stamp controlplane ## Two replicas and an in-tree scheduler compete for 16 devices with 2,000 pods (CONTENTION_ARGS="--pods 500")
	@$(BIN)/python -m tools.contention $(CONTENTION_ARGS)

# With E2E=1 it takes the real control plane, which it has to be built for.
.PHONY: hostile
hostile: $(VENV)/dev.stamp $(if $(E2E),$(if $(KUBEBUILDER_ASSETS),,controlplane)) ## 300 hostile inputs for a running service: stalls of its loop, pods lost, memory kept (HOSTILE_ARGS="--seed 1 --only memory"; E2E=1: on the real control plane)
	@E2E=$(E2E) $(BIN)/python -m tools.hostile $(HOSTILE_ARGS)

.PHONY: cost
cost: $(VENV)/dev.stamp ## Draw expensive claims for 10 minutes: no decision costs more than the work that it charges (COST_ARGS="--seconds 60 --seed 1")
	@$(BIN)/python -m tests.support.allocation.costs $(COST_ARGS)

.PHONY: fuzz
fuzz: $(VENV)/dev.stamp ## 100,000 damaged request bodies for the four verbs, 50,000 damaged objects for the watches: no crash, no 500, flat memory
	@$(BIN)/python -m tests.support.http.fuzzing $(FUZZ_ARGS)
	@$(BIN)/python -m tests.support.kube.fuzzing $(FUZZ_WATCH_ARGS)

.PHONY: unit
unit: $(VENV)/dev.stamp ## The quick tests only: the inner loop
	@$(BIN)/python -m pytest -n auto --dist worksteal $(LEFT_OUT) -m "not slow and not e2e and not image and not node"

.PHONY: check
check: $(VENV)/dev.stamp ## Lint, formatting, types, directions of imports, known vulnerabilities of locked packages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/mypy
	@$(BIN)/python requirements/audit.py $(AUDIT_ARGS)

.PHONY: sbom
sbom: $(VENV)/dev.stamp ## Write the software bill of materials of the service (CycloneDX) to dist/dra-extender.cdx.json
	@$(BIN)/python -m requirements.sbom dist/dra-extender.cdx.json

.PHONY: plugin
plugin: $(VENV)/dev.stamp ## Write the archives of `kubectl dra` and its manifest for krew to dist/ (asks the package index)
	@$(BIN)/python -m requirements.plugin dist

.PHONY: format
format: $(VENV)/dev.stamp ## Format the source, and apply the fixes of ruff
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

# dev.lock holds everything; the others take its versions.
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
.PHONY: lock
lock: ## Resolve the lock files after a change of pyproject.toml (needs uv; LOCK_ARGS=--upgrade: newest versions)
	$(LOCK) pyproject.toml --extra demo --group dev $(LOCK_ARGS) -o requirements/dev.lock
	$(LOCK) pyproject.toml --extra demo -c requirements/dev.lock -o requirements/demo.lock
	$(LOCK) pyproject.toml -c requirements/dev.lock -o requirements/runtime.lock
	$(LOCK) --group build -c requirements/dev.lock -o requirements/build.lock
	$(LOCK) --group docs -c requirements/dev.lock -o requirements/docs.lock
	$(LOCK) --group driver -c requirements/dev.lock -o requirements/driver.lock

# The site's tools and the driver of other authors have environments of their own: what tests run with stays as small as it is.
DOCS := build/docs
build/%/locked.stamp: requirements/%.lock
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.PHONY: docs
docs: $(DOCS)/locked.stamp ## Build the site of the documentation into build/site; every link has to lead somewhere
	@# Not --quiet: warnings that are not logged are not counted by --strict. The variable leaves out a note on what comes after mkdocs.
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict
