#!/usr/bin/env bash
# Runs the simulator: `ci` is what every change must pass, `long` is for a night. docs/simulator.md explains both.
set -euo pipefail

usage() {
	echo "usage: scripts/sim.sh ci | long [minutes]"
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
sim() { cargo run --quiet --release -p tenure-sim -- "$@"; }

case "${1:-}" in
ci)
	sim --failed
	sim --minutes 3
	;;
long)
	sim --failed
	sim --minutes "${2:-60}"
	;;
*) usage >&2 && exit 2 ;;
esac
