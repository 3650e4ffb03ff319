"""`clawctl agent`: one message with -m, else a conversation."""

import os
import select
import stat
import sys
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec
from typing_extensions import override

from clawctl.agent_options import Choice, answering_options
from clawctl.app import EXIT_OF_CODE, App, Exit, conversation_option, json_command, workspace_of
from clawctl.approve import Terminal
from clawctl.client import Client
from clawctl.render import emit_json, error_values, note, say
from clawctl.request_follower import View, follow, listening
from clawctl.turn import TurnView, ViewOptions
from clawctl.workspace_trust import placed, workspace_here
from clawd.errors import ClawError, InvalidRequestError
from clawd.wire.codec import to_builtins
from clawd.wire.conversations import PromptText, ShowPrompt
from clawd.wire.daemon import Status
from clawd.wire.events import TurnFinished
from clawd.wire.pictures import MAX_PICTURE_BYTES, PDF_MARK, Document, looks_like_picture
from clawd.wire.safe_text import visible_line
from clawd.wire.turns import MAX_ROUNDS, SamplingWishes

MAX_TEXT_BYTES = 8 * 1024 * 1024
PIPE_PATIENCE_S = 0.5


class AgentAnswer(TurnFinished, frozen=True, kw_only=True, tag="answer"):
    """The end of a turn, with the calls, notices and hops that were seen on the way."""

    tool_calls: list[dict[str, Any]]
    notices: list[str]
    hops: list[dict[str, Any]]


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


def _show_stream_schema(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 click's signature
    if not value or context.resilient_parsing:
        return
    from clawctl.streaming import SCHEMA

    click.echo(SCHEMA.read_text(encoding="utf-8"), nl=False)
    context.exit()


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
@click.option(
    "--attach",
    type=click.Path(exists=True, dir_okay=False),
    multiple=True,
    help="Send a file with the message: a PDF, or a picture (PNG, JPEG, WebP, GIF).",
)
@click.option("-C", "directory", metavar="DIR", help="Work in this folder.")
@click.option("--here", is_flag=True, help="Work in the current folder, and do not ask.")
@click.option("--home-workspace", is_flag=True, help="Work in the configured folder.")
@click.option(
    "--mode",
    type=click.Choice(["readonly", "supervised", "edits", "full"]),
    help="How far the model may go in this conversation without asking.",
)
@click.option(
    "--plan-first", is_flag=True, help="Only look and write a plan; ask before the work begins."
)
@click.option(
    "--allow",
    metavar="PATTERN",
    multiple=True,
    help="Let shell commands of PATTERN run unasked in this conversation; 'file_write src/**'.",
)
@click.option(
    "--deny",
    metavar="PATTERN",
    multiple=True,
    help="Refuse shell commands of PATTERN in this conversation.",
)
@click.option(
    "--max-rounds",
    type=click.IntRange(1, MAX_ROUNDS),
    metavar="N",
    help="End a turn after N rounds of tool calls, and do not ask.",
)
@answering_options
@click.option("--preset", metavar="NAME", default="", help="How it samples, as precise or wild.")
@click.option("--temperature", type=float, help="How freely it samples, 0 to 5.")
@click.option("--top-p", type=float, help="Sample from the likeliest tokens of that share.")
@click.option("--top-k", type=int, help="Sample from that many tokens; 0 is all.")
@click.option("--min-p", type=float, help="Leave out what is less likely than that share.")
@click.option("--repeat-penalty", type=float, help="Against what was just said; 1 is none.")
@click.option("--frequency-penalty", type=float, help="The more often, the less; 0 is none.")
@click.option("--presence-penalty", type=float, help="Against what came at all; 0 is none.")
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
@click.option(
    "--tool-choice",
    metavar="NAME",
    default="auto",
    help="Have the first answer call this tool, or any with required.",
)
@click.option("--no-plan", is_flag=True, help="Offer no plan, as --tools=-plan.")
@click.option(
    "--tools-mode",
    "tool_mode",
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
    "--think",
    type=click.Choice(["on", "off", "low", "medium", "high", "auto"]),
    default=None,
    help="Whether the model is to think, or how much; the conversation keeps it.",
)
@click.option(
    "--hint",
    "hints",
    metavar="NAME=VALUE",
    multiple=True,
    help="Ask a router for a model, cost, privacy or size; the conversation keeps it.",
)
@click.option(
    "--continue", "resume", is_flag=True, help="Go on with the newest conversation of this folder."
)
@click.option(
    "--resume", "picks", is_flag=True, help="Choose the conversation to go on with, at a terminal."
)
@conversation_option(help="Go on with this conversation.")
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@click.option("--lines", "by_line", is_flag=True, help="Each line that is piped in is a message.")
@click.option("--no-prompt-progress", is_flag=True, help="Hide progress and speed.")
@click.option("-v", "--verbose", is_flag=True, help="Tell every event of the turn in a line.")
@click.option(
    "--log-file", metavar="FILE", default="", help="Append every event to FILE, as lines of JSON."
)
@click.option("-q", "--quiet", is_flag=True, help="Print the answer and errors only.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "stream-json"]),
    help="json is --json; stream-json is an event a line, answers on stdin.",
)
@click.option(
    "--stream-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_stream_schema,
    help="Print the schema of a line of stream-json.",
)
@json_command(AgentAnswer)
def command(app: App, /, stdin: str | None, message: str | None, **options: object) -> int:
    """Talk to the model: one message with -m, else a conversation.

    The answer goes to stdout as it comes, everything about it to stderr. What is piped in is added
    to the message of -m; without -m it is the message, whole. With --lines every line of it is a
    message or a command of its own. Approvals are asked on the terminal, never read from a pipe;
    with -m and --output-format stream-json a program answers them on stdin.
    """
    if stdin not in {None, "-"}:
        raise click.UsageError(f"unexpected {stdin!r}: a message goes after -m, - means stdin")
    output = _output(options.pop("output_format"), as_json=bool(options.pop("as_json")))
    app.wants_json = output == "json"
    choice = _choice(options)
    if choice.picks:
        _check_picks(sends=message is not None or stdin is not None or output != "text")
    by_line = bool(options.pop("by_line"))
    if (choice.pictures or choice.documents) and message is None:
        raise click.UsageError("--attach goes with -m; in a conversation name it with @FILE")
    if by_line and (message is not None or stdin is not None or output != "text"):
        raise click.UsageError("--lines takes its messages from stdin, without -m, - and --json")
    if message is None and stdin is None and (by_line or not _is_fed(sys.stdin)):
        if output != "text":
            raise click.UsageError(f"{output} needs a message: -m TEXT, or one that is piped in")
        from clawctl.repl.session import converse

        return converse(app, choice)
    reads_stdin = stdin == "-" or message is None
    if output == "stream-json":
        reads_stdin = reads_stdin or message == "-"
        text = _whole_text(message, reads_stdin=True) if reads_stdin else _given(message)
        _tell_of_command(text)
        return _stream_one(app, choice, text, has_answers=not reads_stdin)
    text = _whole_text(message, reads_stdin=reads_stdin)
    _tell_of_command(text)
    return _send_one(app, choice, text, as_json=output == "json")


@command.command("show-prompt")
@click.option("--agent", metavar="NAME", default="", help="An agent of the config.")
@click.option("-C", "directory", metavar="DIR", help="Of a conversation in this folder.")
@click.option("--here", is_flag=True, help="Of a conversation in the current folder.")
@conversation_option(help="Of this conversation.")
@json_command(PromptText)
def show_prompt(
    app: App, agent: str, directory: str | None, conversation: str, *, here: bool, as_json: bool
) -> None:
    """Show the system prompt, and the block that the next message would carry.

    Without a conversation it is that of a new one, in the folder where `agent` would work. Nothing
    is sent to a model.
    """
    workspace = workspace_of(directory, here=here)
    if workspace and conversation:
        raise click.UsageError("a conversation has its folder: leave -C and --here out")
    if not (workspace or conversation):
        workspace = workspace_here(app, None)
    found = app.call(ShowPrompt(agent=agent, workspace=workspace, conversation_id=conversation))
    if as_json:
        emit_json(found)
        return
    say(found.system)
    if found.block:
        note("\n● the next message would begin with:")
        say(found.block)
    for source in found.untrusted:
        note(f"● untrusted text in it: {visible_line(source)}")


def _check_picks(*, sends: bool) -> None:
    if sends:
        raise click.UsageError(
            "--resume is for a conversation; with -m and --json use --continue, or --conversation "
            "ID (clawctl conversation list)"
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequestError(
            "--resume needs a terminal to choose at",
            hint="Go on with the newest of this folder: clawctl agent --continue\n"
            "Or with another: clawctl agent --conversation ID (clawctl conversation list)",
        )


def _output(given: object, *, as_json: bool) -> str:
    if as_json and given not in {None, "json"}:
        raise click.UsageError(f"--json and --output-format {given} exclude each other")
    return "json" if as_json else str(given or "text")


def _choice(options: dict[str, object]) -> Choice:
    directory = options["directory"]
    workspace = workspace_of(str(directory) if directory else None, here=bool(options["here"]))
    if workspace and options["home_workspace"]:
        raise click.UsageError("--home-workspace excludes -C and --here")
    named = [n for n in ("resume", "picks", "conversation") if options[n]]
    if len(named) > 1:
        first, second = (
            {"resume": "--continue", "picks": "--resume"}.get(name, f"--{name}")
            for name in named[:2]
        )
        raise click.UsageError(f"{first} and {second} exclude each other")
    paths = msgspec.convert(options["attach"], tuple[str, ...])
    attached = [(path, _attached(path)) for path in paths]
    taken = {
        **{
            name: options[name]
            for name in Choice.__struct_fields__
            if options.get(name) is not None
        },
        "conversation_id": options["conversation"],
        "workspace": workspace,
        "here": not (workspace or options["home_workspace"] or options["conversation"]),
        "interactive": not options["no_input"],
        "progress": not options["no_prompt_progress"],
        "hints": _hints(options["hints"]),
        "tools_allow": _tools(options),
    }
    return msgspec.structs.replace(
        msgspec.convert(taken, Choice),
        sampling=_sampling(options),
        pictures=tuple(data for _, data in attached if not data.startswith(PDF_MARK)),
        documents=tuple(
            Document(name=Path(path).name, data=data)
            for path, data in attached
            if data.startswith(PDF_MARK)
        ),
    )


def _attached(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_PICTURE_BYTES + 1)
    except OSError as error:
        raise InvalidRequestError(
            f"{visible_line(path)} cannot be read: {error.strerror}"
        ) from error
    is_taken = looks_like_picture(data) or data.startswith(PDF_MARK)
    if len(data) > MAX_PICTURE_BYTES or not is_taken:
        raise InvalidRequestError(
            f"{visible_line(path)} is not a PDF, PNG, JPEG, WebP or GIF of at most 20 MB",
            hint="Pipe a text in, or name it in the message: the model reads it with its tools.",
        )
    return data


def _sampling(options: dict[str, object]) -> SamplingWishes | None:
    fields = SamplingWishes.__struct_fields__
    given = {name: options[name] for name in fields if options.get(name) is not None}
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
    return _given(text)


def _tell_of_command(text: str) -> None:
    """Say that a command of the REPL is a text for the model here: it stops nothing."""
    word = text.split(maxsplit=1)[0]
    if not word.startswith("/"):
        return
    from clawctl.repl.slash import COMMANDS

    if word in COMMANDS:
        note(
            f"● {word}: it goes to the model as text. Commands are obeyed in a conversation, or "
            "with --lines; see clawctl --help for those of a shell."
        )


def _given(text: str | None) -> str:
    if not text or not text.strip():
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
    mode = _mode_of(stream)
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _is_pipe(stream: TextIO) -> bool:
    """Return whether a program may write there while we run."""
    mode = _mode_of(stream)
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _mode_of(stream: TextIO) -> int:
    """Return the mode of the file behind a stream; 0 where there is none."""
    try:
        return os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return 0


def _something_is_piped() -> bool:
    """Return whether stdin is a file, or a pipe that has something soon; never wait for long."""
    mode = _mode_of(sys.stdin)
    if stat.S_ISREG(mode):
        return True
    if not stat.S_ISFIFO(mode):
        return False
    # Many programs run us with a pipe that they never write to and never close.
    return bool(select.select([sys.stdin], [], [], PIPE_PATIENCE_S)[0])


def _send_one(app: App, choice: Choice, text: str, *, as_json: bool) -> int:
    options = ViewOptions(
        text=not as_json,
        rows=not choice.quiet and not as_json,
        metrics=choice.progress and not choice.quiet and not as_json,
        details=choice.verbose and sys.stderr.isatty(),
    )
    plain = TurnView(sys.stdout, sys.stderr, options)
    view: View = plain if as_json or choice.quiet or choice.verbose else _drawn(options, plain)
    at_terminal = Terminal.opened(wanted=choice.interactive)
    try:
        with at_terminal as terminal, app.client() as client:
            choice = placed(app, choice, client, terminal)
            request = choice.message(text, _to(choice, client), interactive=terminal is not None)
            with listening(choice.log_file, verbose=choice.verbose) as heard:
                finished = follow(client.stream(request), view, terminal, heard=heard)
    except (ClawError, KeyboardInterrupt) as error:
        view.finish(None)
        if as_json and isinstance(error, ClawError):
            app.wants_json = False
            emit_json({"error": error_values(error), **_facts(plain)})
        raise
    view.finish(None if as_json else finished.text, finished)
    if as_json:
        emit_json({**to_builtins(finished), **_facts(plain), "type": "answer"})
    return _exit_code(finished, quiet=choice.quiet or as_json)


def _to(choice: Choice, client: Client) -> str:
    """Return the conversation that the message goes to, "" for a new one; its rules hold."""
    resumed = choice.resumed(client) if choice.resume else None
    conversation_id = resumed.id if resumed is not None else choice.conversation_id
    return choice.ruled(client, conversation_id)


def _stream_one(app: App, choice: Choice, text: str, *, has_answers: bool) -> int:
    """Write a turn as lines of JSON; a program answers on stdin, a person at the terminal there."""
    from clawctl.streaming import JsonLines, Program

    lines = JsonLines()
    terminal: Terminal | Program | None = None
    if choice.interactive and sys.stdin.isatty():
        terminal = Terminal.open()
    elif choice.interactive and has_answers and _is_pipe(sys.stdin):
        terminal = Program(sys.stdin.fileno())
    try:
        with app.client() as client:
            lines.mode = client.call(Status()).autonomy
            choice = placed(
                app, choice, client, terminal if isinstance(terminal, Terminal) else None
            )
            request = choice.message(text, _to(choice, client), interactive=terminal is not None)
            with listening(choice.log_file, verbose=choice.verbose) as heard:
                finished = follow(client.stream(request), lines, terminal, heard=heard)
    except ClawError as error:
        lines.fail(error, EXIT_OF_CODE.get(error.code, Exit.FAILED))
        raise
    except KeyboardInterrupt:
        lines.fail(ClawError("interrupted", code="cancelled"), Exit.INTERRUPTED)
        raise
    finally:
        if isinstance(terminal, Terminal):
            terminal.close()
    if isinstance(terminal, Program):
        unanswered = finished.unanswered_approvals + terminal.unanswered
        finished = msgspec.structs.replace(finished, unanswered_approvals=unanswered)
    code = _exit_code(finished, quiet=True)
    lines.end(finished, code)
    return code


def _drawn(options: ViewOptions, instead: View) -> View:
    """Return what draws the turn as the REPL does where there is a terminal, else the other."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return instead
    from threading import Thread

    from clawctl.repl.plain_view import new_view, prepare

    # It takes a moment, in which the model reads.
    Thread(target=prepare, name="prepare", daemon=True).start()
    return new_view(sys.stdout, sys.stderr, options)


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
        return Exit.CAP  # the answer says why
    if finished.waits_for:
        if not quiet:
            waits = visible_line(finished.waits_for)
            print(f"● it goes on after: clawctl approval approve {waits}", file=sys.stderr)
        return Exit.UNANSWERED
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
