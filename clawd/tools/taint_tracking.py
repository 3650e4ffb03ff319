"""Information flow around a call: what untrusted text it brings in, and what it leaves behind.

A call brings in what its tool says came from outside, and what is untrusted in the files that it
reads. What a call of a tainted conversation writes is untrusted for every later conversation.
"""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from clawd.security.taint import RunningCommand, TaintBook
from clawd.tools.base import Tool, ToolContext, ToolResult, Touched

_log = logging.getLogger(__name__)


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A call between its begin and its end.

    Attributes:
        conversation_id: where it is made; "" outside of conversations.
        touched: what it reads and writes.
        spans: cover what changes in its folders.
        unmarked_since_ns: when it began, if there was nothing to mark then; else 0.
    """

    conversation_id: str
    touched: Touched
    spans: tuple[RunningCommand, ...] = ()
    unmarked_since_ns: int = 0


class TaintTracking:
    """Follows untrusted text through calls and files.

    Args:
        taint: what is known of conversations and files.
    """

    def __init__(self, taint: TaintBook) -> None:
        self._taint = taint

    async def begin(self, conversation_id: str, touched: Touched) -> Passage:
        """Mark what is about to be written in a conversation, before it is.

        Raises:
            StorageError: the marks are not on disk; nothing may be written.
        """
        passage = Passage(
            conversation_id=conversation_id, touched=touched, unmarked_since_ns=time.time_ns()
        )
        known = self._taint.sources(conversation_id) if conversation_id else ()
        found = await self._taint.files.sources(touched.reads, known=known)
        sources = tuple(dict.fromkeys((*known, *found)))
        if not sources:
            return passage
        files, spans = self._taint.files, []
        for path in touched.writes:
            if _is_folder(path):
                spans.append(await files.begin_span(path, sources))
            else:
                await files.mark(path, sources)
        return msgspec.structs.replace(passage, spans=tuple(spans), unmarked_since_ns=0)

    async def end(self, passage: Passage, result: ToolResult | None = None) -> None:
        """Taint the conversation by what the call read, before its result is told.

        Args:
            passage: what `begin` gave.
            result: None when the call did not run after all.

        Raises:
            StorageError: a mark is not on disk; the result must not be told.
        """
        files = self._taint.files
        if result is not None:
            facts = result.metadata
            one, many = facts.get("untrusted_source"), facts.get("untrusted_sources", ())
            named = many if isinstance(many, list | tuple) else (many,)
            brought = tuple(str(each) for each in (one, *named) if each)
            before = self._taint.sources(identity) if (identity := passage.conversation_id) else ()
            known = (*before, *brought)
            found = (*brought, *await files.sources(passage.touched.reads, known=known))
            if passage.conversation_id:
                for each in found:
                    self._taint.mark(passage.conversation_id, each)
            if found and passage.unmarked_since_ns:
                await self._mark_late(passage, found)
        for span in passage.spans:
            await files.end_span(span)
        if not passage.unmarked_since_ns:
            for path in passage.touched.writes:
                files.release(path)

    async def _mark_late(self, passage: Passage, sources: tuple[str, ...]) -> None:
        """Mark what a call wrote when it read what was written under taint while it ran."""
        for path in passage.touched.writes:
            if _is_folder(path):
                since = passage.unmarked_since_ns
                await self._taint.files.mark_since(path, sources, since)
            else:
                await self._taint.files.mark(path, sources)
                self._taint.files.release(path)


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - unlike Path, it has no errors


def touched_by(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Touched:
    """Return what a call reads and writes; everything where its tool cannot tell."""
    try:
        return tool.touches(arguments, context)
    except Exception as error:  # noqa: BLE001 - a tool that cannot tell may touch everything
        _log.error("%s could not tell which files it touches", tool.name, exc_info=error)
        return Touched(reads=(context.workspace,), writes=(context.workspace,))
