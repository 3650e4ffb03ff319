"""What is settled before a turn begins: who answers, what is offered, what the model is shown."""

import asyncio
import glob
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from clawd.config.schema import AgentProfile
from clawd.errors import InvalidRequestError, NotFoundError
from clawd.providers.base import (
    AUTO,
    ChatRequest,
    Message,
    Provider,
    Sampling,
    Thinking,
    ToolReading,
    ToolSpec,
    able,
    check_seen,
    sees,
    thinking,
    unheeded,
)
from clawd.providers.ledger import ContextTeller, SizeTeller
from clawd.runtime.approval_prompts import PersonAtDoor
from clawd.runtime.commands import with_instructions
from clawd.runtime.context import UserWords, with_block
from clawd.runtime.context_facts import Block, Facts, FactScope
from clawd.runtime.conversation import LiveConversation
from clawd.runtime.incoming import Door, IncomingMessage, hints_for
from clawd.runtime.planning import PLAN_FIRST, PLANNING
from clawd.runtime.prompt import Preamble, PromptInputs
from clawd.runtime.session_files import LongMessages
from clawd.runtime.settings import RuntimeSettings
from clawd.runtime.turn_plan import (
    Beginning,
    LateCall,
    TurnLimits,
    TurnPlan,
    fixed_mark,
)
from clawd.security.approvals import Attendance
from clawd.security.principal import Principal
from clawd.skills.store import Skills
from clawd.skills.tools import SKILL_READ
from clawd.tools.offer import Offer, Offers, ReadingModel, RequestTools, specs, told_of
from clawd.tools.outcome import CallScope
from clawd.tools.registry import Registry
from clawd.wire.events import Event, Notice, TurnStarted
from clawd.wire.safe_text import single_line

SOURCE_NAME = 200


class TurnSource(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn comes from, beside its message.

    Attributes:
        attendance: who is there to answer what it asks.
        late: the call with which it goes on, in place of a message; None for a new turn.
    """

    turn_id: str
    attendance: Attendance = msgspec.field(default_factory=Attendance)
    late: LateCall | None = None


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


class _Settled(NamedTuple):
    """What is settled of a turn before its tools are."""

    settings: RuntimeSettings
    agent: AgentProfile
    provider: Provider
    model: str
    absent: tuple[str, ...]


class Preparation:
    """Prepares turns.

    Args:
        registry: the tools.
        providers: returns the providers by name.
        settings: returns the settings in force.
        person: how approvals and questions reach people.
        facts: what may change between two messages.
        long_messages: sees to those that fit no context; None sends them as they are.

    Attributes:
        preamble: of the conversation that was begun last; None before the first.
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
        self.registry = registry
        self._offers = Offers(registry)
        self._providers = providers
        self._settings = settings
        self.person = person
        self._facts = facts
        self._long_messages = long_messages
        self.preamble: Preamble | None = None

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

    def sampled(self, incoming: IncomingMessage) -> tuple[Provider, str, Sampling]:
        """Return who would answer a message, its model, and how it is asked to sample.

        Raises:
            NotFoundError: there is no such provider or agent.
        """
        settings = self._settings()
        provider, agent = self.provider(incoming, settings), settings.agent(incoming.agent)
        model = incoming.model or agent.model or _model_for(provider, settings)
        return provider, model, _sampling(incoming, agent)

    async def prepare(
        self,
        live: LiveConversation,
        incoming: IncomingMessage,
        principal: Principal,
        *,
        source: TurnSource,
        emit: Callable[[Event], None],
        short: str = "",
    ) -> PreparedTurn:
        """Return the turn of a message and emit that it begins; `short` replaces one too long.

        Raises:
            ClawError: what the message or the conversation names is not to be had any more.
        """
        settings = self._settings()
        provider = self.provider(incoming, settings)
        agent = incoming.profile or settings.agent(incoming.agent or live.record.agent)
        model = incoming.model or agent.model or _model_for(provider, settings)
        workspace = settings.resolve_workspace(live.record.workspace)  # anew: roots, links change
        if incoming.pictures:
            check_seen(provider, model)
        live.hints = hints_for(provider, live.hints, incoming.hints)
        emit(_started(live, incoming, source, (provider, model, workspace), settings))
        if incoming.notices or incoming.think or live.think:
            _heed(live, incoming, provider, model, emit)
        absent = await self._absent_here(live, workspace, emit)
        opening = _Opening(self, live, incoming, _Settled(settings, agent, provider, model, absent))
        begun, known = opening.begin(), live.known_tokens(provider.name(), model)
        asks_on = incoming.is_attended and not incoming.max_rounds
        scope = self.person.scope(
            conversation_id=live.record.id,
            principal=principal,
            workspace=Path(incoming.works_in or workspace),
            offered=begun.offered,
            emit=emit,
            attendance=source.attendance if incoming.interactive or incoming.detach else None,
        )
        plan = TurnPlan(
            turn_id=source.turn_id,
            message=Message(role="user", content=incoming.text, pictures=incoming.pictures),
            system=begun.system,
            told=begun.told,
            provider=provider,
            model=model,
            limits=_limits(incoming, settings),
            scope=_bounded(scope, incoming, opening.offer, live.seen),
            late=source.late,
            sampling=_sampling(incoming, agent, live.think),
            hints=live.hints,
            fixed=begun.fixed,
            known_tokens=known,
            measured_tokens=known if live.read.fixed == begun.fixed else 0,
            calls_tools=provider.capabilities().tools,
            sees=sees(provider, model),
            tool_choice=incoming.tool_choice,
            news=opening.news,
            go_on=self.person.asking_on(scope) if asks_on else None,
        )
        return await self._told(live, incoming, principal, plan, short)

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
        if plan.late is not None:  # nobody says anything
            return PreparedTurn(plan=plan, words=UserWords(text=""))
        # A program's message is never cut: it is told that the context is too small, and decides.
        may_be_cut = incoming.door != "http" or incoming.is_resumable
        if self._long_messages is not None and may_be_cut and not short:
            short = await self._long_messages.shortened(plan, settings, owner=live.record.owner)
        # After a long message is kept: the block lists what is.
        offered = scope.offered or frozenset()
        block = await self._block(live, principal, scope.workspace, offered)
        if incoming.noted or incoming.plan_first:
            plans = PLAN_FIRST if incoming.plan_first else ""
            text = "\n".join(filter(None, (block.text, incoming.noted, plans)))
            block = msgspec.structs.replace(block, text=text)
        brought = tuple(single_line(each)[:SOURCE_NAME] for each in incoming.untrusted)
        brought += tuple(each.label for each in incoming.pictures)
        if incoming.files:
            files, untrusted_files = await self._facts.of_files(scope.workspace, incoming.files)
            live.seen.update(files)
            brought += untrusted_files
        if untrusted := (*block.untrusted, *brought):
            self._facts.mark(live.record.id, untrusted)
        text = with_block(block.text, short or incoming.text)
        told = msgspec.structs.replace(plan.message, content=text)
        words = UserWords(
            text=incoming.text,
            block=block.text,
            facts=block.shown,
            speaker=principal.uid if principal.uid != live.record.owner else None,
            short=short,
        )
        return PreparedTurn(plan=msgspec.structs.replace(plan, message=told), words=words)

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
        incoming = IncomingMessage(text="", door=door)
        absent = await self._absent(folder, await self._skills(folder))
        offer = self.offered(settings, chosen, incoming, absent=absent)
        block = await self._block(live, principal, folder, offer.names)
        provider = self._providers().get(settings.default_provider)
        model = chosen.model or settings.default_model
        inputs = _inputs(settings, chosen, reader_of(provider, model), offer)
        told = inputs.told
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
            tools=tuple(tool.name for tool in told.tools),
            specs=told.specs,
        )

    async def beginnings(self, principal: Principal) -> tuple[ChatRequest, ...]:
        """Return what prompts of a principal's new conversations begin with.

        Each has the beginning of the user's message, if that is known. Those over the socket are
        the last; those over HTTP stand before, where they are others.

        Raises:
            ClawError: the workspace is not to be had.
        """
        settings = self._settings()
        doors: tuple[Door, ...] = ("socket",)
        over_http = settings.tools_allow("http")
        if settings.channels.http.agent and over_http != settings.tools_allow("socket"):
            doors = ("http", "socket")
        return tuple([await self._opening(settings, door, principal) for door in doors])

    async def _opening(
        self, settings: RuntimeSettings, door: Door, principal: Principal
    ) -> ChatRequest:
        provider = self._providers().get(settings.default_provider)
        agent, folder = settings.agent(""), settings.resolve_workspace("")
        incoming = IncomingMessage(text="", door=door)
        absent = await self._absent(folder, await self._skills(folder))
        offer = self.offered(settings, agent, incoming, absent=absent)
        reader = reader_of(provider, settings.default_model)
        inputs = _inputs(settings, agent, reader, offer)
        calls = provider is not None and provider.capabilities().tools
        told = inputs.told if calls else RequestTools(tools=())
        block = await self._block(None, principal, folder, offer.names)
        said = Message(role="user", content=with_block(block.text, ""))
        return ChatRequest(
            system=_system(Preamble(inputs), inputs, provider),
            messages=(said,) if block.text else (),
            tools=told.specs,
            model=settings.default_model,
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
            tells_workspace=self._settings().prompt.parts.environment,
        )
        return await self._facts.block(scope, live.shown if live else {})

    async def _skills(self, workspace: Path) -> Skills:
        return await self._facts.skills.found(workspace) if self._facts.skills else Skills()

    async def _absent(self, workspace: Path, skills: Skills) -> tuple[str, ...]:
        """Return the tools that are not offered because there is nothing for them."""
        found: tuple[str, ...] = () if skills.ready else (SKILL_READ,)
        for tool in self.registry.all():
            if tool.needs and not await asyncio.to_thread(_any_of, tool.needs, workspace):
                found += (tool.name,)
        return found

    async def _absent_here(
        self, live: LiveConversation, workspace: Path, emit: Callable[[Event], None]
    ) -> tuple[str, ...]:
        """Wait for tools that are on their way; return those for which there is nothing here.

        What is missing is emitted, and which skills wait for a person's trust.
        """
        elsewhere = self.registry.elsewhere
        missing = await elsewhere.arrived() if elsewhere.is_awaited else ()
        found, skills = Skills(), self._facts.skills
        if skills is not None and (found := await skills.found(workspace)).items:
            missing += skills.unlooked(found, live.record.id, workspace)
        for line in missing:
            emit(Notice(level="warning", text=line))
        return await self._absent(workspace, found)

    def offered(
        self,
        settings: RuntimeSettings,
        agent: AgentProfile,
        incoming: IncomingMessage,
        *,
        absent: tuple[str, ...] = (SKILL_READ,),
    ) -> Offer:
        """Return what the channel, the agent and the message all offer, without what is absent."""
        channel = settings.tools_allow(incoming.door)
        told = tuple(f"-{name}" for name in absent) or ("*",)
        wanted = (channel, agent.tools_allow, incoming.tools_allow or ("*",), told)
        return self._offers.matching(wanted, incoming.tool_mode or settings.tools.mode)


def _any_of(patterns: tuple[str, ...], workspace: Path) -> bool:
    return any(any(glob.iglob(each, root_dir=workspace)) for each in patterns)  # noqa: PTH207 - some are absolute


def _bounded(
    scope: CallScope, incoming: IncomingMessage, offer: Offer, seen: set[Path]
) -> CallScope:
    """Return the scope of the calls of a message."""
    return msgspec.structs.replace(
        scope,
        mode=offer.mode,
        is_resumable=incoming.is_resumable,
        narrowed=incoming.narrowed,
        helps=incoming.helps,
        at_most=PLANNING if incoming.plan_first or incoming.looks_only else "",
        seen=seen,
    )


def _limits(incoming: IncomingMessage, settings: RuntimeSettings) -> TurnLimits:
    loop, replace = settings.loop, msgspec.structs.replace
    limits = TurnLimits(
        max_tool_rounds=loop.max_tool_rounds,
        wall_clock_budget_s=loop.wall_clock_budget_s,
        max_response_bytes=settings.limits.max_response_bytes,
        retry_on_incomplete=loop.retry_on_incomplete if incoming.retry is None else incoming.retry,
    )
    limits = replace(limits, max_tokens=incoming.max_tokens)
    if incoming.max_rounds:
        return replace(
            limits, max_tool_rounds=incoming.max_rounds, rounds_key="max_rounds of the message"
        )
    if incoming.is_attended and loop.max_tool_rounds_attended > limits.max_tool_rounds:
        return replace(
            limits,
            max_tool_rounds=loop.max_tool_rounds_attended,
            rounds_key="max_tool_rounds_attended in [agent]",
        )
    return limits


def _inputs(
    settings: RuntimeSettings,
    agent: AgentProfile,
    reader: ReadingModel,
    offer: Offer,
    chosen: str = "",
) -> PromptInputs:
    return PromptInputs(
        settings=msgspec.structs.replace(settings.prompt, agent=agent.system_prompt),
        told=told_of(offer, settings.tools, reader, chosen=chosen),
    )


def reader_of(provider: Provider | None, model: str) -> ReadingModel:
    """Return what is known of the model that will read a request; of no provider, nothing."""
    if provider is None:
        return ReadingModel()
    able = provider.capabilities()
    size = provider.context_size_of(model) if isinstance(provider, ContextTeller) else 0
    reads, reads_schemas = True, True
    if isinstance(provider, ToolReading):
        reads, reads_schemas = provider.reads_tools(model), provider.reads_schemas(model)
    return ReadingModel(
        context_tokens=size or able.context_size,
        is_local=able.local,
        reads_tools=reads and able.tools,
        reads_schemas=reads_schemas,
    )


def _system(preamble: Preamble, inputs: PromptInputs, provider: Provider | None) -> str:
    """Return the system prompt; a model that calls no tools is told of commands instead."""
    if provider is None or provider.capabilities().tools:
        preamble.adopt(inputs)
        return preamble.render()
    preamble.adopt(msgspec.structs.replace(inputs, told=RequestTools(tools=())))
    return with_instructions(preamble.render(), inputs.tools)


def _started(
    live: LiveConversation,
    incoming: IncomingMessage,
    source: TurnSource,
    settled: tuple[Provider, str, Path],
    settings: RuntimeSettings,
) -> TurnStarted:
    provider, model, workspace = settled
    shows = settings.loop.show_results
    if shows == "auto":
        is_small = isinstance(provider, SizeTeller) and provider.is_small(model)
        shows = "always" if is_small else "never"
    return TurnStarted(
        conversation_id=live.record.id,
        turn_id=source.turn_id,
        provider=provider.name(),
        model=model,
        workspace=str(workspace),
        detached=incoming.detach and incoming.door == "socket",
        mode=live.mode,
        shows_results=shows == "always",
        client=single_line(incoming.client, 32),
    )


def _model_for(provider: Provider, settings: RuntimeSettings) -> str:
    is_default = provider.name() == settings.default_provider
    return settings.default_model if is_default else ""


def _sampling(incoming: IncomingMessage, agent: AgentProfile, think: str = "") -> Sampling:
    """Return the wishes of a message; its preset goes before those of its agent.

    What is said of thinking goes behind its own variables.
    """
    wishes = incoming.sampling or Sampling()
    preset = incoming.preset or wishes.preset or agent.preset
    if think:
        variables = thinking(think) | (wishes.template_kwargs or {})
        wishes = msgspec.structs.replace(wishes, template_kwargs=variables)
    return msgspec.structs.replace(wishes, preset=preset)


def _heed(
    live: LiveConversation,
    incoming: IncomingMessage,
    provider: Provider,
    model: str,
    emit: Callable[[Event], None],
) -> None:
    """Keep what a message says of thinking; emit its notices, and where thinking is not to be had.

    The last of these only where it is news.
    """
    for notice in incoming.notices:
        emit(notice)
    wish = "" if incoming.think == AUTO else incoming.think or live.think
    live.is_think_checked = live.is_think_checked and wish == live.think
    live.think = wish
    if not wish or live.is_think_checked:
        return
    why = "changes nothing: the provider is not told of thinking"
    if found := able(provider, Thinking, model):  # type: ignore[type-abstract]
        variables = found[0].thinking_variables(found[1])
        if variables is None:
            return  # it is not loaded: the next message tells
        why = unheeded(wish, variables)
    live.is_think_checked = True
    if why:
        name = single_line(model or provider.name())
        emit(Notice(level="warning", text=f"with {name}, think {wish} {why}"))


class _Opening:
    """What requests of one turn begin with: at first, and when the tools have become others.

    Attributes:
        offer: the tools that were told last.
    """

    def __init__(
        self,
        preparation: Preparation,
        live: LiveConversation,
        incoming: IncomingMessage,
        settled: _Settled,
    ) -> None:
        self._preparation = preparation
        self._settled, self._live, self._incoming = settled, live, incoming
        settings, agent, *_, absent = settled
        self._offered = partial(preparation.offered, settings, agent, incoming, absent=absent)
        self.offer = self._offered()
        choice, names = incoming.tool_choice, [tool.name for tool in self.offer.shown]
        if choice != "auto" and choice not in names and (choice != "required" or not names):
            told = ", ".join(names) or "none"
            raise InvalidRequestError(
                f"tool_choice is {choice!r}; the tools that are offered: {told}",
                hint="Name one of them, or leave tool_choice out.",
            )

    def begin(self) -> Beginning:
        """Return the system prompt, or the given one, and the tools."""
        settings, agent, provider, model, _ = self._settled
        live, given = self._live, self._incoming.system
        reader, choice = reader_of(provider, model), self._incoming.tool_choice
        inputs = _inputs(settings, agent, reader, self.offer, choice)
        is_called = provider.capabilities().tools
        if given is None:
            if live.preamble is None:
                newest = self._preparation.preamble or Preamble(inputs)
                live.preamble = self._preparation.preamble = newest.anew(inputs)
            system = _system(live.preamble, inputs, provider)
        else:
            is_told = bool(inputs.tools) and not is_called
            system = with_instructions(given, inputs.tools) if is_told else given
        fixed = fixed_mark(system, inputs.told if is_called else RequestTools(tools=()))
        return Beginning(system=system, told=inputs.told, offered=self.offer.names, fixed=fixed)

    def news(self) -> Beginning | None:
        """Return another beginning once when the tools have become others, else None."""
        known, self.offer = self.offer, self._offered()
        if known is self.offer:
            return None
        # Tools that are made anew and told in the same words are no news to a model.
        if specs(known.shown) == specs(self.offer.shown) and known.names == self.offer.names:
            return None
        return self.begin()
