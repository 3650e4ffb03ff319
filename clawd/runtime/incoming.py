"""A message on its way in: what a door hands over, and what of it is refused at once. Pure."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from clawd.config.schema import AgentProfile
from clawd.errors import InvalidRequestError
from clawd.providers.base import Provider, Sampling
from clawd.providers.presets import check_preset
from clawd.providers.router import check_hints
from clawd.security.risk import Autonomy
from clawd.tools.narrowing import Narrowing
from clawd.wire.events import Notice
from clawd.wire.pictures import MAX_PICTURES, Picture

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_UNTRUSTED = 8
MAX_FILES = 20

Door = Literal["socket", "http"]


class HelperTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn wants of a helper.

    Attributes:
        agent: one of the config, "" for the plain one.
        profile: an agent in its place, None for none.
        narrowed: calls that one of these does not name are refused.
        max_tokens: so many it may use, read and written.
        most: so many helpers a turn has, those of its helpers included.
        works_in: the copy of the workspace that it changes; "" where it only looks.
    """

    text: str
    agent: str = ""
    profile: AgentProfile | None = None
    narrowed: tuple[Narrowing, ...] = ()
    max_tokens: int
    most: int
    works_in: str = ""


class IncomingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a door hands it in; empty names mean the configured ones.

    `hints` are for routers (`model`, `cost`, `privacy`, `size`); the conversation keeps them until
    an empty one takes its name back. What follows them is for this message alone.

    Attributes:
        pictures: they stand before the text, which may be empty then; they taint.
        door: where it came in; each door has tools and a switch of its own.
        client: what the program that sent it calls itself, for people to read.
        system: instead of clawd's own system prompt; None for that one.
        sampling: goes before the preset of the agent.
        tool_choice: of the first request to the model; the later ones are free.
        untrusted: where text in the message came from that nobody vouches for; it taints.
        files: of the workspace, whose text is in the message; they taint as if they were read.
        tools_allow: patterns that what is offered must match as well; () takes nothing out.
        tool_mode: how they are offered; "" is the configured way.
        retry: whether incomplete answers are asked for again; None is as configured.
        think: whether the model is to think, or how much. The conversation keeps it until `auto`.
        mode: how far the model may go in this conversation from now on; "" leaves it as it is.
        noted: what hooks of the owner say beside it; no door sets it.
        notices: what the user should know of it, emitted when the turn has begun.
        max_rounds: after how many rounds of calls the turn ends, attended or not; 0 is as
            configured.
        is_resumable: its sender finds the conversation again, so a call that nobody answers
            for in time may be answered late, and the turn goes on then.
        looks_only: the turn goes no further than mode readonly, as a helper's; no door sets it.
        works_in: the copy of the conversation's workspace in which its calls act, where a helper
            has one; no door sets it.
        profile: the agent of a helper, in place of one of the config; no door sets it.
        max_tokens: so many its turn may use, read and written, in all; 0 is no limit.
        helps: the conversations that it works for, the nearest first; no door sets it.
        plan_first: the turn only looks until the person said yes to its plan.
        narrowed: calls that one of these does not name are asked about; no door sets it.
        grants: patterns of calls that need no approval in the conversation that it opens, in which
            no standing rule allows anything; None for one in which they do. No door sets it.
    """

    text: str
    pictures: tuple[Picture, ...] = ()
    conversation_id: str = ""
    workspace: str = ""
    provider: str = ""
    model: str = ""
    agent: str = ""
    preset: str = ""
    interactive: bool = False
    detach: bool = False
    hints: dict[str, str] = {}
    door: Door = "socket"
    client: str = ""
    system: str | None = None
    sampling: Sampling | None = None
    tool_choice: str = "auto"
    untrusted: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tools_allow: tuple[str, ...] = ()
    tool_mode: Literal["", "split", "unified", "both"] = ""
    retry: bool | None = None
    think: Literal["", "auto", "on", "off", "low", "medium", "high"] = ""
    mode: Autonomy | Literal[""] = ""
    noted: str = ""
    notices: tuple[Notice, ...] = ()
    max_rounds: int = 0
    is_resumable: bool = False
    looks_only: bool = False
    works_in: str = ""
    profile: AgentProfile | None = None
    max_tokens: int = 0
    helps: tuple[str, ...] = ()
    plan_first: bool = False
    narrowed: tuple[Narrowing, ...] = ()
    grants: tuple[str, ...] | None = None

    @property
    def is_attended(self) -> bool:
        """Whether a person is there who can be asked on the way; at the HTTP doors nobody is."""
        return self.interactive and not self.detach and self.door == "socket"


def check(incoming: IncomingMessage) -> None:
    """Refuse a message that cannot be answered whatever the configuration.

    Raises:
        InvalidRequestError: it is empty or too long, or names an unknown preset or hint, or too
            many files or untrusted sources, or one without a name.
    """
    if incoming.preset:
        check_preset(incoming.preset)
    size = len(incoming.text.encode(errors="replace"))
    if len(incoming.pictures) > MAX_PICTURES:
        raise InvalidRequestError(
            f"{len(incoming.pictures)} pictures; a message takes {MAX_PICTURES}"
        )
    if not incoming.text.strip() and not incoming.pictures:
        raise InvalidRequestError("the message is empty")
    if size > MAX_MESSAGE_BYTES:
        raise InvalidRequestError(
            f"the message has {size} bytes; the limit is {MAX_MESSAGE_BYTES}",
            hint="Put long text into a file of the workspace and name the file.",
        )
    if incoming.hints:
        check_hints(incoming.hints)
    if len(incoming.untrusted) > MAX_UNTRUSTED or not all(map(str.strip, incoming.untrusted)):
        raise InvalidRequestError(
            f"untrusted names {len(incoming.untrusted)} sources; it takes at most {MAX_UNTRUSTED}, "
            "each with a name"
        )
    if len(incoming.files) > MAX_FILES:
        raise InvalidRequestError(f"{len(incoming.files)} files; a message takes {MAX_FILES}")


def hints_for(
    provider: Provider, kept: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the hints of a turn: what was kept, the new word of each name, no empty ones.

    Raises:
        InvalidRequestError: there are some and the provider is no router; what was to stay
            private would go anywhere.
    """
    hints = {name: value for name, value in {**kept, **given}.items() if value}
    if hints and not provider.capabilities().heeds_hints:
        told = ", ".join(f"{name}={value}" for name, value in hints.items())
        raise InvalidRequestError(
            f"the conversation asks for {told}, and provider {provider.name()} is no router",
            hint="Choose a router as the provider, or take the hint back: an empty value does.",
        )
    return hints
