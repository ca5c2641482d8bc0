#!/usr/bin/env bash
# Judges the server by its clients: scripts of etcdctl commands, and Go tests on etcd's official client. Both run against
# real etcd too, so that both servers are judged alike. compat/README.md explains the parts.
set -euo pipefail

usage() {
	cat <<-'END'
		usage: scripts/compat.sh [--server tenure|etcd|both] [--filter REGEXP] [--suite etcdctl|client]

		  --server   the server to judge (default both: etcd first, then tenure)
		  --filter   only the tests and scripts whose name matches, in any case; differences are then not verified
		  --suite    only one of the two suites; differences are then not verified

		environment:
		  TENURE_BIN            a tenure binary to judge instead of building one
		  TENURE_COMPAT_CACHE   where etcd and etcdctl are kept (default .compat in the repository)
		  COMPAT_PARALLEL       tests at a time (default 4)
	END
}

servers="etcd tenure" filter="" suites="etcdctl client"
while [ $# -gt 0 ]; do
	case "$1" in
	--server=* | --filter=* | --suite=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
	esac
	case "$1" in
	--server)
		case "${2:-}" in
		both) servers="etcd tenure" ;;
		etcd | tenure) servers="$2" ;;
		*) usage >&2 && exit 2 ;;
		esac
		shift 2
		;;
	--filter) filter="${2:?--filter needs a value}" && shift 2 ;;
	--suite)
		case "${2:-}" in
		etcdctl | client) suites="$2" ;;
		*) usage >&2 && exit 2 ;;
		esac
		shift 2
		;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
done

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cache="${TENURE_COMPAT_CACHE:-$root/.compat}"
mkdir -p "$cache"
cache="$(cd "$cache" && pwd)"
export GOMAXPROCS="${GOMAXPROCS:-2}"
say() { echo "compat: $*"; }

command -v go >/dev/null || { say "Go is needed to build the judges and the tests" >&2 && exit 2; }

# The judges are kept until the versions change that their go.mod names.
release="$(cksum <"$root/compat/tools/go.sum" | cut -d' ' -f1)"
tools="$cache/tools-$release"
if [ ! -x "$tools/etcd" ] || [ ! -x "$tools/etcdctl" ]; then
	say "building etcd and etcdctl (two minutes, once)"
	rm -rf "$tools.new"
	mkdir -p "$tools.new"
	(cd "$root/compat/tools" && nice go build -trimpath -ldflags '-s -w' -o "$tools.new/" ./etcd ./etcdctl)
	rm -rf "$tools"
	mv "$tools.new" "$tools"
fi

say "building the tests"
tests="$(mktemp -d)"
trap 'rm -rf "$tests"' EXIT
(
	cd "$root/compat/go"
	for suite in $suites; do nice go test -c -o "$tests/$suite.test" "./$suite"; done
	nice go build -o "$tests/compat-verify" ./cmd/compat-verify
)

flags="--name {name} --data-dir {data} --listen-client-urls {client} --advertise-client-urls {client}"
flags="$flags --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} --initial-cluster {name}={peer}"

export COMPAT_DIFFERENCES="$root/compat/differences.toml"
export COMPAT_ETCDCTL="$tools/etcdctl"
failed=0 summary="" total=0
for server in $servers; do
	case "$server" in
	etcd) binary="$tools/etcd" && command="$binary" ;;
	tenure)
		binary="${TENURE_BIN:-}"
		if [ -z "$binary" ]; then
			say "building tenure"
			(cd "$root" && nice cargo build --release --bin tenure)
			binary="${CARGO_TARGET_DIR:-$root/target}/release/tenure"
		fi
		command="$binary serve"
		;;
	esac
	[ -x "$binary" ] || { say "no such program: $binary" >&2 && exit 2; }
	case "$binary" in *" "*) say "the path of the server must not have spaces: $binary" >&2 && exit 2 ;; esac
	export COMPAT_SERVER="$server" COMPAT_SERVER_CMD="$command $flags --log-level error" COMPAT_SEEN="$tests/seen-$server"

	for suite in $suites; do
		say "$suite against $server"
		log="$tests/$suite-$server.log" select=()
		if [ -n "$filter" ]; then
			select=(-test.run "(?i)$filter")
			[ "$suite" = etcdctl ] && select=(-test.run "^TestScripts\$/(?i)$filter")
		fi
		status=0
		(cd "$root/compat/go/$suite" && TMPDIR="$tests" nice "$tests/$suite.test" -test.v -test.timeout 15m \
			-test.parallel "${COMPAT_PARALLEL:-4}" ${select[@]+"${select[@]}"}) >"$log" 2>&1 || status=$?
		# A script is one test; the test that holds the scripts together is not counted.
		passed="$(grep -E '^ *--- PASS' "$log" | grep -vcE ' TestScripts ' || true)"
		missed="$(grep -E '^ *--- FAIL' "$log" | grep -vcE ' TestScripts ' || true)"
		if [ "$status" -ne 0 ]; then
			failed=1
			[ "$missed" -gt 0 ] || missed=1
			grep -vE '^(=== |--- PASS| +--- PASS|PASS$)|: [0-9]+ commands$' "$log" || true
		fi
		commands="$(sed -n 's/.*: \([0-9][0-9]*\) commands$/\1/p' "$log" | awk '{ sum += $1 } END { print sum + 0 }')"
		total=$((total + passed + missed))
		line="compat: $suite $server: $passed passed, $missed failed"
		[ "$suite" = etcdctl ] && line="$line ($commands commands in the passed scripts)"
		echo "$line"
		summary="$summary$line"$'\n'
	done

	if [ -z "$filter" ] && [ "$suites" = "etcdctl client" ]; then
		status=0
		result="$("$tests/compat-verify" "$COMPAT_DIFFERENCES" "$COMPAT_SEEN")" || status=$?
		[ "$status" -eq 0 ] || failed=1
		echo "$result" | sed '$d'
		summary="${summary}compat: differences $server: $(echo "$result" | tail -n 1)"$'\n'
	fi
done

echo
printf '%s' "$summary"
[ "$total" -gt 0 ] || { say "no test matches '$filter'" >&2 && failed=1; }
exit "$failed"
