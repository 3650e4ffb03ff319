"""`clawctl onboard`: from nothing to a model that answers, step by step."""

import os
import sys
from pathlib import Path

import click
import msgspec

from clawctl.app import App, Exit, json_command
from clawctl.client import Client
from clawctl.modelfile import is_remote
from clawctl.onboarding import (
    CLAUDE_KEY,
    Now,
    OnboardingAnswers,
    Source,
    ask,
    changed,
    is_address,
    is_file,
)
from clawctl.progress import ProgressLine
from clawctl.render import emit_json, note, say
from clawd.errors import ClawError, ConfigError
from clawd.paths import Layout, expanded, has_module, layout

TEST = "Say hello in one short sentence."
TOOL = "time"
TOOL_TEST = "What time is it now? Call the tool named time to find out."
TEST_LIMIT_S = 600.0


class Onboarded(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; `message` is the test answer, or why there was none.

    `tool_called` says whether the model called a tool when it was asked to, null where it was not.
    """

    home: str
    config: str
    workspace: str
    provider: str
    changed: bool
    service: bool
    tested: bool
    ok: bool
    message: str
    tool_called: bool | None = None


@click.command()
@click.option("--embedded", is_flag=True, help="Answer from the model that comes with clawd.")
@click.option("--gguf", metavar="FILE|NAME", help="Answer from this model file, or one added.")
@click.option("--pull", metavar="REF", help="Download this model and answer from it.")
@click.option("--base-url", metavar="URL", help="Answer from this OpenAI-compatible server.")
@click.option("--anthropic", is_flag=True, help="Answer from Anthropic.")
@click.option("--model", metavar="NAME", help="Its model; with --base-url or --anthropic.")
@click.option("--api-key-env", metavar="NAME", default="", help="The variable of its key.")
@click.option("--workspace", metavar="DIR", help="The folder that tools work in.")
@click.option("--autonomy", type=click.Choice(["readonly", "supervised", "full"]))
@click.option("--service", is_flag=True, help="Install clawd as a service of yours, by systemd.")
@click.option("--yes", is_flag=True, help="Ask nothing; what no option says stays as it is.")
@click.option("--no-test", is_flag=True, help="Start no daemon and ask the model nothing.")
@json_command(Onboarded)
def command(app: App, /, **given: str | bool | None) -> int:
    """Set up, start the daemon and try the model. May be run again at any time.

    Asks at most five things on a terminal; every one has an option. An existing config is changed
    in the values that were answered only, after a copy was made; one that would be invalid is not.
    """
    answers = _given(given)
    as_json = bool(given["as_json"])
    where = layout()
    is_new = not where.config.exists()
    _init(where, says=not as_json)
    now = _now(is_new=is_new)
    may_ask = not as_json and not given["yes"] and sys.stdin.isatty()
    if may_ask:
        if answers.source == "keep":
            now = _with_offers(now)
        answers = ask(answers, now, where, may_serve=_may_serve(where))
    has_changed = _apply(app, where, answers, is_new=is_new)
    if answers.service:
        _install_service()
    done = _result(where, _now(is_new=False), answers, has_changed=has_changed)
    if not given["no_test"]:
        done = _tried(app, done, says=not as_json)
    if as_json:
        emit_json(done)
    elif done.ok:
        _say_ready(done)
    return Exit.DONE if done.ok else Exit.FAILED


def _given(given: dict[str, str | bool | None]) -> OnboardingAnswers:
    """Return what the options say.

    Raises:
        UsageError: they contradict each other.
    """
    named = [name for name in ("embedded", "gguf", "pull", "base_url", "anthropic") if given[name]]
    if len(named) > 1:
        words = " and ".join(f"--{name.replace('_', '-')}" for name in named)
        raise click.UsageError(f"{words} exclude each other")
    is_server = bool(given["base_url"] or given["anthropic"])
    if is_server != bool(given["model"]):
        raise click.UsageError("--base-url (or --anthropic) and --model belong together")
    source: Source = "keep"
    if named:
        word = named[0]
        source = {"base_url": "openai", "pull": "gguf"}.get(word, word)  # type: ignore[assignment]
    variable = str(given["api_key_env"] or "")
    if source == "anthropic" and not variable:
        variable = CLAUDE_KEY
    folder = str(given["workspace"] or "")
    if is_address(folder):
        raise click.UsageError(f"--workspace {folder!r} is an address; expected a folder")
    file = str(given["gguf"] or "")
    return OnboardingAnswers(
        source=source,
        model=str("" if is_remote(file) else file or given["model"] or ""),
        pull=file if is_remote(file) else str(given["pull"] or ""),
        base_url=str(given["base_url"] or ""),
        key_variable=variable,
        workspace=str(expanded(folder).absolute()) if folder else "",
        autonomy=str(given["autonomy"] or ""),
        service=bool(given["service"]),
    )


def _init(where: Layout, *, says: bool) -> None:
    from clawctl.daemon import run_clawd

    made = run_clawd(["--init"], capture=True)
    if made.returncode != 0:
        raise ConfigError(
            made.stderr.strip() or "clawd --init failed",
            hint=f"Correct {where.config} with clawctl config edit, then go on: clawctl onboard",
        )
    if says:
        say(made.stdout.rstrip("\n"))


def _now(*, is_new: bool) -> Now:
    from clawctl.daemon import config_values

    values = config_values()
    return Now(
        provider=values.default_provider if values else "",
        workspace=values.workspace_dir if values else "",
        autonomy=values.security.autonomy if values else "supervised",
        is_new=is_new,
        has_engine=has_module("llama_cpp"),
    )


def _with_offers(now: Now) -> Now:
    """Look what runs here and what would fit; nothing is measured for that."""
    from clawctl.model_catalogue import READABLE_GB, catalogue, fitting, look_at_machine
    from clawctl.model_servers import find_servers

    fits = fitting(catalogue(), look_at_machine(probe_s=0.0), "tools")
    modest = [fit for fit in fits if fit.place == "gpu" or fit.size_gb <= READABLE_GB]
    offer = (modest[0].name, modest[0].size_gb) if modest else None
    return msgspec.structs.replace(now, servers=tuple(find_servers()), fits=offer)


def _apply(app: App, where: Layout, answers: OnboardingAnswers, *, is_new: bool) -> bool:
    """Put the answers into the config in one step; one that would be invalid is left out whole."""
    from clawctl.config_edit import replace, trial

    model = _local_model(app, where, answers)
    if answers.workspace:
        Path(answers.workspace).mkdir(parents=True, exist_ok=True)
    before = where.config.read_bytes()
    after = changed(before.decode(), answers, model).encode()
    if after == before:
        return False
    problems = trial(where.config, after)
    if problems:
        raise ConfigError(
            "\n".join(problems),
            problems=tuple(problems),
            hint=f"{where.config} was left as it is. Run it again with other answers.",
        )
    if not is_new:
        copy = where.config.with_name(f"{where.config.name}.before-onboard")
        copy.touch(mode=0o600)
        copy.write_bytes(before)
    replace(where.config, before, after)
    return True


def _local_model(app: App, where: Layout, answers: OnboardingAnswers) -> str:
    """Return the name of the local model that is wanted, its file added to the others."""
    if answers.source != "gguf":
        return ""
    if answers.pull:
        from clawctl.model_pull import PullOptions, pull_ref

        def drawn(what: str) -> ProgressLine:
            return ProgressLine(what, unit="bytes", quiet=app.is_quiet, is_long=True)

        return pull_ref(answers.pull, where.models, PullOptions(), drawn).added.name
    if not is_file(answers.model):
        return answers.model
    from clawctl.modelfile import AddOptions, add_model

    file = expanded(answers.model)
    if file.parent.absolute() == where.models:
        return file.stem
    with ProgressLine(f"copying {file.name}", unit="bytes", quiet=app.is_quiet) as bar:
        return add_model(file, where.models, AddOptions(), bar.show).name


def _may_serve(where: Layout) -> bool:
    """Return whether a service of the user can be offered here."""
    from clawctl.systemctl import is_booted_with_systemd

    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    has_manager = bool(runtime) and (Path(runtime) / "systemd" / "private").exists()
    return is_booted_with_systemd() and has_manager and not where.is_system


def _install_service() -> None:
    from clawctl.commands.service import command as group

    code = group.main(["install", "--user"], standalone_mode=False, obj=App())
    if code:
        raise ClawError(
            "the service was not installed",
            hint="All else is done. Try it by itself, with the command `service install --user`.",
        )


def _result(where: Layout, now: Now, answers: OnboardingAnswers, *, has_changed: bool) -> Onboarded:
    return Onboarded(
        home=str(where.home),
        config=str(where.config),
        workspace=now.workspace,
        provider=now.provider,
        changed=has_changed,
        service=answers.service,
        tested=False,
        ok=True,
        message="",
    )


def _tried(app: App, done: Onboarded, *, says: bool) -> Onboarded:
    """Start the daemon and ask the model one thing; the conversation is deleted again."""
    from clawctl.progress import call
    from clawd.wire.conversations import DeleteConversation
    from clawd.wire.daemon import Reload, Status
    from clawd.wire.models import CheckProvider
    from clawd.wire.turns import SendMessage

    try:
        with app.client() as client:
            if done.changed:
                client.call(Reload())
            report = client.call(Status())
            if says:
                sandbox = f"sandbox {report.sandbox} {report.sandbox_reason}".rstrip()
                say(f"\nclawd {report.version} runs (pid {report.pid}), {sandbox}")
            bar = ProgressLine(f"asking {done.provider}", quiet=app.is_quiet or not says)
            call(client, CheckProvider(), bar, limit_s=TEST_LIMIT_S)
            with bar:
                turn = client.stream(SendMessage(text=TEST, workspace=done.workspace))
                for _event in turn:
                    bar.tick()
            answer = turn.result
            client.call(DeleteConversation(conversation_id=answer.conversation_id))
            called = _calls_a_tool(client, done.workspace, bar)
    except ClawError as error:
        if says:
            note(f"Set up, but {done.provider} does not answer yet.")
            raise
        return msgspec.structs.replace(done, tested=True, ok=False, message=error.message)
    if says:
        say(f"\n> {TEST}\n{answer.text.strip() or '(no words)'}")
        say(f"\n> {TOOL_TEST}\n{CALLED if called else NOT_CALLED}")
    return msgspec.structs.replace(done, tested=True, message=answer.text, tool_called=called)


CALLED = f"● it called the tool {TOOL}: it can act"
NOT_CALLED = (
    f"● it did not call the tool {TOOL} when it was asked to: for work with tools try another one "
    "(clawctl model recommend --for tools)"
)


def _calls_a_tool(client: Client, workspace: str, bar: ProgressLine) -> bool:
    """Ask for one call and return whether it came; the conversation is deleted again."""
    from clawd.wire.conversations import DeleteConversation
    from clawd.wire.events import ToolFinished
    from clawd.wire.turns import SendMessage

    has_called = False
    with bar:
        request = SendMessage(text=TOOL_TEST, workspace=workspace, tools_allow=(TOOL,))
        turn = client.stream(request)
        for event in turn:
            bar.tick()
            if isinstance(event, ToolFinished):
                has_called = has_called or (event.tool == TOOL and event.status == "allowed")
    client.call(DeleteConversation(conversation_id=turn.result.conversation_id))
    return has_called


def _say_ready(done: Onboarded) -> None:
    say(f"\nReady. The model works in {done.workspace}. Three things to try:")
    say('  clawctl agent -m "which files are here?"   one question, with tools')
    say("  clawctl agent                              a conversation")
    say("  clawctl receipt list                       what it did, provably")
