# For .ci/run and scripts/nightly: stages with their times, which continue after a failure, and a summary. Sourced. With words, only stages with
# one of them in their name run.
set -uo pipefail
stages_begin=$SECONDS
results=()
words=("$@")

is_asked_for() { # name
  local word
  for word in "${words[@]}"; do
    [[ $1 != *"$word"* ]] || return 0
  done
  [ ${#words[@]} -eq 0 ]
}

stage() { # name, command...
  local name=$1 start=$SECONDS status=ok
  is_asked_for "$name" || return 0
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
