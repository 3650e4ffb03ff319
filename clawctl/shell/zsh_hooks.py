r"""The hooks of zsh, as text.

`ZDOTDIR` leads zsh to our files, which put the person's own back before they read theirs. What
Enter does is wrapped after that, so that plugins which wrap it as well stay in the row. zle says
itself whether a line stands at the first prompt (`CONTEXT`), in a continuation or in `vared`.
"""

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
