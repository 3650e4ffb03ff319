"""A tool of an MCP server as a tool of clawd: judged, asked about and recorded like any other.

What a server says of itself decides nothing here, unless the operator trusts it; then it is
believed which of its tools only read. Its descriptions are untrusted text.
"""

import asyncio
import hashlib
import logging
import mimetypes
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from clawd.errors import ClawError
from clawd.mcp import model
from clawd.mcp.pins import digest
from clawd.security.risk import Assessment
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    Traits,
    failed,
    succeeded,
)
from clawd.tools.call_hosts import with_hosts
from clawd.tools.offer import MCP_SOURCE
from clawd.tools.session_files import TEXT_SUFFIX, SessionStore, visible_to
from clawd.wire.pictures import looks_like_picture
from clawd.wire.references import reference
from clawd.wire.safe_text import DESCRIPTION_LIMIT, paragraph, single_line, without_hidden

# From what a remote tool answered to what the model is told of it.
#
# Text is joined. What is no text is kept beside the conversation and named; what cannot be kept, or
# is of an unknown kind, is said in a line.

_MAX_KEPT = 20
_MAX_REASONS = 20
_EMPTY = "(no output)"
_SAYS_FAILED = "the server says that the call failed"

_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
_URI_LIMIT = 500

_log = logging.getLogger(__name__)


class _Keeper:
    """Keeps what a tool gave that is no text, as files of the conversation.

    Args:
        store: None keeps nothing.
        tool: what the tool is called here; the files are named after it.
    """

    def __init__(self, store: SessionStore | None, tool: str) -> None:
        self._store = store
        self._tool = tool

    async def told(self, blob: model.Content, context: ToolContext) -> str:
        """Return the line about a blob: what it is and where it is kept, or why it is not."""
        mime = single_line(blob.mime, 100) or "unknown type"
        about = f"{mime}, {len(blob.data)} bytes"
        if label := single_line(blob.name or blob.uri, _URI_LIMIT):
            about = f"{label}: {about}"
        if self._store is None or not context.conversation_id:
            return f"[{about}: not kept, as this call is made outside of a conversation]"
        try:
            file = await self._store.keep(
                context.conversation_id,
                self._tool,
                blob.data,
                owner=visible_to(context.principal),
                suffix=_suffix(blob.mime),
            )
        except ClawError as error:
            _log.warning("a result was not kept", extra={"tool": self._tool, "why": error.message})
            return f"[{about}: not kept: {single_line(error.message, _URI_LIMIT)}]"
        return f"[{about}: kept as {reference(file.name)}]"


async def _told_of(
    result: model.RemoteResult, keeper: _Keeper, context: ToolContext, **facts: Any
) -> ToolResult:
    """Return the result of a call as clawd's tools have it.

    Args:
        result: what the server answered, or why it did not.
        keeper: keeps what is no text.
        context: of the call.
        facts: metadata of the result.
    """
    if result.failure:
        return failed(result.failure, **facts)
    output = await _output(result, keeper, context)
    told = succeeded(output or _EMPTY, **facts)
    if result.is_error:
        told = failed(_SAYS_FAILED, output=output, **facts)
    images = (block.data for block in result.content if looks_like_picture(block.data))
    return msgspec.structs.replace(told, images=tuple(images))


async def _output(result: model.RemoteResult, keeper: _Keeper, context: ToolContext) -> str:
    texts = [block.text for block in result.content if block.kind == "text"]
    lines: list[str] = []
    blobs = [block for block in result.content if block.kind == "blob"]
    for blob in blobs[:_MAX_KEPT]:
        lines.append(await keeper.told(blob, context))  # noqa: PERF401 - one after the other
    if more := len(blobs) - _MAX_KEPT:
        lines += [f"[{more} more files were left out]"] if more > 0 else []
    lines += [_link(block) for block in result.content if block.kind == "link"]
    lines += _left_out([block for block in result.content if block.kind == "other"])
    text = "\n".join(texts)
    if not text.strip() and result.structured is not None:
        text = _as_json(result.structured)
    return "\n".join(filter(None, (text, *lines)))


def _link(block: model.Content) -> str:
    about = [single_line(block.name, 200), single_line(block.mime, 100)]
    said = ", ".join(filter(None, about))
    uri = single_line(block.uri, _URI_LIMIT)
    return f"[link to {uri}{f' ({said})' if said else ''}]"


def _left_out(blocks: list[model.Content]) -> list[str]:
    """Return a line for each reason that parts were left out for."""
    lines: list[str] = []
    for why, parts in Counter(single_line(block.text, _URI_LIMIT) for block in blocks).items():
        count = "1 part" if parts == 1 else f"{parts} parts"
        times = f" ({count})" if parts > 1 else ""
        lines.append(
            f"[{why}{times}]" if why else f"[{count} of a kind that clawd does not know: left out]"
        )
    more = len(lines) - _MAX_REASONS
    return [*lines[:_MAX_REASONS], *([f"[{more} more reasons]"] if more > 0 else [])]


def _suffix(mime: str) -> str:
    plain = mime.partition(";")[0].strip().lower()
    guessed = mimetypes.guess_extension(plain) or ""
    if _SUFFIX.fullmatch(guessed) and guessed != TEXT_SUFFIX:
        return guessed
    return TEXT_SUFFIX if plain.startswith("text/") else ".bin"


def _as_json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return "[structured content that cannot be shown as JSON]"


_GRACE_S = 5.0
"""Beyond the server's own limits, so that it is the server's part that says what happened."""

_PROGRESS_INTERVAL_S = 0.1

_DESCRIPTION_LIMIT = 16_384
_OPEN: dict[str, Any] = {"type": "object", "additionalProperties": True}
_DEFERRED = " (its arguments: tool_lookup)"
# Where these stand beside `properties`, more arguments may be taken than are listed there.
_COMPOSED = frozenset({"anyOf", "oneOf", "allOf", "$ref", "patternProperties", "if"})
_PROSE = frozenset({"description", "title", "$comment"})
_COMPARED = frozenset({"enum", "const", "default", "required"})
_BOUND = (
    *("alias", "command", "env", "workspace", "workspace_access", "readonly_paths"),
    *("hosts", "url", "trusted"),
)


class ToolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool is made from.

    Attributes:
        name: what it is called here; `others` lead to it as well.
        preapproved: the entry of auto_approve that names it; empty for none.
        is_changed: it is not what it was when it was first seen, and nobody accepted that.
        is_new: it came after its server was first seen, and nobody accepted that.
        is_deferred: requests carry its name and line alone.
        is_hidden: requests do not carry it until somebody looks at it.
        more: so many tools of its server are hidden, which its line says.
    """

    server: model.ServerSettings
    tool: model.RemoteTool
    name: str
    others: tuple[str, ...] = ()
    preapproved: str = ""
    is_changed: bool = False
    is_new: bool = False
    is_deferred: bool = False
    is_hidden: bool = False
    more: int = 0

    @property
    def waits(self) -> bool:
        """Whether only a pattern approves it, which was written before the tool was there."""
        return self.is_new and self.preapproved.endswith("*")


class McpTool(Tool):
    """One tool of a server; `mcp_tool` makes one of a plan."""

    def __init__(
        self, plan: ToolPlan, servers: model.RemoteServers, sessions: SessionStore | None
    ) -> None:
        self._plan = plan
        self._servers = servers
        self._keeper = _Keeper(sessions, plan.name)
        limits = plan.server
        # A server that is just being connected is waited for, so both limits count.
        self.timeout_s = limits.connect_timeout_s + limits.call_timeout_s + _GRACE_S

    @property
    def plan(self) -> ToolPlan:
        """What it was made from."""
        return self._plan

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return assessment_of(self._plan)

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        server = self._plan.server
        if not server.command:
            return Touched()
        workspace = (Path(server.workspace),) if server.workspace_access != "none" else ()
        reads = (*workspace, *map(Path, server.readonly_paths))
        return Touched(reads=reads, writes=workspace if server.workspace_access == "write" else ())

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        server, tool = self._plan.server, self._plan.tool
        result = await self._servers.call(
            server.alias, tool.name, arguments, progress=_reporter(context.report)
        )
        facts: dict[str, Any] = {"mcp_server": server.alias, "mcp_tool": tool.name}
        if result.failure or _brings_text_from_outside(server):
            # A failure holds the server's words, too.
            facts["untrusted_source"] = f"mcp {server.alias}"
        told = await _told_of(result, self._keeper, context, **facts)
        if not (result.contacted or result.refused):
            return told
        return with_hosts(told, result.contacted, result.refused)


def mcp_tool(
    plan: ToolPlan, servers: model.RemoteServers, sessions: SessionStore | None = None
) -> McpTool:
    """Return the tool of a plan.

    Args:
        plan: what it is.
        servers: makes the calls.
        sessions: keeps what is no text; None keeps nothing.
    """
    server, remote = plan.server, plan.tool
    facts: dict[str, Any] = {
        "name": plan.name,
        "short": _short_of(plan),
        "description": _description_of(remote),
        "parameters": schema_of(remote),
        "offered_parameters": dict(_OPEN) if plan.is_deferred else None,
        "is_hidden": plan.is_hidden,
        "aliases": plan.others,
        "starts_process": bool(server.command),
        "outward": bool(server.url or server.hosts),
        "traits": _traits(server, remote),
        "source": f"{MCP_SOURCE}{server.alias}",
        "identity": identity_of(server, remote),
    }
    kind: type[McpTool] = type(f"McpTool_{plan.name}", (McpTool,), facts)
    return kind(plan, servers, sessions)


def assessment_of(plan: ToolPlan) -> Assessment:
    """Return how risky the calls of a tool are, whatever their arguments."""
    alias, tool = plan.server.alias, plan.tool
    if plan.server.trusted and _only_reads(tool):
        return Assessment(risk="low", reason=f"only reads, says the trusted MCP server {alias}")
    reason = f"calls a tool of the MCP server {alias}"
    if tool.destructive and not tool.read_only:
        reason += ", which says that it may destroy what is there"
    if plan.is_changed:
        reason += "; the server changed the tool since it was first seen"
        return Assessment(risk="medium", reason=reason)
    if plan.waits:
        reason += "; it came after the server was first seen, and nobody has accepted it yet"
        return Assessment(risk="medium", reason=reason)
    granted = f"[mcp.auto_approve] {plan.preapproved}" if plan.preapproved else ""
    return Assessment(risk="medium", reason=reason, preapproved=granted)


def _only_reads(tool: model.RemoteTool) -> bool:
    """Return whether a server says of a tool that it reads, and nothing that speaks against it."""
    return tool.read_only is True and tool.destructive is not True


def _brings_text_from_outside(server: model.ServerSettings) -> bool:
    """Return whether what a server answers is untrusted text.

    It is, but for a trusted program without network: what that knows comes from the machine, and
    untrusted text in the files that it may read is followed like that of every tool.
    """
    is_local = bool(server.command) and not server.hosts
    return not (server.trusted and is_local)


def text_of(tool: model.RemoteTool) -> str:
    """Return all that a server says of a tool, in one form."""
    return msgspec.json.encode(tool, order="sorted").decode()


def fingerprint_of(tool: model.RemoteTool) -> str:
    """Return the hash of all that a server says of a tool."""
    return digest(text_of(tool))


def identity_of(server: model.ServerSettings, tool: model.RemoteTool) -> str:
    """Return the hash of a server's settings and a tool; what an approval is bound to."""
    settings = {name: getattr(server, name) for name in _BOUND}
    return _hash(msgspec.json.encode(settings, order="sorted") + fingerprint_of(tool).encode())


def settings_mark(server: model.ServerSettings) -> str:
    """Return the hash of where a server's tools come from: another one is another server."""
    where = {"command": server.command, "env": server.env, "url": server.url}
    return _hash(msgspec.json.encode(where, order="sorted"))


def _short_of(plan: ToolPlan) -> str:
    """Return the tool's one line, which says where its arguments are told if it is deferred."""
    given = without_hidden(plan.tool.description) or without_hidden(plan.tool.title)
    told = single_line(given, _DESCRIPTION_LIMIT)
    line = " ".join(told.split()) or f"A tool of the MCP server {plan.server.alias}."
    end = _DEFERRED if plan.is_deferred else ""
    if plan.more:
        end += f" ({plan.more} more tools of {plan.server.alias}: tool_lookup finds them)"
    room = DESCRIPTION_LIMIT - len(end)
    return (line if len(line) <= room else f"{line[: room - 1]}…") + end


def _description_of(tool: model.RemoteTool) -> str:
    """Return the tool's manual, as text that hides nothing and moves no cursor; "" for none."""
    return without_hidden(paragraph(tool.description))[:_DESCRIPTION_LIMIT].strip()


def schema_of(tool: model.RemoteTool) -> dict[str, Any]:
    """Return the schema that calls are held to.

    Rules that are no object say nothing that is looked at here; where the schema is composed of
    others, arguments that it does not list are left to the server to judge. What it describes
    hides nothing.
    """
    schema = {**_in_sight(tool.schema), "type": "object"}
    properties, required = schema.get("properties"), schema.get("required")
    if properties is not None:
        found = properties if isinstance(properties, dict) else {}
        schema["properties"] = {
            name: rule if isinstance(rule, dict) else {} for name, rule in found.items()
        }
    if required is not None:
        listed = required if isinstance(required, list) else []
        schema["required"] = [name for name in listed if isinstance(name, str)]
    if _COMPOSED & schema.keys() and schema.get("additionalProperties") is not False:
        schema["additionalProperties"] = True
    return schema


def _in_sight(rule: Any) -> Any:
    """Return a schema whose descriptions hold no hidden text; all else of it is as it was."""
    if isinstance(rule, list):
        return [_in_sight(each) for each in rule]
    if not isinstance(rule, dict):
        return rule
    found: dict[str, Any] = {}
    for name, value in rule.items():
        if name in _COMPARED:
            found[name] = value
        elif name in _PROSE and isinstance(value, str):
            found[name] = without_hidden(paragraph(value))
        else:
            found[name] = _in_sight(value)
    return found


def _reporter(report: Callable[[str], None]) -> model.Progress:
    """Return what tells progress as output of the call, not more often than people can read."""
    last = float("-inf")

    def told(progress: float, total: float | None, message: str) -> None:
        nonlocal last
        now = asyncio.get_running_loop().time()
        is_end = total is not None and progress >= total
        if now - last < _PROGRESS_INTERVAL_S and not is_end:
            return
        last = now
        count = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        text = single_line(message, DESCRIPTION_LIMIT).strip()
        report(f"{text} ({count})\n" if text else f"{count}\n")

    return told


def _traits(server: model.ServerSettings, tool: model.RemoteTool) -> Traits:
    if not server.trusted:
        return Traits()
    if _only_reads(tool):
        return Traits(effect="looks")
    if tool.destructive is False:
        return Traits(effect="replaces" if tool.idempotent else "adds")
    return Traits()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
