"""What a request is made of, part by part, and how many tokens each takes. Pure but for asking.

A text's tokens are counted by the model's own tokenizer where there is one, each text once; a
provider that has none leaves an estimate by length.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from clawd.providers.base import CONTEXT_CLOSE, ChatRequest, Message, ToolSpec, strip_context_block
from clawd.wire.pictures import PictureFacts
from clawd.wire.safe_text import single_line

PartKind = Literal["system", "tools", "memory", "history"]

BYTES_PER_TOKEN = 4
PATCH = 28
_ORDER: tuple[PartKind, ...] = ("system", "tools", "memory", "history")
BIGGEST_SHOWN = 3
# Longer texts are counted by their beginning: a worker that tokenises does not decode.
MAX_COUNTED_CHARACTERS = 128 * 1024
# For one question to the tokenizer, so that it is never at it for long.
MAX_ASKED_CHARACTERS = 16 * 1024
MAX_REMEMBERED = 50_000


class RequestPart(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a request.

    Attributes:
        name: for people: `message 7 (tool result of file_read)`.
        group: counted apart from the rest of its kind, `mcp:<alias>`; empty is counted with it.
        beside: tokens of its pictures, about; no tokenizer counts them.
    """

    kind: PartKind
    name: str
    text: str
    group: str = ""
    beside: int = 0


class PartTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of the parts of a request, in their order."""

    parts: tuple[RequestPart, ...]
    counts: tuple[int, ...]
    is_estimate: bool = False


@runtime_checkable
class TokenCounter(Protocol):
    """A provider that has the tokenizer of its models."""

    async def count_parts(self, request: ChatRequest) -> PartTokens:
        """Count the parts of a request; never loads a model, never raises a ClawError."""
        ...


@runtime_checkable
class ContextTeller(Protocol):
    """A provider that knows the contexts of its models, which have different sizes."""

    def context_size_of(self, model: str) -> int:
        """Return the size of a model's context ("": the default's), 0 for not known yet."""
        ...


@runtime_checkable
class SizeTeller(Protocol):
    """A provider that knows how big its models are."""

    def is_small(self, model: str) -> bool:
        """Return whether a model ("": the default) has less than a billion parameters."""
        ...


def parts_of(request: ChatRequest) -> tuple[RequestPart, ...]:
    """Return the parts of a request in the order of the prompt."""
    parts: list[RequestPart] = []
    if request.system:
        parts.append(RequestPart(kind="system", name="system prompt", text=request.system))
    parts += (
        RequestPart(
            kind="tools", name=tool.group or "tools", text=tool_text(tool), group=tool.group
        )
        for tool in request.tools
    )
    asked = max((n for n, each in enumerate(request.messages) if each.role == "user"), default=0)
    for number, message in enumerate(request.messages, start=1):
        if number <= asked:  # templates show the reasoning of the running turn alone
            message = msgspec.structs.replace(message, reasoning="")
        parts += _message_parts(number, message)
    return tuple(parts)


def estimated(request: ChatRequest) -> PartTokens:
    """Return counts by length alone."""
    parts = parts_of(request)
    counts = tuple(estimate_tokens(part.text) + part.beside for part in parts)
    return PartTokens(parts=parts, counts=counts, is_estimate=True)


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def picture_tokens(picture: PictureFacts) -> int:
    """Return about how many tokens a picture has: one for each square of 28 pixels."""
    return -(-picture.width // PATCH) * -(-picture.height // PATCH)


def tokens_by_kind(tokens: PartTokens) -> dict[str, int]:
    """Return the sums, in the order of the prompt; kinds that are not there are left out.

    Groups stand behind the kind that they are of, by name.
    """
    sums: dict[tuple[int, str], int] = {}
    for part, count in zip(tokens.parts, tokens.counts, strict=True):
        key = (_ORDER.index(part.kind), part.group)
        sums[key] = sums.get(key, 0) + count
    return {group or _ORDER[place]: sums[place, group] for place, group in sorted(sums)}


def biggest_parts(tokens: PartTokens, limit: int = BIGGEST_SHOWN) -> str:
    """Return the biggest parts by name, in the order of the prompt.

    The tools are one part, and those of each MCP server another.

    `system prompt 1,200, tools 2,900, message 7 (tool result of file_read) 30,411 tokens`
    """
    sums: dict[str, int] = {}
    for part, count in zip(tokens.parts, tokens.counts, strict=True):
        sums[part.name] = sums.get(part.name, 0) + count
    shown = sorted(sums, key=lambda name: sums[name], reverse=True)[:limit]
    told = ", ".join(f"{name} {count:,}" for name, count in sums.items() if name in shown)
    about = "about " if tokens.is_estimate else ""
    return f"{about}{told} tokens"


class TokenBook:
    """Remembers how many tokens a text has; forgets what was not asked for longest.

    Args:
        limit: how many texts are remembered, by their hash.
    """

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._known: OrderedDict[bytes, int] = OrderedDict()

    async def count(
        self,
        tokenizer: str,
        texts: Sequence[str],
        ask: Callable[[Sequence[str]], Awaitable[tuple[int, ...]]],
    ) -> tuple[int, ...]:
        """Return the tokens of each text; `ask` counts those that are new to this tokenizer."""
        keys = [_key(tokenizer, text) for text in texts]
        named = dict(zip(keys, texts, strict=True))
        found = {key: self._recall(key) for key in named if key in self._known}
        new = {key: text for key, text in named.items() if key not in found}
        for batch in _batches(new):
            heads = [text[:MAX_COUNTED_CHARACTERS] for text in batch.values()]
            counts = await ask(heads)
            for (key, text), head, count in zip(batch.items(), heads, counts, strict=True):
                found[key] = count * len(text) // max(len(head), 1)
                self._remember(key, found[key])
        return tuple(found[key] for key in keys)

    def _recall(self, key: bytes) -> int:
        self._known.move_to_end(key)
        return self._known[key]

    def _remember(self, key: bytes, count: int) -> None:
        self._known[key] = count
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


def _key(tokenizer: str, text: str) -> bytes:
    digest = hashlib.blake2b(tokenizer.encode(errors="replace"), digest_size=16)
    digest.update(b"\0")
    digest.update(text.encode(errors="replace"))
    return digest.digest()


def _batches(texts: dict[bytes, str]) -> list[dict[bytes, str]]:
    batches: list[dict[bytes, str]] = []
    room = 0
    for key, text in texts.items():
        size = min(len(text), MAX_COUNTED_CHARACTERS)
        if not batches or size > room:
            batches.append({})
            room = MAX_ASKED_CHARACTERS
        batches[-1][key] = text
        room -= size
    return batches


def _message_parts(number: int, message: Message) -> list[RequestPart]:
    content = message.content or ""
    own = strip_context_block(content) if message.role == "user" else content
    parts: list[RequestPart] = []
    if len(own) < len(content):
        block = content[: len(content) - len(own)].removesuffix(CONTEXT_CLOSE)
        name = f"message {number} (context block)"
        parts.append(RequestPart(kind="memory", name=name, text=block))
    calls = "".join(f"{call.name} {call.arguments}" for call in message.tool_calls)
    about: str = message.role
    if message.tool_calls:
        names = ", ".join(single_line(call.name, 64) for call in message.tool_calls[:3])
        about = f"{message.role}, calls of {names}"
    if message.role == "tool":
        about = f"tool result of {single_line(message.name, 64)}" if message.name else "tool result"
    name = f"message {number} ({about})"
    beside = sum(map(picture_tokens, message.pictures))
    text = message.reasoning + own + calls
    parts.append(RequestPart(kind="history", name=name, text=text, beside=beside))
    return parts


def tool_text(tool: ToolSpec) -> str:
    """Return what stands for a tool where its tokens are counted."""
    fields = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return msgspec.json.encode(fields).decode()
