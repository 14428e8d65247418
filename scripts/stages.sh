# For .ci/run and scripts/nightly: stages with their times, which go on after a failure, and a summary. Sourced.
set -uo pipefail
stages_begin=$SECONDS
results=()

stage() { # name, command...
  local name=$1 start=$SECONDS status=ok
  shift
  echo "=== $name"
  "$@" || status=FAILED
  results+=("$(printf '%-6s %5d s  %s' "$status" $((SECONDS - start)) "$name")")
  echo "=== $name: $status, $((SECONDS - start)) s"
}

# A stage that uses what processor time the others leave; its output comes with `join`.
declare -A beside_pid=() beside_log=()
beside() { # name, command...
  local name=$1
  shift
  beside_log[$name]=$(mktemp)
  (start=$SECONDS status=ok
    nice -n 19 "$@" || status=FAILED
    printf '%-6s %5d s  %s (beside the others)\n' "$status" $((SECONDS - start)) "$name" >"${beside_log[$name]}.result") >"${beside_log[$name]}" 2>&1 &
  beside_pid[$name]=$!
}
join() { # name
  echo "=== $1 (beside the others)"
  wait "${beside_pid[$1]}"
  cat "${beside_log[$1]}"
  results+=("$(cat "${beside_log[$1]}.result" 2>/dev/null || echo "FAILED       ?  $1")")
  rm -f "${beside_log[$1]}" "${beside_log[$1]}.result"
}

summary() {
  echo "=== all: $((SECONDS - stages_begin)) s"
  printf '%s\n' "${results[@]}"
  ! printf '%s\n' "${results[@]}" | grep -q ^FAILED
}
