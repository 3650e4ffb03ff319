"""What every command shares: the options before its name, the way to the daemon, exit codes."""

import os
import re
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from typing_extensions import override

from clawctl.client import Client
from clawctl.daemon_finder import reach, require_overrides
from clawd.errors import NotFoundError
from clawd.paths import expanded
from clawd.wire.method import Method

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # the older releases that serve as well know no argument

_AGO = re.compile(r"([0-9]{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_FORMS = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d")
MOMENT_HELP = "A UTC time (2026-11-21, 2026-11-21T08:00Z) or how long ago (30m, 2h, 7d)."
SHOWN_CHARACTERS = 200

C = TypeVar("C", bound=Callable[..., Any])
R = TypeVar("R")


class Exit(IntEnum):
    """Exit codes of clawctl."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DENIED = 3
    UNANSWERED = 4
    CAP = 5
    UNREACHABLE = 6
    STOPPED = 7
    INTERRUPTED = 130


EXIT_OF_CODE = {"unreachable": Exit.UNREACHABLE, "cancelled": Exit.INTERRUPTED}


class App:
    """The state of one run of clawctl.

    Attributes:
        socket: what --socket names, or None.
        may_start: whether a daemon may be started when none answers.
        is_quiet: whether no progress shall be drawn.
        wants_json: whether the command was given --json, so that an error is JSON as well.
    """

    def __init__(self) -> None:
        self.socket: str | None = None
        self.may_start = True
        self.wants_json = False
        self.is_quiet = False

    def command_of(self, name: str) -> click.Command:
        """Return a command by its name; `clawctl.main` knows them all.

        Raises:
            LookupError: nothing here knows it.
        """
        raise LookupError(name)

    def client(self) -> Client:
        """Connect to the daemon, starting the user's own one where that is allowed.

        Raises:
            ClawError: none can be reached, or it runs without what the environment asks for.
        """
        client = reach(self.socket, may_start=self.may_start)
        try:
            require_overrides(client, os.environ)
        except BaseException:
            client.close()
            raise
        return client

    def call(self, method: Method[R]) -> R:
        """Connect to the daemon as `client` does, and return what one method answers.

        Raises:
            ClawError: no daemon can be reached, or it refuses.
        """
        with self.client() as client:
            return client.call(method)

    def running_client(self, limit_s: float | None = None) -> Client:
        """Connect to a daemon that runs already, and greets within a limit.

        Whatever its environment is: to stop it, or to look.
        """
        return reach(self.socket, may_start=False, limit_s=limit_s)


class Name(_ParamType):
    """A name that somebody gave: TAB offers those there are, of a kind of `live_names`."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list["CompletionItem"]:
        """Return the names that begin so; none where the daemon cannot be asked in time."""
        from clawctl.completion import offered

        return offered(self.kind, ctx)


class Moment(_ParamType):
    """A UTC time, or how long ago; it arrives in the form of receipts, `2026-11-21T08:00:00Z`."""

    name = "time"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the time; empty for empty."""
        return utc_time(value)


def utc_time(text: str, *, now: float | None = None) -> str:
    """Return the time in the form of receipts; empty for empty.

    Raises:
        click.BadParameter: it is no time.
    """
    if not text:
        return ""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        seconds = int(ago[1]) * _SECONDS[ago[2]]
        past = max((time.time() if now is None else now) - seconds, 0)
        return time.strftime(_FORMS[0], time.gmtime(past))
    for form in _FORMS:
        try:
            return time.strftime(_FORMS[0], time.strptime(text, form))
        except ValueError:
            continue
    raise click.BadParameter(f"{text!r} is not a time. {MOMENT_HELP}")


class JsonObject(_ParamType):
    """A JSON object, as text; `-` reads it from standard input."""

    name = "text"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text of the object."""
        import msgspec

        text = sys.stdin.read() if value == "-" else str(value)
        shown = repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…")
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise click.UsageError(f"--json {shown} is not JSON: {error}") from error
        except RecursionError as error:
            raise click.UsageError(f"--json {shown} is nested too deep") from error
        if not isinstance(found, dict):
            raise click.UsageError('--json must be an object, as \'{"path": "."}\'')
        return text


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether something is to be done, unless --yes said so.

    Raises:
        UsageError: nobody can be asked.
        click.Abort: the answer is no.
    """
    if yes:
        return
    from clawd.wire.safe_text import terminal_safe

    safe = terminal_safe(question)
    if not sys.stdin.isatty():
        raise click.UsageError(f"{safe} Say so with --yes")
    click.confirm(safe, abort=True, err=True)


def current_folder() -> Path:
    """Return the folder that this runs in.

    Raises:
        NotFoundError: it is gone.
    """
    try:
        return Path.cwd()
    except OSError as error:
        text = "the folder that this runs in is gone"
        raise NotFoundError(text, hint="cd to another one, or name one with -C.") from error


def workspace_of(directory: str | None, *, here: bool) -> str:
    """Return the folder that -C or --here name, absolute; "" for the configured one."""
    if directory and here:
        raise click.UsageError("-C and --here exclude each other")
    if not directory and not here:
        return ""
    folder = expanded(directory) if directory else current_folder()
    try:
        is_there = folder.is_dir()
    except PermissionError:
        # The machine's daemon has folders that its clients cannot see: it judges this one.
        return str(folder.absolute())
    if not is_there:
        raise click.UsageError(f"-C {folder}: there is no such folder")
    return str(folder.resolve())


conversation_option = partial(
    click.option, "--conversation", type=Name("conversations"), metavar="ID", default=""
)


config_file_option = click.option(
    "--file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Another config file than the usual one.",
)


class ListingGroup(click.Group):
    """A group that lists where no command of it is named."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # `jobs --json` lists as well; the help is that of the group.
        is_listing = not args or (args[0][:1] == "-" and args[0] not in {"-h", "--help"})
        if is_listing and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)


pass_app = click.make_pass_decorator(App)


def json_option(prints: Any) -> Callable[[C], C]:
    """Add --json, whose value arrives as `as_json`, and --json-schema; see `schema_option`."""

    def add(command: C) -> C:
        flag = click.option(
            "--json", "as_json", is_flag=True, callback=_remember, help="Print one JSON document."
        )
        return flag(schema_option(prints)(command))

    return add


def _remember(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:  # noqa: FBT001 click's signature
    context.ensure_object(App).wants_json = value
    return value


def json_command(prints: Any) -> Callable[[C], C]:
    """Pass the `App` to a command and add --json, as `json_option` does."""
    return lambda command: json_option(prints)(cast("Any", pass_app(command)))


def schema_option(prints: Any) -> Callable[[C], C]:
    """Add --json-schema to a command.

    Args:
        prints: the type of what it prints with --json, or `module:name` of a type that is loaded
            for the schema alone. Fields may be added to it; none is renamed or taken away within a
            major version. A command that fails prints `{"error": {"code", "message", "hint",
            "data"}}` instead.
    """
    return click.option(
        "--json-schema",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=partial(_show_schema, prints),
        help="Print the schema of that document.",
    )


def _show_schema(
    prints: Any,
    context: click.Context,
    _parameter: click.Parameter,
    value: bool,  # noqa: FBT001 click's signature
) -> None:
    if not value or context.resilient_parsing:
        return
    from clawctl.render import emit_schema

    names: list[str] = []
    at: click.Context | None = context
    while at is not None and at.parent is not None:
        names.insert(0, at.info_name or "")
        at = at.parent
    emit_schema(prints, f"clawctl {' '.join(names)} --json")
    context.exit()
