r"""A conversation as text: JSON lines for programs, Markdown for people. Pure.

    {"type": "conversation", "id": "conv-…", "title": "…", "owner": 1000, …}
    {"type": "message", "id": 7, "role": "user", "content": "…", …}
    {"type": "checkpoint", "upto": 120, "replaced": 120, "text": "…", …}

Every message is there, whatever was compressed; checkpoints come last.
"""

import re
from typing import Any, Literal

import msgspec

from clawd.memory.checkpoints import Checkpoint
from clawd.memory.rows import TAINT, Conversation, StoredMessage
from clawd.runtime.message_rows import claims, unreadable
from clawd.wire.safe_text import NAME_LIMIT, single_line

Format = Literal["jsonl", "markdown"]

_HEADING = re.compile(r"^(?=## (?:user|assistant|tool|system|checkpoint)\b)", re.MULTILINE)
_FENCE = re.compile(r"`{3,}")


def head_text(conversation: Conversation, how: Format) -> str:
    """Return what an export begins with."""
    facts = conversation.metadata
    values: dict[str, Any] = {
        "type": "conversation",
        "id": conversation.id,
        "title": conversation.title,
        "owner": conversation.owner,
        "workspace": conversation.workspace,
        "created_at": conversation.created_at,
        "updated_at": conversation.updated_at,
        "provider": conversation.provider,
        "model": conversation.model,
        "agent": conversation.agent,
        "untrusted_sources": facts.get(TAINT, []),
    }
    if "forked_from" in facts:
        values["forked_from"] = facts["forked_from"]
    if how == "jsonl":
        return _line(values)
    title = " ".join(conversation.title.split()) or conversation.id
    told = f"{conversation.id} · {conversation.created_at[:19]} · {conversation.workspace}"
    sources = ", ".join(map(str, values["untrusted_sources"]))
    untrusted = f"\nHolds untrusted text from {sources}\n" if sources else ""
    return f"# {title}\n\n{told}\n{untrusted}\n"


def message_text(stored: StoredMessage, how: Format) -> str:
    """Return a message, a blank line after it in Markdown."""
    message = stored.message
    if how == "jsonl":
        return _line(
            {
                "type": "message",
                "id": stored.id,
                "turn_id": stored.turn_id,
                "timestamp": stored.timestamp,
                "role": message.role,
                "content": message.content,
                "tool_calls": [msgspec.structs.asdict(call) for call in message.tool_calls],
                "tool_call_id": message.tool_call_id,
                "name": message.name,
                "provider": stored.provider,
                "model": stored.model,
                "is_complete": stored.is_complete,
                "reasoning": message.reasoning,
                "unreadable": unreadable(stored),
                "claims": claims(stored),
            }
        )
    name = f" {_name(message.name)}" if message.name else ""
    parts = [f"## {message.role}{name} · {stored.timestamp[:19]}"]
    parts += [f"Not to be read as a call:\n\n{_fenced(text)}" for text in unreadable(stored)]
    if message.reasoning:
        parts.append(f"Reasoning:\n\n{_fenced(message.reasoning)}")
    content = message.content or ""
    if message.role == "tool":
        parts.append(_fenced(content))
    elif content:
        parts.append(_said(content))
    parts += [f"({single_line(each.problem)})" for each in claims(stored) if each.problem]
    parts += [
        f"Call `{_name(call.name)}`\n\n{_fenced(call.arguments)}" for call in message.tool_calls
    ]
    if not stored.is_complete:
        parts.append("*(broken off)*")
    return "\n\n".join(parts) + "\n\n"


def checkpoint_text(checkpoint: Checkpoint, how: Format) -> str:
    """Return what stands for the beginning of a conversation."""
    if how == "jsonl":
        return _line({"type": "checkpoint", **msgspec.structs.asdict(checkpoint)})
    head = f"## checkpoint for {checkpoint.replaced} messages · {checkpoint.timestamp[:19]}"
    return f"{head}\n\n{_said(checkpoint.text)}\n\n"


def _line(values: dict[str, Any]) -> str:
    return msgspec.json.encode(values).decode() + "\n"


def _said(text: str) -> str:
    """Return what was said, in which no line looks as if somebody else began to speak."""
    return _HEADING.sub(r"\\", text)


def _name(name: str) -> str:
    """Return a tool's name as a model wrote it, on one line that it cannot leave."""
    return single_line(name, NAME_LIMIT).replace("`", "'")


def _fenced(text: str) -> str:
    """Return text in a fence that nothing in it ends."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
