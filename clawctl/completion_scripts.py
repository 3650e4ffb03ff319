"""The parts of completion that run in the shells.

They hand the words over as they are and put what comes back into the line as plain text: a name is
quoted by the shell's own means and never evaluated.
"""

BASH = r"""# Completion of clawctl for bash.
_clawctl() {
    local line value cur="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :file) compopt -o filenames 2>/dev/null
                   while IFS= read -r value; do COMPREPLY+=("$value"); done \
                       < <(compgen -f -- "$cur") ;;
            :dir)  compopt -o filenames 2>/dev/null
                   while IFS= read -r value; do COMPREPLY+=("$value"); done \
                       < <(compgen -d -- "$cur") ;;
            *)     printf -v value '%q' "${line%%$'\t'*}"
                   COMPREPLY+=("$value") ;;
        esac
    done < <("${COMP_WORDS[0]}" completion _words bash -- \
        "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)
}
complete -F _clawctl clawctl
"""

ZSH = r"""#compdef clawctl
# Completion of clawctl for zsh.
_clawctl() {
    local line files=''
    local -a values shown
    while IFS= read -r line; do
        case $line in
            :file) files=f ;;
            :dir) files=d ;;
            *) values+=("${line%%$'\t'*}")
               shown+=("${line%%$'\t'*}  ${line#*$'\t'}") ;;
        esac
    done < <("${words[1]}" completion _words zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null </dev/null)
    (( $#values )) && compadd -l -d shown -- "${(@)values}"
    case $files in
        f) _files ;;
        d) _files -/ ;;
    esac
    (( $#values )) || [[ -n $files ]]
}
if [[ $funcstack[1] == _clawctl ]]; then
    _clawctl "$@"
else
    compdef _clawctl clawctl
fi
"""

FISH = r"""# Completion of clawctl for fish.
function __clawctl_complete
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    for line in ($words[1] completion _words fish -- $words[2..-1] "$last" 2>/dev/null </dev/null)
        switch $line
            case :file
                __fish_complete_path "$last"
            case :dir
                __fish_complete_directories "$last"
            case '*'
                printf '%s\n' $line
        end
    end
end
complete -c clawctl -f -a '(__clawctl_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
