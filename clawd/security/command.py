"""What a shell command would do, judged from its text alone.

The command is parsed with a real grammar and every command word in it is judged, wherever it
stands: in pipelines, substitutions, functions, `sh -c`, `sudo`, `xargs`, `find -exec` and so on.

In the full sandbox a command is low where each of its words only reads, medium where the rest is
everyday work or allowed (`known_commands`), else high. Without it medium needs certainty: a line of
the plain kind, only allow-listed commands, no option that executes or writes; all else is high.
What is forbidden, destructive or outside the workspace is blocked. This is advice for the policy
and for people; the wall is the sandbox.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clawd.security.known_commands import (
    INSTALLERS,
    PROJECT_PROGRAMS,
    STARTERS,
    Level,
    is_free_variable,
    launched,
    level_of,
    opening_of,
    tunes,
    words_of_kind,
)
from clawd.security.policy import DEFAULT_ALLOWED_COMMANDS, PolicySettings
from clawd.security.risk import Assessment, Need, Opening, Risk, highest
from clawd.security.shell_destruction import (
    Invocation,
    destruction,
    download_that_runs,
    forced_push,
    fork_bomb,
)
from clawd.security.shell_paths import (
    PathProblem,
    is_own,
    place_of,
    places,
    problem_of_word,
    problems_of_command,
)
from clawd.security.shell_script import Redirect, ShellScript, SimpleCommand, parse
from clawd.security.shell_words import (
    Word,
    expand,
    git_subcommand,
    risky_option,
    takes_any_arguments,
)
from clawd.security.shell_wrappers import (
    SHELLS,
    Unwrapped,
    basename,
    env_command,
    is_harmless_variable,
    unwrap,
)

MAX_COMMAND_BYTES = 65_536
MAX_LOOP_VALUES = 12
MAX_DEPTH = 8
MAX_WORDS = 20_000

_SPLIT_HINT = "Write long text or code with file_write, and give shorter commands."
_CONTROL = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_PROGRAM_FOLDERS = ("", "/bin", "/usr/bin", "/usr/local/bin")
_FRAGMENTS = re.compile(r"[;&|\n()`]+|\$\(")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+-]+")
_HARMLESS_TARGET = re.compile(r"/dev/(?:null|stdout|stderr)")
_SHELL_OPTION = re.compile(r"-[eulxc]+|--(?:norc|noprofile|login)|-[eu]*o|pipefail")
# What a project ships of its build tool.
_BUILD_WRAPPERS = {"./gradlew": "gradle", "./mvnw": "mvn"}
_ACTIVATES = Level(risk="medium", reason="it enters an environment of the project")
_OPENS_TOLD: dict[Opening, str] = {
    "environments": "programs outside run what it puts into an environment",
    "clones": "programs outside may run what it fetches",
    "checkouts": "programs outside may run what it brings",
}
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")


class Wall(msgspec.Struct, frozen=True, kw_only=True):
    """What the full sandbox shows of a machine beside the workspace.

    Attributes:
        own: its own folders, which may be written and are gone with the command.
        shown: what may be read.
    """

    own: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


def assess(
    command: str, settings: PolicySettings, *, workspace: Path, home: Path, wall: Wall | None = None
) -> Assessment:
    """Say how risky a shell command is. Never raises.

    Args:
        command: what would be given to `bash -c`.
        settings: the allow-list, the forbidden commands and paths.
        workspace: absolute; the folder the command would start in.
        home: what `~` and `$HOME` mean.
        wall: the full sandbox, where it holds the command; None for anything less.
    """
    unreadable = _unreadable(command)
    if unreadable:
        return Assessment(risk="high", blocked=unreadable)
    return _Judge(settings, workspace, home, wall).judge(command)


def _unreadable(command: str) -> str:
    if "\0" in command:
        return "the command holds a NUL byte"
    try:
        size = len(command.encode())
    except UnicodeEncodeError:
        return "the command is not valid Unicode"
    if size > MAX_COMMAND_BYTES:
        return f"the command has {size} bytes, at most {MAX_COMMAND_BYTES} can be judged"
    return ""


def _values_of_loops(script: ShellScript) -> list[dict[str, str]]:
    """Return what the variables of loops may hold, one after the other; [] where it is not told.

    Only where nothing else can set them, and for few values.
    """
    values: list[dict[str, str]] = [{}]
    names = [loop.name for loop in script.loops]
    setters = {"read", "mapfile", "readarray", "getopts", "printf", "let", "eval", "source", "."}
    is_set = any(basename(command.words[0]) in setters for command in script.commands)
    if not names or is_set or len(set(names)) < len(names):
        return []
    if set(names) & {name for name, _ in script.assignments}:
        return []
    for loop in script.loops:
        texts = [w.text for w in loop.values if w.is_static and not set(w.text) & set(" \t\n")]
        if not texts or len(texts) < len(loop.values):
            return []
        values = [{**each, loop.name: text} for each in values for text in texts]
        if len(values) > MAX_LOOP_VALUES:
            return []
    return values


def _shell_level(invocation: Invocation) -> Level:
    """Judge a shell itself; the script of its `-c` is judged on its own."""
    texts = [word.text for word in invocation.arguments]
    at = next((i for i, text in enumerate(texts) if re.fullmatch(r"-[a-z]*c", text)), len(texts))
    script = texts[at + 1 : at + 2]
    # What xargs or find puts into a script is run as well.
    is_filled = (invocation.added_words and invocation.starter != "find") or "{}" in "".join(script)
    if not script or is_filled or not all(w.is_static for w in invocation.arguments[: at + 2]):
        return Level(risk="high", reason=f"{invocation.name} runs what is not read")
    if not all(_SHELL_OPTION.fullmatch(text) for text in texts[: at + 1]):
        return Level(risk="high", reason=f"{invocation.name} is given options that run files")
    return Level(risk="low")


def _activates(invocation: Invocation) -> bool:
    """Return whether it is the environment of a project that is made the shell's own."""
    operands = invocation.arguments
    if len(operands) != 1 or not operands[0].is_static or operands[0].has_glob:
        return False
    folder, _, name = operands[0].text.rpartition("/")
    return name == "activate" and PROJECT_PROGRAMS.fullmatch(folder) is not None


def _is_pasted(pattern: str) -> bool:
    """Return whether a pattern can be shown in quotes and pasted as it is."""
    return re.fullmatch(r"[\w ./@:+=*-]{1,200}", pattern) is not None


class _Judge:
    """Judges one command line; what it finds is collected in source order."""

    def __init__(
        self, settings: PolicySettings, workspace: Path, home: Path, wall: Wall | None
    ) -> None:
        self._settings = settings
        self._wall = wall
        self._workspace = workspace
        self._home = home
        self._variables = {"HOME": str(home), "PWD": str(workspace)}
        # What only reads is known here, and better.
        default = DEFAULT_ALLOWED_COMMANDS if wall else ()
        entries = (entry for entry in settings.allowed_commands if entry not in default)
        self._allowed = {tuple(entry.split()) for entry in entries} - {()}
        self._forbidden = {tuple(entry.split()) for entry in settings.forbidden_commands} - {()}
        inside = wall or Wall()
        self._places = places(
            workspace, home, settings.forbidden_paths, own=inside.own, shown=inside.shown
        )
        self._folder = str(workspace)
        self._found: list[Assessment] = []
        self._needs: dict[Need, None] = {}
        self._guessed: list[str] = []
        self._openings: list[Opening | None] = []
        self._count = 0

    def judge(self, command: str) -> Assessment:
        if _CONTROL.search(command):
            self._high("it holds control characters")
        self._script(command, depth=0)
        if not self._count and not (self._wall and self._found):
            self._high("it holds no command")
        for each in self._found:
            if each.blocked:
                return each
        lowest: Risk = "low" if self._wall else "medium"
        risk = highest(lowest, *(each.risk for each in self._found))
        for each in self._found:
            if each.risk == risk:
                return self._opening(msgspec.structs.replace(each, needs=self._needs_of_all()))
        reason = "only reads" if self._wall else "runs allow-listed commands"
        return Assessment(risk=lowest, reason=reason, needs=self._needs_of_all())

    def _opening(self, found: Assessment) -> Assessment:
        """Say what it may make that programs outside run later, where that is all it does."""
        if not self._openings or None in self._openings:
            return found
        opens = tuple(each for each in dict.fromkeys(self._openings) if each)
        told = "; ".join(_OPENS_TOLD[each] for each in opens)
        return msgspec.structs.replace(
            found, opens=opens, outward=True, reason=f"{found.reason}; {told}"
        )

    def _script(self, source: str, *, depth: int, bound: Mapping[str, str] | None = None) -> None:
        if depth > MAX_DEPTH or self._count > MAX_WORDS:
            self._blocked("it holds too many commands, or commands nested too deeply, to be judged")
            return
        script = parse(source.encode("utf-8", "replace"), self._variables, bound)
        if script.is_too_big:
            self._blocked("it is too long, or holds too many commands, to be judged", _SPLIT_HINT)
            return
        if bound is None and (values := _values_of_loops(script)):
            for each in values:
                self._script(source, depth=depth + 1, bound=each)
            return
        for oddity in script.unsure if self._wall else script.oddities:
            self._high(f"it {oddity}")
        inner_scripts: list[str] = []
        commands = (*script.commands, *self._fragments(source, script))
        invocations = self._commands(commands, inner_scripts)
        if self._wall:
            self._settings_of(script.assignments)
        for redirect in script.redirects:
            self._redirect(redirect)
        self._whole(script, invocations)
        self._fed_to_a_shell(script, invocations, inner_scripts)
        for inner in inner_scripts:
            self._script(inner, depth=depth + 1)
        self._guesses(depth)

    def _commands(
        self, commands: tuple[SimpleCommand, ...], inner_scripts: list[str]
    ) -> list[Invocation]:
        """Judge commands and what they start; returns them all."""
        invocations: list[Invocation] = []
        for command in commands:
            if not self._wall:
                self._assignments(command)
            started = self._started_by(command, inner_scripts)
            for invocation in started:
                self._invocation(invocation)
            invocations += started
            if self._wall:
                self._settings_of(command.assignments)
        return invocations

    def _needs_of_all(self) -> tuple[Need, ...]:
        return tuple(self._needs) if self._wall else ()

    def _guesses(self, depth: int) -> None:
        """Look for what is blocked in text that an interpreter may hand to a shell."""
        guessed, self._guessed = self._guessed, []
        found, needs, openings = list(self._found), dict(self._needs), list(self._openings)
        for each in guessed:
            self._script(each, depth=depth + 1)
        self._found = found + [each for each in self._found[len(found) :] if each.blocked]
        self._needs, self._openings = needs, openings

    def _fragments(self, source: str, script: ShellScript) -> list[SimpleCommand]:
        """Cut what the grammar rejects into pieces, so that what is blocked still shows."""
        if not any("grammar" in oddity for oddity in script.oddities):
            return []
        commands: list[SimpleCommand] = []
        for fragment in _FRAGMENTS.split(source)[:MAX_WORDS]:
            words = tuple(w for raw in fragment.split() for w in expand(raw, self._variables))
            if words and words[0].is_static and words[0].text:
                commands.append(SimpleCommand(words=words, assignments=(), start=0, end=0))
        return commands

    def _started_by(self, command: SimpleCommand, scripts: list[str]) -> list[Invocation]:
        """Return the command and all that it starts; adds shell source it holds to `scripts`."""
        found: list[Invocation] = []
        waiting = [Invocation(words=command.words, start=command.start, end=command.end)]
        while waiting:
            each = waiting.pop()
            self._count += len(each.words)
            if self._count > MAX_WORDS:
                self._blocked("it holds too many commands to be judged")
                return found
            inner = unwrap(each.words)
            if self._wall and each.name == "command" and each.options[:1] in {("-v",), ("-V",)}:
                inner = Unwrapped()  # it says where a command is, and runs none
            if self._wall and each.name == "env" and (given := env_command(each.arguments)):
                settings, command_words = given
                self._settings_of(settings)
                commands = (command_words,) if command_words else ()
                inner = Unwrapped(commands=commands, is_transparent=True)
            if not inner.is_transparent:
                found.append(each)
            adds_words = inner.adds_words or each.added_words
            if program := launched(each.name, each.arguments):
                inner = msgspec.structs.replace(inner, commands=(program,))
            waiting += [
                msgspec.structs.replace(
                    each, words=words, starter=each.name, added_words=adds_words
                )
                for words in inner.commands
            ]
            if self._wall and each.name not in SHELLS and not inner.is_transparent:
                self._guessed += inner.scripts
            else:
                scripts += inner.scripts
        return found

    def _invocation(self, invocation: Invocation) -> None:
        first = invocation.words[0]
        if not first.is_static or first.has_glob or not first.text:
            self._high("a command word is computed, so nobody can tell what runs")
        else:
            destroys = destruction(invocation, workspace=self._workspace, home=self._home)
            destroys = destroys or forced_push(invocation)
            if destroys:
                self._blocked(destroys)
            self._forbidden_command(invocation)
            if self._wall:
                self._contained(invocation)
            else:
                self._allow_list(invocation)
        self._paths(invocation)
        self._change_folder(invocation)

    def _forbidden_command(self, invocation: Invocation) -> None:
        name = invocation.name
        entry = " ".join(self._matching(invocation, self._forbidden))
        stem = name.partition(".")[0]
        if not entry and (stem,) in self._forbidden:
            entry = stem
        if entry:
            self._blocked(
                f"{name} is a forbidden command",
                f'take "{entry}" out of [security] forbidden_commands',
            )

    def _allow_list(self, invocation: Invocation) -> None:
        name = invocation.name
        if not self._matching(invocation, self._allowed):
            shown = self._shown_name(invocation)
            is_plain = _PLAIN_NAME.fullmatch(name) is not None
            hint = f'[security] allowed_commands += ["{shown}"]' if is_plain else ""
            self._high(f"{shown} is not on the allow-list", hint)
        elif invocation.words[0].text.rpartition("/")[0] not in _PROGRAM_FOLDERS:
            self._high(f"{invocation.words[0].text} is not the system's {name}")
        elif invocation.added_words and not takes_any_arguments(name):
            self._high(f"{invocation.starter} gives {name} arguments that cannot be told")
        else:
            option = risky_option(name, invocation.arguments)
            if option:
                self._high(f"{name} may execute or write with {option}")

    def _contained(self, invocation: Invocation) -> None:
        """Judge a command that the full sandbox holds."""
        if invocation.starter in STARTERS:
            return  # judged with what launches it
        name, words = invocation.name, invocation.words
        folder, _, _ = words[0].text.rpartition("/")
        is_projects = PROJECT_PROGRAMS.fullmatch(folder) is not None
        is_systems = folder in _PROGRAM_FOLDERS or self._is_shown(folder)
        found = None
        if is_systems and name in SHELLS:
            found = _shell_level(invocation)
        elif is_systems and name in {".", "source"} and _activates(invocation):
            found = _ACTIVATES
        elif is_systems or is_projects:
            found = level_of(name, words[1:], added_words=invocation.added_words)
        if is_projects and (found.risk != "high" if found else name not in INSTALLERS):
            found = Level(risk="medium", reason=f"{name} is a program of the project")
        if not (is_systems or is_projects):
            found = level_of(_BUILD_WRAPPERS.get(words[0].text, ""), words[1:])
            name = words[0].text
        self._judged(invocation, name, found, is_systems=is_systems)

    def _judged(
        self, invocation: Invocation, name: str, found: Level | None, *, is_systems: bool
    ) -> None:
        """Note the level of a command, and what would cover it and the next similar one."""
        words = invocation.words
        kind = words_of_kind((Word(text=name), *words[1:]))
        need = Need(
            kind="words",
            text=" ".join(word.text if word.is_static else "…" for word in words),
            words=(name, *(w.text if w.is_static else "" for w in words[1:])),
            pattern=" ".join([*kind, "*"]) if kind else "",
        )
        if found is not None and found.risk == "low":
            self._needs[msgspec.structs.replace(need, risk="low")] = None
            return
        if found is None or found != _ACTIVATES:
            self._openings.append(opening_of(name, invocation.arguments))
        hint = (
            f"clawctl policy allow '{need.pattern}' --project" if _is_pasted(need.pattern) else ""
        )
        if is_systems and self._matching(invocation, self._allowed):
            self._medium(f"{name} is in allowed_commands", need)
        elif found is None:
            what = " ".join(kind) or name
            self._high(f"`{what}` is not on the list of this project", hint, need)
        elif found.risk == "medium":
            self._medium(found.reason, need)
        else:
            self._high(found.reason, hint, need)

    def _is_shown(self, folder: str) -> bool:
        """Return whether programs of a folder are the system's: the sandbox shows it read-only."""
        word, wall = Word(text=folder), self._wall
        if wall is None or not folder.startswith("/") or folder in wall.own:
            return False
        return problem_of_word(word, "/", self._places) is None and (
            problem_of_word(word, "/", self._places, writes=True) is not None
        )

    def _matching(self, invocation: Invocation, entries: set[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the entry (`ls`, `git log`) that names this command, or ()."""
        name, arguments = invocation.name, invocation.arguments
        if name == "git":
            arguments = git_subcommand(arguments)
        for entry in entries:
            rest = arguments[: len(entry) - 1]
            texts = tuple(word.text for word in rest if word.is_static and not word.has_glob)
            if (name, *texts) == entry:
                return entry
        return ()

    def _shown_name(self, invocation: Invocation) -> str:
        subcommand = git_subcommand(invocation.arguments)[:1] if invocation.name == "git" else ()
        plain = [w.text for w in subcommand if w.is_static and _PLAIN_NAME.fullmatch(w.text)]
        return " ".join([invocation.name, *plain])

    def _paths(self, invocation: Invocation) -> None:
        for problem in problems_of_command(
            invocation.name, invocation.words, self._folder, self._places
        ):
            self._path(problem)

    def _path(self, problem: PathProblem) -> None:
        if problem.is_forbidden:
            self._blocked(
                f"{problem.path} is under a forbidden path",
                "take its entry out of [security] forbidden_paths",
            )
        elif self._settings.workspace_only:
            self._blocked(
                f"{problem.path} is outside the workspace", "[security] workspace_only = false"
            )
        else:
            self._high(f"{problem.path} is outside the workspace")

    def _change_folder(self, invocation: Invocation) -> None:
        """Follow `cd` inside the workspace, so that `cd a; cat ../b` is not an escape."""
        if invocation.name not in {"cd", "pushd"} or len(invocation.operands) != 1:
            return
        target = invocation.operands[0]
        if target.is_static and not target.has_glob and target.text != "-":
            folder = place_of(target.text, self._folder)
            if problem_of_word(Word(text=folder), "/", self._places) is None:
                self._folder = folder

    def _assignments(self, command: SimpleCommand) -> None:
        for name, value in command.assignments:
            if not is_harmless_variable(name, value):
                self._high(f"it sets {name} for a command")

    def _settings_of(self, assignments: tuple[tuple[str, Word], ...]) -> None:
        """Judge variables that are set where the full sandbox holds what runs."""
        for name, value in assignments:
            told = value.text if value.is_static else "$"
            if not is_free_variable(name, told) or "$(" in value.text or "`" in value.text:
                self._high(f"it sets {name}, which may say what runs")
            elif tunes(name):
                self._medium(f"it sets {name}")

    def _redirect(self, redirect: Redirect) -> None:
        target, operator = redirect.target, redirect.operator
        if operator in {">&", "<&"} and target.is_static and _DESCRIPTOR.fullmatch(target.text):
            return
        if target.is_static and _HARMLESS_TARGET.fullmatch(target.text):
            return
        problem = problem_of_word(target, self._folder, self._places, writes=operator != "<")
        if problem is not None:
            self._path(problem)
        if self._wall:
            path = place_of(target.text, self._folder)
            if operator != "<" and not (target.is_static and is_own(path, self._places)):
                text = target.text if target.is_static and not target.has_glob else ""
                pattern = f"> {place_of(text, self._folder)}" if text else ""
                need = Need(kind="write", text=text, pattern=pattern)
                self._medium(f"it writes {text or 'a file'}", need)
            return
        if operator != "<":
            self._high(f"it writes {target.text or 'a file'} by redirection")
        elif not target.is_static:
            self._high("it reads a file that cannot be told")

    def _whole(self, script: ShellScript, invocations: list[Invocation]) -> None:
        for problem in (fork_bomb(script), download_that_runs(invocations, script)):
            if problem:
                self._blocked(problem)
        for invocation in invocations:
            if invocation.name in script.functions:
                self._high(f"{invocation.name} is a function of its own here")

    def _fed_to_a_shell(
        self, script: ShellScript, invocations: list[Invocation], scripts: list[str]
    ) -> None:
        """Add text that a shell on the line may be given to run: `echo 'rm x' | sh`."""
        if not any(each.name in SHELLS or each.name in {".", "source"} for each in invocations):
            return
        scripts += script.inputs
        for each in invocations:
            if each.name in {"echo", "printf"}:
                scripts.append(" ".join(word.text for word in each.operands))

    def _medium(self, reason: str, need: Need | None = None) -> None:
        self._found.append(Assessment(risk="medium", reason=reason))
        if need is not None:
            self._needs[msgspec.structs.replace(need, risk="medium")] = None

    def _high(self, reason: str, hint: str = "", need: Need | None = None) -> None:
        self._found.append(Assessment(risk="high", reason=reason, allow_hint=hint))
        self._needs[need or Need(kind="other", text=reason)] = None

    def _blocked(self, why: str, hint: str = "") -> None:
        self._found.append(Assessment(risk="high", reason=why, blocked=why, allow_hint=hint))
