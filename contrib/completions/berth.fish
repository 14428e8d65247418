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
    set -l program $words[1]
    set -e words[1]
    if set -l found ($program complete $words "$typed" 2>/dev/null)
        string join \n -- $found
    else
        __fish_complete_path (string unescape -- "$typed")
    end
end
complete -c berth -f -a '(__berth_candidates)'
