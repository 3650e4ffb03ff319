"""Commands that choose who answers and how: model, provider, preset, agent, system text."""

import msgspec

from clawctl.agent_options import PRESETS
from clawctl.render import note, say, show_table
from clawctl.repl.host import Host
from clawd.errors import InvalidRequestError, NotFoundError
from clawd.wire.codec import mirror, to_builtins
from clawd.wire.conversations import ShowConversation, ShowPrompt
from clawd.wire.daemon import ShowConfig, Status
from clawd.wire.models import ListModels, ListProviders, LoadModel, ProviderLine
from clawd.wire.turns import SamplingWishes, ShowSampling

OFF = {"off", "none", "default"}
THINK = ("on", "off", "low", "medium", "high", "auto")


def model(host: Host, rest: str) -> None:
    """List the models, or go on with another one."""
    provider = _provider(host)
    if not rest:
        _list_models(host, provider)
        return
    if rest in OFF:
        host.choose(model="")
        say("The configured model answers again.")
        return
    if provider is not None and provider.kind == "local":
        loaded = host.wait_for(LoadModel(name=rest), f"loading {rest}")
        host.choose(model=rest)
        context = f", context {loaded.context_size}" if loaded.context_size else ""
        say(f"{loaded.name} answers from now on{context}.")
        return
    host.choose(model=rest)
    name = provider.name if provider is not None else "the provider"
    say(f"{rest} of {name} answers from now on; whether {name} has it, the next message tells.")


def provider(host: Host, rest: str) -> None:
    """List the providers, or go on with another one."""
    lines = host.call(ListProviders()).items
    current = _provider(host)
    if not rest:
        show_table(
            ("", "NAME", "KIND", "MODEL"),
            [
                (
                    "*" if current and each.name == current.name else "",
                    each.name,
                    each.kind,
                    each.model,
                )
                for each in lines
            ],
        )
        return
    known = {each.name: each for each in lines}
    if rest not in known:
        raise NotFoundError(
            f"there is no provider {rest}", hint=f"Configured are: {', '.join(known)}"
        )
    # A model belongs to its provider.
    host.choose(provider=rest, model="")
    say(f"{rest} ({known[rest].model or known[rest].kind}) answers from now on.")


def preset(host: Host, rest: str) -> None:
    """Choose how the model samples."""
    if not rest:
        chosen = host.choice.preset
        show_table(
            ("", "PRESET", "WHAT IT DOES"),
            [("*" if name == chosen else "", name, about) for name, about in PRESETS.items()],
        )
        return
    if rest not in PRESETS and rest not in OFF:
        note(f"{rest} is not a preset; there are {', '.join(PRESETS)}, and off")
        return
    host.choose(preset="" if rest in OFF else rest)
    say("The model's own way." if rest in OFF else f"Sampling is {rest} from now on.")


def think(host: Host, rest: str) -> None:
    """Set whether the model is to think, or display how it stands."""
    if rest and rest not in THINK:
        note(f"{rest} is none of {', '.join(THINK)}")
        return
    if rest:
        host.choose(think=rest)
    kept = host.choice.think or _kept_think(host)
    when = " from your next message on" if rest else ""
    if kept in {"", "auto"}:
        say(f"Whether it thinks is the model's to say{when}.")
    else:
        how = kept if kept in {"on", "off"} else f"on, and its effort {kept}"
        say(f"Thinking is {how} in this conversation{when}.")


def _kept_think(host: Host) -> str:
    """Return what was said of thinking in the conversation before."""
    if not host.conversation_id:
        return ""
    request = ShowConversation(conversation_id=host.conversation_id, limit=1)
    return host.call(request).conversation.think


def sampling(host: Host, rest: str) -> None:
    """Show how the model samples, or set values for the messages that follow."""
    if rest in OFF:
        host.choose(sampling=None)
        say("Nothing is set here any more.")
    elif rest:
        host.choose(sampling=_changed(host.choice.sampling, rest.replace(",", " ").split()))
    choice = host.choice
    if choice.url:
        asked = to_builtins(choice.sampling) if choice.sampling else {}
        show_table(("NAME", "VALUE"), [(n, str(v)) for n, v in asked.items()], nothing="Nothing.")
        note(f"{choice.url} has its own way in the rest, and may not know all of these.")
        return
    found = host.call(mirror(ShowSampling, choice))
    who = {"message": "set here", "preset": "the preset", "config": "the configuration"}
    show_table(
        ("NAME", "VALUE", "SET BY"),
        [(each.name, each.value, who[each.origin]) for each in found.items],
        nothing="Nothing is set.",
    )
    if not found.is_whole:
        note(f"{found.provider} has its own way in the rest, and may not know all of these.")


def _changed(current: SamplingWishes | None, words: list[str]) -> SamplingWishes | None:
    """Return the wishes with these changes, `NAME=VALUE` or `NAME=off`; None for no wish."""
    wishes: dict[str, object] = {**to_builtins(current)} if current else {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in SamplingWishes.__struct_fields__ or not equals:
            known = ", ".join(SamplingWishes.__struct_fields__)
            raise InvalidRequestError(
                f"{word} is not NAME=VALUE of sampling", hint=f"The names are {known}; or off."
            )
        wishes.pop(name, None)
        if value not in OFF:
            wishes[name] = (value,) if name == "stop" else value
    try:
        return msgspec.convert(wishes, SamplingWishes, strict=False) if wishes else None
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"sampling: {str(error).replace('`$.', '`')}") from error


def agent(host: Host, rest: str) -> None:
    """Let an agent of the config answer."""
    if not rest:
        say(f"The agent is {host.choice.agent or 'the standard one'}.")
        agents = host.call(ShowConfig()).values.get("agents") or {}
        say(f"Configured are: {', '.join(agents) or 'none'}.")
        return
    name = "" if rest in OFF else rest
    # The daemon knows whether there is one.
    host.call(ShowPrompt(agent=name, workspace=host.workspace))
    host.choose(agent=name)
    say(f"{name or 'The standard agent'} answers from now on.")


def system(host: Host, rest: str) -> None:
    """Show the system prompt, or talk with another one."""
    if rest in OFF:
        host.system = None
        say("clawd's own system prompt is in force again.")
    elif rest:
        host.system = rest
        say("This text goes in place of clawd's own system prompt, from the next message on.")
    elif host.system is not None:
        say(f"In place of clawd's own:\n{host.system}")
    else:
        found = host.call(
            ShowPrompt(
                agent=host.choice.agent,
                workspace="" if host.conversation_id else host.workspace,
                conversation_id=host.conversation_id,
            )
        )
        say(found.system)


def _provider(host: Host) -> ProviderLine | None:
    """Return the provider that answers."""
    lines = host.call(ListProviders()).items
    name = host.choice.provider
    fitting = [each for each in lines if (each.name == name if name else each.is_default)]
    return fitting[0] if fitting else None


def _list_models(host: Host, provider: ProviderLine | None) -> None:
    chosen = host.choice.model or (provider.model if provider else "")
    chosen = chosen or host.call(Status()).default_model
    if provider is not None and provider.kind != "local":
        say(f"{chosen or 'no model'} of {provider.name} answers. /provider lists the others.")
        return
    show_table(
        ("", "NAME", "STATE", "PATH"),
        [
            ("*" if each.name == chosen else "", each.name, each.state, each.path)
            for each in host.call(ListModels()).items
        ],
    )
