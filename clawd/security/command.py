"""What a shell command would do, judged from its text alone.

The command is parsed with a real grammar and every command word in it is judged, wherever it
stands: in pipelines, substitutions, functions, `sh -c`, `sudo`, `xargs`, `find -exec` and so on.
Medium needs certainty: a line of the plain kind, only allow-listed commands, no option that
executes or writes. All else is high. What is forbidden, destructive or outside the workspace is
blocked. This is advice for the policy and for people; the wall is the sandbox.
"""

import re
from pathlib import Path
from posixpath import normpath

import msgspec

from clawd.security.policy import PolicySettings
from clawd.security.risk import Assessment, highest
from clawd.security.shell_destruction import (
    Invocation,
    destruction,
    download_that_runs,
    fork_bomb,
)
from clawd.security.shell_options import git_subcommand, risky_option, takes_any_arguments
from clawd.security.shell_paths import PathProblem, places, problem_of_word, problems_of_command
from clawd.security.shell_script import Redirect, Script, SimpleCommand, parse
from clawd.security.shell_words import Word, expand
from clawd.security.shell_wrappers import SHELLS, is_harmless_variable, unwrap

MAX_COMMAND_BYTES = 65_536
MAX_DEPTH = 8
MAX_WORDS = 20_000

_SPLIT_HINT = "Write long text or code with file_write, and give shorter commands."
_CONTROL = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_PROGRAM_FOLDERS = ("", "/bin", "/usr/bin", "/usr/local/bin")
_FRAGMENTS = re.compile(r"[;&|\n()`]+|\$\(")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+-]+")
_HARMLESS_TARGET = re.compile(r"/dev/(?:null|stdout|stderr)")
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")


def assess(command: str, settings: PolicySettings, *, workspace: Path, home: Path) -> Assessment:
    """Say how risky a shell command is. Never raises.

    Args:
        command: what would be given to `bash -c`.
        settings: the allow-list, the forbidden commands and paths.
        workspace: absolute; the folder the command would start in.
        home: what `~` and `$HOME` mean.
    """
    unreadable = _unreadable(command)
    if unreadable:
        return Assessment(risk="high", blocked=unreadable)
    return _Judge(settings, workspace, home).judge(command)


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


class _Judge:
    """Judges one command line; what it finds is collected in source order."""

    def __init__(self, settings: PolicySettings, workspace: Path, home: Path) -> None:
        self._settings = settings
        self._workspace = workspace
        self._home = home
        self._variables = {"HOME": str(home), "PWD": str(workspace)}
        self._allowed = {tuple(entry.split()) for entry in settings.allowed_commands} - {()}
        self._forbidden = {tuple(entry.split()) for entry in settings.forbidden_commands} - {()}
        self._places = places(workspace, home, settings.forbidden_paths)
        self._folder = str(workspace)
        self._found: list[Assessment] = []
        self._count = 0

    def judge(self, command: str) -> Assessment:
        if _CONTROL.search(command):
            self._high("it holds control characters")
        self._script(command, depth=0)
        if not self._count:
            self._high("it holds no command")
        for each in self._found:
            if each.blocked:
                return each
        risk = highest("medium", *(each.risk for each in self._found))
        for each in self._found:
            if each.risk == risk:
                return each
        return Assessment(risk="medium", reason="runs allow-listed commands")

    def _script(self, source: str, *, depth: int) -> None:
        if depth > MAX_DEPTH or self._count > MAX_WORDS:
            self._blocked("it holds too many commands, or commands nested too deeply, to be judged")
            return
        script = parse(source.encode("utf-8", "replace"), self._variables)
        if script.is_too_big:
            self._blocked("it is too long, or holds too many commands, to be judged", _SPLIT_HINT)
            return
        for oddity in script.oddities:
            self._high(f"it {oddity}")
        invocations: list[Invocation] = []
        inner_scripts: list[str] = []
        for command in (*script.commands, *self._fragments(source, script)):
            self._assignments(command)
            started = self._started_by(command, inner_scripts)
            for invocation in started:
                self._invocation(invocation)
            invocations += started
        for redirect in script.redirects:
            self._redirect(redirect)
        self._whole(script, invocations)
        self._fed_to_a_shell(script, invocations, inner_scripts)
        for inner in inner_scripts:
            self._script(inner, depth=depth + 1)

    def _fragments(self, source: str, script: Script) -> list[SimpleCommand]:
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
            if not inner.is_transparent:
                found.append(each)
            adds_words = inner.adds_words or each.added_words
            waiting += [
                msgspec.structs.replace(
                    each, words=words, starter=each.name, added_words=adds_words
                )
                for words in inner.commands
            ]
            scripts += inner.scripts
        return found

    def _invocation(self, invocation: Invocation) -> None:
        first = invocation.words[0]
        if not first.is_static or first.has_glob or not first.text:
            self._high("a command word is computed, so nobody can tell what runs")
        else:
            destroys = destruction(invocation, workspace=self._workspace, home=self._home)
            if destroys:
                self._blocked(destroys)
            self._forbidden_command(invocation)
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
            self._found.append(
                Assessment(risk="high", reason=f"{problem.path} is outside the workspace")
            )

    def _change_folder(self, invocation: Invocation) -> None:
        """Follow `cd` inside the workspace, so that `cd a; cat ../b` is not an escape."""
        if invocation.name not in {"cd", "pushd"} or len(invocation.operands) != 1:
            return
        target = invocation.operands[0]
        if target.is_static and not target.has_glob and target.text != "-":
            folder = normpath(f"{self._folder}/{target.text}")
            if problem_of_word(Word(text=folder), "/", self._places) is None:
                self._folder = folder

    def _assignments(self, command: SimpleCommand) -> None:
        for name, value in command.assignments:
            if not is_harmless_variable(name, value):
                self._high(f"it sets {name} for a command")

    def _redirect(self, redirect: Redirect) -> None:
        target, operator = redirect.target, redirect.operator
        if operator in {">&", "<&"} and target.is_static and _DESCRIPTOR.fullmatch(target.text):
            return
        if target.is_static and _HARMLESS_TARGET.fullmatch(target.text):
            return
        problem = problem_of_word(target, self._folder, self._places)
        if problem is not None:
            self._path(problem)
        if operator != "<":
            self._high(f"it writes {target.text or 'a file'} by redirection")
        elif not target.is_static:
            self._high("it reads a file that cannot be told")

    def _whole(self, script: Script, invocations: list[Invocation]) -> None:
        for problem in (fork_bomb(script), download_that_runs(invocations, script)):
            if problem:
                self._blocked(problem)
        for invocation in invocations:
            if invocation.name in script.functions:
                self._high(f"{invocation.name} is a function of its own here")

    def _fed_to_a_shell(
        self, script: Script, invocations: list[Invocation], scripts: list[str]
    ) -> None:
        """Add text that a shell on the line may be given to run: `echo 'rm x' | sh`."""
        if not any(each.name in SHELLS or each.name in {".", "source"} for each in invocations):
            return
        scripts += script.inputs
        for each in invocations:
            if each.name in {"echo", "printf"}:
                scripts.append(" ".join(word.text for word in each.operands))

    def _high(self, reason: str, hint: str = "") -> None:
        self._found.append(Assessment(risk="high", reason=reason, allow_hint=hint))

    def _blocked(self, why: str, hint: str = "") -> None:
        self._found.append(Assessment(risk="high", reason=why, blocked=why, allow_hint=hint))
