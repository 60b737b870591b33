# What a person types. Each target works on a fresh checkout and can be run
# again, in any order, and beside another.

.PHONY: setup demo test lint bench soak down

# Installs what is missing (as root; otherwise says what), and builds TigerBeetle.
setup:
	scripts/setup.sh

# The main job on this machine, step by step; the server stays. `make down` stops it.
demo: setup
	cargo run --quiet --locked -- demo

# All tests on private servers of their own, which end by themselves.
test: setup
	cargo test --locked --no-fail-fast

lint: setup
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings

# Figures beside floors of the same run: ONLY=settlement for one group, QUICK=1 for a short run.
# Where OR-tools can't be fetched, netting is measured without its floor.
bench: setup
	$(if $(filter-out netting,$(ONLY)),,-scripts/ortools.sh)
	cargo run --release --quiet --locked -- bench $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

# Random networks with faults, crashes and clocks apart, for SOAK_S seconds (an hour), then 2,000
# payouts under each of 20 seeds of faults, by workers that die. A run that fails prints its seed.
soak: setup
	SETTLENET_SIMULATION_S=$(or $(SOAK_S),3600) cargo test --locked --test it saga::simulation -- --nocapture
	SETTLENET_TRUTH_PAYOUTS=2000 SETTLENET_TRUTH_SEEDS=20 cargo test --locked --test it payments::truth -- --nocapture

# Stops what was left running in this checkout; the data stays. Where there is
# no stack there is nothing to build for.
down:
	[ ! -d .local/dev ] || cargo run --quiet --locked -- down
