"""`clawctl agent`: one message with -m, else a conversation."""

import os
import select
import stat
import sys
from typing import Literal, TextIO

import click
import msgspec
from typing_extensions import override

from clawctl.app import App, Exit, json_option, pass_app
from clawctl.approve import Terminal
from clawctl.choice import Choice
from clawctl.following import follow, listening
from clawctl.prompt_view import show_prompt, workspace_of
from clawctl.render import emit_json, error_values
from clawctl.turn import TurnView, ViewOptions
from clawd.errors import ClawError, InvalidRequestError
from clawd.wire.codec import to_builtins
from clawd.wire.events import TurnFinished
from clawd.wire.methods import SamplingWishes

MAX_TEXT_BYTES = 8 * 1024 * 1024
PIPE_PATIENCE_S = 0.5
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens")

ToolMode = Literal["", "split", "unified", "both"]


class AgentGroup(click.Group):
    """`agent` is a command of its own; only a first word that names a subcommand is one.

    Its options and its argument are for talking, so nothing of them stands before a subcommand.
    """

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.args = args
            ctx.invoked_subcommand = args[0]
            return args
        return click.Command.parse_args(self, ctx, args)

    @override
    def invoke(self, ctx: click.Context) -> object:
        if ctx.invoked_subcommand is None:
            return click.Command.invoke(self, ctx)
        name, *rest = ctx.args
        chosen = self.commands[name]
        with chosen.make_context(name, rest, parent=ctx) as below:
            return chosen.invoke(below)


@click.group(cls=AgentGroup, invoke_without_command=True, subcommand_metavar="| show-prompt …")
@click.argument(
    "stdin",
    required=False,
    metavar="[-]",
    shell_complete=lambda _context, _parameter, begun: [
        name for name in ("show-prompt",) if name.startswith(begun)
    ],
)
@click.option("-m", "--message", metavar="TEXT", help="Send one message; - reads it from stdin.")
@click.option("-C", "directory", metavar="DIR", help="Work in this folder.")
@click.option("--here", is_flag=True, help="Work in the current folder.")
@click.option("--agent", metavar="NAME", default="", help="An agent of the config.")
@click.option("--provider", metavar="NAME", default="", help="A provider of the config.")
@click.option("--model", metavar="NAME", default="", help="A model of the provider.")
@click.option("--preset", metavar="NAME", default="", help="How it samples, as precise or wild.")
@click.option("--temperature", type=float, help="How freely it samples, 0 to 5.")
@click.option("--top-p", type=float, help="Sample from the likeliest tokens of that share.")
@click.option("--top-k", type=int, help="Sample from that many tokens; 0 is all.")
@click.option("--min-p", type=float, help="Leave out what is less likely than that share.")
@click.option("--seed", type=int, help="The same seed samples the same.")
@click.option("--max-tokens", type=int, help="The longest answer of the model.")
@click.option("--url", metavar="URL", default="", help="Ask the API at this address instead.")
@click.option(
    "--tools",
    "tools_allow",
    metavar="PATTERN",
    multiple=True,
    help='Offer these tools only, as "file_*"; "-evaluate" takes one out.',
)
@click.option("--no-plan", is_flag=True, help="Offer no plan, as --tools=-plan.")
@click.option(
    "--tools-mode",
    type=click.Choice(["split", "unified", "both"]),
    default=None,
    help="How tools are offered, instead of [tools] mode.",
)
@click.option(
    "--retry/--no-retry",
    default=None,
    help="Ask again for empty and broken-off answers, or do not.",
)
@click.option(
    "--hint",
    "hints",
    metavar="NAME=VALUE",
    multiple=True,
    help="Ask a router for a model, cost, privacy or size; the conversation keeps it.",
)
@click.option("--continue", "resume", is_flag=True, help="Go on with the newest conversation.")
@click.option("--conversation", metavar="ID", default="", help="Go on with this conversation.")
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@click.option("--lines", "by_line", is_flag=True, help="Each line that is piped in is a message.")
@click.option("--no-prompt-progress", is_flag=True, help="Hide progress and speed.")
@click.option("-v", "--verbose", is_flag=True, help="Tell every event of the turn in a line.")
@click.option(
    "--log-file", metavar="FILE", default="", help="Append every event to FILE, as lines of JSON."
)
@click.option("-q", "--quiet", is_flag=True, help="Print the answer and errors only.")
@json_option
@pass_app
def command(app: App, /, stdin: str | None, message: str | None, **options: object) -> int:
    """Talk to the model: one message with -m, else a conversation.

    The answer goes to stdout as it comes, everything about it to stderr. What is piped in is added
    to the message of -m; without -m it is the message, whole. With --lines every line of it is a
    message or a command of its own. Approvals are asked on the terminal, never read from a pipe.
    """
    if stdin not in {None, "-"}:
        raise click.UsageError(f"unexpected {stdin!r}: a message goes after -m, - means stdin")
    as_json = bool(options.pop("as_json"))
    choice = _choice(options)
    by_line = bool(options.pop("by_line"))
    if by_line and (message is not None or stdin is not None or as_json):
        raise click.UsageError("--lines takes its messages from stdin, without -m, - and --json")
    if message is None and stdin is None and (by_line or not _is_fed(sys.stdin)):
        if as_json:
            raise click.UsageError("--json needs a message: -m TEXT, or one that is piped in")
        from clawctl.repl.session import converse

        return converse(app, choice)
    text = _whole_text(message, reads_stdin=stdin == "-" or message is None)
    return _send_one(app, choice, text, as_json=as_json)


command.add_command(show_prompt)


def _choice(options: dict[str, object]) -> Choice:
    directory = options["directory"]
    workspace = workspace_of(str(directory) if directory else None, here=bool(options["here"]))
    if options["resume"] and options["conversation"]:
        raise click.UsageError("--continue and --conversation exclude each other")
    return Choice(
        conversation_id=str(options["conversation"]),
        workspace=workspace,
        agent=str(options["agent"]),
        provider=str(options["provider"]),
        model=str(options["model"]),
        preset=str(options["preset"]),
        resume=bool(options["resume"]),
        interactive=not options["no_input"],
        progress=not options["no_prompt_progress"],
        quiet=bool(options["quiet"]),
        hints=_hints(options["hints"]),
        sampling=_sampling(options),
        tools_allow=_tools(options),
        tool_mode=msgspec.convert(options["tools_mode"] or "", ToolMode),
        retry=msgspec.convert(options["retry"], bool | None),
        url=str(options["url"]),
        verbose=bool(options["verbose"]),
        log_file=str(options["log_file"]),
    )


def _sampling(options: dict[str, object]) -> SamplingWishes | None:
    given = {name: options[name] for name in SAMPLING if options[name] is not None}
    try:
        return msgspec.convert(given, SamplingWishes) if given else None
    except msgspec.ValidationError as error:
        problem = str(error).replace("`$.", "`--").replace("_", "-")
        raise click.UsageError(f"{problem[:1].lower()}{problem[1:]}") from error


def _tools(options: dict[str, object]) -> tuple[str, ...]:
    patterns = msgspec.convert(options["tools_allow"], tuple[str, ...])
    return (*patterns, "-plan") if options["no_plan"] else patterns


def _hints(given: object) -> dict[str, str]:
    pairs = [text.partition("=") for text in given] if isinstance(given, tuple) else []
    for name, equals, value in pairs:
        if not equals:
            raise click.UsageError(f"--hint {name}{value}: expected NAME=VALUE, e.g. privacy=local")
    return {name: value for name, _, value in pairs}


def _whole_text(message: str | None, *, reads_stdin: bool) -> str:
    if message == "-" or message is None:
        text = _read(sys.stdin)
    elif reads_stdin or _something_is_piped():
        text = "\n\n".join(part for part in (message, _read(sys.stdin)) if part)
    else:
        text = message
    if not text.strip():
        raise click.UsageError("the message is empty")
    return text


def _read(stream: TextIO) -> str:
    data = stream.buffer.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise InvalidRequestError(
            f"the message is over {MAX_TEXT_BYTES} bytes",
            hint="Put it into a file of the workspace and let the model read that.",
        )
    return data.decode(errors="replace").rstrip("\n")


def _is_fed(stream: TextIO) -> bool:
    """Return whether a program or a file is to be read, and not a person or nothing at all."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _something_is_piped() -> bool:
    """Tell whether stdin is a file, or a pipe that has something soon; never wait for long."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    if stat.S_ISREG(mode):
        return True
    if not stat.S_ISFIFO(mode):
        return False
    # Many programs run us with a pipe that they never write to and never close.
    return bool(select.select([descriptor], [], [], PIPE_PATIENCE_S)[0])


def _send_one(app: App, choice: Choice, text: str, *, as_json: bool) -> int:
    options = ViewOptions(
        text=not as_json,
        rows=not choice.quiet and not as_json,
        metrics=choice.progress and not choice.quiet and not as_json,
    )
    view = TurnView(sys.stdout, sys.stderr, options)
    terminal = Terminal.open() if choice.interactive else None
    try:
        with app.client() as client:
            conversation_id = choice.resumed(client)
            request = choice.message(text, conversation_id, interactive=terminal is not None)
            with listening(choice.log_file, verbose=choice.verbose) as heard:
                finished = follow(client.stream(request), view, terminal, heard=heard)
    except (ClawError, KeyboardInterrupt) as error:
        view.finish(None)
        if as_json and isinstance(error, ClawError):
            app.wants_json = False
            emit_json({"error": error_values(error), **_facts(view)})
        raise
    finally:
        if terminal is not None:
            terminal.close()
    view.finish(None if as_json else finished.text, finished)
    if as_json:
        emit_json({**to_builtins(finished), **_facts(view), "type": "answer"})
    return _exit_code(finished, quiet=choice.quiet or as_json)


def _facts(view: TurnView) -> dict[str, object]:
    facts: dict[str, object] = {
        "tool_calls": [to_builtins(call) for call in view.calls.values()],
        "notices": view.notices,
        "hops": to_builtins(view.hops),
    }
    if view.conversation_id:
        facts["conversation_id"] = view.conversation_id
    return facts


def _exit_code(finished: TurnFinished, *, quiet: bool) -> int:
    if finished.stop_reason in {"cap", "loop"}:
        if not quiet:
            why = "cap of rounds or time" if finished.stop_reason == "cap" else "no progress"
            print(f"● stopped: {why}", file=sys.stderr)
        return Exit.CAP
    if finished.unanswered_approvals:
        if not quiet:
            count = finished.unanswered_approvals
            calls = "1 call was" if count == 1 else f"{count} calls were"
            print(
                f"● {calls} denied: an approval was needed and nobody could be asked",
                file=sys.stderr,
            )
        return Exit.UNANSWERED
    return Exit.DONE
