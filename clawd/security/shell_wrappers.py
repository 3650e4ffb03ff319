"""Commands that run other commands: what they run, from their arguments alone.

`sudo -u x env A=1 sh -c 'rm y'` runs sudo, env, sh and, in a script of its own, `rm y`.
"""

import re

import msgspec

from clawd.security.shell_words import FD_RUNS, Word

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh"})
_INTERPRETER = re.compile(
    r"^(?:python|pypy|perl|ruby|node|nodejs|php|lua|tclsh|osascript|deno|bun)[0-9.]*$"
)
_AWKS = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk"})
_MAX_CODE = 8_192
_MAX_RUNS = 50
_CALLS = re.compile(
    r"(?:system|popen|exec\w*|spawn\w*|run|call|check_output|getoutput)\s*\(?\s*\[?\s*"
    r"(?:([\"'])(.{1,500}?)\1|`(.{1,500}?)`)|`(.{1,500}?)`|qx\W(.{1,500}?)\W"
    r"|([\"'])([^\"']{1,500})\6\s*\|\s*getline|print[^|]{0,500}\|\s*([\"'])([^\"']{1,500})\8",
    re.DOTALL,
)


class Wrapper(msgspec.Struct, frozen=True, kw_only=True):
    """How to find the command in a wrapper's arguments.

    Attributes:
        with_value: options that take the next word (short ones attached or separate).
        positionals: words between the options and the command.
        assigns: whether `NAME=value` words may come before the command.
        scripts: options whose value is a shell script.
        joins: whether the words from the command on are joined and given to a shell.
        is_transparent: whether the wrapper itself does nothing that matters.
        odd: options with which it is not transparent (`time -o`).
    """

    with_value: tuple[str, ...] = ()
    positionals: int = 0
    assigns: bool = False
    scripts: tuple[str, ...] = ()
    joins: bool = False
    is_transparent: bool = False
    odd: tuple[str, ...] = ()


WRAPPERS: dict[str, Wrapper] = {
    "sudo": Wrapper(
        with_value=("-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R"), assigns=True
    ),
    "doas": Wrapper(with_value=("-u", "-C", "-a")),
    "env": Wrapper(
        with_value=("-u", "--unset", "-C", "--chdir"),
        assigns=True,
        scripts=("-S", "--split-string"),
        is_transparent=True,
        odd=("-S", "--split-string", "-C", "--chdir"),
    ),
    "nohup": Wrapper(),
    "timeout": Wrapper(
        with_value=("-s", "--signal", "-k", "--kill-after"), positionals=1, is_transparent=True
    ),
    "nice": Wrapper(with_value=("-n", "--adjustment"), is_transparent=True),
    "ionice": Wrapper(with_value=("-c", "-n", "-p", "-P", "-u")),
    "chrt": Wrapper(with_value=("-T", "-P", "-D"), positionals=1),
    "taskset": Wrapper(positionals=1),
    "setsid": Wrapper(is_transparent=True),
    "stdbuf": Wrapper(
        with_value=("-i", "-o", "-e", "--input", "--output", "--error"), is_transparent=True
    ),
    "time": Wrapper(with_value=("-f", "-o"), is_transparent=True, odd=("-o", "-a", "--output")),
    "command": Wrapper(is_transparent=True),
    "builtin": Wrapper(),
    "exec": Wrapper(with_value=("-a",)),
    "coproc": Wrapper(),
    "noglob": Wrapper(),
    "watch": Wrapper(with_value=("-n", "--interval"), joins=True),
    "xargs": Wrapper(
        with_value=(
            "-I", "-n", "-P", "-L", "-s", "-d", "-E", "-a", "--max-args", "--max-procs",
            "--max-chars", "--delimiter", "--arg-file",
        ),
        is_transparent=True,
        odd=("-a", "--arg-file", "--process-slot-var", "-o", "--open-tty"),
    ),
    "parallel": Wrapper(with_value=("-j", "-I", "-a", "--jobs", "-N", "-n"), joins=True),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "chroot": Wrapper(positionals=1),
    "unshare": Wrapper(),
    "nsenter": Wrapper(with_value=("-t", "--target", "-S", "-G")),
    "flock": Wrapper(with_value=("-w", "-E"), positionals=1, scripts=("-c", "--command")),
    "script": Wrapper(scripts=("-c", "--command"), with_value=("-O", "-I", "-B", "-T", "-E")),
    "su": Wrapper(scripts=("-c", "--command"), with_value=("-s", "-g", "-G")),
    "runuser": Wrapper(scripts=("-c", "--command"), with_value=("-u", "-g", "-s")),
    "ssh": Wrapper(
        with_value=tuple(f"-{c}" for c in "BbcDEeFIiJLlmOopQRSWw"), positionals=1, joins=True
    ),
    "strace": Wrapper(with_value=("-e", "-o", "-p", "-s", "-u", "-P", "-E")),
    "ltrace": Wrapper(with_value=("-e", "-o", "-p", "-s", "-u")),
    "gdb": Wrapper(with_value=("-ex", "-x", "-p")),
    "valgrind": Wrapper(),
    "systemd-run": Wrapper(with_value=("-p", "-u", "--property", "--unit", "-M", "-H", "-E")),
    "systemd-inhibit": Wrapper(),
    "start-stop-daemon": Wrapper(with_value=("--exec", "-x", "--pidfile", "-p")),
    "fakeroot": Wrapper(),
    "proot": Wrapper(with_value=("-r", "-b", "-w")),
    "eatmydata": Wrapper(),
    "unbuffer": Wrapper(),
    "torsocks": Wrapper(),
    "proxychains": Wrapper(),
    "rlwrap": Wrapper(),
    "entr": Wrapper(),
    "firejail": Wrapper(),
    "pkexec": Wrapper(with_value=("--user",)),
    "run0": Wrapper(),
    "trap": Wrapper(joins=True),
    "eval": Wrapper(joins=True),
}  # fmt: skip

_PROGRAM_OPTIONS = {
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("--compress-program",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "vim": ("-c", "--cmd"),
    "make": ("--eval", "SHELL"),
    "npx": ("-c", "--call"),
    "npm": ("-c", "--call"),
    "pnpm": ("-c", "--shell-mode"),
}
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


class Unwrapped(msgspec.Struct, frozen=True, kw_only=True):
    """What a command runs besides itself.

    Attributes:
        commands: word lists of commands that it starts.
        scripts: shell source that it hands to a shell.
        is_transparent: whether only what it runs matters, not itself.
        adds_words: whether it appends words of its own to what it runs (xargs).
    """

    commands: tuple[tuple[Word, ...], ...] = ()
    scripts: tuple[str, ...] = ()
    is_transparent: bool = False
    adds_words: bool = False


def basename(word: Word) -> str:
    """Return the name a command word is judged by."""
    return word.text.rsplit("/", 1)[-1]


def is_interpreter(name: str) -> bool:
    """Return whether the name is a shell or a language that runs what it reads."""
    return name in SHELLS or _INTERPRETER.match(name) is not None


def unwrap(words: tuple[Word, ...]) -> Unwrapped:
    """Return what the command runs besides itself; nothing for an ordinary command."""
    name, arguments = basename(words[0]), words[1:]
    if name in WRAPPERS:
        return _by_table(name, WRAPPERS[name], arguments)
    if name == "find":
        return Unwrapped(commands=_runs_behind(_FIND_RUNS, arguments))
    if name in {"fd", "fdfind"}:
        return Unwrapped(commands=_runs_behind(FD_RUNS, arguments), adds_words=True)
    return Unwrapped(scripts=_scripts_of(name, arguments))


def _scripts_of(name: str, arguments: tuple[Word, ...]) -> tuple[str, ...]:
    """Return the shell source in the arguments of a command that is no wrapper."""
    if name in SHELLS:
        return _after_options(arguments, ("-c", "--command"))
    if is_interpreter(name) or name in _AWKS:
        return _calls_in(arguments)
    if name == "alias":
        return tuple(v for v in (word.text.partition("=")[2] for word in arguments) if v)
    if name == "git":
        return _git_config(arguments)
    if name == "tar":
        return _tar_runs(arguments)
    return _after_options(arguments, _PROGRAM_OPTIONS.get(name, ()))


def _by_table(name: str, wrapper: Wrapper, arguments: tuple[Word, ...]) -> Unwrapped:
    position, is_odd = _skip_options(wrapper, arguments)
    position += wrapper.positionals
    while wrapper.assigns and position < len(arguments) and _is_assignment(arguments[position]):
        is_odd = is_odd or not is_harmless_variable(
            arguments[position].text.partition("=")[0], arguments[position]
        )
        position += 1
    is_odd = is_odd or any(not w.is_static or w.has_glob for w in arguments[:position])
    inner = arguments[position:]
    scripts = _after_options(arguments, wrapper.scripts) if wrapper.scripts else ()
    if wrapper.joins:
        scripts = (*scripts, " ".join(word.text for word in inner))
        inner = ()
    return Unwrapped(
        commands=(inner,) if inner else (),
        scripts=scripts,
        is_transparent=wrapper.is_transparent and not is_odd and bool(inner),
        adds_words=name == "xargs",
    )


def is_harmless_variable(name: str, value: Word) -> bool:
    """Return whether setting this variable for a command changes its language at most."""
    is_plain = re.fullmatch(r"[\w.@=-]*", value.text) is not None
    return value.is_static and is_plain and (name == "LANG" or name.startswith("LC_"))


def env_command(
    arguments: tuple[Word, ...],
) -> tuple[tuple[tuple[str, Word], ...], tuple[Word, ...]] | None:
    """Return what `env` sets and the words that it runs; None where it does more."""
    rest = list(arguments)
    while rest and rest[0].text.startswith("-"):
        word = rest.pop(0)
        if not word.is_static:
            return None
        if word.text in {"-u", "--unset"} and rest:
            rest.pop(0)
        elif word.text == "--":
            break
        elif not re.fullmatch(r"-[i0]+|-|--ignore-environment|--null|--unset=\w+", word.text):
            return None
    settings: list[tuple[str, Word]] = []
    while rest and _is_assignment(rest[0]):
        name, _, value = rest[0].text.partition("=")
        settings.append((name, msgspec.structs.replace(rest.pop(0), text=value)))
    return tuple(settings), tuple(rest)


def _is_assignment(word: Word) -> bool:
    return re.match(r"[A-Za-z_][A-Za-z0-9_]*=", word.text) is not None


def _skip_options(wrapper: Wrapper, arguments: tuple[Word, ...]) -> tuple[int, bool]:
    """Return where the options end, and whether one of them is odd."""
    position, is_odd = 0, False
    while position < len(arguments):
        text = arguments[position].text
        if text == "--":
            return position + 1, is_odd
        if not text.startswith("-") or text == "-":
            return position, is_odd
        is_odd = is_odd or _is_odd(wrapper, text)
        position += 2 if text in wrapper.with_value else 1
    return position, is_odd


def _is_odd(wrapper: Wrapper, text: str) -> bool:
    if text.startswith("--"):
        name = text.partition("=")[0]
        return any(odd.startswith(name) for odd in wrapper.odd)
    return any(odd[1] in text for odd in wrapper.odd if len(odd) == 2)


def _after_options(arguments: tuple[Word, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of these options: the next word, or what follows `=` or the letter.

    A short option may stand last in a cluster: `bash -xc 'ls'`.
    """
    values: list[str] = []
    for index, word in enumerate(arguments):
        option, equals, value = word.text.partition("=")
        if equals and option in names:
            values.append(value)
        elif word.text in names or _ends_cluster(word.text, names):
            values += [following.text for following in arguments[index + 1 : index + 2]]
    return tuple(values)


def _ends_cluster(text: str, names: tuple[str, ...]) -> bool:
    is_cluster = re.fullmatch(r"[-+][A-Za-z]{2,}", text) is not None
    return is_cluster and any(n[1:] in text for n in names if len(n) == 2)


def _runs_behind(
    options: frozenset[str], arguments: tuple[Word, ...]
) -> tuple[tuple[Word, ...], ...]:
    runs: list[tuple[Word, ...]] = []
    for index, word in enumerate(arguments):
        if word.text not in options:
            continue
        if len(runs) == _MAX_RUNS:
            return (*runs, (Word(text="", is_static=False),))
        rest = arguments[index + 1 :]
        ends = [i for i, w in enumerate(rest) if w.text in {";", "+"}]
        run = rest[: ends[0]] if ends else rest
        if run:
            runs.append(run)
    return tuple(runs)


def _git_config(arguments: tuple[Word, ...]) -> tuple[str, ...]:
    """Return the values of `git -c alias.x='!rm y'` and of other keys that name a program."""
    values = (value.partition("=")[2] for value in _after_options(arguments, ("-c",)))
    return tuple(value.removeprefix("!") for value in values if value)


def _tar_runs(arguments: tuple[Word, ...]) -> tuple[str, ...]:
    options = ("--to-command", "--use-compress-program", "-I", "--rsh-command", "-F")
    actions = _after_options(arguments, ("--checkpoint-action",))
    execs = tuple(value.removeprefix("exec=") for value in actions if value.startswith("exec="))
    return (*_after_options(arguments, options), *execs)


def _calls_in(arguments: tuple[Word, ...]) -> tuple[str, ...]:
    """Return the commands that inline code hands to a shell: `awk 'BEGIN{system("rm x")}'`."""
    found: list[str] = []
    for word in arguments:
        for match in _CALLS.finditer(word.text[:_MAX_CODE]):
            found += [group for group in match.groups() if group and group not in "\"'"]
    return tuple(found)
