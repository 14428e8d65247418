# One front door; `make help` lists what is behind it.
.DEFAULT_GOAL := build
JOBS ?= $(shell nproc)
release := build/release
# For root in a clone of another user, who could not write to files that root has built.
owner := $(subst :, ,$(shell stat -c %u:%g $(firstword $(wildcard $(release)) .)))
as_owner := $(if $(filter 0,$(shell id -u)),$(if $(filter-out 0,$(firstword $(owner))),setpriv --reuid=$(firstword $(owner)) --regid=$(lastword $(owner)) --clear-groups env -u HOME))

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

.PHONY: setup
setup: ## install what building and testing need, or list it where nothing can be installed
	@./setup

# Shows only the messages of CMake about parts that are left out.
.PHONY: configure
configure:
	@log=$$(mktemp) && { cmake --preset release -Wno-dev >$$log 2>&1 || { cat $$log; exit 1; }; }; sed -n 's/^-- \(page: not built.*\|missing: .*\)/\1/p' $$log; rm -f $$log

.PHONY: check-setup
check-setup:
	@./setup --check

.PHONY: build
build: check-setup configure ## list what is missing, build everything into build/release
	@cmake --build --preset release -j $(JOBS) --target all benches

.PHONY: run
run: setup configure ## set up, build the command, and serve a sample deployment on every device of this machine
	@cmake --build --preset release -j $(JOBS) --target berth_command example_tiles
	@scripts/run-fleet $(release)/berth $(release)/examples/tiles

.PHONY: test
test: setup configure ## set up, build, run every test that can run on this machine, and list what was skipped
	@cmake --build --preset release -j $(JOBS)
	@cd $(release) && ctest --output-on-failure -j $$((4 * $(JOBS))) --no-tests=error # many of them mostly wait
	@scripts/skips $(release)

.PHONY: quick
quick: ## two minutes: formatting, tidy, and the tests of the folders that differ from origin/main
	@scripts/quick

.PHONY: test-matrix
test-matrix: ## after make test: run tests in simulated environments: other names, languages, users, no OpenCL, eight GPUs, busy (ALL=1: every test)
	@scripts/test-matrix $(if $(ALL),--all)

.PHONY: reference
reference: ## build the reference of the library's API into build/reference/html; a warning is an error
	@scripts/reference

.PHONY: install
install: ## build and install the library and the command under PREFIX (default /usr/local); as root it builds as the owner of the clone
	@$(as_owner) $(MAKE) --no-print-directory installed
	@cmake --install $(release) --prefix $(or $(PREFIX),/usr/local)
	@$(if $(as_owner),chown --reference=$(release) $(release)/install_manifest.txt)
	@echo "for one ledger in /run/berth now instead of after the next boot: sudo systemd-tmpfiles --create berth.conf"

# Everything that is installed, without tests and benchmarks.
.PHONY: installed
installed: check-setup configure
	@cmake --build --preset release -j $(JOBS) --target installed

.PHONY: deb
deb: ## build the command and the library and package them for Debian into build/deb
	@$(as_owner) $(MAKE) --no-print-directory installed
	@$(as_owner) scripts/deb $(release)

.PHONY: gpu-bundle
gpu-bundle: ## collect what a GPU machine without a network lacks
	@scripts/gpu-bundle

.PHONY: gpu-test
gpu-test: ## on a GPU machine: build, test, measure, write results.json
	@scripts/gpu-test $(RESULTS)

.PHONY: gpu-bench
gpu-bench: ## on a GPU machine: the benchmarks that need one
	@scripts/gpu-bench

.PHONY: gpu-gateway
gpu-gateway: configure ## on a GPU machine: stream answers of two language models on one GPU through a gateway, and kill one (RESULTS=file)
	@cmake --build --preset release -j $(JOBS) --target berth_command
	@scripts/gpu-gateway $(release)/berth $(RESULTS)

.PHONY: bench
bench: build ## run every benchmark beside its peer and write docs/benchmarks.md
	@scripts/bench $(release)/bench

.PHONY: dispatch-table
dispatch-table: build ## request-dispatch goals on recorded traces (TRACES=folder)
	@scripts/dispatch-table $(TRACES)

.PHONY: soak
soak: build ## the scheduler and its workers under faults, then every test again and again (MINUTES=10 each)
	@scripts/soak $(or $(MINUTES),10) $(release)

.PHONY: mutants
mutants: build ## break one safety law after the other on purpose; each must turn its test red
	@scripts/mutants

.PHONY: fuzz
fuzz: ## run libFuzzer on the parsers of untrusted input (FUZZ_SECONDS=60 for each of six)
	@scripts/fuzz $(or $(FUZZ_SECONDS),60)

.PHONY: nightly
nightly: ## run every check, with a summary: tests, strict limits, every environment, mutant, sanitizer, source alone, lint, fuzzing, benchmarks, soak, seeds, faults, chaos
	@scripts/nightly

.PHONY: fresh-test
fresh-test: ## the two commands in a clean Debian 12 made with debootstrap (root, network)
	@scripts/fresh-test

.PHONY: deb-test
deb-test: check-setup configure ## install, upgrade and remove the packages in a clean Debian 12 (root, network)
	@scripts/deb-test

.PHONY: lint
lint: ## run clang-tidy on the folders that decide, charge, share, or read untrusted input; check and lint the page
	@scripts/lint

.PHONY: format
format: ## clang-format every source
	@git ls-files '*.cpp' '*.hpp' '*.cu' | xargs clang-format-19 -i
