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

summary() {
  echo "=== all: $((SECONDS - stages_begin)) s"
  printf '%s\n' "${results[@]}"
  ! printf '%s\n' "${results[@]}" | grep -q ^FAILED
}
