#!/usr/bin/env bash
# The demo: three real daemons on this machine, one of them with simulated GPUs.
# A job compiles muster on the only node that fits. Its output is followed from
# another node.
set -euo pipefail
cd "$(dirname "$0")/.."
src=$PWD
export CGO_CFLAGS=${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations} # the same as in the Makefile, so that Go's build cache can be used
muster=$PWD/bin/muster
dir=$(mktemp -d "${TMPDIR:-/tmp}/muster-demo.XXXXXX")
pids=()

cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pkill -KILL -f "$dir" 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# daemon NAME ARGS...: starts a daemon and waits until it is ready.
daemon() {
  local name=$1
  shift
  : >"$dir/$name.log" # grep below may read it before the daemon has created it
  "$muster" daemon --name "$name" --data-dir "$dir/$name" --socket "$dir/$name.sock" \
    --listen /ip4/127.0.0.1/tcp/0 --listen /ip4/127.0.0.1/udp/0/quic-v1 --allow-root "$@" 2>>"$dir/$name.log" &
  pids+=($!)
  until grep -q 'msg=ready' "$dir/$name.log"; do
    kill -0 $! 2>/dev/null || { cat "$dir/$name.log"; exit 1; }
    sleep 0.05
  done
}

at() { # at NAME VERB...: runs a verb at one of the daemons
  local name=$1
  shift
  MUSTER_SOCKET="$dir/$name.sock" "$muster" "$@"
}

say "Three daemons: amy founds the cluster, ben and cat join with one line; cat has simulated GPUs."
daemon amy --gpus none
line=$(at amy invite --uses 2)
echo "\$ muster invite --uses 2"
echo "$line"
export "${line%% *}" # MUSTER_TOKEN=…
invitation=${line#* muster daemon }
# shellcheck disable=SC2086
daemon ben --gpus none $invitation
# shellcheck disable=SC2086
daemon cat --gpus sim:2xH100-80GB --label builder=yes $invitation
unset MUSTER_TOKEN
at amy nodes

say "At amy: compile muster on the node with two H100s and the label builder=yes."
job=$(at amy submit -J build -G H100:2 -C builder=yes -t 10m -D "$src" \
  --env "GOCACHE=${GOCACHE:-$(go env GOCACHE)}" --env "GOMODCACHE=${GOMODCACHE:-$(go env GOMODCACHE)}" \
  --env "PATH=$PATH" --env "HOME=$HOME" --env CGO_CFLAGS -- \
  sh -c 'echo "building on $(hostname) with GPUs $CUDA_VISIBLE_DEVICES"; go build -v -trimpath -o "$MUSTER_SCRATCH/muster" ./cmd/muster 2>&1 | tail -n 3; "$MUSTER_SCRATCH/muster" version')
echo "job $job"

say "At ben: follow the job's output."
at ben logs -f "$job"
at ben wait "$job"

say "At cat: show where it ran and for how long."
at cat show "$job"
say "Done in ${SECONDS} s; cleaning up."
