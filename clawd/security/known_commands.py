"""What the commands of everyday work do, where the full sandbox holds them.

Three kinds: those that only read, which run unasked; those of everyday work, which change files of
the workspace or run code from it and therefore ask; all others. A command is judged by its words
alone: its name, its subcommand and the options with which it would write or run something. What an
interpreter, a build tool or a test runner is given is not read, so none of them only reads.
"""

import re
from collections.abc import Callable
from itertools import takewhile

import msgspec

from clawd.security.program_text import awk_program, sed_script
from clawd.security.risk import Opening, Risk
from clawd.security.shell_words import (
    FD_RUNS,
    Word,
    is_abbreviated,
    risky_option,
    takes_any_arguments,
)

# They read whatever their arguments are; `find`, `git`, `sed` and others have their own check.
READERS = frozenset({
    "[", "b2sum", "basename", "bc", "cal", "cat", "cd", "cksum", "cmp", "column", "comm", "command",
    "cut", "df", "diff", "dirname", "dirs", "du", "echo", "env", "egrep", "expand", "expr", "false",
    "fgrep", "file", "fmt", "fold", "free", "getconf", "getent", "grep", "groups", "head",
    "hexdump", "hostname", "iconv", "id", "ionice", "join", "jq", "locale", "ls", "lscpu",
    "md5sum", "nl", "nm", "nohup", "nproc", "numfmt", "objdump", "od", "paste", "popd", "pr",
    "printenv", "ps", "pushd", "pwd", "readelf", "readlink", "realpath", "rev", "rg", "seq",
    "printf", "sha1sum", "size",
    "sha224sum", "sha256sum", "sha384sum", "sha512sum", "sleep", "sort", "stat",
    "strings", "sum", "tac", "tail", "test", "tr", "tree", "true", "tsort", "type", "uname",
    "unexpand", "uniq", "uptime", "wc", "wait", "whereis", "which", "whoami", "xxd", "zcat", ":",
    "exit", "read", "shift", "continue", "break", "date", "return",
    "addr2line", "arch", "base32", "base64", "basenc", "bzcat", "bzgrep", "c++filt", "clear",
    "envsubst", "eza", "exa", "factor", "logname", "look", "lsb_release", "lsblk", "lsof",
    "lzcat", "pgrep", "pstree", "shuf", "ss", "times", "tokei", "tput", "tty", "umask", "users",
    "vmstat", "w", "who", "xmllint", "xzcat", "xzgrep", "yes", "zegrep", "zfgrep", "zgrep",
    "zipinfo",
})  # fmt: skip
# Forms in which a command reads that does more in others: its words, joined by blanks.
_OPERANDS = r"( [^-+ ]\S*)*"
_TO_STDOUT = rf"-[dkfnqv1-9]*c[dkfnqv1-9]*{_OPERANDS}"
_SHOWN_LINES = r"(-[NRSFXAnp]+ |--plain |--style=\S+ |--color=\S+ |(-r|-l|--line-range) \S+ )*"
_GLOBS = re.compile(r"[*?\[]")  # may match a name that is an option
_READING_FORMS: dict[str, str] = {
    **dict.fromkeys(("gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd"), _TO_STDOUT),
    **dict.fromkeys(("bat", "batcat"), rf"{_SHOWN_LINES}[^-+ ]\S*{_OPERANDS}"),
    "less": rf"(-[NRSFX]+ )*[^-+ ]\S*{_OPERANDS}",
    "more": rf"[^-+ ]\S*{_OPERANDS}",
    "dpkg": rf"(-[lLsSp]|--(list|listfiles|status|search|print-architecture)){_OPERANDS}",
    "dpkg-query": rf"(-[lLsSW]|--(list|listfiles|status|search|show)){_OPERANDS}",
    "apt": rf"(list|show|search|policy|depends|rdepends)( --installed| --upgradable)*{_OPERANDS}",
    "apt-cache": rf"(show|search|policy|depends|rdepends|madison){_OPERANDS}",
    "rpm": rf"-q[ailfdcR]*{_OPERANDS}",
    "pkg-config": r"(--(cflags|libs|static|exists|modversion|list-all|variable=\w+) ?)+"
    rf"([^-+ ]\S*)?{_OPERANDS}",
    "mktemp": r"(-[dqu]+( |$))*(-t [\w.-]+|/tmp/[\w.-]+)?",
    "alias": "",
    "jobs": r"(-[lnprs]+ ?)*",
    "history": r"\d*",
    "ulimit": "|-[aHS]*[a-zA-Z]?",
}
# Options with which such a command sets something, writes or runs a program.
_NOT_READING: dict[str, tuple[str, ...]] = {
    "hostname": ("-F", "--file", "-b", "--boot"),
    "iconv": ("-o", "--output"),
    "nm": ("--plugin",),
    "objdump": ("--plugin", "-P", "--private"),
    "lsof": ("-D",),
    "printf": ("-v",),
    "size": ("--plugin",),
    "xmllint": ("-o", "--o", "-shell", "--shell"),
}
_SETS_THE_SHELL = re.compile(r"[-+][efuxo]+|pipefail|errexit|nounset|noglob|xtrace")
_READING_GIT = frozenset({
    "annotate", "blame", "cat-file", "check-attr", "check-ignore", "check-mailmap", "cherry",
    "count-objects", "describe", "diff", "diff-index", "diff-tree", "for-each-ref", "grep", "log",
    "ls-files", "ls-tree", "merge-base", "name-rev", "range-diff", "rev-list", "rev-parse",
    "shortlog", "show", "show-branch", "show-ref", "status", "version", "whatchanged", "branch",
})  # fmt: skip
# Subcommands that read with these words behind them, and only with these.
_READING_GIT_FORMS: dict[str, tuple[str, ...]] = {
    "archive": ("-l|--list",),
    "bisect": ("log",),
    "bundle": (r"(verify|list-heads) [^-]\S*",),
    "clean": (r"-[dxX]*n[dxX]*",),
    "fsck": (r"(--(full|strict|no-dangling|no-progress) ?)*",),
    "notes": (r"(list|show)?( [^-]\S*)*",),
    "sparse-checkout": ("list",),
    "var": (r"-l|GIT_\w+",),
    "config": (
        r"[\w-]+\.([\w./-]+\.)?[\w-]+",
        r"--get(-all|-regexp)? [\w.*-]+",
        r"(-l|--list)( --\S+)*",
        r"get [\w.-]+",
        "list",
    ),
    "reflog": (r"(show.*)?", r"-.*"),
    "remote": (r"(-v|--verbose)?", r"get-url \S+"),
    "stash": (r"list.*", r"show.*"),
    "submodule": ("", "status.*"),
    "tag": (r"", r"(-l|--list|-n\d*|--sort=\S+|--contains|--points-at|--merged|--no-merged).*"),
    "worktree": ("list.*",),
    "symbolic-ref": (r"(-q |--short )*HEAD",),
}
_WORKING_GIT = frozenset({
    "add", "am", "apply", "branch", "checkout", "cherry-pick", "commit", "format-patch", "init",
    "merge", "mv", "rebase", "reset", "restore", "revert", "rm", "stash", "switch", "tag",
    "archive", "bundle", "gc", "notes", "rerere", "sparse-checkout", "update-index",
})  # fmt: skip
_GIT_RUNS = {
    "archive": ("--exec", "--remote"),
    "rebase": ("-x", "--exec"),
    "apply": ("--unsafe-paths",),
    "merge": ("-s", "--strategy"),
    "grep": ("-O", "--open-files-in-pager"),
    "cat-file": ("--textconv", "--filters"),
}
_HARMLESS_SETTING = re.compile(
    r"(?:color\.|advice\.|core\.quote|user\.(?:name|email)=|init\.defaultbranch=|log\.date=|"
    r"(?:commit|tag)\.gpgsign=false$|(?:core|sequence)\.editor=(?:true|:)$|"
    r"core\.pager=(?:cat)?$|safe\.directory=)",
    re.IGNORECASE,
)
_GIT_FLAGS = frozenset({
    "--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs", "-P",
    "--glob-pathspecs", "--icase-pathspecs", "--no-advice",
})  # fmt: skip

_INTERPRETER = re.compile(r"(?:python|node|deno|bun|ruby|perl)(?:\d[\d.]*)?")
# Whatever their arguments are: they work on files of the workspace, or run what it holds.
_CHANGING = frozenset({
    "mkdir", "cp", "mv", "touch", "ln", "tee", "zip", "unzip", "gzip", "gunzip", "chmod", "patch",
    "bunzip2", "bzip2", "csplit", "dos2unix", "install", "lz4", "rename", "rmdir", "split",
    "truncate", "unix2dos", "unxz", "xz", "zstd",
})  # fmt: skip
# Interpreters, test runners, checkers, formatters, compilers, debuggers and what builds documents
# or pictures, of any language. None has a word with which it fetches packages or sends anything.
_RUNNING = frozenset({
    "pytest", "py.test", "tox", "nox", "ruff", "mypy", "black", "make", "gmake", "cmake", "ninja",
    "coverage", "flake8", "isort", "pylint", "pyright", "yapf", "autopep8", "codespell", "bandit",
    "tsc", "eslint", "prettier", "jest", "vitest", "mocha", "biome",
    "rustc", "rustfmt", "gofmt", "golangci-lint", "staticcheck", "java", "javac",
    "gcc", "g++", "cc", "c++", "clang", "clang++", "ar", "ld", "ranlib", "strip", "clang-format",
    "clang-tidy", "cppcheck", "ctest", "meson", "shellcheck", "shfmt", "yamllint", "hadolint",
    "actionlint", "stylelint", "oxlint", "dprint", "taplo", "pydocstyle", "pyupgrade", "vulture",
    "basedpyright", "ty", "djlint", "rubocop", "ktlint", "vale", "markdownlint-cli2",
    "sphinx-build", "pandoc", "doxygen", "markdownlint",
    "behave", "cython", "cythonize", "django-admin", "docformatter", "flask", "gunicorn",
    "hyperfine", "ipython", "pdoc", "pycodestyle", "pydoc", "pydoc3", "pyflakes", "radon",
    "robot", "uvicorn",
    "ava", "babel", "c8", "esbuild", "nodemon", "nyc", "postcss", "rollup", "sass", "svelte-check",
    "swc", "tap", "ts-node", "tsx", "vite", "vue-tsc", "webpack", "knip",
    "dlv", "errcheck", "ginkgo", "gofumpt", "goimports", "gotestsum", "mockgen",
    "revive", "stringer",
    "aclocal", "as", "autoconf", "autoheader", "automake", "autoreconf", "bison", "cpplint",
    "flex", "gcov", "gdb", "genhtml", "gfortran", "lcov", "ldd", "libtoolize", "lldb", "m4",
    "nasm", "objcopy", "scons", "valgrind",
    "Rscript", "groovy", "julia", "kotlin", "kotlinc", "lua", "luacheck", "luajit", "php",
    "php-cs-fixer", "phpstan", "phpunit", "psalm", "scala", "scalac", "swiftc", "stylua",
    "fourmolu", "ghc", "hlint", "ocamlc", "ocamlformat", "ocamlopt", "ormolu", "runghc",
    "just", "rake", "rspec", "sbt", "task",
    "asciidoctor", "biber", "bibtex", "cspell", "dot", "hugo", "latexmk", "lualatex", "mdformat",
    "mmdc", "pdflatex", "plantuml", "proselint", "textlint", "xelatex",
    "convert", "duckdb", "exiftool", "ffmpeg", "ffprobe", "identify", "magick", "mogrify",
    "optipng", "pdfinfo", "pdftotext", "pngquant", "sqlite3", "svgo",
    "ansible-lint", "kubeconform", "tflint",
})  # fmt: skip
_RUNNING_TAR = ("--to-command", "--use-compress-program", "-I", "--rsh-command", "-F",
                "--checkpoint-action", "--info-script", "--new-volume-script", "--rmt-command",
                "-P", "--absolute-names")  # fmt: skip


class Verbs(msgspec.Struct, frozen=True, kw_only=True):
    """A command with subcommands, some of which are everyday work.

    Attributes:
        working: the subcommands; a pattern has to match all of one.
        other: with it, everything that does not match is everyday work instead.
        with_value: options before the subcommand that take the next word.
        all_words: whether every word that is no option has to be such a subcommand.
    """

    working: str = ""
    other: str = ""
    with_value: tuple[str, ...] = ()
    all_words: bool = False


_NETWORK = (
    r"add|install|i|in|link|ln|publish|unpublish|login|logout|adduser|owner|token|team|access|org|"
    r"deprecate|dist-tag|up|update|upgrade|remove|rm|un|uninstall|unlink|dlx|create|init|global|"
    r"config|set|cache|audit|outdated|info|view|search|star|hook|profile|doctor|ping|whoami|fund|"
    r"import|self-update|env|setup|store|server|npm|plugin|policies|npm|npx|x|npm-cli|patch.*|"
    r"version|pack|deploy|fetch|prune|rebuild|self|set-version|autoclean|why-net"
)
_TOOLS: dict[str, Verbs] = {
    "npm": Verbs(
        working=r"run|run-script|rum|urn|test|t|tst|ci|start|stop|restart|ls|list|ll|exec|x",
        with_value=("--prefix", "-w", "--workspace", "-C", "--loglevel"),
    ),
    "pnpm": Verbs(
        other=_NETWORK, with_value=("-C", "--dir", "--filter", "-F", "--prefix", "--loglevel")
    ),
    "yarn": Verbs(other=_NETWORK, with_value=("--cwd",)),
    "cargo": Verbs(
        working=r"b|build|t|test|c|check|clippy|fmt|r|run|bench|d|doc|tree|metadata|nextest|clean|"
        r"new|init|fix|expand|miri|llvm-cov",
        with_value=("--manifest-path", "--color", "-Z", "--config", "-C"),
    ),
    "go": Verbs(
        working=r"build|test|vet|fmt|run|list|doc|env|version|generate|clean|tool|mod",
        with_value=(
            "-C", "-exec", "-tags", "-ldflags", "-gcflags", "-asmflags", "-mod", "-modfile",
            "-overlay", "-toolexec", "-p", "-o", "-run", "-coverpkg", "-pkgdir",
        ),
    ),
    "mvn": Verbs(
        working=r"clean|validate|compile|test-compile|test|package|verify|integration-test|"
        r"process-\S+|site|dependency:tree|exec:java|spotless:\S+|checkstyle:\S+|surefire:\S+",
        with_value=("-f", "--file", "-pl", "--projects", "-P", "-s", "-T"),
        all_words=True,
    ),
    "gradle": Verbs(
        other=r".*(?:publish|upload|release|deploy|install|init|wrapper).*",
        with_value=("-p", "--project-dir", "-b", "-x", "--tests", "-I"),
        all_words=True,
    ),
    "dotnet": Verbs(working=r"build|test|run|format|clean|msbuild|vstest"),
    "pre-commit": Verbs(working=r"run|validate-config", with_value=("-c", "--config")),
    "mkdocs": Verbs(working=r"build|serve|new|get-deps", with_value=("-f", "--config-file")),
    "bazel": Verbs(working=r"build|test|run|query|cquery|info|clean|coverage"),
    "cabal": Verbs(working=r"v2-\w+|build|test|run|bench|check|haddock|repl|clean"),
    "composer": Verbs(working=r"test|run|run-script|validate|dump-autoload|show|check|lint"),
    "dart": Verbs(working=r"analyze|test|run|format|fix|compile"),
    "dune": Verbs(working=r"build|test|runtest|exec|clean|fmt"),
    "elm": Verbs(working=r"make"),
    "flutter": Verbs(working=r"analyze|test|build"),
    "helm": Verbs(working=r"lint|template"),
    "jekyll": Verbs(working=r"build|serve|doctor|clean"),
    "jupyter": Verbs(working=r"nbconvert|execute"),
    "mise": Verbs(working=r"run|tasks"),
    "mix": Verbs(working=r"compile|test|format|run|credo|docs|xref|dialyzer"),
    "next": Verbs(working=r"build|dev|start|lint|info"),
    "ng": Verbs(working=r"build|test|lint|serve"),
    "nx": Verbs(working=r"run|run-many|affected|build|test|lint|graph"),
    "playwright": Verbs(working=r"test|show-report"),
    "quarto": Verbs(working=r"render|check"),
    "stack": Verbs(working=r"build|test|bench|run|ghc|ghci|clean"),
    "swift": Verbs(working=r"build|test|run|format"),
    "terraform": Verbs(working=r"fmt|validate"),
    "turbo": Verbs(working=r"run|build|test|lint"),
    "typst": Verbs(working=r"compile|c|watch|w|query|fonts"),
    "zig": Verbs(working=r"build|test|run|fmt|cc|c\+\+|build-exe|build-lib|build-obj|ast-check"),
}  # fmt: skip
# With one of the first, what a package manager installs is what the lock file names: `npm ci`.
_FROZEN = frozenset({"--frozen-lockfile", "--immutable"})
_FROZEN_FLAGS = frozenset({
    "--ignore-scripts", "--prefer-offline", "--offline", "--production", "--prod", "-P", "--silent",
    "-s", "--non-interactive", "--no-progress", "--no-optional", "--immutable-cache", "-r",
    "--check-cache", "--check-files", "--recursive", "--mode=skip-build",
})  # fmt: skip
INSTALLERS = frozenset({"pip", "twine", "ensurepip", "pipx", "uv", "poetry", "pdm", "pipenv"})
_PIP = re.compile(r"pip[\d.]*")
# What makes and fills environments, by subcommand; () is whatever it is given.
_FILLS: dict[str, tuple[str, ...]] = {
    "venv": (),
    "virtualenv": (),
    "ensurepip": (),
    "pip": ("install", "uninstall", "sync"),
    "uv": ("venv", "sync", "add", "remove"),
    "poetry": ("install", "add", "update", "remove", "sync"),
    "pdm": ("install", "add", "update", "remove", "sync"),
    "pipenv": ("install", "sync", "uninstall", "update"),
}
_FETCHED = re.compile(r"(?:https?|npm|jsr):")
_REMOTE = re.compile(r"(?:https?|ssh|git)://[\w.@-]|[\w.-]+@[\w.-]+:")
_PLAIN_CLONE = re.compile(
    r"-[qvb1o]|--(?:quiet|verbose|progress|depth(?:=\d+)?|branch(?:=[\w./-]+)?|single-branch|"
    r"no-tags|origin(?:=[\w-]+)?|filter=[\w:=]+|shallow-since=[\w-]+)"
)
# They bring files as commits have them, and do nothing else with these options.
_CHECKOUTS = frozenset({
    "checkout", "switch", "restore", "reset", "merge", "rebase", "pull", "fetch", "cherry-pick",
    "revert", "stash",
})  # fmt: skip
_PLAIN_CHECKOUT = re.compile(
    r"-[BCSWabcdfkmnpqtuv]+|--(?:abort|all|allow-unrelated-histories|autostash|continue|create|detach|"
    r"discard-changes|ff|ff-only|force|hard|include-untracked|index|keep|keep-index|merge|no-commit|"
    r"no-edit|no-ff|no-rebase|no-track|onto|ours|prune|quiet|quit|rebase(?:=\w+)?|skip|"
    r"soft|source=\S+|squash|staged|tags|theirs|track|verbose|worktree)?"
)
_PIP_READS = frozenset({"list", "show", "freeze", "check", "inspect"})
_NETWORK_VERBS = {
    "deno": ("install", "add", "upgrade", "publish", "deploy"),
    "bun": ("install", "i", "add", "update", "upgrade", "publish", "create", "link", "remove", "x"),
}
# They run what follows in the project's own environment: as risky as that, and never only reading.
LAUNCHERS: dict[str, tuple[str, ...]] = {
    "uv": ("run",),
    "poetry": ("run",),
    "pdm": ("run",),
    "pipenv": ("run",),
    "hatch": ("run",),
    "rye": ("run",),
    "bundle": ("exec",),
}
# They run what follows, which may come from the project or from the registry, but from PATH too.
_EXECUTES: dict[str, tuple[str, ...]] = {
    "npx": (),
    "bunx": (),
    "pnpx": (),
    "uvx": (),
    "npm": ("exec", "x"),
    "pnpm": ("exec", "dlx"),
    "yarn": ("exec", "dlx"),
}
_EXECUTES_VALUES = frozenset({"-p", "--package", "-w", "--workspace", "--from", "--with"})
STARTERS = LAUNCHERS.keys() | _EXECUTES.keys()
_LAUNCHER_FLAGS = frozenset({
    "--frozen", "--locked", "--offline", "--no-sync", "-q", "--quiet", "-v", "--verbose", "--dev",
    "--all-extras", "--no-dev", "--isolated", "--active", "--exact", "--no-project",
})  # fmt: skip
_LAUNCHER_VALUES = frozenset(
    {"--extra", "--group", "--package", "--project", "--directory", "-p", "--python"}
)
_VERSION = frozenset({"--version", "-V", "version", "-v", "-version"})
_VERSION_KNOWN = frozenset({
    "python", "node", "deno", "bun", "ruby", "perl", "npm", "pnpm", "yarn", "cargo", "go", "mvn",
    "gradle", "dotnet", "pytest", "tox", "nox", "ruff", "mypy", "black", "make", "cmake", "ninja",
    "uv", "poetry", "rustc", "gcc", "cc", "clang", "g++", "java", "javac", "pip", "pip3", "docker",
    "git", "tsc", "tar", "zip", "unzip", "gzip", "sed", "awk", "gawk", "bash", "sh", "rustup",
    "npx",
})  # fmt: skip
_HELP_RUNS = frozenset({"pytest", "tox", "nox"})  # they read code of the project for it
_NOT_V = frozenset({"pytest", "python", "ruby", "perl", "tar", "unzip", "zip", "gzip", "make"})
# A project's own tools; to run one is as to run code of the project.
PROJECT_PROGRAMS = re.compile(
    r"(?:\./)?(?:[\w.-]+/)*(?:\.?venv|env|\.tox/[\w.-]+|\.nox/[\w.-]+)/bin"
    r"|(?:\./)?(?:[\w.-]+/)*node_modules/\.bin"
)
_RUNS_WORDS = frozenset({
    "git", "npm", "pnpm", "yarn", "cargo", "go", "dotnet", "docker", "kubectl", "gh", "pip", "pip3",
    "uv", "poetry", "pdm", "bundle", "systemctl", "apt", "brew", "deno", "bun", "helm", "aws",
    "gcloud", "az", "npx", "rustup", "hatch", "pipenv", "rye", "podman", "glab",
})  # fmt: skip


_TWO_WORDS = frozenset({"uv", "poetry", "pdm", "hatch", "pipenv", "rye", "bundle"})
# They read commands from a file that the next word names.
_SHELL_READS = frozenset({"source", ".", "bash", "sh", "dash", "zsh"})
# A rule for these would be one for every command; they are judged by what they start.
RUN_ANYTHING = frozenset({
    "sudo", "env", "xargs", "eval", "exec", "nohup", "timeout", "time", "nice", "command", "ssh",
    "doas", "su",
})  # fmt: skip
_BEFORE_SUBCOMMAND = frozenset({
    "-C", "-c", "--prefix", "-w", "--workspace", "--filter", "-F", "--cwd", "--manifest-path",
    "--project", "--directory", "-f", "--file",
})  # fmt: skip
_NAMES_A_KIND = re.compile(r"[\w:.@/+=-]+")


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """How risky one command is in the full sandbox, and why it is not less."""

    risk: Risk
    reason: str = ""


_READS = Level(risk="low")


def level_of(name: str, arguments: tuple[Word, ...], *, added_words: bool = False) -> Level | None:
    """Return the level of a command that is known; None for all others.

    Args:
        name: its basename.
        arguments: the words behind it.
        added_words: whether more follow that nobody can tell (`xargs`).
    """
    if _tells_about_itself(name, arguments) or (not added_words and _has_form(name, arguments)):
        return _READS
    judge = _JUDGES.get(name)
    if judge is not None:
        return judge(name, arguments, added_words)
    if name in READERS:
        return _reader(name, arguments, added_words)
    if _INTERPRETER.fullmatch(name) or _PIP.fullmatch(name):
        return _interpreter(name, [word.text for word in arguments])
    if name not in _CHANGING | _RUNNING:
        return None
    does = "changes files" if name in _CHANGING else "runs code"
    return Level(risk="medium", reason=f"{name} {does} of the workspace")


def _has_form(name: str, arguments: tuple[Word, ...]) -> bool:
    """Return whether a command reads with these words, which hold no glob at their beginning."""
    form = _READING_FORMS.get(name)
    if form is None or any(not word.is_static or _GLOBS.match(word.text) for word in arguments):
        return False
    return re.fullmatch(form, " ".join(word.text for word in arguments)) is not None


def words_of_kind(words: tuple[Word, ...]) -> tuple[str, ...]:
    """Return the words that make the next similar call: `git commit`, `npm run build`, `pytest`.

    None for what runs anything: a rule for it would be one for every command.
    """
    texts = [word.text if word.is_static else "" for word in words]
    name, rest = texts[0], texts[1:]
    if name in RUN_ANYTHING | _SHELL_READS:
        options = list(takewhile(lambda text: text.startswith("-"), rest))
        script = rest[len(options) : len(options) + 1]
        runs_a_file = name in _SHELL_READS and not any("c" in o or o == "-" for o in options)
        is_told = all(_NAMES_A_KIND.fullmatch(text) for text in (*options, *script))
        return (name, *options, *script) if runs_a_file and script and is_told else ()
    if name not in _RUNS_WORDS:
        kept = 0 if not _INTERPRETER.fullmatch(name) else 2 if rest[:1] == ["-m"] else 1
        kept = 3 if rest[:2] == ["-m", "pip"] else kept
        return (name, *(text for text in rest[:kept] if _NAMES_A_KIND.fullmatch(text)))
    kind: list[str] = []
    wanted = 2 if name in _TWO_WORDS else 1
    while rest and wanted and _NAMES_A_KIND.fullmatch(rest[0]):
        text = rest.pop(0)
        kind.append(text)
        if text in _BEFORE_SUBCOMMAND and rest and _NAMES_A_KIND.fullmatch(rest[0]):
            kind.append(rest.pop(0))
        elif not text.startswith(("-", "+")):
            wanted += wanted == 1 and text in {"run", "exec", "compose"} and name != "cargo"
            wanted -= 1
            name = name if text not in {"run", "exec", "compose"} else "cargo"
    return (texts[0], *kind)


def opening_of(name: str, arguments: tuple[Word, ...]) -> Opening | None:
    """Return what a command is there to make that programs outside run later; None for nothing."""
    texts = [word.text for word in arguments]
    operands = [text for text in texts if not text.startswith("-")]
    if name == "git":
        words = git_words(arguments) or ()
        if words and words[0].text in _CHECKOUTS:
            return "checkouts" if _is_plain(words, _PLAIN_CHECKOUT) else None
        urls = [word for word in words[1:] if word.is_static and _REMOTE.match(word.text)]
        is_clone = [word.text for word in words[:1]] == ["clone"] and len(urls) == 1
        # An option may name a template, settings or a program, which a repository then has.
        return "clones" if is_clone and _is_plain(words, _PLAIN_CLONE) else None
    if _INTERPRETER.fullmatch(name) and texts[:1] == ["-m"]:
        name, operands = "".join(texts[1:2]), [t for t in texts[2:] if not t.startswith("-")]
    if name == "uv" and operands[:1] == ["pip"]:
        name, operands = "pip", operands[1:]
    verbs = _FILLS.get("pip" if _PIP.fullmatch(name) else name)
    is_meant = verbs is not None and (not verbs or bool(set(operands[:1]) & set(verbs)))
    return "environments" if is_meant else None


def _is_plain(words: tuple[Word, ...], options: re.Pattern[str]) -> bool:
    return all(word.is_static for word in words) and all(
        not word.text.startswith("-") or options.fullmatch(word.text) for word in words[1:]
    )


def _tells_about_itself(name: str, arguments: tuple[Word, ...]) -> bool:
    """Return whether a known command only says its version or how it is used."""
    if len(arguments) != 1 or not arguments[0].is_static:
        return False
    text, stem = arguments[0].text, re.sub(r"[\d.]+$", "", name)
    if text == "--version":
        return stem in _VERSION_KNOWN or name in _CHANGING | _RUNNING | READERS | _TOOLS.keys()
    if text == "--help":
        return stem in _VERSION_KNOWN - _HELP_RUNS or name in _CHANGING | READERS
    if stem not in _VERSION_KNOWN or text not in _VERSION:
        return False
    if text == "version":
        return stem in {"go", "git"}
    return stem not in _NOT_V or (stem == "python" and text == "-V")


def _by_text(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level:  # noqa: FBT001
    found: Risk | None = sed_script(arguments) if name == "sed" else awk_program(arguments)
    if found is None:
        return Level(risk="high", reason=f"{name} may execute or write with what it is given")
    if found == "medium":
        return Level(risk="medium", reason=f"{name} changes files of the workspace")
    if added_words:
        return Level(risk="medium", reason=f"{name} is given words that cannot be told")
    return _READS


def _reader(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level:  # noqa: FBT001
    option = risky_option(name, arguments, only_known=True)
    option = option or _writing_word(name, arguments)
    if option:
        return Level(risk="high", reason=f"{name} may execute or write with {option}")
    if not takes_any_arguments(name) and (added_words or _may_be_options(arguments)):
        return Level(risk="medium", reason=f"{name} is given words that cannot be told")
    return _READS


def _writing_word(name: str, arguments: tuple[Word, ...]) -> str:
    """Return the word with which a reader sets something or writes; "" for none."""
    if name == "read":
        return next((w.text for w in arguments if not is_free_variable(w.text)), "")
    never = _NOT_READING.get(name, ())
    for word in arguments:
        if any(word.text.startswith(n) for n in never) or is_abbreviated(word.text, never):
            return word.text
    return ""


# With these set, a command runs or reads something else than its words say.
_STEERING = re.compile(
    r"(?:PATH|IFS|ENV|CDPATH|FPATH|MANPATH|PAGER|EDITOR|VISUAL|BROWSER|HOME|SHELL|PWD|OLDPWD|POSIXLY_"
    r"CORRECT|PS[0-4]|PROMPT.*|BASH.*|SHELLOPTS|GLOBIGNORE|HIST.*|INPUTRC|LD_.*|GCONV_PATH|NLSPATH|"
    r"LOCPATH|TERMINFO.*|TERMCAP|TMPDIR|LESS.*|MORE|MAN.*|GIT_.*|SSH_.*|GPG_.*|RIPGREP_.*|GREP.*|"
    r"TAR_OPTIONS|GZIP|ZIP.*|UNZIP.*|TAPE|RSH|MALLOC_.*|DYLD_.*|.*_PROXY|.*_proxy|GLIBC_.*|GETCONF_DIR|"
    r"RES_OPTIONS|HOSTALIASES|XDG_.*|MAKEFLAGS|MAKEFILES|FUNCNAME|UID|EUID|PPID|RANDOM|SECONDS|"
    r"TIMEFORMAT|EXECIGNORE|COMP_.*|READLINE_.*|MAPFILE|COPROC|DIRSTACK)"
)
_FREE_GIT = re.compile(
    r"GIT_(?:(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|OPTIONAL_LOCKS|TERMINAL_PROMPT|PAGER=cat|"
    r"(?:SEQUENCE_)?EDITOR=(?:true|:))"
)
# They say how a build or an interpreter works; what only reads would have no use for them.
_TUNING = re.compile(
    r"(?:PYTHON|NODE|NPM_|npm_|RUBY|GEM_|BUNDLE_|PERL|RUST|CARGO_|GO[A-Z]|CGO_|JAVA|JDK_|MAVEN_|GRADLE_|"
    r"DOTNET_|DENO_|BUN_|CMAKE_|VIRTUAL_ENV|UV_|POETRY_|PIP_|TOX_|NOX_|PYTEST_|COVERAGE_|MYPY|LUA_)"
)


def is_free_variable(name: str, value: str = "") -> bool:
    """Return whether a variable may be set without changing which programs run."""
    return _FREE_GIT.fullmatch(name) is not None or (
        _FREE_GIT.fullmatch(f"{name}={value}") is not None or not _STEERING.fullmatch(name)
    )


def tunes(name: str) -> bool:
    """Return whether a variable says how a build tool or an interpreter works."""
    return _TUNING.match(name) is not None


def _may_be_options(arguments: tuple[Word, ...]) -> bool:
    return any(not word.is_static and word.text[:1] in {"", "-"} for word in arguments)


def _env(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level:  # noqa: FBT001
    if any(not word.is_static or word.text.startswith("-") for word in arguments):
        return Level(risk="high", reason="env is given options that may run a command")
    return _reader(name, arguments, added_words)


def _find(_name: str, arguments: tuple[Word, ...], _added_words: bool) -> Level:  # noqa: FBT001
    writes = {"-delete", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from"}
    for text in (word.text for word in arguments):
        if text in writes:
            return Level(risk="high", reason=f"find may execute or write with {text}")
    return _READS  # what -exec runs is judged on its own


def _yq(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level:  # noqa: FBT001
    # The programs of this name write with -i or -s; the newest can be let run others.
    steers = any("security" in word.text or "system" in word.text for word in arguments)
    is_static = all(word.is_static for word in arguments)
    if steers or added_words or not is_static or risky_option(name, arguments, only_known=True):
        return Level(risk="medium", reason="yq changes files of the workspace")
    return _READS


def _fd(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level:  # noqa: FBT001
    # What -x runs is judged on its own; it reaches to the end, or to a `;` behind which it goes on.
    texts = [word.text for word in arguments]
    at = next((i for i, text in enumerate(texts) if text in FD_RUNS), len(texts))
    if ";" in texts[at:-1]:
        return Level(risk="high", reason="fd is given more than one command")
    return _reader(name, arguments[:at], added_words)


def _interpreter(name: str, texts: list[str]) -> Level:
    if _PIP.fullmatch(name):
        return _pip(name, texts)
    stem = re.sub(r"[\d.]+$", "", name)
    module = texts[texts.index("-m") + 1 : texts.index("-m") + 2] if "-m" in texts else []
    if stem == "python" and module and module[0] in INSTALLERS and not _only_lists(texts):
        return Level(risk="high", reason=f"{name} -m {module[0]} needs the network")
    if texts[:1] and texts[0] in _NETWORK_VERBS.get(stem, ()) and not _is_frozen(texts[1:]):
        return Level(risk="high", reason=f"{name} {texts[0]} needs the network")
    program = next((text for text in texts[1:] if not text.startswith("-")), "")
    if stem in {"deno", "bun"} and _FETCHED.match(program):
        return Level(risk="high", reason=f"{name} would fetch and run {program}")
    return Level(risk="medium", reason=f"{name} runs code that is not read")


def _is_frozen(texts: list[str]) -> bool:
    """Return whether the options behind `install` let it install what the lock file names only."""
    return bool(_FROZEN & set(texts)) and set(texts) <= _FROZEN | _FROZEN_FLAGS


def _only_lists(texts: list[str]) -> bool:
    return any(each in _PIP_READS for each in texts[2:3])


def _pip(name: str, texts: list[str]) -> Level:
    verb = next((text for text in texts if not text.startswith("-")), "")
    if verb in _PIP_READS:
        return Level(risk="medium", reason=f"{name} {verb} runs code that is not read")
    return Level(risk="high", reason=f"{name} {verb or 'alone'} may install what it fetches")


def _tool(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level | None:  # noqa: FBT001
    tool = _TOOLS[name]
    words = _subcommands(tool, arguments)
    if not words:
        return None
    for word in words if tool.all_words else words[:1]:
        if not word.is_static:
            return None
        if tool.other:
            is_working = re.fullmatch(tool.other, word.text) is None
        else:
            is_working = re.fullmatch(tool.working, word.text) is not None
        if not is_working:
            return None
    if name in {"npm", "pnpm"} and words[0].text in {"exec", "x"}:
        return _npx(name, arguments[arguments.index(words[0]) + 1 :], added_words)
    return Level(risk="medium", reason=f"{name} {words[0].text} runs code of the workspace")


def _go(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level | None:  # noqa: FBT001
    words = [word.text for word in _subcommands(_TOOLS[name], arguments)]
    if words[:1] == ["run"] and "@" in "".join(words[1:2]):
        return Level(risk="high", reason=f"go run would fetch and run {words[1]}")
    return _tool(name, arguments, added_words)


def _locking(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level | None:  # noqa: FBT001
    """Judge what installs just what a lock file names, without the `ci` that npm has for it."""
    tool = _TOOLS[name]
    verbs = {word.text for word in _subcommands(tool, arguments)}
    valued = {i + 1 for i, word in enumerate(arguments) if word.text in tool.with_value}
    given = [word.text for i, word in enumerate(arguments) if i not in valued]
    others = [text for text in given if text not in {*tool.with_value, "install", "i"}]
    is_static = all(word.is_static and not word.has_glob for word in arguments)
    if verbs <= {"install", "i"} and is_static and not added_words and _is_frozen(others):
        return Level(risk="medium", reason=f"{name} installs what the lock file names")
    return _tool(name, arguments, added_words)


def _subcommands(tool: Verbs, arguments: tuple[Word, ...]) -> list[Word]:
    found: list[Word] = []
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word.text == "--":
            break
        elif word.text.startswith("-"):
            skip = word.text in tool.with_value
        elif not (word.text.startswith("+") and not found):
            found.append(word)
    return found


def _npx(_name: str, arguments: tuple[Word, ...], _added_words: bool) -> Level:  # noqa: FBT001
    """What is installed in the project runs; what would have to be fetched first is high."""
    texts = [word.text for word in arguments]
    program = next((text for text in texts if not text.startswith("-")), "")
    before = texts[: texts.index(program)] if program in texts else texts
    if not program or any(
        text not in {"--no", "--no-install", "--offline", "--"} for text in before
    ):
        return Level(risk="high", reason="npx may fetch and run a package")
    if "@" in program[1:] or "://" in program:
        return Level(risk="high", reason=f"npx would fetch and run {program}")
    return Level(risk="medium", reason=f"npx {program} runs code of the workspace")


def launched(name: str, arguments: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words of the command that a launcher (`uv run`) runs, or () for no such use."""
    if name in _EXECUTES:
        return _executed(name, arguments)
    verbs = LAUNCHERS.get(name, ())
    rest = arguments[1:] if arguments and arguments[0].text in verbs else ()
    while rest and rest[0].text.startswith("-"):
        if rest[0].text == "--":
            return rest[1:]
        if rest[0].text in {"-m", "--module"} and name == "uv":
            return (Word(text="python"), Word(text="-m"), *rest[1:])
        if rest[0].text in _LAUNCHER_VALUES:
            rest = rest[2:]
        elif rest[0].text in _LAUNCHER_FLAGS or rest[0].text.startswith(
            tuple(f"{each}=" for each in _LAUNCHER_VALUES if each.startswith("--"))
        ):
            rest = rest[1:]
        else:
            return ()
    return rest


def _executed(name: str, arguments: tuple[Word, ...]) -> tuple[Word, ...]:
    rest, verbs = arguments, _EXECUTES[name]
    if verbs:
        words = _subcommands(_TOOLS[name], arguments)
        if not words or words[0].text not in verbs:
            return ()
        rest = arguments[arguments.index(words[0]) + 1 :]
    while rest and rest[0].text.startswith("-"):
        if rest[0].text == "--":
            return rest[1:]
        rest = rest[2 if rest[0].text in _EXECUTES_VALUES else 1 :]
    return rest


def _launcher(
    name: str,
    arguments: tuple[Word, ...],
    _added_words: bool,  # noqa: FBT001
) -> Level | None:
    if name == "uv" and [word.text for word in arguments[:1]] == ["pip"]:
        return _pip("uv pip", [word.text for word in arguments[1:]])
    inner = launched(name, arguments)
    if not inner or not inner[0].is_static:
        return None
    program = inner[0].text.rpartition("/")[2]
    if program.endswith(".py"):
        return Level(risk="medium", reason=f"{name} runs code that is not read")
    found = level_of(program, inner[1:])
    if found is not None and found.risk == "low":
        return Level(risk="medium", reason=f"{name} runs {program} of the project")
    return found


def _lists_an_archive(name: str, arguments: tuple[Word, ...]) -> bool:
    """Return whether an archive is only looked into: `tar tzf a.tgz`, `unzip -l a.zip`."""
    first = arguments[0] if arguments else Word(text="", is_static=False)
    if not all(word.is_static for word in arguments):
        return False
    if name == "unzip":
        others = (word.text for word in arguments[1:])
        return re.fullmatch(r"-[clpvtqZ1]*[clpvtZ][clpvtqZ1]*", first.text) is not None and not any(
            text.startswith("-") for text in others
        )
    modes = first.text if first.text == "--list" else first.text.removeprefix("-")
    others = (word.text for word in arguments[1:] if word.text.startswith("-"))
    return re.fullmatch(r"--list|[jJvzaf]*t[jJvzaf]*", modes) is not None and all(
        re.fullmatch(r"-[fjJvz]+|--(?:gzip|verbose|file=.*|auto-compress|wildcards)", text)
        for text in others
    )


def _unzip(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level:  # noqa: FBT001
    if not added_words and _lists_an_archive(name, arguments):
        return _READS
    return Level(risk="medium", reason=f"{name} changes files of the workspace")


def _set(_name: str, arguments: tuple[Word, ...], _added_words: bool) -> Level:  # noqa: FBT001
    for word in arguments:
        if not word.is_static or not _SETS_THE_SHELL.fullmatch(word.text):
            return Level(risk="high", reason=f"set is given {word.text or 'what cannot be told'}")
    return _READS


def _tar(name: str, arguments: tuple[Word, ...], added_words: bool) -> Level:  # noqa: FBT001
    for text in (word.text for word in arguments):
        option = text.partition("=")[0]
        is_long = option.startswith("--") and len(option) > 4
        if option in _RUNNING_TAR or (is_long and any(o.startswith(option) for o in _RUNNING_TAR)):
            return Level(risk="high", reason=f"tar may execute or leave its folder with {text}")
        if re.fullmatch(r"-[A-Za-z]*[IFP].*", text):
            return Level(risk="high", reason=f"tar may execute or leave its folder with {text}")
    if not added_words and _lists_an_archive(name, arguments):
        return _READS
    return Level(risk="medium", reason="tar changes files of the workspace")


# --- git


def git_words(arguments: tuple[Word, ...]) -> tuple[Word, ...] | None:
    """Return git's words from the subcommand on; None where an option may run a program."""
    position = 0
    while position < len(arguments) and arguments[position].text.startswith("-"):
        word = arguments[position]
        if not word.is_static:
            return None
        if word.text == "-C":
            position += 2
        elif word.text == "-c":
            value = arguments[position + 1 : position + 2]
            if not value or not value[0].is_static or not _HARMLESS_SETTING.match(value[0].text):
                return None
            position += 2
        elif word.text in _GIT_FLAGS:
            position += 1
        else:
            return None
    return arguments[position:]


def _git(_name: str, arguments: tuple[Word, ...], added_words: bool) -> Level | None:  # noqa: FBT001
    words = git_words(arguments)
    if words is None:
        return Level(risk="high", reason="git is given options that may run a program")
    if not words or not words[0].is_static:
        return None
    subcommand = words[0].text
    texts = list(takewhile(lambda text: text != "--", (word.text for word in words[1:])))
    runs = _GIT_RUNS.get(subcommand, ())
    risky = next((text for text in texts if runs and text.startswith(runs)), "")
    if risky:
        return Level(risk="high", reason=f"git {subcommand} may execute with {risky}")
    found = None
    if _git_reads(subcommand, [word.text for word in words[1:]]):
        found = _reading_git(subcommand, words, added_words=added_words)
    if found is not None:
        return found
    if subcommand in _WORKING_GIT or (subcommand == "bisect" and "run" not in texts[:1]):
        return Level(risk="medium", reason=f"git {subcommand} changes the repository")
    return None


def _reading_git(subcommand: str, words: tuple[Word, ...], *, added_words: bool) -> Level | None:
    option = risky_option("git", words, only_known=True)
    if option and subcommand == "branch":
        return None
    if option:
        return Level(risk="high", reason=f"git may execute or write with {option}")
    if added_words or _may_be_options(words[1:]):
        return Level(risk="medium", reason=f"git {subcommand} is given words that cannot be told")
    return _READS


def _git_reads(subcommand: str, texts: list[str]) -> bool:
    if subcommand in _READING_GIT:
        return True
    joined = " ".join(texts)
    forms = _READING_GIT_FORMS.get(subcommand, ())
    return any(re.fullmatch(form, joined, re.DOTALL) for form in forms)


_JUDGES: dict[str, Callable[[str, tuple[Word, ...], bool], Level | None]] = {
    "git": _git,
    "find": _find,
    "yq": _yq,
    **dict.fromkeys(("fd", "fdfind"), _fd),
    "env": _env,
    "npx": _npx,
    "tar": _tar,
    "unzip": _unzip,
    "set": _set,
    **dict.fromkeys(("sed", "awk", "gawk", "mawk", "nawk"), _by_text),
    **dict.fromkeys(_TOOLS, _tool),
    **dict.fromkeys(("pnpm", "yarn"), _locking),
    "go": _go,
    **dict.fromkeys(LAUNCHERS, _launcher),
}
