#!/usr/bin/env bash
# Measures Tenure beside etcd and writes the tables as Markdown: docs/benchmarks.md says what they mean. Each workload gets two
# fresh servers on this machine, on free loopback ports, with their data in one temporary directory, so on the same disk.
set -euo pipefail

usage() {
	cat <<-'END'
		usage: scripts/bench.sh [--only REGEXP] [--quick] [--results DIR] [--out FILE]

		  --only      only the workloads whose name matches
		  --quick     a tenth of the leases, keys and time: shows that everything works, and no more
		  --results   keep the JSON documents here (default: a temporary directory)
		  --out       write the Markdown here instead of to standard output

		environment:
		  TENURE_BIN            a tenure binary to measure instead of building one
		  ETCD_BIN              an etcd binary instead of the one that scripts/compat.sh builds
		  TENURE_COMPAT_CACHE   where scripts/compat.sh keeps etcd (default .compat in the repository)
		  BENCH_NICE            niceness of servers and load, such as -10 (for root) on a machine that others use too:
		                        a server that is not let run is late with everything
		  TMPDIR                where the servers keep their data
	END
}

only="" quick="" results="" out=""
while [ $# -gt 0 ]; do
	case "$1" in
	--only) only="${2:?--only needs a value}" && shift 2 ;;
	--results) results="${2:?--results needs a value}" && shift 2 ;;
	--out) out="${2:?--out needs a value}" && shift 2 ;;
	--quick) quick=1 && shift ;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
done

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
say() { echo "bench: $*" >&2; }

tenure="${TENURE_BIN:-}"
if [ -z "$tenure" ]; then
	say "building tenure"
	(cd "$root" && cargo build --release --bin tenure)
	tenure="${CARGO_TARGET_DIR:-$root/target}/release/tenure"
fi
etcd="${ETCD_BIN:-}"
if [ -z "$etcd" ]; then
	cache="${TENURE_COMPAT_CACHE:-$root/.compat}"
	release="$(cksum <"$root/compat/tools/go.sum" | cut -d' ' -f1)"
	etcd="$cache/tools-$release/etcd"
	if [ ! -x "$etcd" ]; then
		say "building etcd (two minutes, once)"
		mkdir -p "$(dirname "$etcd")"
		(cd "$root/compat/tools" && go build -trimpath -ldflags '-s -w' -o "$(dirname "$etcd")/" ./etcd)
	fi
fi
for program in "$tenure" "$etcd"; do
	[ -x "$program" ] || { say "no such program: $program" && exit 2; }
done

work="$(mktemp -d)"
results="${results:-$work/results}"
mkdir -p "$results"
running=()
stop_all() {
	for pid in ${running[@]+"${running[@]}"}; do kill "$pid" 2>/dev/null || true; done
	for pid in ${running[@]+"${running[@]}"}; do wait "$pid" 2>/dev/null || true; done
	running=()
}
trap 'stop_all; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# A port that nobody listens on now. Somebody else may take it before the server does; then the server does not start, and this
# script ends.
free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port" && return; }
	done
}

# start NAME DIR PORT PEER_PORT: sets $pid and returns when it serves.
start() {
	local client="http://127.0.0.1:$3" peer="http://127.0.0.1:$4" command=("$etcd")
	[ "$1" = etcd ] || command=("$tenure" serve)
	# It becomes the server, so the process is the one that is measured.
	command=(nice -n "${BENCH_NICE:-0}" "${command[@]}")
	"${command[@]}" --name n1 --data-dir "$2" --listen-client-urls "$client" --advertise-client-urls "$client" \
		--listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "n1=$peer" \
		--quota-backend-bytes 8589934592 --log-level error >>"$2.log" 2>&1 &
	pid=$!
	running+=("$pid")
	serving "$1" "$2" "$3" "$pid"
}

# Until a linearizable read is answered.
serving() {
	local end=$((SECONDS + 60))
	until "$tenure" get -p bench-probe --endpoints "127.0.0.1:$3" --command-timeout 1s >/dev/null 2>&1; do
		kill -0 "$4" 2>/dev/null || { say "$1 did not start:" && tail -n 5 "$2.log" >&2 && exit 1; }
		[ "$SECONDS" -lt "$end" ] || { say "$1 does not serve" && exit 1; }
		sleep 0.01
	done
}

number=0 missed=0
# pair: a fresh server of each kind; sets $tenure_port and $etcd_port.
pair() {
	tenure_port="$(free_port)" tenure_peer="$(free_port)"
	start tenure "$work/tenure-$number" "$tenure_port" "$tenure_peer" && tenure_pid="$pid"
	etcd_port="$(free_port)" etcd_peer="$(free_port)"
	start etcd "$work/etcd-$number" "$etcd_port" "$etcd_peer" && etcd_pid="$pid"
}

# run NAME ARGUMENTS…: one workload on a fresh pair.
run() {
	local name="$1" status=0
	shift
	# Counted whether it is run or not: a document keeps its name, and several runs may share a directory.
	number=$((number + 1))
	[[ "$name" =~ $only ]] || return 0
	say "$name"
	local document="$results/$(printf %02d "$number")-$name.json"
	rm -f "$document"
	pair
	# Nobody needs what is left: both servers go, with their directories.
	nice -n "${BENCH_NICE:-0}" "$tenure" bench "$@" --keep \
		--endpoints "127.0.0.1:$tenure_port" --against "127.0.0.1:$etcd_port" \
		--json "$document" >&2 || status=$?
	# 1 is a missed goal, which the document says; without a document it was an error.
	[ -s "$document" ] || say "$name failed with $status"
	[ "$status" -eq 0 ] || missed=1
	stop_all
	rm -rf "$work/tenure-$number" "$work/etcd-$number"
}

# Milliseconds from the start of the process to the first linearizable read, with what was filled before.
restart_ms() {
	local begun
	begun="$(date +%s%N)"
	start "$1" "$2" "$3" "$4"
	echo $((($(date +%s%N) - begun) / 1000000)) >"$work/restart-$1"
}

restart() {
	[[ restart =~ $only ]] || return 0
	local keys=$((1000000 / scale)) leases=$((100000 / scale)) side port
	say "restart with $keys keys and $leases leases"
	pair
	for port in "$tenure_port" "$etcd_port"; do
		"$tenure" bench put --total "$keys" --keys "$keys" --in-flight 256 --rounds 1 --duration 10m --keep \
			--endpoints "127.0.0.1:$port" >/dev/null
		"$tenure" bench grant --total "$leases" --ttl 1h --in-flight 256 --rounds 1 --duration 10m --keep \
			--endpoints "127.0.0.1:$port" >/dev/null
	done
	# As after a power cut: nothing can be put in order first.
	kill -9 "$tenure_pid" "$etcd_pid"
	wait "$tenure_pid" "$etcd_pid" 2>/dev/null || true
	running=()
	restart_ms tenure "$work/tenure-$number" "$tenure_port" "$tenure_peer"
	stop_all
	restart_ms etcd "$work/etcd-$number" "$etcd_port" "$etcd_peer"
	stop_all
	rm -rf "$work/tenure-$number" "$work/etcd-$number"
	local ours theirs result=met
	ours="$(cat "$work/restart-tenure")" theirs="$(cat "$work/restart-etcd")"
	[ "$ours" -le 3000 ] || { result=MISSED && missed=1; }
	{
		echo "### Restart after kill -9, with $keys keys of 256 bytes and $leases leases"
		echo
		echo "| | tenure | etcd |"
		echo "| --- | ---: | ---: |"
		echo "| first linearizable read after, ms | $ours | $theirs |"
		echo
		echo "Goal: at most 3000 ms: $result."
	} | tee "$results/restart.md" >&2
}

scale=1 time=10s events_time=10s
[ -z "$quick" ] || { scale=10 time=2s events_time=3s; }
leases=$((100000 / scale))
cpu() { printf -- '--goal\ncpu_us_per_op.ratio<=%s\n' "$1"; }

run put put --duration $time $(cpu 0.35)
run txn txn --duration $time $(cpu 0.35)
run get get --duration $time $(cpu 0.4)
run range range --duration $time $(cpu 0.5)
run grant grant --duration $time $(cpu 0.35)
run revoke revoke --duration $time $(cpu 0.15)
run revoke-key revoke --attached-keys 1 --duration $time $(cpu 0.15)
run keepalive keepalive --duration $time $(cpu 0.25)
run keepalive-1024 keepalive --in-flight 1024 --duration $time $(cpu 0.25)
run watch watch --duration $events_time $(cpu 0.35)
run hold hold --leases $leases --ttl 10s $(cpu 0.3) --goal 'lost<=0' --goal 'bytes_per_lease<=400' --goal 'early<=0'
run expire-single expire --leases $((200 / scale)) --apart 25ms --ttl 1s --goal 'late_p99_ms<=20' --goal 'early<=0' \
	--goal 'granted_ttl_s<=1'
run expire-10000 expire --leases $((10000 / scale)) --ttl 10s --goal 'last_late_ms<=300' --goal 'early<=0' \
	--goal "revisions>=$((10000 / scale))" --goal 'put_p99_ms<=50'
run expire-100000 expire --leases $leases --ttl 30s --goal 'last_late_ms<=1500' --goal 'early<=0' \
	--goal "revisions>=$leases" --goal 'put_p99_ms<=50'
restart

markdown() {
	echo "Measured on $(date -u +%Y-%m-%d) with \`scripts/bench.sh${quick:+ --quick}\`, tenure at" \
		"$(git -C "$root" rev-parse --short HEAD), $("$etcd" --version | head -n 1 | tr 'A-Z' 'a-z')," \
		"$(nproc) cores ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)), Linux $(uname -r)."
	local documents=("$results"/*.json)
	if [ -e "${documents[0]}" ]; then
		echo
		"$tenure" bench report "${documents[@]}"
	fi
	if [ -e "$results/restart.md" ]; then
		echo
		cat "$results/restart.md"
	fi
}
if [ -n "$out" ]; then markdown >"$out"; else markdown; fi
exit "$missed"
