"""From what a remote tool answered to what the model is told of it.

Text is joined. What is no text is kept beside the conversation and named; what cannot be kept, or
is of an unknown kind, is said in a line.
"""

import logging
import mimetypes
import re
from collections import Counter
from typing import Any

import msgspec

from clawd.errors import ClawError
from clawd.mcp.model import Content, RemoteResult
from clawd.tools.base import ToolContext, ToolResult, failed, succeeded
from clawd.tools.session_files import TEXT_SUFFIX, SessionStore, visible_to
from clawd.wire.references import reference
from clawd.wire.safe_text import single_line

MAX_KEPT = 20
MAX_REASONS = 20
EMPTY = "(no output)"
SAYS_FAILED = "the server says that the call failed"

_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
_URI_LIMIT = 500

_log = logging.getLogger(__name__)


class Keeper:
    """Keeps what a tool gave that is no text, as files of the conversation.

    Args:
        store: None keeps nothing.
        tool: what the tool is called here; the files are named after it.
    """

    def __init__(self, store: SessionStore | None, tool: str) -> None:
        self._store = store
        self._tool = tool

    async def told(self, blob: Content, context: ToolContext) -> str:
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


async def told_of(
    result: RemoteResult, keeper: Keeper, context: ToolContext, **facts: Any
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
    if result.is_error:
        return failed(SAYS_FAILED, output=output, **facts)
    return succeeded(output or EMPTY, **facts)


async def _output(result: RemoteResult, keeper: Keeper, context: ToolContext) -> str:
    texts = [block.text for block in result.content if block.kind == "text"]
    lines: list[str] = []
    blobs = [block for block in result.content if block.kind == "blob"]
    for blob in blobs[:MAX_KEPT]:
        lines.append(await keeper.told(blob, context))  # noqa: PERF401 - one after the other
    if more := len(blobs) - MAX_KEPT:
        lines += [f"[{more} more files were left out]"] if more > 0 else []
    lines += [_link(block) for block in result.content if block.kind == "link"]
    lines += _left_out([block for block in result.content if block.kind == "other"])
    text = "\n".join(texts)
    if not text.strip() and result.structured is not None:
        text = _as_json(result.structured)
    return "\n".join(filter(None, (text, *lines)))


def _link(block: Content) -> str:
    about = [single_line(block.name, 200), single_line(block.mime, 100)]
    said = ", ".join(filter(None, about))
    uri = single_line(block.uri, _URI_LIMIT)
    return f"[link to {uri}{f' ({said})' if said else ''}]"


def _left_out(blocks: list[Content]) -> list[str]:
    """Return a line for each reason that parts were left out for."""
    lines: list[str] = []
    for why, parts in Counter(single_line(block.text, _URI_LIMIT) for block in blocks).items():
        count = "1 part" if parts == 1 else f"{parts} parts"
        times = f" ({count})" if parts > 1 else ""
        lines.append(
            f"[{why}{times}]" if why else f"[{count} of a kind that clawd does not know: left out]"
        )
    more = len(lines) - MAX_REASONS
    return [*lines[:MAX_REASONS], *([f"[{more} more reasons]"] if more > 0 else [])]


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
