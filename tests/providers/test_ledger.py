"""The parts of a request and their tokens: names, sums, each text counted once, estimates."""

from collections.abc import Sequence
from typing import Any

from clawd.providers.base import ChatRequest, Message, ToolCall, ToolSpec
from clawd.providers.ledger import (
    MAX_ASKED_CHARACTERS,
    MAX_COUNTED_CHARACTERS,
    PartTokens,
    TokenBook,
    biggest_parts,
    estimate_tokens,
    estimated,
    parts_of,
    tokens_by_kind,
)

CALL = ToolCall(id="1", name="file_read", arguments='{"path": "a"}')
REQUEST = ChatRequest(
    system="be good",
    tools=tuple(
        ToolSpec(name=name, description="d", parameters={"type": "object"}) for name in "ab"
    ),
    messages=(
        Message(role="user", content="<context>\ndate: today\n</context>\n\nread it"),
        Message(role="assistant", content="", tool_calls=(CALL,)),
        Message(role="tool", content="text", tool_call_id="1", name="file_read"),
        Message(role="tool", content="text", tool_call_id="2"),
        Message(role="assistant", content=None),
    ),
)


class Tokenizer:
    """Counts words, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    async def __call__(self, texts: Sequence[str]) -> tuple[int, ...]:
        self.asked.append(texts)
        return tuple(len(text.split()) for text in texts)


def test_the_parts_are_named_for_people_in_the_order_of_the_prompt() -> None:
    assert [(part.kind, part.name, part.text) for part in parts_of(REQUEST)] == [
        ("system", "system prompt", "be good"),
        ("tools", "tools", '{"name":"a","description":"d","parameters":{"type":"object"}}'),
        ("tools", "tools", '{"name":"b","description":"d","parameters":{"type":"object"}}'),
        ("memory", "message 1 (context block)", "<context>\ndate: today"),
        ("history", "message 1 (user)", "read it"),
        ("history", "message 2 (assistant, calls of file_read)", 'file_read {"path": "a"}'),
        ("history", "message 3 (tool result of file_read)", "text"),
        ("history", "message 4 (tool result)", "text"),
        ("history", "message 5 (assistant)", ""),
    ]


def test_a_name_from_a_model_stays_on_one_line() -> None:
    call = ToolCall(id="1", name="a\nb" + "x" * 100)
    (part,) = parts_of(ChatRequest(messages=(Message(role="assistant", tool_calls=(call,)),)))
    assert "\n" not in part.name
    assert len(part.name) < 110


def counted(*counts: int, **fields: Any) -> PartTokens:
    return PartTokens(parts=parts_of(REQUEST), counts=counts, **fields)


def test_sums_go_by_kind_and_the_biggest_are_named() -> None:
    tokens = counted(1200, 1400, 1500, 40, 30, 20, 30411, 10, 0)
    assert tokens_by_kind(tokens) == {
        "system": 1200, "tools": 2900, "memory": 40, "history": 30471,
    }  # fmt: skip
    assert biggest_parts(tokens) == (
        "system prompt 1,200, tools 2,900, message 3 (tool result of file_read) 30,411 tokens"
    )
    assert biggest_parts(tokens, 1) == "message 3 (tool result of file_read) 30,411 tokens"
    rough = counted(1, 0, 0, 0, 0, 0, 0, 0, 0, is_estimate=True)
    assert biggest_parts(rough, 1) == "about system prompt 1 tokens"


def test_an_estimate_says_so_and_goes_by_bytes() -> None:
    assert [estimate_tokens(text) for text in ("", "a", "abcd", "abcde", "ää")] == [0, 1, 1, 2, 1]
    tokens = estimated(REQUEST)
    assert tokens.is_estimate
    assert tokens.counts[0] == 2


async def test_each_text_is_counted_once_for_each_tokenizer() -> None:
    book, ask = TokenBook(), Tokenizer()
    assert await book.count("m", ["a b", "", "a b", "c"], ask) == (2, 0, 2, 1)
    assert await book.count("m", ["c", "d e f"], ask) == (1, 3)
    assert await book.count("other", ["c"], ask) == (1,)
    assert ask.asked == [["a b", "", "c"], ["d e f"], ["c"]]


async def test_a_long_text_is_counted_by_its_beginning_and_asked_for_alone() -> None:
    book, ask = TokenBook(), Tokenizer()
    long = "ab " * MAX_COUNTED_CHARACTERS
    half = "c " * (MAX_ASKED_CHARACTERS // 4)
    found = await book.count("m", [half, half + "c", half + "d", long], ask)
    assert [len(texts) for texts in ask.asked] == [1, 1, 1, 1]
    assert max(len(text) for texts in ask.asked for text in texts) == MAX_COUNTED_CHARACTERS
    assert abs(found[3] - MAX_COUNTED_CHARACTERS) < 10


async def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    book, ask = TokenBook(limit=2), Tokenizer()
    await book.count("m", ["a", "b"], ask)
    await book.count("m", ["a", "c"], ask)
    await book.count("m", ["a", "b"], ask)
    assert ask.asked == [["a", "b"], ["c"], ["b"]]
