"""What `onboard` asks, and what the answers make of a config. Nothing is done here."""

from pathlib import Path
from typing import Literal

import click
import msgspec

from clawctl.config_edit import has_section, quoted, with_section, with_toml
from clawctl.model_servers import FoundServer
from clawctl.model_servers import answers as is_answered
from clawctl.modelfile import is_remote
from clawctl.render import say
from clawd.paths import Layout, expanded, install_line
from clawd.wire.safe_text import visible_line

Source = Literal["keep", "embedded", "gguf", "openai", "anthropic"]
Autonomy = Literal["readonly", "supervised", "full"]

SOURCES: dict[str, Source] = {"1": "embedded", "2": "gguf", "3": "openai", "4": "anthropic"}
ADDRESS = "http://localhost:8080/v1"
CLAUDE = "claude-opus-5-5"
CLAUDE_KEY = "ANTHROPIC_API_KEY"
MAX_NAMES = 100
MAX_SHOWN = 3
MAX_LINE = 120


class OnboardingAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted; `keep` and "" leave what the config says.

    Attributes:
        model: a GGUF file or a model's name, or a server's model.
        pull: what is to be downloaded first, as `clawctl model pull` takes it.
        key_variable: the name of the variable that holds the key, never the key.
        service: whether clawd shall run as the user's service.
    """

    source: Source = "keep"
    model: str = ""
    pull: str = ""
    base_url: str = ""
    key_variable: str = ""
    workspace: str = ""
    autonomy: str = ""
    service: bool = False


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """What the config says now, to be offered as what is kept by an empty answer.

    `has_engine` says whether models of this machine can answer at all, `servers` are those that run
    here, `fits` is the name and the size in GB of a model that could be downloaded.
    """

    provider: str
    workspace: str
    autonomy: str
    is_new: bool
    has_engine: bool = True
    servers: tuple[FoundServer, ...] = ()
    fits: tuple[str, float] | None = None


def ask(given: OnboardingAnswers, now: Now, where: Layout, *, may_serve: bool) -> OnboardingAnswers:
    """Ask at most five things, each explained; what was given by an option is not asked."""
    total = 4 + may_serve
    answers = given
    if given.source == "keep":
        answers = _ask_source(answers, now, where, total)
    if not given.workspace:
        _explain(
            3,
            total,
            "Which folder may the model work in?",
            "Tools read and write there. Everything else is closed to them, or asks first.",
        )
        folder = click.prompt("Folder", default=now.workspace)
        while is_address(folder):
            say("That is an address. Expected a folder of this machine, as in: ~/clawd-workspace")
            folder = click.prompt("Folder", default=now.workspace)
        answers = msgspec.structs.replace(answers, workspace=str(expanded(folder).absolute()))
    if not given.autonomy:
        _explain(
            4,
            total,
            "What may it do without asking?",
            "  readonly    look only\n"
            "  supervised  look freely, ask before it changes anything (recommended)\n"
            "  full        everything that no rule blocks, without asking",
        )
        choice = click.Choice(["readonly", "supervised", "full"])
        word = click.prompt("Autonomy", type=choice, default=now.autonomy, show_choices=False)
        answers = msgspec.structs.replace(answers, autonomy=word)
    if may_serve and not given.service:
        _explain(
            5,
            total,
            "Shall clawd start by itself when you log in?",
            "As a service of yours by systemd. Otherwise the first command starts it.",
        )
        wanted = click.confirm("Install the service?", default=False)
        answers = msgspec.structs.replace(answers, service=wanted)
    return answers


def changed(text: str, answers: OnboardingAnswers, model: str) -> str:
    """Return the config's text with the answers in it; `model` is the name of a local model.

    Raises:
        ConfigError: it is written in a way that is not ours to change.
    """
    if answers.workspace:
        text = with_toml(text, "workspace_dir", quoted(answers.workspace))
    if answers.autonomy:
        text = with_toml(text, "security.autonomy", quoted(answers.autonomy))
    match answers.source:
        case "keep":
            return text
        case "embedded" | "gguf":
            if not has_section(text, "providers.models.local"):
                values = {"kind": "local", "model": "embedded"}
                text = with_section(text, "providers.models.local", values)
            text = with_toml(text, "default_provider", quoted("local"))
            return with_toml(text, "default_model", quoted(model))
        case "openai" | "anthropic":
            name = _free_name(text, "server" if answers.source == "openai" else "claude")
            kind = "openai-compatible" if answers.source == "openai" else "anthropic"
            values = {
                "kind": kind,
                "model": answers.model,
                "base_url": answers.base_url,
                "api_key_env": answers.key_variable,
            }
            text = with_section(text, f"providers.models.{name}", values)
            text = with_toml(text, "default_provider", quoted(name))
            return with_toml(text, "default_model", quoted(""))


def _ask_source(
    answers: OnboardingAnswers, now: Now, where: Layout, total: int
) -> OnboardingAnswers:
    more = _offers(now)
    lines = [
        "  1  the packaged model: small, works at once and offline, for trying the tools",
        "  2  a model file (GGUF) on this machine",
        "  3  a server that speaks the OpenAI API: llama-server, vLLM, Ollama, a cloud",
        "  4  Anthropic",
        *(f"  {key}  {label}" for key, (label, _) in more.items()),
        *(() if now.is_new else (f"  0  keep what the config says: {now.provider}",)),
    ]
    text = "\n".join(lines) + ("" if now.has_engine else _without_engine())
    _explain(1, total, "Where shall the answers come from?", text)
    choices = [*(() if now.is_new else ("0",)), *SOURCES, *more]
    chosen = click.prompt("Choose", type=click.Choice(choices), default=_likely(now, more))
    if chosen in more:
        offer = more[chosen][1]
        if isinstance(offer, FoundServer):
            return _ask_model_of(answers, offer, total)
        return msgspec.structs.replace(answers, source="gguf", pull=offer)
    source: Source = SOURCES.get(chosen, "keep")
    answers = msgspec.structs.replace(answers, source=source)
    if source == "gguf":
        return _ask_file(answers, where, total)
    if source in {"openai", "anthropic"}:
        return _ask_server(answers, total)
    return answers


def _offers(now: Now) -> dict[str, tuple[str, FoundServer | str]]:
    """Return what this machine has or could have, by the key that chooses it."""
    found: list[tuple[str, FoundServer | str]] = []
    for server in now.servers:
        names = ", ".join(server.models[:MAX_SHOWN]) or "no models"
        more = ", …" if len(server.models) > MAX_SHOWN else ""
        label = f"{server.program}, which runs here at {server.url}: {names}{more}"
        found.append((visible_line(label, MAX_LINE), server))
    if now.has_engine and now.fits is not None:
        name, size_gb = now.fits
        found.append((f"download a model that fits this machine: {name}, {size_gb:.1f} GB", name))
    return {str(number): offer for number, offer in enumerate(found, len(SOURCES) + 1)}


def _likely(now: Now, offers: dict[str, tuple[str, FoundServer | str]]) -> str:
    """Return what most people would choose: what is, else what runs, else what works at once."""
    if not now.is_new and now.has_engine:
        return "0"
    for key, (_, offer) in offers.items():
        if isinstance(offer, FoundServer) and offer.models:
            return key
    return "1" if now.has_engine else "3"


def _ask_model_of(answers: OnboardingAnswers, server: FoundServer, total: int) -> OnboardingAnswers:
    """Ask for the model of a server that was found, if there is a choice."""
    model = server.models[0] if len(server.models) == 1 else ""
    if not model:
        names = [f"  {visible_line(name, MAX_LINE)}" for name in server.models[:MAX_NAMES]]
        there = "\n".join(names) or "  none is listed"
        _explain(2, total, f"Which model of {server.program}?", there)
        model = click.prompt("Model", default=server.models[0] if server.models else None)
    return msgspec.structs.replace(answers, source="openai", base_url=server.url, model=model)


def _without_engine() -> str:
    return (
        "\n1 and 2 need llama-cpp-python, which is not installed; the line that installs it:\n"
        f"  {install_line('local')}"
    )


def _ask_file(answers: OnboardingAnswers, where: Layout, total: int) -> OnboardingAnswers:
    names = sorted(path.stem for path in where.models.glob("*.gguf"))[:MAX_NAMES]
    there = f"In {where.models}: {', '.join(names) or 'nothing yet'}."
    _explain(
        2,
        total,
        "Which model?",
        f"{there}\nA path adds that file to them, by a link;\n"
        "hf:ORG/REPO, ollama:NAME or an https:// address is downloaded.",
    )
    model = click.prompt("Model or file", default=names[0] if names else None)
    if is_remote(model):
        return msgspec.structs.replace(answers, pull=model)
    return msgspec.structs.replace(answers, model=model)


def _ask_server(answers: OnboardingAnswers, total: int) -> OnboardingAnswers:
    """Ask for all that names a server, in one line."""
    if answers.source == "openai":
        form, example = "ADDRESS MODEL [VARIABLE]", f"{ADDRESS} gpt-oss-20b"
    else:
        form, example = "MODEL VARIABLE", f"{CLAUDE} {CLAUDE_KEY}"
    _explain(
        2,
        total,
        f"Which one? Write: {form}",
        "VARIABLE is the name of the environment variable that holds the key; keys do not\n"
        f"belong into a config. As in: {example}",
    )
    default = None if answers.source == "openai" else example
    while True:
        words = click.prompt("Server", default=default).split()
        url = words.pop(0) if answers.source == "openai" and words else ""
        if 1 <= len(words) <= 2 and (not url or url.startswith(("http://", "https://"))):
            break
        say(f"That is not {form}, as in: {example}")
    if url and not is_answered(url):
        say(f"● nobody answers at {url} now: start it before you go on")
    return msgspec.structs.replace(
        answers, base_url=url, model=words[0], key_variable=words[1] if len(words) > 1 else ""
    )


def _explain(number: int, total: int, question: str, text: str) -> None:
    say(f"\n[{number}/{total}] {question}\n{text}")


def _free_name(text: str, wanted: str) -> str:
    """Return a name for a provider that no section has yet."""
    name, number = wanted, 1
    while has_section(text, f"providers.models.{name}"):
        number += 1
        name = f"{wanted}{number}"
    return name


def is_file(model: str) -> bool:
    """Return whether a model was named by its file rather than by its name."""
    if is_remote(model):
        return False
    return "/" in model or Path(model).suffix.lower() == ".gguf"


def is_address(text: str) -> bool:
    """Return whether a text is an address of the web rather than a folder."""
    return "://" in text
