# Completion of berth for bash. The command itself lists the candidates (berth complete WORD...): a line for each, with a tab before
# its description; it fails where a file may be meant.
_berth() {
  local line=${COMP_LINE:0:COMP_POINT} found i
  local -a words
  for ((i = 1; i < COMP_CWORD; ++i)); do
    # The command that berth run starts is completed as it would be alone.
    if [[ ${COMP_WORDS[1]} == run && ${COMP_WORDS[i]} == -- ]] && declare -F _command_offset >/dev/null; then
      _command_offset $((i + 1))
      return
    fi
  done
  read -a words <<<"$line" # without -r: "a\ file" is one word
  [[ $line != *[[:space:]] ]] || words+=("")
  if ! found=$("${words[0]}" complete "${words[@]:1}" 2>/dev/null); then
    compopt -o default
    return
  fi
  # Readline completes only what follows the last of these characters.
  local typed=${words[-1]} before=
  [[ $COMP_WORDBREAKS != *[:=]* ]] || before=${typed%"${typed##*[:=]}"}
  COMPREPLY=()
  while IFS=$'\t' read -r line _; do
    [[ -z $line ]] || COMPREPLY+=("${line#"$before"}")
  done <<<"$found"
}
complete -F _berth berth
