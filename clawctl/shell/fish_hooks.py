r"""The hooks of fish, as text.

fish fires events for prompt, start and end, and edits a command of several lines as one, so that
Enter sees all of it. A line counts as ours only between the prompt and the next start: `read` uses
the same keys. Its history takes a line by way of its file where there is no `history append`.
"""

FISH = r"""
set -g __clawd_folder @FOLDER@
set -g __clawd_at 0
function __clawd_mark
    set -l value (string sub -l 100000 -- "$argv[2]" | string collect)
    set value (string replace -a \\ \\\\ -- $value | string collect)
    set value (string replace -a \e \\e -- $value | string collect)
    set value (string replace -a \a \\a -- $value | string collect)
    set value (string replace -a \r \\r -- $value | string collect)
    set value (string join \\n -- (string split \n -- $value))
    printf '\e]7717;@NONCE@;%s;%s\a' $argv[1] "$value" >/dev/tty
end
function __clawd_on_prompt --on-event fish_prompt
    set -l code $status
    set -g __clawd_at 1
    __clawd_mark done "$code;$PWD"
end
function __clawd_on_start --on-event fish_preexec
    set -g __clawd_at 0
    __clawd_mark line "$argv[1]"
    __clawd_mark start
end
function __clawd_remember
    test -z "$fish_private_mode"; or return
    if test (string split -m1 . -- $version)[1] -ge 4
        history append -- $argv[1]
        return
    end
    set -l name fish
    set -q fish_history; and set name $fish_history
    test -n "$name"; or return
    set -l base ~/.local/share
    set -q XDG_DATA_HOME[1]; and set base $XDG_DATA_HOME
    set -l text (string replace -a \\ \\\\ -- $argv[1] | string collect)
    set text (string join \\n -- (string split \n -- $text))
    test -d $base/fish; or command mkdir -p -m 700 $base/fish
    printf '%s\n  when: %s\n' "- cmd: $text" (date +%s) >>$base/fish/{$name}_history 2>/dev/null
    and builtin history merge
end
function __clawd_enter
    set -l line (commandline | string collect)
    set -l text (string trim -l -c ' '\t -- $line | string collect)
    if test $__clawd_at = 1; and not commandline --paging-mode
        and string match -qr -- '\A(?:> [ \t]*[^ \t\n]|\?(?: |\z))' "$text"
        set -l answer
        commandline -f end-of-buffer
        printf '\n'
        __clawd_remember $line
        __clawd_mark ask "$line"
        read -l answer <$__clawd_folder/answer
        set answer (printf %b "$answer" | string collect)
        commandline -r -- "$answer"
        commandline -f end-of-buffer
        commandline -f repaint
    else
        commandline -f execute
    end
end
for __clawd_mode in default insert
    bind -M $__clawd_mode \r __clawd_enter
    bind -M $__clawd_mode \n __clawd_enter
end
set -e __clawd_mode
if functions -q fish_prompt
    and string match -q -- "$__fish_data_dir/*" (functions --details fish_prompt)
    function fish_prompt
        set -l home (string escape --style=regex -- $HOME)
        set -l place (string replace -r -- "^$home(?=/|\$)" '~' $PWD)
        printf '%s $ ' $place
    end
end
"""
