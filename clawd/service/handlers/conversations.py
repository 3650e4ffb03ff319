"""Handlers about conversations and what belongs to one."""

import asyncio
from collections.abc import Sequence

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.errors import InvalidRequestError
from clawd.memory.checkpoints import FORKED_FROM
from clawd.memory.conversations import facts_of
from clawd.memory.rows import TAINT, Conversation, StoredMessage, check_shown, visible_to
from clawd.memory.store import Memory
from clawd.runtime.context import CLAIMS, UNREADABLE, claims, unreadable, usage
from clawd.runtime.conversation import MODE, THINK
from clawd.runtime.housekeeping import checkpoint_text, head_text, message_text
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.service.build import Daemon
from clawd.service.handlers.shared import CHUNK_BYTES, cursor_number, forget_conversation
from clawd.tools.plans import PlanKey, markdown
from clawd.tools.session_files import SessionFile
from clawd.wire import conversations as wire
from clawd.wire.method import PAGE_LIMIT, Done
from clawd.wire.safe_text import shortened, single_line

LAST_WORDS = 200
WORDS_READ = 2_000  # more than is shown, so that a secret is known as one
CHUNK_CHARACTERS = 1 << 20
PAGE = 20  # a message may have megabytes
MAX_CURSOR = 40
MAX_ID = 2**63 - 1  # of a row; a larger number cannot be asked for
END = -1  # in a cursor: all messages were handed out
MAX_OFFSET = 1 << 53


async def open_conversation(
    daemon: Daemon, params: wire.OpenConversation, call: Call
) -> wire.ConversationLine:
    """Open, resume or look up a conversation."""
    live = await daemon.inbox.open(
        call.principal,
        workspace=params.workspace,
        agent=params.agent,
        resume=params.resume,
        conversation_id=params.conversation_id,
    )
    return await conversation_line(daemon.memory, live.record)


async def list_conversations(
    daemon: Daemon, params: wire.ListConversations, call: Call
) -> wire.ConversationPage:
    """List conversations, newest first."""
    owner = visible_to(call.principal)
    page = await daemon.memory.conversations.list(
        owner=owner,
        made_by=call.principal.bound_to,
        workspace=params.workspace,
        title=params.title,
        limit=params.limit,
        cursor=params.cursor,
    )
    items = await conversation_lines(daemon.memory, page.conversations)
    if params.last_words:
        said = await daemon.memory.messages.last_words([line.id for line in items], WORDS_READ)
        items = tuple(
            msgspec.structs.replace(line, last_words=_last_words(daemon, said.get(line.id, "")))
            for line in items
        )
    return wire.ConversationPage(items=items, cursor=page.cursor)


async def show_conversation(
    daemon: Daemon, params: wire.ShowConversation, call: Call
) -> wire.ConversationDetail:
    """Show one conversation and a page of its messages."""
    memory, owner = daemon.memory, visible_to(call.principal)
    if not 1 <= params.limit <= PAGE_LIMIT:
        raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {PAGE_LIMIT}")
    found = await memory.conversations.match(params.conversation_id, owner=owner)
    record = check_shown(found, call.principal)
    line, before = await conversation_line(memory, record), params.before
    if before is not None:
        if not 0 <= before <= MAX_ID or params.cursor:
            raise InvalidRequestError("before is an id of a message, or 0, and without a cursor")
        rows = await memory.messages.history(
            record.id, owner=owner, before=before or MAX_ID, limit=params.limit + 1
        )
        page = tuple(map(_message, rows[-params.limit :]))
        older = page[0].id if len(rows) > len(page) else 0
        return wire.ConversationDetail(conversation=line, messages=page, before=older)
    after = cursor_number(params.cursor) or 0
    rows = await memory.messages.history(record.id, owner=owner, after=after, limit=params.limit)
    return wire.ConversationDetail(
        conversation=line,
        messages=tuple(map(_message, rows)),
        cursor=str(rows[-1].id) if len(rows) == params.limit else "",
    )


async def show_prompt(daemon: Daemon, params: wire.ShowPrompt, call: Call) -> wire.PromptText:
    """Show the system prompt and the block of facts."""
    conversation_id = ""
    if params.conversation_id:
        owner = visible_to(call.principal)
        conversations = daemon.memory.conversations
        conversation_id = (await conversations.match(params.conversation_id, owner=owner)).id
    found = await daemon.inbox.preview(
        call.principal,
        conversation_id=conversation_id,
        agent=params.agent,
        workspace=params.workspace,
    )
    return wire.PromptText(
        system=found.system,
        fragments=tuple(wire.PromptFragment(id=name, text=text) for name, text in found.fragments),
        block=found.block,
        untrusted=found.untrusted,
        tools=found.tools,
        workspace=str(found.workspace),
        conversation_id=conversation_id,
    )


async def show_plan(daemon: Daemon, params: wire.ShowPlan, call: Call) -> wire.PlanReport:
    """Show a plan."""
    memory, conversation_id, workspace = daemon.memory, "", ""
    if params.conversation_id:
        owner = visible_to(call.principal)
        record = await memory.conversations.match(params.conversation_id, owner=owner)
        conversation_id = record.id
    else:
        workspace = str(daemon.calls.workspace(params.workspace))
    key = PlanKey(conversation_id=conversation_id, owner=call.principal.uid, workspace=workspace)
    items = (await memory.plans.load(key)).open
    return wire.PlanReport(
        conversation_id=conversation_id,
        workspace=workspace,
        items=tuple(
            wire.PlanLine(id=item.id, text=item.text, status=item.status) for item in items
        ),
        markdown=markdown(items),
    )


async def rename_conversation(
    daemon: Daemon, params: wire.RenameConversation, call: Call
) -> wire.ConversationLine:
    """Give a conversation another title."""
    keeping = daemon.housekeeping
    record = await keeping.rename(params.conversation_id, call.principal, params.title)
    return await conversation_line(daemon.memory, record)


async def set_mode(daemon: Daemon, params: wire.SetMode, call: Call) -> wire.ConversationLine:
    """Set how far the model may go in a conversation."""
    owner = visible_to(call.principal)
    found = await daemon.memory.conversations.match(params.conversation_id, owner=owner)
    live = await daemon.inbox.book.load(found.id, call.principal)
    await daemon.inbox.book.set_mode(live, params.mode, call.principal)
    return await conversation_line(daemon.memory, live.record)


async def fork_conversation(
    daemon: Daemon, params: wire.ForkConversation, call: Call
) -> wire.ConversationLine:
    """Copy a conversation."""
    keeping = daemon.housekeeping
    record = await keeping.fork(params.conversation_id, call.principal, upto=params.message_id)
    return await conversation_line(daemon.memory, record)


async def compress_conversation(
    daemon: Daemon, params: wire.CompressConversation, call: Call
) -> wire.CompressionReport:
    """Compress a conversation, or take that back."""
    keeping, principal = daemon.housekeeping, call.principal
    if params.undo:
        undone = await keeping.undo(
            params.conversation_id, principal, only_last=params.undo == "last"
        )
        return await _shown_now(daemon, params.conversation_id, principal, undone=undone)
    done = await keeping.compress(params.conversation_id, principal)
    return await _shown_now(
        daemon,
        done.conversation.id,
        principal,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
    )


async def export_conversation(
    daemon: Daemon, params: wire.ExportConversation, call: Call
) -> wire.ConversationChunk:
    """Hand out the next piece of a conversation, with the secrets in it replaced."""
    memory, owner, redact = daemon.memory, visible_to(call.principal), daemon.redactor
    record = await memory.conversations.match(params.conversation_id, owner=owner)
    after, offset = _position(params.cursor)
    if after == END:
        made = await memory.checkpoints.list(record.id, owner=owner)
        clean = [msgspec.structs.replace(each, text=redact.text(each.text)) for each in made]
        return _piece("".join(checkpoint_text(c, params.format) for c in clean), offset, END)
    record = msgspec.structs.replace(record, title=redact.text(record.title))
    text = head_text(record, params.format) if not params.cursor else ""
    rows = await memory.messages.history(record.id, owner=owner, after=after, limit=PAGE)
    for stored in rows:
        row = await asyncio.to_thread(_without_secrets, stored, redact)
        text += message_text(row, params.format)[offset:]
        if len(text) >= CHUNK_CHARACTERS:
            left = len(text) - CHUNK_CHARACTERS
            if not left:
                return wire.ConversationChunk(text=text, cursor=f"{row.id}:0")
            place = len(message_text(row, params.format)) - left
            return wire.ConversationChunk(text=text[:CHUNK_CHARACTERS], cursor=f"{after}:{place}")
        after, offset = row.id, 0
    return wire.ConversationChunk(text=text, cursor=f"{after if rows else END}:0")


async def delete_conversation(daemon: Daemon, params: wire.DeleteConversation, call: Call) -> Done:
    """Delete a conversation with all its messages."""
    if not params.conversation_id:
        raise InvalidRequestError("no conversation is named")
    return await forget_conversation(daemon, params.conversation_id, call)


async def list_session_files(
    daemon: Daemon, params: wire.ListSessionFiles, call: Call
) -> wire.SessionFileList:
    """List the files of a conversation."""
    identity, owner = await _meant(daemon, params.conversation_id, call)
    found = await daemon.memory.session_files.list(identity, owner=owner)
    return wire.SessionFileList(conversation_id=identity, items=tuple(map(_file_line, found)))


async def read_session_file(
    daemon: Daemon, params: wire.ReadSessionFile, call: Call
) -> wire.SessionFileChunk:
    """Return some bytes of a file."""
    if not 0 <= params.offset <= MAX_OFFSET:
        raise InvalidRequestError(f"offset is {params.offset}; it must be 0 or more")
    identity, owner = await _meant(daemon, params.conversation_id, call)
    file, data = await daemon.memory.session_files.part(
        identity, params.name, owner=owner, offset=params.offset, length=CHUNK_BYTES
    )
    return wire.SessionFileChunk(
        file=_file_line(file),
        offset=params.offset,
        data=data,
        is_end=params.offset + len(data) >= file.size,
    )


async def write_session_file(
    daemon: Daemon, params: wire.WriteSessionFile, call: Call
) -> wire.SessionFileLine:
    """Create or replace a file."""
    identity, owner = await _meant(daemon, params.conversation_id, call)
    files = daemon.memory.session_files
    return _file_line(await files.save(identity, params.name, params.content, owner=owner))


async def delete_session_file(daemon: Daemon, params: wire.DeleteSessionFile, call: Call) -> Done:
    """Delete a file."""
    identity, owner = await _meant(daemon, params.conversation_id, call)
    await daemon.memory.session_files.delete(identity, params.name, owner=owner)
    daemon.keeper.erase_soon()
    return Done(message=f"deleted {params.name}")


def _last_words(daemon: Daemon, said: str) -> str:
    return shortened(single_line(daemon.redactor.text(said)), LAST_WORDS)


async def conversation_line(memory: Memory, record: Conversation) -> wire.ConversationLine:
    """Return a conversation as lists show it."""
    (line,) = await conversation_lines(memory, [record])
    return line


async def conversation_lines(
    memory: Memory, records: Sequence[Conversation]
) -> tuple[wire.ConversationLine, ...]:
    """Return conversations as lists show them."""
    names = [record.id for record in records]
    counts = await memory.messages.counts(names)
    replaced = await memory.checkpoints.replaced(names)
    return tuple(
        wire.ConversationLine(
            id=record.id,
            title=record.title,
            created_at=record.created_at,
            updated_at=record.updated_at,
            messages=counts.get(record.id, 0),
            workspace=record.workspace,
            owner=record.owner,
            untrusted_sources=tuple(record.metadata.get(TAINT, ())),
            replaced=replaced.get(record.id, 0),
            forked_from=str(record.metadata.get(FORKED_FROM, {}).get("conversation", "")),
            think=str(record.metadata.get(THINK, "")),
            mode=str(record.metadata.get(MODE, "")),
        )
        for record in records
    )


def _message(row: StoredMessage) -> wire.MessageLine:
    calls = row.message.tool_calls
    return wire.MessageLine(
        id=row.id,
        turn_id=row.turn_id,
        timestamp=row.timestamp,
        role=row.message.role,
        content=row.message.content or "",
        tool_calls=msgspec.json.encode(calls).decode() if calls else "",
        tool_call_id=row.message.tool_call_id,
        name=row.message.name,
        provider=row.provider,
        model=row.model,
        reasoning=row.message.reasoning,
        unreadable=unreadable(row),
        claims=claims(row),
        pictures=facts_of(row),
        usage=usage(row),
    )


async def _shown_now(
    daemon: Daemon, beginning: str, principal: Principal, **numbers: int
) -> wire.CompressionReport:
    record = await daemon.housekeeping.find(beginning, principal)
    live = await daemon.inbox.book.load(record.id, principal)
    checkpoint = live.checkpoint
    return wire.CompressionReport(
        conversation_id=record.id,
        messages_replaced=checkpoint.replaced if checkpoint is not None else 0,
        messages_shown=len(live.context.messages),
        summary=checkpoint.text if checkpoint is not None else "",
        **numbers,
    )


async def _meant(daemon: Daemon, beginning: str, call: Call) -> tuple[str, int | None]:
    """Return the id of the conversation that is meant, and the owner to ask with."""
    owner = visible_to(call.principal)
    found = await daemon.memory.conversations.match(beginning, owner=owner)
    return found.id, owner


def _without_secrets(row: StoredMessage, redactor: Redactor) -> StoredMessage:
    """Return a message as it may leave the machine; the same one gives the same text each time."""
    replace = msgspec.structs.replace
    calls = tuple(
        replace(call, arguments=redactor.json(call.arguments.encode()).decode())
        for call in row.message.tool_calls
    )
    message = replace(
        row.message,
        content=row.message.content and redactor.text(row.message.content),
        reasoning=redactor.text(row.message.reasoning),
        tool_calls=calls,
    )
    metadata = row.metadata
    if lost := unreadable(row):
        metadata = metadata | {UNREADABLE: list(map(redactor.text, lost))}
    if said := claims(row):
        clean = [
            replace(each, text=redactor.text(each.text), object=redactor.text(each.object))
            for each in said
        ]
        metadata = metadata | {CLAIMS: msgspec.to_builtins(clean)}
    return replace(row, message=message, metadata=metadata)


def _piece(text: str, offset: int, after: int) -> wire.ConversationChunk:
    """Return the part of the last text that comes next."""
    end = offset + CHUNK_CHARACTERS
    return wire.ConversationChunk(
        text=text[offset:end], cursor=f"{after}:{end}" if end < len(text) else ""
    )


def _position(cursor: str) -> tuple[int, int]:
    """Return the message that the last piece ended with and the place in the one after it."""
    if not cursor:
        return 0, 0
    after, _, offset = cursor.partition(":")
    try:
        found = (int(after), int(offset)) if len(cursor) <= MAX_CURSOR else (END - 1, 0)
    except ValueError:
        found = (END - 1, 0)
    if not END <= found[0] <= MAX_ID or not 0 <= found[1] <= MAX_ID:
        raise InvalidRequestError(f"cursor {cursor[:40]!r} is none of this export's")
    return found


def _file_line(file: SessionFile) -> wire.SessionFileLine:
    return wire.SessionFileLine(**msgspec.structs.asdict(file))
