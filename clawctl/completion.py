"""What a shell offers at TAB: commands and options from the command tree, names from the daemon.

`clawctl completion _words bash|zsh|fish -- WORD …` prints a line for each proposal, `value TAB
help`, for the last word; or one word, `:file` or `:dir`, where the shell knows better. It starts no
daemon, asks no person, leaves no receipt, is silent, and waits for a daemon for LIMIT_S at most;
commands and options, which it knows by itself, wait for nobody.
"""

import os
import signal
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec
from click.shell_completion import CompletionItem, ShellComplete
from typing_extensions import override

from clawctl.app import App
from clawctl.client import Client
from clawctl.daemon_finder import reach
from clawd.errors import ClawError
from clawd.paths import layout

LIMIT_S = 0.25
MAX_PROPOSALS = 500
MAX_VALUE = 200
MAX_HELP = 80
if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # the older releases that serve as well know no argument

_LISTED = 200
_MAX_NOTES = 2_000
_Name = tuple[str, str]


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed before: the socket, and the values of the command's own parameters."""

    socket: str | None = None
    params: dict[str, str] = {}

    def client(self) -> Client:
        """Connect to a daemon that runs; none is started for a completion.

        Raises:
            ClawError: none runs, or it does not serve us.
        """
        return reach(self.socket, may_start=False)


class _TooLateError(BaseException):
    """The time is up; a BaseException, so that no handler on the way takes it for a failure."""


class _Live(_Type):
    """A parameter whose values the daemon knows; all else is as the type behind it says."""

    name = "live"

    def __init__(self, behind: "click.ParamType[Any]", source: str, limit_s: float) -> None:
        self.behind = behind
        self._source = source
        self._limit_s = limit_s

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert as the type behind it."""
        return self.behind.convert(value, param, ctx)

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so; none where the daemon cannot be asked in time."""
        asked = _Asked(
            socket=ctx.find_root().params.get("socket"),
            params={name: str(value) for name, value in ctx.params.items() if value},
        )
        found = _in_time(SOURCES[self._source](asked), self._limit_s)
        # A name that looks like an option would be one once it stands in the line.
        return [CompletionItem(value, help=about) for value, about in found if value[:1] != "-"]


# Which source knows the values of a parameter: the words of the command, then its name.
LIVE: dict[tuple[str, str], str] = {
    ("agent", "conversation"): "conversations",
    ("agent show-prompt", "conversation"): "conversations",
    ("agent", "provider"): "providers",
    ("agent", "model"): "models",
    ("approval approve", "approval_id"): "approvals",
    ("approval deny", "approval_id"): "approvals",
    ("approval edit", "approval_id"): "approvals",
    ("approval rules", "rule_id"): "rules",
    ("conversation compress", "conversation"): "conversations",
    ("conversation delete", "conversation"): "conversations",
    ("conversation export", "conversation"): "conversations",
    ("conversation fork", "conversation"): "conversations",
    ("conversation rewind", "conversation"): "conversations",
    ("conversation rename", "conversation"): "conversations",
    ("conversation show", "conversation"): "conversations",
    ("files add", "conversation"): "conversations",
    ("files delete", "conversation"): "conversations",
    ("files delete", "name"): "session_files",
    ("files list", "conversation"): "conversations",
    ("files save", "conversation"): "conversations",
    ("files save", "name"): "session_files",
    ("files show", "conversation"): "conversations",
    ("files show", "name"): "session_files",
    ("jobs list", "conversation"): "conversations",
    ("jobs output", "job"): "jobs",
    ("jobs show", "job"): "jobs",
    ("jobs stop", "job"): "jobs",
    ("key revoke", "key"): "keys",
    ("knowledge append", "keywords"): "knowledge",
    ("knowledge delete", "keywords"): "knowledge",
    ("knowledge edit", "keywords"): "knowledge",
    ("knowledge load", "keywords"): "keywords",
    ("knowledge save", "keywords"): "knowledge",
    ("knowledge search", "keywords"): "keywords",
    ("mcp accept", "alias"): "aliases",
    ("mcp connect", "alias"): "aliases",
    ("mcp diff", "alias"): "aliases",
    ("mcp disconnect", "alias"): "aliases",
    ("mcp tool", "alias"): "aliases",
    ("mcp tool", "name"): "mcp_tools",
    ("mcp tools", "alias"): "aliases",
    ("memory clear", "conversation"): "conversations",
    ("memory show", "conversation"): "conversations",
    ("model accept", "name"): "models",
    ("model load", "name"): "models",
    ("model merge", "name"): "models",
    ("model rm", "name"): "models",
    ("model show", "name"): "models",
    ("model use", "name"): "models",
    ("model unload", "name"): "loaded_models",
    ("plugin approve", "name"): "plugins",
    ("plugin remove", "name"): "plugins",
    ("schedule history", "name"): "schedules",
    ("schedule pause", "name"): "schedules",
    ("schedule remove", "name"): "schedules",
    ("schedule resume", "name"): "schedules",
    ("schedule run", "name"): "schedules",
    ("skill show", "name"): "skills",
    ("skill trust", "name"): "skills",
    ("sop dry-run", "name"): "sops",
    ("sop enable", "name"): "sops",
    ("sop history", "name"): "sops",
    ("sop run", "name"): "sops",
    ("sop show", "name"): "sops",
    ("sop validate", "what"): "sops",
    ("sop approve", "run"): "sop_runs",
    ("sop cancel", "run"): "sop_runs",
    ("sop resume", "run"): "sop_runs",
    ("sop status", "run"): "sop_runs",
    ("policy explain", "tool"): "tools",
    ("provider test", "name"): "providers",
    ("receipt export", "conversation"): "conversations",
    ("receipt list", "conversation"): "conversations",
    ("receipt list", "tool"): "tools",
    ("receipt show", "receipt"): "receipts",
    ("tool run", "name"): "tools",
    ("tool show", "name"): "tools",
    ("undo", "conversation"): "conversations",
}


def complete(
    root: click.Command, shell: str, words: list[str], app: App, *, limit_s: float = LIMIT_S
) -> list[str]:
    """Return the lines for a shell; `words` are those after `clawctl`, the last is being typed."""
    try:
        return list(_proposals(root, shell, words, app, limit_s))
    except Exception:  # noqa: BLE001 - no place for a message, nor the very end
        return []


def _proposals(
    root: click.Command, shell: str, words: list[str], app: App, limit_s: float
) -> Iterator[str]:
    glued, cut = _glued(words) if shell == "bash" else (words, 0)
    *before, incomplete = glued or [""]
    _make_live(root, before, app, limit_s)
    finder = ShellComplete(root, {"obj": app}, "clawctl", "_CLAWCTL_COMPLETE")
    yield from _lines(finder.get_completions(before, incomplete), incomplete, cut)


def _time_is_up(_number: int, _frame: types.FrameType | None) -> NoReturn:
    raise _TooLateError


def _in_time(names: Iterable[tuple[str, str]], limit_s: float) -> list[tuple[str, str]]:
    """Return what is found before the time is up: only the daemon is waited for, and no longer."""
    found: list[tuple[str, str]] = []
    try:
        signal.signal(signal.SIGALRM, _time_is_up)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            for each in names:
                found.append(each)
                if len(found) >= MAX_PROPOSALS:
                    break
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (_TooLateError, Exception):  # noqa: BLE001 - as above
        return found
    return found


def _glued(words: list[str]) -> tuple[list[str], int]:
    """Join what bash parts at `=` and `:` and return how much of the last word it has kept.

    `--tool=ti` comes as three words, and what is proposed replaces the last of them only.
    """
    glued: list[str] = []
    joins = False
    for word in words:
        is_mark = word in {"=", ":"}
        if glued and (joins or is_mark) and glued[-1]:
            glued[-1] += word
        else:
            glued.append(word)
        joins = is_mark
    last = words[-1] if words else ""
    kept = "" if last in {"=", ":"} else last
    return glued, len(glued[-1]) - len(kept) if glued else 0


def _make_live(root: click.Command, before: list[str], app: App, limit_s: float) -> None:
    """Give the parameters of the command that is being typed their sources."""
    path, command = _command_of(root, before, app)
    for param in command.params:
        source = LIVE.get((path, param.name or ""))
        if source is not None:
            behind = param.type.behind if isinstance(param.type, _Live) else param.type
            param.type = _Live(behind, source, limit_s)


def _command_of(root: click.Command, before: list[str], app: App) -> tuple[str, click.Command]:
    context = click.Context(root, info_name="clawctl", obj=app)
    path: list[str] = []
    command = root
    skips = False
    for word in before:
        if skips or word.startswith("-"):
            skips = not skips and word == "--socket"
            continue
        if not isinstance(command, click.Group):
            break
        below = command.get_command(context, word)
        if below is None:
            break
        path.append(below.name if path and below.name else word)
        command = below
    return " ".join(path), command


def _lines(found: list[CompletionItem], incomplete: str, cut: int) -> Iterator[str]:
    seen: set[str] = set()
    option, mark, _ = incomplete.partition("=")
    front = f"{option}{mark}" if mark and option.startswith("--") else ""
    for item in found:
        if item.type in {"file", "dir"}:
            yield f":{item.type}"
            continue
        value = f"{front}{item.value}"
        if value in seen or not value.startswith(incomplete) or not _is_harmless(value):
            continue
        seen.add(value)
        about = " ".join(str(item.help or "").split())[:MAX_HELP]
        yield f"{value[cut:]}\t{about if about.isprintable() else ''}"


def _is_harmless(value: str) -> bool:
    """Return whether a name may be put into a command line: one line, nothing hidden, no option."""
    return 0 < len(value) <= MAX_VALUE and value.isprintable()


def print_lines(lines: list[str]) -> None:
    """Print for the shell; a reader that is gone is none of our business."""
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# The names that completion offers beside commands and options; asked of a daemon that runs.
#
# What is named by others (titles, tools, notes) is data: whoever offers it leaves out what is not
# printable. Nothing here makes a tool call, so TAB leaves no receipt.


def _conversations(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.conversations import ListConversations

    with asked.client() as client:
        for line in client.call(ListConversations(limit=_LISTED)).items:
            yield line.id, line.title


def _providers(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.models import ListProviders

    with asked.client() as client:
        for line in client.call(ListProviders()).items:
            yield line.name, f"{line.kind} {line.model}".strip()


def _models(asked: _Asked) -> Iterator[_Name]:
    from clawctl.render import size
    from clawd.wire.models import ListModels

    with asked.client() as client:
        for line in client.call(ListModels()).items:
            yield line.name, size(line.size_bytes)


def _loaded_models(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.models import ListLoadedModels

    with asked.client() as client:
        for line in client.call(ListLoadedModels()).items:
            yield line.name, line.state


def _tools(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.tools import ListTools

    with asked.client() as client:
        for line in client.call(ListTools()).items:
            yield line.name, line.short


def _approvals(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.policy import ListApprovals

    with asked.client() as client:
        for line in client.call(ListApprovals()).items:
            yield line.id, f"{line.tool}: {line.reason}"


def _jobs(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.tools import ListJobs

    with asked.client() as client:
        for line in client.call(ListJobs()).items:
            yield line.id, f"{line.state}: {line.command}"


def _rules(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.policy import ListRules

    with asked.client() as client:
        for line in client.call(ListRules()).items:
            yield line.id, f"{line.tool} {line.pattern}"


def _keys(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.daemon import ListKeys

    with asked.client() as client:
        for line in client.call(ListKeys()).items:
            yield line.id, line.name


def _aliases(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.daemon import Status

    with asked.client() as client:
        for line in client.call(Status()).servers:
            yield line.alias, line.link


def _mcp_tools(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.mcp import ListMcpTools

    with asked.client() as client:
        for line in client.call(ListMcpTools(alias=asked.params.get("alias", ""))).items:
            yield line.tool, line.short


def _plugins(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.tools import ListPlugins

    with asked.client() as client:
        for line in client.call(ListPlugins()).items:
            yield line.name, line.state


def _schedules(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.schedules import ListSchedules

    with asked.client() as client:
        for line in client.call(ListSchedules()).items:
            yield line.name, line.when


def _skills(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.skills import ListSkills

    with asked.client() as client:
        for line in client.call(ListSkills()).items:
            yield line.name, line.state


def _sops(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.sops import ListSops

    with asked.client() as client:
        for line in client.call(ListSops()).items:
            yield line.name, line.state


def _sop_runs(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.sops import ListSopRuns

    with asked.client() as client:
        for line in client.call(ListSopRuns()).items:
            yield line.id, f"{line.name}: {line.status}"


def _receipts(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.receipts import ListReceipts

    with asked.client() as client:
        for line in client.call(ListReceipts(limit=_LISTED)).items:
            yield line.id, f"{line.seq} {line.tool} {line.status}"


def _session_files(asked: _Asked) -> Iterator[_Name]:
    from clawd.wire.conversations import ListSessionFiles

    conversation = asked.params.get("conversation", "")
    if not conversation:
        return
    with asked.client() as client:
        for line in client.call(ListSessionFiles(conversation_id=conversation)).items:
            yield line.name, line.summary


def _knowledge(asked: _Asked) -> Iterator[_Name]:
    for path in _notes(asked):
        yield path.stem, ""


def _keywords(asked: _Asked) -> Iterator[_Name]:
    words = {word for path in _notes(asked) for word in path.stem.removeprefix("fix-").split("_")}
    for word in sorted(words):
        yield word, ""


def _notes(asked: _Asked) -> list[Path]:
    """Return the notes of the home, by the folder: listing them by the daemon is a tool call."""
    try:
        with asked.client() as client:
            home = Path(client.welcome.home)
    except ClawError:
        home = layout().home
    return sorted((home / "knowledge").glob("*.md"))[:_MAX_NOTES]


SOURCES: dict[str, Callable[[_Asked], Iterator[_Name]]] = {
    "aliases": _aliases,
    "approvals": _approvals,
    "conversations": _conversations,
    "jobs": _jobs,
    "keys": _keys,
    "keywords": _keywords,
    "knowledge": _knowledge,
    "loaded_models": _loaded_models,
    "mcp_tools": _mcp_tools,
    "models": _models,
    "plugins": _plugins,
    "schedules": _schedules,
    "skills": _skills,
    "sops": _sops,
    "sop_runs": _sop_runs,
    "providers": _providers,
    "receipts": _receipts,
    "rules": _rules,
    "session_files": _session_files,
    "tools": _tools,
}
