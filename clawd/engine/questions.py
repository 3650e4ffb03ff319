"""Frames that ask a worker something else than an answer: tokens, prompts, vectors.

Each is answered once, by the frame of the same id named beside it, or by QuestionFailed.
"""

from typing import Any, Literal

import msgspec

RawPrompt = str | tuple[int, ...]
"""A text, or token ids, that no chat template touches."""


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of an earlier assistant message, as a chat template wants it."""

    id: str
    name: str
    arguments: str


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message as a chat template wants it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ChatCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""


class CountTokens(msgspec.Struct, frozen=True, kw_only=True, tag="count_tokens"):
    """Count the tokens of each text (no special tokens added); answered by TokenCounts."""

    id: int
    texts: tuple[str, ...]


class Tokenize(msgspec.Struct, frozen=True, kw_only=True, tag="tokenize"):
    """Cut a text into tokens; answered by TokenPieces.

    Attributes:
        add_special: with what the model wants at the beginning and the end of a text (BOS, EOS).
        parse_special: control tokens that are written out become control tokens.
    """

    id: int
    text: str
    add_special: bool = False
    parse_special: bool = True


class Detokenize(msgspec.Struct, frozen=True, kw_only=True, tag="detokenize"):
    """Join the texts of tokens; answered by TokenText."""

    id: int
    tokens: tuple[int, ...]


class RenderPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="render"):
    """Build the prompt that a Generate with the same fields would get; answered by Rendered."""

    id: int
    messages: tuple[ChatMessage, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    template_kwargs: dict[str, Any] = {}
    prompt: RawPrompt | None = None


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag="embed"):
    """Make a vector of each input, one in a step; answered by Embedded; may be cancelled.

    `first` is the number by which errors call the first input.
    """

    id: int
    inputs: tuple[RawPrompt, ...]
    first: int = 1


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True, tag="token_counts"):
    """Answers CountTokens, in the same order."""

    id: int
    counts: tuple[int, ...]


class TokenPieces(msgspec.Struct, frozen=True, kw_only=True, tag="token_pieces"):
    """Answers Tokenize; a piece may end inside a UTF-8 character."""

    id: int
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]


class TokenText(msgspec.Struct, frozen=True, kw_only=True, tag="token_text"):
    """Answers Detokenize; the bytes need be no whole UTF-8."""

    id: int
    data: bytes


class Rendered(msgspec.Struct, frozen=True, kw_only=True, tag="rendered"):
    """Answers RenderPrompt: the text, and how many tokens the prompt has now.

    What is in the prefix cache keeps the tokens that were generated, so the count is the one
    that a Generate at this moment would tell.
    """

    id: int
    text: str
    tokens: int


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag="embedded"):
    """Answers Embed, in the same order.

    Attributes:
        vectors: little-endian float32 each, of length 1 (L2).
        counts: tokens of each input.
    """

    id: int
    vectors: tuple[bytes, ...]
    counts: tuple[int, ...]


class QuestionFailed(msgspec.Struct, frozen=True, kw_only=True, tag="question_failed"):
    """A question cannot be answered; `code` is a ClawError code.

    `n_prompt_tokens` and `n_ctx` are what there is and what fits, where that is the reason.
    """

    id: int
    code: str
    message: str
    hint: str = ""
    n_prompt_tokens: int = 0
    n_ctx: int = 0


Question = CountTokens | Tokenize | Detokenize | RenderPrompt | Embed
Reply = TokenCounts | TokenPieces | TokenText | Rendered | Embedded | QuestionFailed
