# What one does all day. `just` alone lists it.

_default:
    @just --list --unsorted

# Tell what is wrong, and change nothing
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test -p tenure --test tidy

# Repair what a tool can repair
fix:
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
    cargo fmt --all

# All tests
test:
    cargo test --workspace

# Judge etcd and Tenure alike: just compat --filter lease
compat *args:
    scripts/compat.sh {{ args }}

# Measure Tenure beside etcd: just bench --quick --only put
bench *args:
    scripts/bench.sh {{ args }}

# What CI runs: just ci fmt clippy
ci *stages:
    .ci/run {{ stages }}

# A server to play with
dev *args:
    cargo run --release -- dev {{ args }}
