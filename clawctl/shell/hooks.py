"""How a shell is started so that it tells us of its prompt: what runs it, with which files.

The person's own files come first and nothing of theirs is changed on disk. The hooks are in files
of a private folder that is gone when the shell is up; they hold the session's nonce, which is
never exported.
"""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

ZSH_ENV = r"""
if [[ -n ${CLAWD_ZDOTDIR+x} ]]; then export ZDOTDIR=$CLAWD_ZDOTDIR; else unset ZDOTDIR; fi
unset CLAWD_ZDOTDIR
[[ -r ${ZDOTDIR:-$HOME}/.zshenv ]] && source ${ZDOTDIR:-$HOME}/.zshenv
if [[ -n ${ZDOTDIR+x} ]]; then __clawd_zdotdir=$ZDOTDIR; else unset __clawd_zdotdir; fi
[[ -o interactive ]] && ZDOTDIR=@FOLDER@
"""
ZSH_RC = r"""
if [[ -n ${__clawd_zdotdir+x} ]]; then ZDOTDIR=$__clawd_zdotdir; else unset ZDOTDIR; fi
unset __clawd_zdotdir
# What the system's files took from the folder that we led zsh to.
[[ ${HISTFILE-} == @FOLDER@/* ]] && HISTFILE=${ZDOTDIR:-$HOME}/${HISTFILE:t}
__clawd_ps1=$PS1
[[ -r ${ZDOTDIR:-$HOME}/.zshrc ]] && source ${ZDOTDIR:-$HOME}/.zshrc
__clawd_folder=@FOLDER@
__clawd_mark() {
  emulate -L zsh
  local value=${2[1,100000]}
  value=${value//\\/\\\\} value=${value//$'\e'/\\e} value=${value//$'\a'/\\a}
  value=${value//$'\n'/\\n} value=${value//$'\r'/\\r}
  builtin printf '\e]7717;@NONCE@;%s;%s\a' "$1" "$value" >/dev/tty
}
__clawd_precmd() {
  local code=$?
  emulate -L zsh
  __clawd_mark done "$code;$PWD"
  return $code
}
__clawd_preexec() {
  emulate -L zsh
  __clawd_mark line "$1"
  __clawd_mark start
}
__clawd_is_ours() {
  emulate -L zsh -o extended_glob
  [[ $CONTEXT == start && -z $PREBUFFER ]] || return 1
  local text=${BUFFER##[[:blank:]]##}
  [[ $text == '> '*[^[:blank:]]* || $text == '?' || $text == '? '* ]]
}
__clawd_ask() {
  emulate -L zsh
  local answer=
  print -sr -- "$BUFFER"
  zle -I
  __clawd_mark ask "$BUFFER"
  IFS= read -r answer <"$__clawd_folder/answer"
  # The line being edited comes after the question now, so that Up finds that first.
  HISTNO=$HISTCMD
  builtin printf -v BUFFER %b "$answer"
  CURSOR=$#BUFFER
}
__clawd_accept_line() {
  if __clawd_is_ours; then __clawd_ask; else zle __clawd_own_accept_line; fi
}
zle -A accept-line __clawd_own_accept_line
zle -N accept-line __clawd_accept_line
typeset -ga precmd_functions preexec_functions
precmd_functions=(__clawd_precmd $precmd_functions)
preexec_functions+=(__clawd_preexec)
[[ $PS1 == $__clawd_ps1 ]] && PS1='%~ %(!.#.$) '
unset __clawd_ps1
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


BASH = r"""
__clawd_ps1=$PS1
[[ -r ~/.bashrc ]] && . ~/.bashrc
if [[ $- == *i* && ${BASH_VERSINFO[0]}${BASH_VERSINFO[1]} -ge 44 ]]; then
# What is exported is seen by every program; none may see the number in here.
__clawd_options=$- __clawd_ps0=${PS0-}
set +a
unset PS0
__clawd_folder=@FOLDER@
__clawd_at=0
__clawd_is_deaf=0
__clawd_mark() {
  local value=${2:0:100000}
  value=${value//\\/\\\\} value=${value//$'\e'/\\e} value=${value//$'\a'/\\a}
  value=${value//$'\n'/\\n} value=${value//$'\r'/\\r}
  builtin printf '\e]7717;@NONCE@;%s;%s\a' "$1" "$value" >/dev/tty
}
__clawd_prompt() {
  local code=$?
  { local -; set +x; } 2>/dev/null
  __clawd_at=1
  __clawd_mark done "$code;$PWD"
  return $code
}
__clawd_second_key() {
  local map
  for map in emacs-standard vi-insert vi-command; do
    builtin bind -m "$map" "$1"
  done
}
__clawd_enter() {
  local code=$?
  { local -; set +x; } 2>/dev/null
  if [[ $__clawd_is_deaf == 1 ]]; then
    __clawd_is_deaf=0
    __clawd_second_key '"\e[7718~": accept-line'
  fi
  local line=$READLINE_LINE answer=
  local text=${line#"${line%%[![:blank:]]*}"}
  case $__clawd_at$text in
    1'> '*[![:blank:]]* | 1'?' | 1'? '*) ;;
    1) return $code ;;
    *) __clawd_at=0 && __clawd_mark line "$line"; return $code ;;
  esac
  builtin history -s -- "$line"
  local prompt=${PS1@P}
  prompt=${prompt//[$'\001\002']/}
  builtin printf '%s%s\n' "${prompt##*$'\n'}" "$line"
  __clawd_mark ask "$line"
  IFS= builtin read -r answer <"$__clawd_folder/answer"
  builtin printf -v READLINE_LINE %b "$answer"
  READLINE_POINT=1000000
  __clawd_is_deaf=1
  __clawd_second_key '"\e[7718~": ""'
  return $code
}
if [[ $(builtin declare -p PROMPT_COMMAND 2>/dev/null) == 'declare -a'* ]]; then
  PROMPT_COMMAND=(__clawd_prompt "${PROMPT_COMMAND[@]}")
else
  PROMPT_COMMAND="__clawd_prompt${PROMPT_COMMAND:+; $PROMPT_COMMAND}"
fi
PS0="$__clawd_ps0\e]7717;@NONCE@;start;\a"
[[ $PS1 == "$__clawd_ps1" ]] && PS1='\w \$ '
for __clawd_map in emacs-standard vi-insert vi-command; do
  builtin bind -m "$__clawd_map" -x '"\e[7717~": __clawd_enter'
  builtin bind -m "$__clawd_map" '"\e[7718~": accept-line'
  builtin bind -m "$__clawd_map" '"\C-m": "\e[7717~\e[7718~"'
  builtin bind -m "$__clawd_map" '"\C-j": "\e[7717~\e[7718~"'
done
[[ $__clawd_options == *a* ]] && set -a
unset __clawd_map __clawd_ps1 __clawd_ps0 __clawd_options
fi
"""
SH = r"""
if [ -n "$CLAWD_ENV" ]; then ENV=$CLAWD_ENV; [ -r "$ENV" ] && . "$ENV"; else unset ENV; fi
unset CLAWD_ENV
__clawd_folder=@FOLDER@
ask() {
  __clawd_value=$(printf '%s' "> $*" | sed -e 's/\\/\\\\/g' | tr -d '\007\033\r')
  printf '\033]7717;@NONCE@;ask;%s\007' "$__clawd_value" >/dev/tty
  IFS= read -r __clawd_answer <"$__clawd_folder/answer"
  [ -z "$__clawd_answer" ] || printf '%b\n' "$__clawd_answer"
}
__clawd_options=$-
__clawd_ps1=${CLAWD_PS1-${PS1-}}
set +a
unset CLAWD_PS1
case $__clawd_ps1 in '' | '$ ' | '# ') __clawd_ps1='${PWD} $ ' ;; esac
PS1="$(printf '\033]7717;@NONCE@;done;')"'$?;$PWD'"$(printf '\007')$__clawd_ps1"
case $__clawd_options in *a*) set -a ;; esac
"""


INSIDE = "CLAWD_SHELL"
FALLBACK = "/bin/sh"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What starts a shell.

    Attributes:
        kind: bash, zsh, fish or sh.
        files: texts to write into the private folder, by name.
    """

    kind: str
    argv: tuple[str, ...]
    environ: dict[str, str]
    files: dict[str, str]

    @property
    def catches_lines(self) -> bool:
        """Whether lines that begin with `>` reach us; else there is the command `ask`."""
        return self.kind != "sh"


def launch(shell: str, folder: Path, nonce: str, environ: Mapping[str, str]) -> Launch:
    """Return what starts this shell with our hooks, answers coming by `folder / "answer"`."""
    name = Path(shell).name
    env = {name: value for name, value in environ.items() if name != INSIDE} | {INSIDE: "1"}
    values = {"@NONCE@": nonce, "@FOLDER@": shlex.quote(str(folder))}
    if name in {"bash", "rbash"}:
        argv = (shell, "--rcfile", str(folder / "bashrc"), "-i")
        return Launch(kind="bash", argv=argv, environ=env, files={"bashrc": _filled(BASH, values)})
    if name == "zsh":
        env |= {"CLAWD_ZDOTDIR": env["ZDOTDIR"]} if "ZDOTDIR" in env else {}
        files = {".zshenv": _filled(ZSH_ENV, values), ".zshrc": _filled(ZSH_RC, values)}
        return Launch(
            kind="zsh", argv=(shell, "-i"), environ=env | {"ZDOTDIR": str(folder)}, files=files
        )
    if name == "fish":
        argv = (shell, "-i", "-C", f"source {shlex.quote(str(folder / 'hooks.fish'))}")
        files = {"hooks.fish": _filled(FISH, values)}
        return Launch(kind="fish", argv=argv, environ=env, files=files)
    # Its own prompt would be exported again, with our number in it.
    env |= {"CLAWD_PS1": env.pop("PS1")} if "PS1" in env else {}
    env |= {"ENV": str(folder / "shrc"), "CLAWD_ENV": env.get("ENV", "")}
    return Launch(kind="sh", argv=(shell, "-i"), environ=env, files={"shrc": _filled(SH, values)})


def chosen_shell(wanted: str, environ: Mapping[str, str]) -> str:
    """Return the shell to start: the one that is wanted, else $SHELL, else /bin/sh.

    What is wanted is returned as it is; the caller finds out whether it can be run.
    """
    if wanted:
        return wanted
    own = environ.get("SHELL", "")
    is_there = own.startswith("/") and os.path.isfile(own) and os.access(own, os.X_OK)  # noqa: PTH113 - a name from outside
    return own if is_there else FALLBACK


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


# What the shell tells us between the bytes it prints: marks, and the reader that takes them out.
#
# A mark is an operating system command of our own, `ESC ] 7717 ; NONCE ; KIND ; VALUE BEL`. NONCE
# is drawn anew for each session and lives in the shell's unexported variables, so that no program
# which runs there, and no file that is shown, can forge one. In VALUE a backslash, ESC, BEL, a line
# feed and a carriage return are written `\\`, `\e`, `\a`, `\n`, `\r`: a terminal's line discipline
# passes the rest. For example: `ESC ] 7717 ; 5f…c0 ; done ; 1;/srv/my project BEL`.
#
#     done   the prompt comes: status and folder of the last command
#     line   a line was entered at the prompt, or at a continuation of it
#     start  the entered command starts
#     ask    a line is for us; the shell waits for the answer

CODE = "7717"
MAX_MARK_BYTES = 256 * 1024

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MEANT = {"n": "\n", "r": "\r", "e": "\x1b", "a": "\a"}


class ShellMark(msgspec.Struct, frozen=True, kw_only=True):
    """One mark: its kind, and its value with escapes undone."""

    kind: str
    value: str = ""


class MarkReader:
    """Parts a shell's output into bytes for the terminal and marks for us.

    Args:
        nonce: of this session, letters and digits.
    """

    def __init__(self, nonce: str) -> None:
        self._begin = f"\x1b]{CODE};{nonce};".encode()
        self._held = b""

    def feed(self, data: bytes) -> list[bytes | ShellMark]:
        """Return what the output holds, in order; an unfinished mark waits for its rest."""
        data, self._held = self._held + data, b""
        out: list[bytes | ShellMark] = []
        at = 0
        while (begin := data.find(self._begin, at)) >= 0:
            end = data.find(b"\a", begin, begin + MAX_MARK_BYTES)
            if end < 0 and len(data) - begin < MAX_MARK_BYTES:
                self._held = data[begin:]
                return [*out, data[at:begin]] if begin > at else out
            if begin > at:
                out.append(data[at:begin])
            if end < 0:  # ours began it, so nobody is to see it: what is too long is dropped
                at = begin + len(self._begin)
                continue
            out.append(_mark(data[begin + len(self._begin) : end]))
            at = end + 1
        cut = self._may_begin(data, at)
        self._held = data[cut:]
        if cut > at:
            out.append(data[at:cut])
        return out

    def rest(self) -> bytes:
        """Return what waits at the end of the output."""
        held, self._held = self._held, b""
        return held

    def _may_begin(self, data: bytes, at: int) -> int:
        """Return where a mark may begin that is not here whole yet, else the end."""
        begin = data.rfind(b"\x1b", max(at, len(data) - len(self._begin) + 1))
        return begin if begin >= 0 and self._begin.startswith(data[begin:]) else len(data)


def _mark(data: bytes) -> ShellMark:
    kind, _, value = data.decode(errors="replace").partition(";")
    return ShellMark(kind=kind, value=_ESCAPED.sub(lambda m: _MEANT.get(m[1], m[1]), value))


def reply_text(text: str) -> str:
    """Return an answer as the shell takes it: one line, for `printf %b`."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")
