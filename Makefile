# SPDX-License-Identifier: Apache-2.0 OR MIT
# Each target first installs missing packages (scripts/setup). If that is not possible, it reports them and
# continues without the optional ones.

# A simulated board is an arm64 machine.
BENCH ?=
ARCH ?= $(if $(filter aarch64-% imx8mp versal,$(BENCH)),aarch64,$(shell uname -m))
ARGS ?=
CROSS := $(filter-out $(shell uname -m),$(ARCH))
SETUP_CROSS := $(if $(CROSS),setup-cross)

# rustup installs cargo there. Without rustup (see scripts/setup) the distribution's cargo is used.
ifndef RAMPART_NO_RUSTUP
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
endif

# What `make test` runs: three phases, one after the other. In each, the targets after | run beside those before it.
# First all builds; then the tests that wait for the clock most of the time, beside what computes; then the tests that
# compute, each on a CPU of its own.
TEST_PHASES := 'test-programs build-tests | test-modules test-scripts test-licences' \
	'test-machine | test-format images test-lints test-documentation test-dependencies test-page' \
	'test-code'

# The simulated machines' kernels, for which tests need modules.
TEST_KERNELS := bookworm bookworm/stock

# Time limit of downloads, builds and browser tests.
within := scripts/within 1800

PAGE := crates/show/web/dist/page.html
PAGE_SOURCES := $(shell find crates/show/web -name node_modules -prune -o -name dist -prune -o -type f -print 2>/dev/null)
NODE_MODULES := crates/show/web/node_modules/.package-lock.json

# Cargo uses every CPU, and apt-get cannot run twice at a time.
.NOTPARALLEL:

# A missed deadline is a result (exit code 3 of the command), and make knows only success and failure.
answered := || [ $$? = 3 ]

heading = @printf '\n== %s ==\n'

.PHONY: help
help: ## Print this list
	@echo 'make TARGET, where TARGET is one of:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' Makefile
	@echo 'make evaluate ARGS="--for 10m --deadline 100us" passes arguments on.'

.PHONY: evaluate
evaluate: setup-run build ## Evaluate this machine and print the path of the page (ARGS=...)
	bin/rampart evaluate $(ARGS) $(answered)

.PHONY: evaluate-sim
evaluate-sim: setup-sim build modules ## Do the same on a simulated real-time machine (ARGS=... ARCH=... BENCH=imx8mp)
	$(if $(CROSS),scripts/build)
	$(if $(filter aarch64,$(ARCH)),scripts/hypervisor)
	$(if $(filter aarch64-firmware%,$(BENCH)),$(within) scripts/firmware)
	bin/rampart evaluate --on sim$(addprefix :,$(or $(BENCH),$(CROSS))) $(ARGS) $(answered)

.PHONY: example-detached
example-detached: setup-sim $(SETUP_CROSS) build modules ## Run a detached control loop beside loads on a simulated machine (ARCH=...)
	$(if $(CROSS),scripts/build)
	scripts/example-detached $(ARCH)

.PHONY: modules
modules: setup-sim ## Build the kernel module for the simulated machine into bin/modules (ARCH=...)
	$(within) kernel/build --out bin/modules $(ARCH) bookworm $(if $(filter %-backports,$(BENCH)),bookworm-backports)

.PHONY: hypervisor
hypervisor: setup-build $(if $(filter aarch64,$(shell uname -m)),,setup-cross) ## Build the hypervisor for arm64 and programs for its cells into bin/hypervisor
	@scripts/hypervisor

.PHONY: truth
truth: setup-build ## Simulate evaluations and write the truth table of docs/verdicts.md
	@scripts/truth

.PHONY: build
build: $(SETUP_CROSS) $(PAGE) ## Build bin/rampart and bin/rampart-meter, static (ARCH=x86_64 or aarch64)
	@scripts/build $(ARCH)

PREFIX ?= /usr/local

# The programs and, for arm64, the hypervisor.
built: build $(if $(filter aarch64,$(ARCH)),hypervisor)

.PHONY: install built
install: built ## Install programs, man pages, completions, units, sources of modules (PREFIX=/usr/local DESTDIR=)
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install $(ARCH)

.PHONY: package
package: built ## Make a .deb, an .rpm and a tarball in target/packages (ARCH=x86_64 or aarch64)
	@scripts/setup package
	@scripts/package $(ARCH)

.PHONY: web
web: $(PAGE) ## Build the page of reports, crates/show/web/dist/page.html

# Not npm ci: it refuses a lock file without the optional packages of other platforms, which npm writes if the
# registry lacks them.
$(NODE_MODULES): crates/show/web/package.json crates/show/web/package-lock.json | setup-build
	cd crates/show/web && ../../../$(within) npm install --no-save --no-audit --no-fund
	@touch $@

$(PAGE): $(PAGE_SOURCES) $(NODE_MODULES) | setup-build
	cd crates/show/web && ../../../$(within) npm run build
	@touch $@

.PHONY: bench
bench: setup-bench build ## Compare the meters with cyclictest and oslat (ARGS=...)
	cargo run --locked --release --package rampart-benchmarks -- $(ARGS)

.PHONY: bench-hypervisor
bench-hypervisor: hypervisor build ## Count the hypervisor's instructions, a network's costs, and lines of a cache that cells lose (ARGS=...)
	@scripts/setup cross build run sim sim-aarch64 modules runner
	@cargo run --locked --release --package rampart-benchmarks --bin rampart-bench-hypervisor -- $(ARGS)
	@cargo nextest run --locked --package rampart-tests --test cells --no-capture -E 'test(colours::cells_of_different)'
	@scripts/build aarch64
	$(within) kernel/build --out bin/modules aarch64 bookworm
	@cargo nextest run --locked --package rampart-tests --test cells --no-capture --run-ignored only -E 'test(network_costs)'

.PHONY: bench-detached
bench-detached: setup-test build modules ## Count the instructions of detaching, system calls, faults and returning
	cargo nextest run --locked --package rampart-tests --test simulated --no-capture -E 'test(detaching_costs)'

.PHONY: check
check: setup-runner $(PAGE) ## Check formatting, lints, unit and property tests: no QEMU, no browser, no root
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	scripts/run-tests --workspace --exclude rampart-tests --exclude rampart-benchmarks

.PHONY: test
test: ## Run every check; each has a target of its own, below
	@MAKE='$(MAKE)' scripts/test $(TEST_PHASES)

.PHONY: test-format
test-format: setup-build ## Check the formatting of the Rust code
	$(heading) 'formatting of the Rust code'
	cargo fmt --all --check

.PHONY: test-lints
test-lints: $(PAGE) ## Lint the Rust code
	$(heading) 'lints of the Rust code'
	cargo clippy --locked --workspace --all-targets -- -D warnings
	scripts/hypervisor --lint

.PHONY: test-scripts
test-scripts: setup-test ## Lint the shell scripts
	$(heading) 'lints of the shell scripts'
	@if command -v shellcheck; then shellcheck scripts/* kernel/build packaging/before-removal packaging/deb/post* .ci/run; else echo 'shellcheck is not installed'; fi

.PHONY: test-licences
test-licences: ## Check that every source file names its licence
	$(heading) 'licence lines'
	@scripts/check-spdx

.PHONY: test-dependencies
test-dependencies: setup-build ## Check the dependencies' licences, versions and known vulnerabilities
	$(heading) 'dependencies'
	@left_out() { echo "known vulnerabilities of the dependencies: $$1" | tee -a "$${RAMPART_SKIPPED:-/dev/null}"; }; \
	if ! cargo deny --version 2>/dev/null; then \
	left_out 'cargo-deny is not installed (cargo install --locked cargo-deny); test-code checks licences and versions'; \
	elif scripts/within 120 cargo deny fetch db; then $(within) cargo deny --workspace check; \
	else left_out 'the advisory database cannot be fetched'; \
	$(within) cargo deny --workspace check --disable-fetch bans licenses sources; fi

.PHONY: test-page
test-page: setup-test $(PAGE) ## Lint, type-check and test the page, in a browser too
	$(heading) 'the page'
	cd crates/show/web && ../../../$(within) npm run check
	cd crates/show/web && ../../../$(within) npm test

.PHONY: test-programs
test-programs: setup-test $(PAGE) ## Build the programs for both architectures; check that they are static and small
	$(heading) 'programs for both architectures'
	scripts/build x86_64 aarch64
	@set -e; for arch in x86_64 aarch64; do $(within) scripts/check-programs $$arch; done

.PHONY: test-modules
test-modules: setup-test ## Build the kernel module for old and new kernels; warnings are errors
	$(heading) 'kernel modules'
	$(within) kernel/build --check --out bin/modules x86_64 $(TEST_KERNELS) --out target/modules sid
	$(within) kernel/build --check --out bin/modules aarch64 $(TEST_KERNELS) --out target/modules sid
	$(within) kernel/build --out bin/modules aarch64 bookworm-backports bookworm-backports/stock

# What the end-to-end tests run. The modules are those of test-modules, unless their sources are newer.
.PHONY: built-for-tests
built-for-tests: setup-test $(PAGE)
	scripts/build $(sort $(shell uname -m) aarch64)
	$(within) kernel/build --out bin/modules aarch64 $(TEST_KERNELS) bookworm-backports bookworm-backports/stock
	$(within) kernel/build --out bin/modules x86_64 $(TEST_KERNELS)
	scripts/hypervisor
	# Tests are left out, with the reason, if its source package is not available.
	$(within) scripts/firmware || [ $$? = 3 ]

.PHONY: build-tests
build-tests: setup-test $(PAGE) ## Build the tests
	$(heading) 'the tests'
	scripts/hypervisor
	scripts/run-tests --build
	$(within) scripts/firmware || [ $$? = 3 ]

# Otherwise the first tests that need them wait for each other.
.PHONY: images
images: setup-sim
	$(heading) 'the simulated machines'
	for machine in x86_64 aarch64 aarch64-backports aarch64-smmu; do bin/rampart sim --architecture $$machine build; done

.PHONY: test-machine
test-machine: $(if $(RAMPART_SET_UP),,built-for-tests) ## Run the end-to-end tests that measure or change this machine
	$(heading) 'tests on this machine'
	# A run that was killed on this machine may have left a CPU to itself, which the tests need.
	[ "$$(id -u)" != 0 ] || bin/rampart release
	scripts/run-tests --profile waiting

.PHONY: test-code
test-code: $(if $(RAMPART_SET_UP),,built-for-tests) ## Run the unit, property and end-to-end tests, but those of test-machine
	$(heading) 'unit, property and end-to-end tests'
	scripts/run-tests --profile computing

.PHONY: test-long
PART ?= boards
test-long: built-for-tests ## Run a part of the tests that take too long for `make test` (PART=...)
	$(heading) 'long tests: $(PART)'
	scripts/test-long '$(PART)'

NEWEST := trixie

.PHONY: test-newest
test-newest: setup-test build ## Run detached threads on the kernels of another Debian release (NEWEST=trixie or sid)
	$(heading) 'detached threads on kernels of $(NEWEST)'
	$(within) kernel/build --image --out target/newest/$(NEWEST) x86_64 $(NEWEST) $(NEWEST)/stock
	$(within) kernel/build --image --out target/newest/$(NEWEST) aarch64 $(NEWEST) $(NEWEST)/stock
	RAMPART_TEST_MODULES='$(CURDIR)/target/newest/$(NEWEST)' \
		scripts/run-tests --package rampart-tests --test simulated --run-ignored all \
		-E 'test(hostile_threads) | test(a_loop_)'

.PHONY: test-documentation
test-documentation: $(PAGE) ## Build the documentation of the code, without a warning, and run its examples
	$(heading) 'documentation of the code'
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps
	cargo test --locked --quiet --workspace --doc

.PHONY: setup
setup: ## Only install the packages for building and evaluating (GROUPS="run test bench" for more)
	@scripts/setup $(or $(GROUPS),build run)

.PHONY: setup-build setup-cross setup-run setup-sim setup-runner setup-test setup-bench
setup-build: ; @scripts/setup build
setup-run:   ; @scripts/setup build run
setup-cross: ; @scripts/setup cross
setup-runner: ; @scripts/setup runner
setup-test:  ; @scripts/setup cross run sim sim-aarch64 modules test
setup-sim:   ; @scripts/setup build run sim $(addprefix sim-,$(CROSS)) modules
setup-bench: ; @scripts/setup bench

.PHONY: clean
clean: ## Remove all build results
	rm -rf bin target crates/show/web/dist crates/show/web/node_modules
