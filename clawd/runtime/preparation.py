"""What is settled before a turn begins: who answers, what is offered, what the model is shown."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.providers.base import Message, Provider, Sampling, ToolSpec
from clawd.runtime.commands import with_instructions
from clawd.runtime.context import with_block
from clawd.runtime.conversation import LiveConversation
from clawd.runtime.doors import PersonAtDoor
from clawd.runtime.facts import Block, Facts, FactScope
from clawd.runtime.hints import hints_for
from clawd.runtime.incoming import Door, IncomingMessage
from clawd.runtime.prompt import Preamble, PromptInputs
from clawd.runtime.session_files import LongMessages
from clawd.runtime.settings import AgentSettings, RuntimeSettings
from clawd.runtime.stored import UserWords
from clawd.runtime.turn_plan import Beginning, TurnLimits, TurnPlan, fixed_mark
from clawd.security.principal import Principal
from clawd.tools.base import Tool
from clawd.tools.offer import Offer, specs
from clawd.tools.registry import Registry
from clawd.wire.events import Event, Notice, TurnStarted
from clawd.wire.safe_text import single_line

SOURCE_NAME = 200


class PreparedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is ready to run, and the user's words as memory will keep them."""

    plan: TurnPlan
    words: UserWords


class PromptPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a message sent now would come with.

    Attributes:
        fragments: id and text of each fragment of the system prompt, in order.
        block: what is news since the conversation's last message, or to a new conversation, as
            it would stand before the message.
        untrusted: where untrusted text in the block came from.
        tools: names of those that are offered.
        specs: these tools as a model is offered them.
    """

    workspace: Path
    fragments: tuple[tuple[str, str], ...]
    system: str
    block: str
    untrusted: tuple[str, ...]
    tools: tuple[str, ...]
    specs: tuple[ToolSpec, ...] = ()


class Preparation:
    """Prepares turns.

    Args:
        registry: the tools.
        providers: returns the providers by name.
        settings: returns the settings in force.
        person: how approvals and questions reach people.
        facts: what may change between two messages.
        long_messages: sees to those that fit no context; None sends them as they are.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        providers: Callable[[], Mapping[str, Provider]],
        settings: Callable[[], RuntimeSettings],
        person: PersonAtDoor,
        facts: Facts,
        long_messages: LongMessages | None = None,
    ) -> None:
        self._registry = registry
        self._providers = providers
        self._settings = settings
        self._person = person
        self._facts = facts
        self._long_messages = long_messages

    def provider(self, incoming: IncomingMessage, settings: RuntimeSettings) -> Provider:
        """Return the provider that a message is for.

        Raises:
            NotFoundError: there is none; the message names those that are.
        """
        name = incoming.provider or settings.default_provider
        providers = self._providers()
        if name not in providers:
            known = ", ".join(sorted(providers))
            raise NotFoundError(f"there is no provider {name!r}; configured: {known}")
        return providers[name]

    async def prepare(
        self,
        live: LiveConversation,
        incoming: IncomingMessage,
        principal: Principal,
        *,
        turn_id: str,
        emit: Callable[[Event], None],
        short: str = "",
    ) -> PreparedTurn:
        """Return the turn of a message; says on the stream that it begins.

        `short` is what stands for a message that is too long, where it was made before.

        Raises:
            ClawError: what the message or the conversation names is not to be had any more.
        """
        settings = self._settings()
        provider = self.provider(incoming, settings)
        agent = settings.agent(incoming.agent or live.record.agent)
        model = incoming.model or agent.model or _model_for(provider, settings)
        workspace = _workspace(live, settings)
        live.hints = hints = hints_for(provider, live.hints, incoming.hints)
        emit(_started(live, incoming, turn_id, provider=provider, model=model, workspace=workspace))
        await self._await_tools(emit)
        offered = partial(self._offered, settings, agent, incoming)
        offer = _chosen_of(incoming, offered())

        def beginning(shown: tuple[Tool, ...]) -> tuple[str, str]:
            made_of = _inputs(settings, agent, shown, workspace)
            return _beginning(live, made_of, provider, incoming.system)

        system, fixed = beginning(offer.shown)
        scope = self._person.scope(
            conversation_id=live.record.id,
            principal=principal,
            workspace=workspace,
            offered=offer.names,
            emit=emit,
            reachable=incoming.interactive or incoming.detach,
        )
        plan = TurnPlan(
            turn_id=turn_id,
            message=Message(role="user", content=incoming.text),
            system=system,
            tools=offer.shown,
            provider=provider,
            model=model,
            limits=_limits(incoming, settings),
            scope=msgspec.structs.replace(scope, mode=offer.mode),
            sampling=_sampling(incoming, agent),
            hints=hints,
            fixed=fixed,
            known_tokens=live.known_tokens(provider.name(), model),
            is_continued=live.read.fixed == fixed,
            calls_tools=provider.capabilities().tools,
            tool_choice=incoming.tool_choice,
            news=self._news(offer, offered, beginning),
        )
        return await self._told(live, incoming, principal, plan, short)

    async def _await_tools(self, emit: Callable[[Event], None]) -> None:
        """Wait for tools that are on their way, and say which are not there."""
        for missing in await self._registry.elsewhere.arrived():
            emit(Notice(level="warning", text=missing))

    async def _told(
        self,
        live: LiveConversation,
        incoming: IncomingMessage,
        principal: Principal,
        plan: TurnPlan,
        short: str,
    ) -> PreparedTurn:
        """Return the turn with its message as the model is told it: shortened, a block before."""
        settings, scope = self._settings(), plan.scope
        if self._long_messages is not None and incoming.may_be_cut and not short:
            short = await self._long_messages.shortened(plan, settings, owner=live.record.owner)
        # After a long message is kept: the block lists what is.
        offered = scope.offered or frozenset()
        block = await self._block(live, principal, scope.workspace, offered)
        brought = await self._facts.of_files(scope.workspace, incoming.files)
        self._facts.mark(live.record.id, _with_untrusted(block, incoming, brought))
        told = Message(role="user", content=with_block(block.text, short or incoming.text))
        return PreparedTurn(
            plan=msgspec.structs.replace(plan, message=told),
            words=_words(live, incoming, principal, block, short),
        )

    def _news(
        self,
        offer: Offer,
        offered: Callable[[], Offer],
        begun: Callable[[tuple[Tool, ...]], tuple[str, str]],
    ) -> Callable[[], Beginning | None]:
        """Return what tells a running turn of other tools than those it was prepared with.

        Args:
            offer: those.
            offered: returns what is offered now.
            begun: returns the system prompt over tools, and the mark of both.
        """
        # They may have become others since they were looked at, so the first answer compares.
        known, generation = offer, -1

        def news() -> Beginning | None:
            nonlocal known, generation
            if self._registry.generation == generation:
                return None
            generation, before = self._registry.generation, known
            known = offered()
            # Tools that are made anew and told in the same words are no news to a model.
            if specs(known.shown) == specs(before.shown) and known.names == before.names:
                return None
            system, fixed = begun(known.shown)
            return Beginning(system=system, tools=known.shown, offered=known.names, fixed=fixed)

        return news

    async def preview(
        self,
        live: LiveConversation | None,
        principal: Principal,
        *,
        agent: str,
        workspace: str,
        door: Door = "socket",
    ) -> PromptPreview:
        """Return what a message of a conversation, or of a new one (None), would come with.

        Nothing is changed by it: nothing counts as shown, and nothing taints.

        Raises:
            ClawError: the agent or the workspace is not to be had.
        """
        settings = self._settings()
        chosen = settings.agent(agent or (live.record.agent if live else ""))
        folder = settings.resolve_workspace(live.record.workspace if live else workspace)
        offer = self._offered(settings, chosen, IncomingMessage(text="", door=door))
        block = await self._block(live, principal, folder, offer.names)
        inputs = _inputs(settings, chosen, offer.shown, folder)
        provider = self._providers().get(settings.default_provider)
        known = live.preamble if live is not None else None
        preamble = known.copy() if known is not None else Preamble(inputs)
        system = _system(preamble, inputs, provider)
        fragments = preamble.fragments()
        if added := system.removeprefix(preamble.render()).strip():
            fragments += (("commands", added),)
        return PromptPreview(
            workspace=folder,
            fragments=fragments,
            system=system,
            block=with_block(block.text, "").rstrip("\n"),
            untrusted=block.untrusted,
            tools=tuple(tool.name for tool in offer.shown),
            specs=specs(offer.shown),
        )

    async def _block(
        self,
        live: LiveConversation | None,
        principal: Principal,
        workspace: Path,
        offered: frozenset[str],
    ) -> Block:
        """Return what is news to a conversation, or to a new one of the principal's (None)."""
        scope = FactScope(
            principal=principal,
            owner=live.record.owner if live else principal.uid,
            conversation_id=live.record.id if live else "",
            workspace=workspace,
            speakers=live.speakers if live else frozenset(),
            offered=offered,
        )
        return await self._facts.block(scope, live.shown if live else {})

    def _offered(
        self, settings: RuntimeSettings, agent: AgentSettings, incoming: IncomingMessage
    ) -> Offer:
        """Return what the channel, the agent and the message all offer."""
        channel = settings.http_tools_allow if incoming.door == "http" else settings.tools_allow
        narrowing = (agent.tools_allow, incoming.tools_allow or ("*",))
        names = [{tool.name for tool in self._registry.allowed(each)} for each in narrowing]
        allowed = [
            tool
            for tool in self._registry.allowed(channel)
            if all(tool.name in offered for offered in names)
        ]
        return Offer(allowed, incoming.tool_mode or settings.tool_mode)


def _limits(incoming: IncomingMessage, settings: RuntimeSettings) -> TurnLimits:
    if incoming.retry is None:
        return settings.limits
    return msgspec.structs.replace(settings.limits, retry_on_incomplete=incoming.retry)


def _inputs(
    settings: RuntimeSettings, agent: AgentSettings, tools: tuple[Tool, ...], workspace: Path
) -> PromptInputs:
    return PromptInputs(
        settings=msgspec.structs.replace(settings.prompt, agent=agent.prompt),
        tools=tools,
        workspace=str(workspace),
    )


def _with_untrusted(block: Block, incoming: IncomingMessage, of_files: tuple[str, ...]) -> Block:
    """Return the block with what the message itself brings from outside."""
    brought = tuple(single_line(each)[:SOURCE_NAME] for each in incoming.untrusted)
    return msgspec.structs.replace(block, untrusted=(*block.untrusted, *brought, *of_files))


def _words(
    live: LiveConversation,
    incoming: IncomingMessage,
    principal: Principal,
    block: Block,
    short: str,
) -> UserWords:
    return UserWords(
        text=incoming.text,
        block=block.text,
        facts=block.shown,
        speaker=principal.uid if principal.uid != live.record.owner else None,
        short=short,
    )


def _preamble(live: LiveConversation, inputs: PromptInputs) -> Preamble:
    """Return the conversation's own preamble."""
    if live.preamble is None:
        live.preamble = Preamble(inputs)
    return live.preamble


def _beginning(
    live: LiveConversation, inputs: PromptInputs, provider: Provider, given: str | None
) -> tuple[str, str]:
    """Return the system prompt, or the given one, and the mark of it with the tools."""
    if given is None:
        system = _system(_preamble(live, inputs), inputs, provider)
    else:
        is_told = bool(inputs.tools) and not provider.capabilities().tools
        system = with_instructions(given, inputs.tools) if is_told else given
    return system, fixed_mark(system, inputs.tools if provider.capabilities().tools else ())


def _system(preamble: Preamble, inputs: PromptInputs, provider: Provider | None) -> str:
    """Return the system prompt; a model that calls no tools is told of commands instead."""
    if provider is None or provider.capabilities().tools:
        preamble.adopt(inputs)
        return preamble.render()
    preamble.adopt(msgspec.structs.replace(inputs, tools=()))
    return with_instructions(preamble.render(), inputs.tools)


def _started(
    live: LiveConversation,
    incoming: IncomingMessage,
    turn_id: str,
    *,
    provider: Provider,
    model: str,
    workspace: Path,
) -> TurnStarted:
    return TurnStarted(
        conversation_id=live.record.id,
        turn_id=turn_id,
        provider=provider.name(),
        model=model,
        workspace=str(workspace),
        detached=incoming.detach and incoming.door == "socket",
    )


def _model_for(provider: Provider, settings: RuntimeSettings) -> str:
    is_default = provider.name() == settings.default_provider
    return settings.default_model if is_default else ""


def _sampling(incoming: IncomingMessage, agent: AgentSettings) -> Sampling:
    """Return the wishes of a message; its preset goes before those of its agent."""
    wishes = incoming.sampling or Sampling()
    preset = incoming.preset or wishes.preset or agent.preset
    return msgspec.structs.replace(wishes, preset=preset)


def _workspace(live: LiveConversation, settings: RuntimeSettings) -> Path:
    """Return the folder of a conversation, if it is one that may be worked in."""
    # Looked at anew each turn: roots may have been taken back, folders exchanged for links.
    return settings.resolve_workspace(live.record.workspace)


def _chosen_of(incoming: IncomingMessage, offer: Offer) -> Offer:
    """Return what is offered, if the tool that a message chooses is among it.

    Raises:
        InvalidRequestError: it names such a tool, or wants one where there are none.
    """
    choice, names = incoming.tool_choice, [tool.name for tool in offer.shown]
    if choice == "auto" or choice in names or (choice == "required" and names):
        return offer
    told = ", ".join(names) or "none"
    raise InvalidRequestError(
        f"tool_choice is {choice!r}; the tools that are offered: {told}",
        hint="Name one of them, or leave tool_choice out.",
    )
