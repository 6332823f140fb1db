# What a developer runs. `make test` is the whole of it, and what CI runs.

.PHONY: test tools lint check-deps

# Installs what the tests need, then runs all of them.
test: tools lint
	cargo test --workspace --locked

# A real Firefox, a well-known sender in a Python environment of its own, and a DynamoDB wire server.
tools:
	./tests/install-tools

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

# Licences, advisories and unused dependencies; needs `cargo install cargo-deny cargo-machete`.
check-deps:
	cargo deny check
	cargo machete
