"""What a tool is: a name, a schema, a risk and an act. Results are values, never exceptions.

A tool decides nothing about permission and writes no receipt; `tools.dispatch` does both around it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from clawd.security.held_paths import HeldPaths
from clawd.security.principal import Principal
from clawd.security.risk import Assessment
from clawd.tools.preview import Preview
from clawd.tools.traits import Traits, builtin_traits
from clawd.wire.events import Event

NAME_PATTERN = r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$"
SHORT_LIMIT = 120

_T = TypeVar("_T")


async def _at_once() -> None:
    """Clear a call that nothing holds."""


Arguments = Mapping[str, Any]


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call.

    Attributes:
        success: whether it did what it was asked.
        output: text for the model; on failure whatever came before the failure.
        error: what went wrong, for the model, with what to try instead; empty on success.
        metadata: facts for people and programs (`exit_code`, `truncated`, …), JSON-like.
        receipt_id: the receipt that proves it; dispatch fills it in.
    """

    success: bool
    output: str = ""
    error: str = ""
    metadata: dict[str, Any] = {}
    receipt_id: str = ""


class ManualPage(msgspec.Struct, frozen=True, kw_only=True):
    """What one offered tool says of itself.

    Attributes:
        name: what the model calls it in this session.
        short: its one line.
        description: its manual, or the one line.
        parameters: its JSON Schema.
        example: arguments of a call that works.
        is_deferred: requests do not carry `parameters`, so this is the place to see them.
    """

    name: str
    short: str
    description: str
    parameters: dict[str, Any]
    example: dict[str, Any]
    is_deferred: bool = False


class SessionTools(Protocol):
    """What a tool may know of those that are offered in its session."""

    def of(self, tool: str) -> str:
        """Return how this session calls a tool: `file_write`, or `fs(action="write")`."""
        ...

    def pages(self) -> tuple[ManualPage, ...]:
        """Return what is offered, by name."""
        ...

    def looked_at(self, names: Sequence[str]) -> None:
        """Take note that the manuals of these tools were read."""
        ...


class PlainNames:
    """The tools of a session that is not known: every tool goes by its own name."""

    def of(self, tool: str) -> str:
        """Return the tool's own name."""
        return tool

    def pages(self) -> tuple[ManualPage, ...]:
        """Return nothing."""
        return ()

    def looked_at(self, _names: Sequence[str]) -> None:
        """Do nothing."""


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool may know and use while it runs.

    Attributes:
        conversation_id: empty for a call outside a conversation.
        call_id: the call's own id, unique in the conversation.
        principal: for whom it runs.
        workspace: the absolute, resolved folder it works in.
        receipt_id: what the call's receipt will be named; empty while it is only judged.
        report: takes a line or chunk of output while the call runs; never blocks.
        emit: takes a further event for those who follow (a changed plan); never blocks.
        ask: puts a question (with options) to the person; None when nobody answered.
        open_page: asks the person to open a page where they are; returns PAGE_OPENED, why not, or
            None when nobody answered; None itself where there is nobody.
        tools: what is offered in this session, and by which names; for errors that name a tool.
        held: the paths of the call, held from its judgement to its act; None where nothing is
            run, and for calls of a program that judges by itself.
        preview: what was shown of the changes that the call makes, to which it is held; None
            where nothing was computed.
        cleared: returns when the call may act, raises ClawError when it may not; for tools with
            `holds_until_cleared`, which await it before anything that could be noticed.
    """

    conversation_id: str
    call_id: str
    principal: Principal
    workspace: Path
    receipt_id: str = ""
    report: Callable[[str], None] = lambda _text: None
    emit: Callable[[Event], None] = lambda _event: None
    ask: Callable[[str, tuple[str, ...]], Awaitable[str | None]] | None = None
    open_page: Callable[[str], Awaitable[str | None]] | None = None
    tools: SessionTools = PlainNames()
    held: HeldPaths | None = None
    preview: Preview | None = None
    cleared: Callable[[], Awaitable[None]] = _at_once


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a call; a folder stands for all that is in it.

    Attributes:
        reads: what its result may hold text of.
        writes: what it may change.
    """

    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()


class Tool(ABC):
    """One tool. Instances are shared by all conversations and hold no state of a call.

    Attributes:
        name: what the model calls it.
        short: one line, at most 120 characters, sent with every request.
        description: the manual, for `tool_lookup`; falls back to `short`.
        parameters: JSON Schema of type object.
        timeout_s: how long one call may take; 0 leaves it to `[limits] tool_timeout_s`.
        aliases: other names that lead here.
        starts_process: whether a call starts a child process (and so needs the sandbox).
        holds_until_cleared: whether a call may get ready while its intent is being written, since
            it does nothing before `ToolContext.cleared` returns.
        outward: whether a call can send data out or change things outside the workspace; None
            when nobody knows, which counts as yes for all but low risk.
        offered_parameters: the schema that requests carry where the whole one is left to
            `tool_lookup`; None offers `parameters`, which calls are held to in any case.
        is_hidden: no request carries it; it is called all the same, by who found it with
            `tool_lookup`.
        addendum: text for the system prompt while the tool is offered; at most 8 KiB.
        traits: its effect, an example and other words for its arguments; None for those that
            `traits` keeps under its name.
        source: where it comes from, for people.
        identity: what it is known by where its program is not clawd's own, or ""; an approval
            binds it, and so is void when the program becomes another.
    """

    name: ClassVar[str]
    short: ClassVar[str]
    description: ClassVar[str] = ""
    parameters: ClassVar[dict[str, Any]]
    timeout_s: float = 0.0
    aliases: ClassVar[tuple[str, ...]] = ()
    starts_process: ClassVar[bool] = False
    holds_until_cleared: ClassVar[bool] = False
    outward: ClassVar[bool | None] = None
    offered_parameters: ClassVar[dict[str, Any] | None] = None
    is_hidden: ClassVar[bool] = False
    addendum: ClassVar[str] = ""
    traits: ClassVar[Traits | None] = None
    source: ClassVar[str] = "builtin"
    identity: ClassVar[str] = ""

    @abstractmethod
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        """Say how risky these arguments are; arguments were validated against the schema.

        Must not change anything and must not block for long; an exception counts as blocked.
        """

    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:  # noqa: ARG002
        """Say which files a call reads and writes, so that untrusted text is followed.

        What a process does cannot be told: it touches all of the workspace.
        """
        everything = (context.workspace,) if self.starts_process else ()
        return Touched(reads=everything, writes=everything)

    async def preview(
        self,
        arguments: Arguments,  # noqa: ARG002 - for those that change files
        context: ToolContext,  # noqa: ARG002
    ) -> Preview | None:
        """Return what a call would make of files, without doing it; None when it makes nothing.

        A tool that returns something is held to just that when it acts.

        Raises:
            ClawError: it cannot be computed, and the call cannot be made.
        """
        return None

    def looked_at(self) -> None:  # noqa: B027 - most tools are never hidden
        """Take note that a model read its manual, which it does before it calls a hidden one."""

    @abstractmethod
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        """Do it. Expected failures are results; cancellation must leave nothing running."""


def is_builtin(tool: Tool) -> bool:
    """Return whether a tool is clawd's own, and not one of a server, a plugin or a program."""
    return tool.source == "builtin"


def traits_of(tool: Tool) -> Traits:
    """Return the traits of a tool; one that has none is taken for one that acts."""
    known = builtin_traits(tool.name) if is_builtin(tool) else None
    return tool.traits or known or Traits()


def first_line(description: str) -> str:
    """Return the first line of a description, as short as a request takes it."""
    return next(iter(description.strip().splitlines()), "")[:SHORT_LIMIT]


def failed(error: str, *, output: str = "", **metadata: Any) -> ToolResult:
    """Return a failed result."""
    return ToolResult(success=False, output=output, error=error, metadata=metadata)


def succeeded(output: str, **metadata: Any) -> ToolResult:
    """Return a successful result."""
    return ToolResult(success=True, output=output, metadata=metadata)


async def in_thread(function: Callable[[], _T]) -> _T:
    """Run blocking work (file walks, hashing) off the event loop."""
    return await asyncio.to_thread(function)
