"""The command line of clawctl. Only the chosen command's module is imported."""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from typing_extensions import override

from clawctl.app import EXIT_OF_CODE, App, Exit
from clawd import __version__
from clawd.errors import ClawError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GROUPS: dict[str, dict[str, str]] = {
    "Talk": {
        "agent": "Talk to the model: one message, or a conversation.",
        "shell": "Run your own shell, in which `> text` asks the model.",
        "conversation": "List, show, rename, fork, compress, export and delete conversations.",
        "files": "List, read, add and delete the files of a conversation.",
        "schedule": "Have prompts run by themselves at times; list, pause, run and remove them.",
    },
    "See and stop": {
        "status": "Say what the daemon is and does.",
        "top": "Show what the daemon does just now, live.",
        "approval": "List, answer and revoke approvals.",
        "jobs": "List, show and stop commands that go on after their call.",
        "receipt": "List, show and verify the receipts of tool calls.",
        "undo": "Take back what tools changed in files.",
        "stop": "End the daemon; turns may finish.",
        "restart": "End the daemon and start it anew, with this environment.",
        "estop": "Stop every tool at once, or allow them again.",
        "logs": "Show what the daemon wrote down.",
        "metrics": "Show what the daemon counts and measures.",
    },
    "Models and tools": {
        "model": "List, add, load and unload the models of this machine.",
        "provider": "List and test the sources of answers.",
        "tool": "List the tools and run one.",
        "mcp": "List, connect and disconnect MCP servers, call their tools, and be one.",
        "plugin": "Install, list, approve and remove plugins.",
        "skill": "List, show, add, check and trust skills.",
        "sop": "List, check, enable and run procedures.",
        "policy": "Say what the policy answers to a call, or to a table of cases.",
    },
    "Memory": {
        "memory": "List, search, show and clear conversations.",
        "knowledge": "Save, find, read and edit what the model knows for you.",
    },
    "Set up and service": {
        "onboard": "Set up, start the daemon and try the model.",
        "init": "Create home, config and workspace.",
        "config": "Check, show and edit the configuration.",
        "doctor": "Say what protects this machine and what does not.",
        "cache": "List and clear what commands keep between them, by project.",
        "service": "Install, start, stop and watch clawd as a service of systemd.",
        "backup": "Make, look at, check and put back backups of a home.",
        "key": "Make, list and revoke keys for the HTTP gateway.",
        "page": "Print a link that opens the page in a browser.",
        "completion": "Print or install completion for bash, zsh and fish.",
        "version": "Print versions.",
    },
}
COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}


_STOPPING = ("stop", "restart", "estop")
MAX_USAGE_CHARACTERS = 600
# click before 8.2 shows the help by itself.
_WITHOUT_COMMAND: type[Exception] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())


class LazyGroup(click.Group):
    """A group whose commands are modules of `clawctl.commands`, imported when they are chosen."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = _command(cmd_name)
        gc.freeze()
        gc.enable()
        return command

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        # click would import every command to ask it for its help.
        from click.shell_completion import CompletionItem

        found = click.Command.shell_complete(self, ctx, incomplete)
        found += [
            CompletionItem(name, help=about)
            for name, about in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # One column of names for all groups, so that the eye runs down one edge.
        width = max(map(len, COMMANDS))
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), about) for name, about in commands.items()])

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            # What stops things is named to those only who all but typed it: `sop` may mean more.
            if close and close[0] in _STOPPING:
                close = difflib.get_close_matches(args[0], _STOPPING, n=1, cutoff=0.88)
            hint = f" Did you mean {close[0]}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


class _Run(App):
    """A run of clawctl itself, in which commands may ask for others."""

    @override
    def command_of(self, name: str) -> click.Command:
        return _command(name)


def _command(name: str) -> click.Command:
    command = importlib.import_module(f"clawctl.commands.{name}").command
    assert isinstance(command, click.Command)
    return command


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 click's signature
    if value and not context.resilient_parsing:
        click.echo(f"clawctl {__version__}")
        context.exit()


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--socket", metavar="PATH", help="The daemon's socket [env: CLAWD_SOCKET].")
@click.option("--no-start", is_flag=True, help="Do not start a daemon when none answers.")
@click.option("--quiet", is_flag=True, help="Draw no progress.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and end.",
)
@click.pass_obj
def cli(app: App, socket: str | None, *, no_start: bool, quiet: bool) -> None:
    """The client of clawd: a model on your own machine acts for you, and you see every act.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 tool run denied, 4 an approval was needed and
    nobody could be asked or answered in time, 5 cap of rounds or time reached, 6 no daemon, 7 tool
    run under the emergency stop, 130 interrupted.
    """
    app.socket = socket
    app.may_start = not no_start
    app.is_quiet = quiet


def main(arguments: Sequence[str] | None = None) -> int:
    """Run clawctl and return its exit code."""
    _tolerate_any_text()
    _guard_terminals()
    app = _Run()
    try:
        code = cli.main(args=arguments, prog_name="clawctl", standalone_mode=False, obj=app)
        sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        return Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILED
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except ClawError as error:
        from clawctl.render import show_error

        show_error(error, as_json=app.wants_json)
        return EXIT_OF_CODE.get(error.code, Exit.FAILED)
    except BrokenPipeError:
        # The reader of our output has gone; what is left to flush must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    return int(code or 0)


def _show(error: click.ClickException) -> None:
    """Print what click has to say, as click does, with what it quotes made safe."""
    from clawd.wire.safe_text import visible_line

    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None and isinstance(error, _WITHOUT_COMMAND):
        click.echo(context.get_help(), err=True)
        return
    if context is not None:
        click.echo(context.get_usage(), err=True)
        click.echo(f"Try '{context.command_path} --help' for help.\n", err=True)
    text = error.format_message()
    lines = text.splitlines() if len(text) <= MAX_USAGE_CHARACTERS else [text]
    shown = "\n".join(visible_line(line, MAX_USAGE_CHARACTERS) for line in lines)
    click.echo(f"Error: {shown}", err=True)


def _guard_terminals() -> None:
    """Put a screen before every stream that is a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream.isatty():
            from clawctl.safe_stream import Screen

            setattr(sys, name, Screen(stream))


def _tolerate_any_text() -> None:
    handlers = {
        sys.stdin: "replace",
        sys.stdout: "backslashreplace",
        sys.stderr: "backslashreplace",
    }
    for stream, errors in handlers.items():
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=errors)
