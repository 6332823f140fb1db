# What a developer runs. `make test` is the whole of it, and what CI runs.

.PHONY: test tools lint check-deps chaos cluster

# Installs what the tests need, then runs all of them.
test: tools lint
	cargo test --workspace --locked

# A real Firefox, a well-known sender in a Python environment of its own, a DynamoDB wire server, two reverse proxies.
tools:
	./tests/install-tools

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

CHAOS = chaos::nothing_is_lost_in_chaos_and_nothing_comes_again_after_its_ack_was_settled

# Three connection nodes and two endpoint nodes through a storm that lasts so long, and its report (docs/reliability.md).
# SEED=... is the storm of that number; there is one in the usual tests too.
chaos:
	CHAOS_SECONDS=$(or $(SECONDS),600) $(if $(SEED),CHAOS_SEED=$(SEED)) \
		cargo test --workspace --locked --test suite -- --exact $(CHAOS) --nocapture

# Three connection nodes and two endpoint nodes over a DynamoDB server, on this machine, until Ctrl-C. ONCE=1 ends after a
# push through each pair of them.
cluster:
	ONCE=$(ONCE) ./tests/cluster

# Licences, advisories and unused dependencies; needs `cargo install cargo-deny cargo-machete`.
check-deps:
	cargo deny check
	cargo machete
