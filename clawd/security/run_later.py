"""Files in a workspace that programs outside the sandbox run later without being asked to.

A command in the sandbox that may write one of these acts outside after all: the next `git
status`, `pytest`, `cd` or new terminal of the owner runs what it wrote. Pure; `run_later_scan`
finds such files on disk and `run_later_guard` keeps them from commands.

Not in the list, on purpose: what agents are there to edit and what nobody runs by accident
(sources, tests, Makefile, package.json, pyproject.toml, setup.py, CI workflows).
"""

import re
from itertools import pairwise

# Compared without case: some file systems do not tell `.GIT` from `.git`.
FILES = frozenset(
    {
        ".bash_aliases", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".cshrc",
        ".envrc", ".inputrc", ".kshrc", ".login", ".logout", ".profile", ".tcshrc", ".xinitrc",
        ".xprofile", ".xsession", ".xsessionrc", ".zlogin", ".zlogout", ".zprofile", ".zshenv",
        ".zshrc",
        "conftest.py", "conftest.pyc", ".pdbrc", ".pythonrc", ".pythonrc.py",
        ".gitconfig", ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml",
        ".lefthook.yml", ".mise.toml", "mise.toml", ".npmrc", ".yarnrc", ".yarnrc.yml",
        ".pnpmfile.cjs",
        ".exrc", ".nvimrc", ".nvim.lua", ".vimrc", ".gvimrc", ".emacs", ".dir-locals.el",
        ".gdbinit", ".lldbinit", ".irbrc", ".rprofile", ".tmux.conf", ".screenrc", ".mailcap",
    }
)  # fmt: skip
SUFFIXES = (".pth",)
_CUSTOMIZE = re.compile(r"(site|user)customize\.(.*\.)?(pyc?|so)")
FOLDERS = frozenset(
    {
        ".cargo", ".devcontainer", ".fleet", ".githooks", ".husky", ".idea", ".vscode", ".zed",
        "sitecustomize", "usercustomize",
    }
)  # fmt: skip
# Below `.config` of a home.
CONFIG_FOLDERS = frozenset({"autostart", "environment.d", "fish", "git", "nvim", "systemd"})
# Of a repository: its programs, and the settings that name programs.
GIT_FILES = frozenset({"config", "config.worktree", "commondir"})
GIT_FOLDERS = frozenset({"hooks"})
VENV_FILE = "pyvenv.cfg"
VENV_PARTS = frozenset({VENV_FILE, "bin", "lib", "scripts"})
VENV_NAMES = frozenset({"venv", ".venv", "virtualenv", ".virtualenv"})

_HOOKS_PATH = re.compile(r"^\s*hookspath\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
# What `git init`, `git clone`, `git remote add` and a first push write; no value is run.
_PLAIN_SECTIONS = {
    "core": {
        "repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase",
        "precomposeunicode", "symlinks",
    },
    "remote": {"url", "fetch"},
    "branch": {"remote", "merge", "rebase"},
    "user": {"name", "email"},
    "init": {"defaultbranch"},
    "extensions": {"objectformat", "refstorage"},
}  # fmt: skip
_SECTION = re.compile(r'\[([a-z]+)(?: "[^"\\]*")?\]')
_SETTING = re.compile(r"\s*([a-zA-Z]+) = ([^\\]*)")
_PLAIN_URL = re.compile(r"(/|\./|\.\./|https?://|ssh://|git://|file://|[\w.]+@[\w.-]+:)[^-\s].*")


def is_run_later(parts: tuple[str, ...]) -> bool:
    """Return whether a file at this path, relative to a workspace, runs later outside.

    Goes by names alone, so it holds for a path where nothing is yet. Everything in a repository's
    own folder and in a virtual environment counts.
    """
    folded = tuple(part.casefold() for part in parts)
    if not folded:
        return False
    folders, name = folded[:-1], folded[-1]
    inside_private = {".git", "site-packages"} & set(folders) or VENV_NAMES & set(folders)
    below_config = any(a == ".config" and b in CONFIG_FOLDERS for a, b in pairwise(folded))
    return bool(
        inside_private
        or below_config
        or is_named_run_later(name)
        or name in {".git", VENV_FILE}
        or FOLDERS & set(folded)
    )


def is_named_run_later(name: str) -> bool:
    """Return whether a file of this name, already without case, runs later wherever it lies."""
    return name in FILES or name.endswith(SUFFIXES) or bool(_CUSTOMIZE.fullmatch(name))


def hooks_path(config: str) -> str:
    """Return the last core.hooksPath of a repository's configuration; empty for none."""
    found = _HOOKS_PATH.findall(config)
    return found[-1].strip('"') if found else ""


def is_plain_git_config(config: str) -> bool:
    """Return whether a repository's configuration holds only settings that run nothing.

    What is not understood is not plain.
    """
    allowed: set[str] = set()
    for line in config.splitlines():
        if section := _SECTION.fullmatch(line):
            allowed = _PLAIN_SECTIONS.get(section[1], set())
        elif setting := _SETTING.fullmatch(line):
            key, value = setting[1].lower(), setting[2]
            if key not in allowed or (key == "url" and not _PLAIN_URL.fullmatch(value)):
                return False
        elif line.strip():
            return False
    return True
