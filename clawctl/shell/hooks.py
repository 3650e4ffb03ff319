"""How a shell is started so that it tells us of its prompt: what runs it, with which files.

The person's own files come first and nothing of theirs is changed on disk. The hooks are in files
of a private folder that is gone when the shell is up; they hold the session's nonce, which is
never exported.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clawctl.shell.bash_hooks import BASH, SH
from clawctl.shell.fish_hooks import FISH
from clawctl.shell.zsh_hooks import ZSH_ENV, ZSH_RC

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
