"""`clawctl onboard`: from nothing to a model that answers, step by step."""

import sys
from pathlib import Path

import click

from clawctl.app import App, Exit, json_option, pass_app
from clawctl.render import emit_json, note, say
from clawd.errors import ClawError, ConfigError
from clawd.paths import layout
from clawd.wire.methods import CheckProvider, Reload, Status

CHECK_LIMIT_S = 600.0
DEFAULT_LINE = 'default_provider = "local"'
SERVER_LINE = 'default_provider = "server"'


@click.command()
@click.option("--base-url", metavar="URL", help="Answer from this OpenAI-compatible server.")
@click.option("--model", metavar="NAME", help="Its model; with --base-url.")
@click.option("--api-key-env", metavar="NAME", default="", help="The variable of its key.")
@json_option
@pass_app
def command(
    app: App, base_url: str | None, model: str | None, api_key_env: str, *, as_json: bool
) -> int:
    """Set up, start the daemon and try the model.

    Asks on a terminal where the answers shall come from; with options it asks nothing.
    """
    from clawctl.daemon import run_clawd

    if bool(base_url) != bool(model):
        raise click.UsageError("--base-url and --model belong together")
    where = layout()
    is_new = not where.config.exists()
    made = run_clawd(["--init"], capture=True)
    if made.returncode != 0:
        raise ConfigError(made.stderr.strip() or "clawd --init failed")
    if not as_json:
        say(made.stdout.rstrip("\n"))
    if is_new and not base_url and not as_json and sys.stdin.isatty():
        base_url, model, api_key_env = _ask()
    if base_url and model:
        _use_server(where.config, base_url, model, api_key_env)
    return _try(app, has_changed=bool(base_url), as_json=as_json)


def _ask() -> tuple[str | None, str | None, str]:
    print("\nWhere shall the answers come from?")
    print("  1  the embedded model: tiny, works at once, good for trying the tools")
    print("  2  a server that speaks the OpenAI API (llama-server, vLLM, Ollama, a cloud)")
    if click.prompt("Choose", type=click.Choice(["1", "2"]), default="1") == "1":
        return None, None, ""
    base_url = click.prompt("Its address", default="http://localhost:8080/v1")
    model = click.prompt("Its model")
    key = click.prompt("The environment variable that holds its key (empty: none)", default="")
    return base_url, model, key


def _use_server(config: Path, base_url: str, model: str, api_key_env: str) -> None:
    """Make a server the default in a config; a config that is then invalid is put back."""
    from clawctl.daemon import run_clawd

    before = config.read_text(encoding="utf-8")
    if DEFAULT_LINE not in before or "\n[providers.models.server]" in before:
        raise ConfigError(
            f"{config} is not as `clawctl init` wrote it any more; it was left alone",
            hint="Add the provider by hand, see the example in it.",
        )
    section = ["", "[providers.models.server]", 'kind = "openai-compatible"']
    section += [f"model = {_quoted(model)}", f"base_url = {_quoted(base_url)}"]
    if api_key_env:
        section.append(f"api_key_env = {_quoted(api_key_env)}")
    changed = before.replace(DEFAULT_LINE, SERVER_LINE, 1) + "\n".join(section) + "\n"
    _replace(config, changed)
    checked = run_clawd(["--check-config"], capture=True)
    if checked.returncode != 0:
        _replace(config, before)
        raise ConfigError(checked.stderr.strip() or "the changed config is invalid")


def _quoted(text: str) -> str:
    import msgspec

    # A JSON string is a TOML string, but for DEL.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _replace(config: Path, text: str) -> None:
    fresh = config.with_name(f".{config.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(config.stat().st_mode & 0o777)
    fresh.replace(config)


def _try(app: App, *, has_changed: bool, as_json: bool) -> int:
    with app.client() as client:
        if has_changed:
            client.call(Reload())
        report = client.call(Status())
        if not as_json:
            say(f"daemon {report.version} runs (pid {report.pid})")
            say(f"sandbox: {report.sandbox} {report.sandbox_reason}".rstrip())
        problem: ClawError | None = None
        answer = ""
        try:
            answer = client.call(CheckProvider(), limit_s=CHECK_LIMIT_S).message
        except ClawError as error:
            problem = error
    if as_json:
        emit_json(
            {
                "home": report.home,
                "config": report.config,
                "workspace": report.workspace,
                "provider": report.default_provider,
                "ok": problem is None,
                "message": answer if problem is None else problem.message,
            }
        )
        return Exit.DONE if problem is None else Exit.FAILED
    if problem is not None:
        note(f"provider {report.default_provider} does not answer: {problem.message}")
        raise problem
    say(f"provider {report.default_provider}: {answer}")
    say(f"\nReady. The model works in {report.workspace}. Try:")
    say('  clawctl agent -m "which files are here?"\n  clawctl agent\n  clawctl receipt list')
    return Exit.DONE
