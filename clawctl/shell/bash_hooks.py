r"""The hooks of bash and of plain sh, as text.

Enter is two keys to bash: one that shows the line to `__clawd_enter`, one that accepts it. For a
line that is ours the second is made to do nothing until the next Enter. `PROMPT_COMMAND` and `PS0`
tell of prompt and start; a line counts as ours only between a prompt and the next Enter, so that
`read -e`, a continuation and a here-document keep theirs. `exec bash` is a shell without these.
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
