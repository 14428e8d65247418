# Completion of berth for fish. The command itself lists the candidates (berth complete WORD...): a line for each, with a tab before
# its description; it fails where a file may be meant.
function __berth_candidates
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    # The command that berth run starts is completed as it would be alone.
    set -l dashes (contains -i -- -- $words)
    if test "$words[2]" = run -a -n "$dashes"
        set -e words[1..$dashes]
        complete -C (string join ' ' -- (string escape -- $words) "$typed")
        return
    end
    # fish unescapes the words before the last one, but does not expand "~". An open quote cannot be unescaped.
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -e words[1]
    set -l plain (string unescape -- "$typed"; or printf '%s\n' "$typed")
    if set -l found ($program complete $words "$plain" 2>/dev/null)
        string join \n -- $found
    else
        # As for a command without completions: files, also after "--output=".
        complete -C "'' $typed"
    end
end
complete -c berth -f -a '(__berth_candidates)'
