#!/usr/bin/env bash
# The demo: three real daemons on this machine, one of them with simulated GPUs.
# The cluster compiles muster itself on the node that the job must go to, while
# we follow its output from another one.
set -euo pipefail
cd "$(dirname "$0")/.."
src=$PWD
export CGO_CFLAGS=${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations} # as make has it, so that what make compiled is not compiled again
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

# daemon NAME ARGS...: starts one and waits until it answers.
daemon() {
  local name=$1
  shift
  : >"$dir/$name.log" # looked into below, perhaps before the daemon has opened it
  "$muster" daemon --name "$name" --data-dir "$dir/$name" --socket "$dir/$name.sock" \
    --listen /ip4/127.0.0.1/tcp/0 --listen /ip4/127.0.0.1/udp/0/quic-v1 --allow-root "$@" 2>>"$dir/$name.log" &
  pids+=($!)
  until grep -q 'msg=ready' "$dir/$name.log"; do
    kill -0 $! 2>/dev/null || { cat "$dir/$name.log"; exit 1; }
    sleep 0.05
  done
}

at() { # at NAME VERB...: a verb at one of the daemons
  local name=$1
  shift
  MUSTER_SOCKET="$dir/$name.sock" "$muster" "$@"
}

say "Three daemons: amy founds the cluster, ben and cat join with one line; cat has simulated GPUs."
daemon amy --gpus none
# shellcheck disable=SC2046
invitation=$(at amy invite --uses 2 | sed 's/^muster daemon //')
echo "\$ muster invite --uses 2"
echo "muster daemon $invitation"
# shellcheck disable=SC2086
daemon ben --gpus none $invitation
# shellcheck disable=SC2086
daemon cat --gpus sim:2xH100-80GB --label builder=yes $invitation
at amy nodes

say "At amy: compile muster on the node with two H100s and the label builder=yes."
job=$(at amy submit -J build -G H100:2 -C builder=yes -t 10m -D "$src" \
  --env "GOCACHE=${GOCACHE:-$(go env GOCACHE)}" --env "GOMODCACHE=${GOMODCACHE:-$(go env GOMODCACHE)}" \
  --env "PATH=$PATH" --env "HOME=$HOME" --env CGO_CFLAGS -- \
  sh -c 'echo "building on $(hostname) with GPUs $CUDA_VISIBLE_DEVICES"; go build -v -trimpath -o "$MUSTER_SCRATCH/muster" ./cmd/muster 2>&1 | tail -n 3; "$MUSTER_SCRATCH/muster" version')
echo "job $job"

say "At ben: follow it."
at ben logs -f "$job"
at ben wait "$job"

say "At cat: where and how long."
at cat show "$job"
say "Done in ${SECONDS} s; cleaning up."
