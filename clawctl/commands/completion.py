"""`clawctl completion`: what makes TAB work in bash, zsh and fish. Needs no daemon."""

import os
from pathlib import Path

import click
import msgspec

from clawctl.app import App, Exit, json_command
from clawctl.render import emit, emit_json
from clawd.errors import ForbiddenError
from clawd.kernel.files import replace_file
from clawd.paths import user_home
from clawd.wire.safe_text import visible_line

_BASH = r"""# Completion of clawctl for bash.
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
_ZSH = r"""#compdef clawctl
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
_FISH = r"""# Completion of clawctl for fish.
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
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A completion script."""

    shell: str
    script: str


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A completion script that was written, and what is still to do."""

    shell: str
    path: str
    then: str


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "_words"]), metavar="SHELL")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")
@click.option("--install", is_flag=True, help="Write it where the shell looks, for you alone.")
@json_command(Script | Installed)
@click.pass_context
def command(
    context: click.Context,
    app: App,
    shell: str,
    words: tuple[str, ...],
    *,
    install: bool,
    as_json: bool,
) -> int:
    """Print the completion of SHELL (bash, zsh or fish), or --install it.

    At TAB it offers commands and options, and live names: conversations, tools, models, providers,
    keys, MCP servers, plugins, receipts, notes, files. It never starts a daemon and is never slow.
    """
    if shell == "_words":
        return _complete(context, app, words)
    if words:
        raise click.UsageError(visible_line(f"unexpected after {shell}: {' '.join(words)}", 80))
    if install:
        path, then = _install(shell)
        written = Installed(shell=shell, path=str(path), then=then)
        emit(written, f"wrote {path}\n{then}", as_json=as_json)
    elif as_json:
        emit_json(Script(shell=shell, script=SCRIPTS[shell]))
    else:
        click.echo(SCRIPTS[shell], nl=False)
    return Exit.DONE


def _complete(context: click.Context, app: App, words: tuple[str, ...]) -> int:
    from clawctl.completion import complete, print_lines

    if words:
        shell, *typed = words
        print_lines(complete(context.find_root().command, shell, typed, app))
    return Exit.DONE


def _install(shell: str) -> tuple[Path, str]:
    """Write the script and return where, and what is still to do.

    Raises:
        ForbiddenError: it cannot be written.
    """
    home = user_home(os.environ)
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    zsh = Path(os.environ.get("ZDOTDIR") or home)
    path, then = {
        "bash": (
            data / "bash-completion/completions/clawctl",
            "Open a new shell; it needs the package bash-completion, or in ~/.bashrc the line: "
            'eval "$(clawctl completion bash)"',
        ),
        "zsh": (
            zsh / ".zfunc/_clawctl",
            f"Put before compinit in {zsh / '.zshrc'}, once: fpath+=({zsh / '.zfunc'})\n"
            "Then open a new shell.",
        ),
        "fish": (config / "fish/completions/clawctl.fish", "It works in the next fish."),
    }[shell]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, SCRIPTS[shell].encode(), mode=0o644)
    except OSError as error:
        raise ForbiddenError(
            f"{path} cannot be written: {error.strerror or error}",
            hint=f"Put it where you can: clawctl completion {shell} > FILE",
        ) from error
    return path, then
