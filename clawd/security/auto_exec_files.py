"""Files in a workspace that programs outside the sandbox run later without being asked to.

A command in the sandbox that may write one of these acts outside after all: the next `git
status`, `pytest`, `cd` or new terminal of the owner runs what it wrote. Pure; `auto_exec_scan`
finds such files on disk and `auto_exec_guard` keeps them from commands.

Settings of linters and formatters are in it where they can name code, because editors run those
on what is opened. Not in the list, on purpose: what agents are there to edit and what somebody
starts to build or test (sources, tests, Makefile, package.json, pyproject.toml, setup.py, tox.ini,
gulpfile.js, webpack.config.js, CI workflows). `paths.acts_later` adds those of them that an editor
evaluates on its own.
"""

import re
from pathlib import Path

# Compared without case: some file systems do not tell `.GIT` from `.git`.
FILES = frozenset(
    {
        # shells, logins, terminals
        ".bash_aliases", ".bash_completion", ".bash_login", ".bash_logout", ".bash_profile",
        ".bashrc", ".cshrc", ".envrc", ".forward", ".inputrc", ".kshrc", ".lessfilter", ".login",
        ".logout", ".mailcap", ".mkshrc", ".muttrc", ".p10k.zsh", ".pam_environment",
        ".procmailrc", ".profile", ".screenrc", ".tcshrc", ".tmux.conf", ".wezterm.lua", ".wgetrc",
        ".xbindkeysrc", ".xinitrc", ".xonshrc", ".xprofile", ".xserverrc", ".xsession",
        ".xsessionrc", ".yashrc", ".zimrc", ".zlogin", ".zlogout", ".zpreztorc", ".zprofile",
        ".zshenv", ".zshrc",
        # what a change of folder runs, and what picks the programs of a project
        ".asdfrc", ".autoenv", ".autoenv.leave", ".autoenv.zsh", ".autoenv_leave.zsh",
        ".bazeliskrc", ".direnvrc", ".jvmopts", ".miserc.toml", ".npmrc", ".pnpmfile.cjs",
        ".pnpmfile.mjs", ".sbtopts", ".yarnrc", ".yarnrc.yml", "bunfig.toml", "direnvrc",
        "rust-toolchain", "rust-toolchain.toml",
        # interpreters and debuggers
        ".byebugrc", ".erlang", ".eclrc", ".gdbearlyinit", ".gdbinit", ".ghci", ".guile",
        ".iex.exs", ".irbrc", ".lldbinit", ".ocamlinit", ".octaverc", ".pdbrc", ".pdbrc.py",
        ".perldb", ".pryrc", ".psqlrc", ".pythonrc", ".pythonrc.py", ".pythonstartup",
        ".radare2rc", ".rdbgrc", ".rdbgrc.rb", ".renviron", ".rprofile", ".sbclrc", ".sqliterc",
        ".utoprc", "conftest.py", "conftest.pyc",
        # repositories and their hooks
        ".gitconfig", ".hgrc", ".jjconfig.toml", ".local-overcommit.yml", ".overcommit.yml",
        ".pre-commit-config.yaml", ".pre-commit-config.yml", "captainhook.json", "prek.toml",
        # editors, and what checks a file while it is edited
        ".ansible-lint", ".credo.exs", ".devcontainer.json", ".dir-locals-2.el", ".dir-locals.el",
        ".emacs", ".emacs.el", ".erb-lint.yml", ".erb_lint.yml", ".exrc", ".flake8",
        ".formatter.exs", ".gitpod.yml", ".gvimrc", ".haml-lint.yml", ".kakrc", ".kateproject",
        ".lazy.lua", ".local.vimrc", ".luarc.json", ".luarc.jsonc", ".lvimrc", ".merlin", ".nanorc",
        ".nvim.lua", ".nvimrc", ".rubocop.yml", ".scalafix.conf", ".solargraph.yml", ".sqlfluff",
        ".standard.yml", ".tflint.hcl", ".treefmt.toml", ".vimrc", ".yardopts",
        ".ycm_extra_conf.py", "ansible.cfg", "hie.yaml", "omnisharp.json", "treefmt.toml",
        # agents: their settings name programs that they start
        ".aider.conf.yml", ".claude.json", ".crush.json", ".mcp.json", ".opencode.json",
        "crush.json", "opencode.json", "opencode.jsonc",
        # procedures, which clawd runs itself
        "sop.toml",
    }
)  # fmt: skip
SUFFIXES = (".pth", ".code-workspace", ".sublime-project")
_ENDING = r"\.([cm]?[jt]s|jsonc?|ya?ml)"
# Families of names: `mise.local.toml`, `.lefthook-local.yaml`, `.lintstagedrc.mjs`.
# One pattern: a scan asks it of every file of a workspace.
_NAMED = re.compile(
    "|".join((
        r"(site|user)customize\.(.*\.)?(pyc?|so)",
        r"\.?(mise|rtx)(\.[\w-]+)*\.toml",
        r"\.?lefthook(-local)?\.(ya?ml|toml|jsonc?)",
        rf"\.(lintstaged|commitlint|husky)rc({_ENDING})?",
        rf"((lint-staged|commitlint)\.config|\.?simple-git-hooks){_ENDING}",
        # Linters and formatters: editors run them on what is opened or saved.
        rf"\.(eslint|oxlint|prettier|remark|stylelint|textlint)rc({_ENDING}|\.json5|\.toml)?",
        rf"(eslint|prettier|remark|stylelint|xo)\.config{_ENDING}",
        rf"\.(markdownlint(-cli2)?|xo-config){_ENDING}",
        r"\.?cspell(\.config)?\.[cm]?js",
        r"\.?(pylintrc(\.toml)?|mypy\.ini)",
        r"\.golangci\.(ya?ml|toml|json)",
        r"\.php[-_]cs(-fixer)?(\.dist)?(\.php)?|(\.?phpcs|psalm)\.xml(\.dist)?",
        r"\.?phpstan(\.dist)?\.neon(\.dist)?",
    ))
)  # fmt: skip
FOLDERS = frozenset(
    {
        ".bsp", ".cargo", ".claude", ".codex", ".continue", ".cursor", ".devcontainer", ".emacs.d",
        ".externaltoolbuilders", ".fleet", ".gemini", ".githooks", ".git-hooks", ".helix", ".husky",
        ".idea", ".idx", ".ipython", ".jupyter", ".kiro", ".lefthook", ".lefthook-local", ".lein",
        ".mise", ".mutt", ".mvn", ".nova", ".oh-my-zsh", ".opencode", ".phan", ".qwen", ".roo",
        ".ropeproject", ".ssh", ".tflint.d", ".trunk", ".vim", ".vscode", ".windsurf", ".xmonad",
        ".zed", "sitecustomize", "usercustomize",
    }
)  # fmt: skip
# What runs later by the folder that it lies in; the folder's last two names at most.
BELOW = {
    ".config": frozenset(
        {
            "alacritty", "autostart", "awesome", "bspwm", "containers", "direnv", "elvish",
            "emacs", "environment.d", "fish", "gdb", "ghostty", "git", "helix", "hypr", "i3",
            "jj", "kak", "kitty", "mise", "mpv", "mutt", "nano", "niri", "nushell", "nvim",
            "openbox", "plasma-workspace", "powershell", "qtile", "sway", "sxhkd", "systemd",
            "tmux", "user-tmpfiles.d", "vim", "waybar", "wezterm", "xonsh", "zed", "zsh",
        }
    ),
    ".local": frozenset({"bin"}),
    ".local/share": frozenset({"applications", "dbus-1", "nautilus-python", "systemd"}),
    ".bundle": frozenset({"config", "plugin"}),
    ".gradle": frozenset({"init.d", "init.gradle", "init.gradle.kts"}),
    "gradle/wrapper": frozenset({"gradle-wrapper.jar", "gradle-wrapper.properties"}),
    ".hg": frozenset({"hgrc"}),
    ".jj/repo": frozenset({"config.toml"}),
    ".yarn": frozenset({"plugins", "releases", "sdks"}),
    "mise": frozenset({"config.toml", "config.local.toml"}),
}  # fmt: skip
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


def own_programs(workspace: Path) -> str:
    """Return the folder `bin` of the user's home where it lies within a workspace, else nothing."""
    try:
        folder = Path.home().resolve() / "bin"
    except RuntimeError:  # a user without a home
        return ""
    return str(folder) if workspace in folder.parents else ""


def is_auto_exec(parts: tuple[str, ...], *, workspace: Path | None = None) -> bool:
    """Return whether a file at this path, relative to a workspace, runs later outside.

    Goes by names alone, so it holds for a path where nothing is yet. Everything in a repository's
    own folder and in a virtual environment counts. With the workspace it can be told, too, whether
    a folder `bin` is that of the user's home.
    """
    folded = tuple(part.casefold() for part in parts)
    if not folded:
        return False
    folders, name = folded[:-1], folded[-1]
    inside_private = {".git", "site-packages"} & set(folders) or VENV_NAMES & set(folders)
    below = any(is_below("/".join(folded[:at]), folded[at]) for at in range(1, len(folded)))
    return bool(
        inside_private
        or below
        or is_named_auto_exec(name)
        or name in {".git", VENV_FILE}
        or FOLDERS & set(folded)
        or (workspace is not None and _is_own_program(parts, workspace))
    )


def _is_own_program(parts: tuple[str, ...], workspace: Path) -> bool:
    path = workspace.joinpath(*parts)
    folder = own_programs(workspace)
    return bool(folder) and Path(folder) in (path, *path.parents)


def is_below(folder: str, name: str) -> bool:
    """Return whether a name, already without case, runs later for the folder that it lies in."""
    last = folder.casefold().rsplit("/", 2)[-2:]
    return name in BELOW.get(last[-1], ()) or name in BELOW.get("/".join(last), ())


def is_named_auto_exec(name: str) -> bool:
    """Return whether a file of this name, already without case, runs later wherever it lies."""
    return name in FILES or name.endswith(SUFFIXES) or _NAMED.fullmatch(name) is not None


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
