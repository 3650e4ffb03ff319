"""What is settled before a turn begins: who answers, what is offered, what the model is shown."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from clawd.errors import NotFoundError
from clawd.providers.base import Message, Provider, Sampling
from clawd.runtime.commands import with_instructions
from clawd.runtime.context import with_block
from clawd.runtime.conversation import LiveConversation
from clawd.runtime.doors import PersonAtDoor
from clawd.runtime.hints import hints_for
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.prompt import system_prompt
from clawd.runtime.settings import AgentSettings, RuntimeSettings
from clawd.runtime.stored import UserWords
from clawd.runtime.turn_plan import TurnPlan
from clawd.security.principal import Principal
from clawd.tools.base import Tool
from clawd.tools.registry import Registry
from clawd.wire.events import Event, TurnStarted


class PreparedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is ready to run, and the user's words as memory will keep them."""

    plan: TurnPlan
    words: UserWords


class Preparation:
    """Prepares turns.

    Args:
        registry: the tools.
        providers: returns the providers by name.
        settings: returns the settings in force.
        person: how approvals and questions reach people.
        clock: returns the local time, with its zone.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        providers: Callable[[], Mapping[str, Provider]],
        settings: Callable[[], RuntimeSettings],
        person: PersonAtDoor,
        clock: Callable[[], datetime],
    ) -> None:
        self._registry = registry
        self._providers = providers
        self._settings = settings
        self._person = person
        self._clock = clock

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

    def prepare(
        self,
        live: LiveConversation,
        incoming: IncomingMessage,
        principal: Principal,
        *,
        turn_id: str,
        emit: Callable[[Event], None],
    ) -> PreparedTurn:
        """Return the turn of a message; says on the stream that it begins.

        Raises:
            ClawError: what the message or the conversation names is not to be had any more.
        """
        settings = self._settings()
        provider = self.provider(incoming, settings)
        agent = settings.agent(incoming.agent or live.record.agent)
        model = incoming.model or agent.model or _model_for(provider, settings)
        # Looked at anew each turn: roots may have been taken back, folders exchanged for links.
        workspace = settings.resolve_workspace(live.record.workspace)
        hints = hints_for(provider, live.hints, incoming.hints)
        emit(
            TurnStarted(
                conversation_id=live.record.id,
                turn_id=turn_id,
                provider=provider.name(),
                model=model,
                workspace=str(workspace),
            )
        )
        live.hints = hints
        block, facts = live.next_block(self._clock())
        tools = self._offered(settings, agent)
        scope = self._person.scope(
            conversation_id=live.record.id,
            principal=principal,
            workspace=workspace,
            offered=frozenset(tool.name for tool in tools),
            emit=emit,
            reachable=incoming.interactive or incoming.detach,
        )
        plan = TurnPlan(
            turn_id=turn_id,
            message=Message(role="user", content=with_block(block, incoming.text)),
            system=_system(settings, agent, provider, tools, workspace),
            tools=tools,
            provider=provider,
            model=model,
            limits=settings.limits,
            scope=scope,
            sampling=Sampling(preset=incoming.preset or agent.preset),
            hints=hints,
            known_tokens=live.known_tokens(provider.name(), model),
            calls_tools=provider.capabilities().tools,
        )
        words = UserWords(text=incoming.text, block=block, facts=facts)
        return PreparedTurn(plan=plan, words=words)

    def _offered(self, settings: RuntimeSettings, agent: AgentSettings) -> tuple[Tool, ...]:
        """Return the tools that the channel and the agent both offer, by name."""
        by_agent = {tool.name for tool in self._registry.allowed(agent.tools_allow)}
        by_channel = self._registry.allowed(settings.tools_allow)
        return tuple(tool for tool in by_channel if tool.name in by_agent)


def _system(
    settings: RuntimeSettings,
    agent: AgentSettings,
    provider: Provider,
    tools: tuple[Tool, ...],
    workspace: Path,
) -> str:
    prompt = msgspec.structs.replace(settings.prompt, agent=agent.prompt)
    if provider.capabilities().tools:
        return system_prompt(prompt, tools, workspace=str(workspace))
    return with_instructions(system_prompt(prompt, (), workspace=str(workspace)), tools)


def _model_for(provider: Provider, settings: RuntimeSettings) -> str:
    is_default = provider.name() == settings.default_provider
    return settings.default_model if is_default else ""
