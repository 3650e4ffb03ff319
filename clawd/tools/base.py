"""What a tool is: a name, a schema, a risk and an act. Results are values, never exceptions.

A tool decides nothing about permission and writes no receipt; `tools.dispatch` does both around it.
Traits are what is known of one beyond its schema: its effect, a call to copy, other words. Tools of
clawd have their line here; any other tool may bring `traits` of its own, and is taken for one that
acts when it does not.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import msgspec

from clawd.security.paths import HeldPaths
from clawd.security.principal import Principal
from clawd.security.risk import Assessment
from clawd.security.sandbox.egress import WayOut
from clawd.tools.preview import Preview
from clawd.wire.events import Event

Effect = Literal["looks", "adds", "replaces", "changes", "acts"]
EFFECTS: tuple[Effect, ...] = ("looks", "adds", "replaces", "changes", "acts")
Takes = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
NAME_PATTERN = r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$"
SHORT_LIMIT = 120
_T = TypeVar("_T")
"""The ways to call an action: the arguments that must be there, and those that may."""


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """The traits of a tool.

    Attributes:
        effect: `looks` changes nothing; `adds` and takes nothing away; `replaces`, and a second
            time makes no difference; `changes` what is there; `acts` in ways that cannot be told.
        example: arguments of a call that works; the required ones of the schema when empty.
        other_names: what callers call an argument of this tool, by its real name.
        actions: for a tool with `action`: which of them a call without it can mean.
        documents: arguments that hold whole texts, kept to the letter whatever their name.
        stand_ins: words that callers write for its `action`, and the arguments that they mean.
        rare: arguments that hardly any call needs; a short schema leaves them to its manual.
        asks: it puts something to the person, who does one thing at a time.
        looks_at_low: a call that it judges to be of low risk is held to looking.
    """

    effect: Effect = "acts"
    example: dict[str, Any] = {}
    other_names: dict[str, tuple[str, ...]] = {}
    actions: dict[str, Takes] = {}
    documents: tuple[str, ...] = ()
    stand_ins: dict[str, dict[str, Any]] = {}
    rare: tuple[str, ...] = ()
    asks: bool = False
    looks_at_low: bool = False

    @property
    def rank(self) -> int:
        """How far it goes: 0 looks, 4 acts."""
        return EFFECTS.index(self.effect)


_FILE: dict[str, Any] = {"path": "notes.txt"}
# Copied as it stands it should not hit a file that somebody has.
_WRITTEN: dict[str, Any] = {"path": "example.txt", "content": "some text"}
_EDITED = {
    "new_text": ("new_string", "new_str", "new", "replacement", "replace_with", "content"),
    "old_text": ("old_string", "old_str", "old", "find", "search", "target"),
    "start_line": ("start", "line", "from_line", "first_line"),
    "end_line": ("end", "to_line", "last_line"),
}  # fmt: skip
# Of a plan's items: what is done with them, in place of an action.
_STEPS = {
    "done": ("done", "complete", "completed", "finish", "finished", "markdone", "markcomplete"),
    "working": ("start", "started", "begin", "working", "inprogress"),
    "error": ("fail", "failed", "error"),
}
_TRAITS: dict[str, Traits] = {
    "time": Traits(effect="looks"),
    "calculator": Traits(effect="looks"),
    "ask_user": Traits(effect="looks", asks=True, other_names={"options": ("choices", "answers")}),
    "open_url": Traits(
        effect="looks",
        asks=True,
        example={"url": "https://example.org/"},
        other_names={"url": ("address", "link", "page", "href")},
    ),
    "tool_lookup": Traits(effect="looks", other_names={"name": ("tool", "tool_name", "query")}),
    "memory_search": Traits(effect="looks", other_names={"limit": ("max_results", "count", "n")}),
    "skill_read": Traits(
        effect="looks",
        example={"name": "inbox"},
        other_names={"name": ("skill", "skill_name"), "path": ("file", "resource", "file_path")},
    ),
    "file_list": Traits(effect="looks", example={"path": "."}),
    "file_read": Traits(
        effect="looks",
        other_names={
            "start_line": ("start", "from_line", "first_line", "line"),
            "max_lines": ("lines", "line_count", "num_lines"),
        },
        rare=("offset", "max_bytes"),
    ),
    "file_write": Traits(effect="replaces", example=_WRITTEN),
    "file_edit": Traits(
        effect="changes",
        example={"path": "notes.txt", "old_text": "old words", "new_text": "new words"},
        other_names=_EDITED,
    ),
    "file_append": Traits(effect="adds", example=_WRITTEN),
    "glob": Traits(
        effect="looks",
        example={"pattern": "*.txt"},
        other_names={"pattern": ("glob", "glob_pattern", "file_pattern", "name", "filename")},
    ),
    "grep": Traits(
        effect="looks",
        example={"pattern": "words", "path": "."},
        other_names={
            "pattern": ("regex", "regexp", "query", "text", "search", "q"),
            "glob": ("include", "file_pattern", "glob_pattern"),
            "ignore_case": ("case_insensitive", "insensitive"),
            "max_results": ("limit", "head_limit", "max_count"),
        },
        rare=("max_results",),
    ),
    "check_path": Traits(effect="looks", example=_FILE),
    "cwd": Traits(effect="looks"),
    "workspace": Traits(effect="looks"),
    "undo": Traits(effect="changes"),
    "fs_ops": Traits(
        effect="changes",
        example={"operations": [{"op": "read", "path": "notes.txt"}]},
        other_names={"operations": ("ops", "steps", "batch", "actions")},
    ),
    "shell": Traits(
        effect="acts",
        other_names={"timeout_s": ("timeout", "timeout_seconds")},
        rare=("timeout_s",),
        looks_at_low=True,
    ),
    "job": Traits(
        effect="acts",
        example={"action": "wait", "id": "job-1"},
        other_names={"id": ("job", "job_id", "handle"), "wait_s": ("timeout", "timeout_s")},
    ),
    "evaluate": Traits(
        effect="looks",
        example={"code": "print(6 * 7)"},
        other_names={"code": ("python", "script", "source", "program", "input")},
    ),
    "http": Traits(effect="acts"),
    "web_search": Traits(
        effect="looks", other_names={"max_results": ("limit", "count", "n")}, rare=("max_results",)
    ),
    "web_fetch": Traits(effect="looks", rare=("max_bytes",)),
    "pdf_extract": Traits(
        effect="looks",
        example={"source": "paper.pdf"},
        other_names={"source": ("path", "file", "url", "filename", "file_path")},
    ),
    "render": Traits(
        effect="replaces",
        example={"source": "# Title\n\nSome text."},
        other_names={
            "source": ("markdown", "mermaid", "content", "text", "code", "diagram", "input"),
            "name": ("filename", "file", "path", "output"),
            "format": ("kind", "mode", "language"),
        },
        documents=("source",),
    ),
    "knowledge_save": Traits(
        effect="replaces", example={"keywords": "router password", "content": "It is on the box."}
    ),
    "knowledge_append": Traits(
        effect="adds", example={"keywords": "router password", "content": "Changed in May."}
    ),
    "knowledge_search": Traits(effect="looks", other_names={"keywords": ("query", "q", "search")}),
    "knowledge_load": Traits(effect="looks"),
    "knowledge_list": Traits(effect="looks"),
    "knowledge_delete": Traits(effect="changes"),
    "knowledge_keywords": Traits(effect="looks"),
    "plan": Traits(
        effect="adds",
        example={"action": "add", "text": "Read the notes"},
        other_names={"text": ("task", "title", "description", "content")},
        actions={
            "add": ((("text",), ()),),
            "update": ((("id", "status"), ("text",)), (("id", "text"), ())),
            "list": (((), ()),),
        },
        stand_ins={
            word: {"action": "update", "status": status}
            for status, words in _STEPS.items()
            for word in words
        },
    ),
}


def builtin_traits(name: str) -> Traits | None:
    """Return the traits of a tool of clawd; None for any other name."""
    return _TRAITS.get(name)


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
        contacted: hosts that a process which outlives the call reached meanwhile, as receipts list
            them; those of the call's own are dispatch's.
        refused: hosts that it was refused.
        images: files of pictures that the model is to see; dispatch reads them.
    """

    success: bool
    output: str = ""
    error: str = ""
    metadata: dict[str, Any] = {}
    receipt_id: str = ""
    contacted: str = ""
    refused: str = ""
    images: tuple[bytes, ...] = ()


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


class PlainNames:
    """The tools of a session that is not known: every tool goes by its own name."""

    def of(self, tool: str) -> str:
        """Return the tool's own name."""
        return tool

    def pages(self) -> tuple[ManualPage, ...]:
        """Return nothing."""
        return ()


class HostsReached(Protocol):
    """The hosts that the process of a call reached so far, and those that it was refused."""

    def contacted(self) -> str:
        """Return the first, as a receipt lists them."""
        ...

    def refused(self) -> str:
        """Return the second."""
        ...

    def told(self, result: ToolResult) -> ToolResult:
        """Return a result that tells of both; what came from a host is untrusted text."""
        ...


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
        way_out: by what hosts can be reached, for a process that the call starts; None for none.
        hosts: what was reached by it; None for none.
        is_answered: whether a person said yes to this very call, or lets all run (`full`), and no
            rule does.
        seen: the files that the model has read or written in its conversation; None for a call that
            no model makes.
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
    way_out: WayOut | None = None
    hosts: HostsReached | None = None
    is_answered: bool = False
    seen: set[Path] | None = None
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
        waits_for_person: whether a call does nothing but wait for somebody's answer, whose own
            clock ends it (none runs while a client that can answer is there), or bounds all else
            that it does by itself.
        aliases: other names that lead here.
        starts_process: whether a call starts a child process (and so needs the sandbox).
        holds_until_cleared: whether a call may get ready while its intent is being written, since
            it does nothing before `ToolContext.cleared` returns.
        reaches_hosts: whether the process of a call may reach hosts that are granted, by
            `ToolContext.way_out`.
        hosts: those that are granted by what makes the tool, as `host:port`, `*.domain:port` or
            `*` for every public one.
        outward: whether a call can send data out or change things outside the workspace; None
            when nobody knows, which counts as yes for all but low risk. Hosts that are asked about
            by name do not count.
        offered_parameters: the schema that requests carry where the whole one is left to
            `tool_lookup`; None offers `parameters`, which calls are held to in any case.
        needs: patterns of files, absolute or of the workspace; it is offered only where there is
            one of them. Empty for everywhere.
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
    waits_for_person: ClassVar[bool] = False
    aliases: ClassVar[tuple[str, ...]] = ()
    starts_process: ClassVar[bool] = False
    holds_until_cleared: ClassVar[bool] = False
    reaches_hosts: ClassVar[bool] = False
    hosts: ClassVar[tuple[str, ...]] = ()
    outward: ClassVar[bool | None] = None
    offered_parameters: ClassVar[dict[str, Any] | None] = None
    needs: tuple[str, ...] = ()
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
