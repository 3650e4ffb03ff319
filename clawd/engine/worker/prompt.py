"""A conversation to the tokens of a prompt: render, find what is known already, tokenise the rest.

What a model generated keeps its own tokens as long as its text is unchanged. A tokeniser may cut
the same text differently than the model did, and one different token would throw away the prefix
cache from there on. So every kept sequence remembers the parts it was made of; a new prompt that
begins with the same parts takes over their tokens.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from clawd.engine.protocol import ChatMessage, RawPrompt
from clawd.engine.worker.backend import Vocabulary
from clawd.engine.worker.guard import MARKER, Guard
from clawd.engine.worker.template import ChatTemplate, RenderInput

_REPLACEMENT = "\ufffd"
_CHARACTERS_PER_TOKEN = 4


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a sequence's text and its tokens; `generated` by the model or rendered."""

    text: str
    tokens: tuple[int, ...]
    generated: bool


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of all parts, as a tokeniser reads it."""
    return "".join(part.text for part in parts).replace(MARKER, "")


def tokens_of(parts: Iterable[Part]) -> list[int]:
    """Return the tokens of all parts, in order."""
    return list(itertools.chain.from_iterable(part.tokens for part in parts))


class PromptTooLongError(Exception):
    """The rendered text is far longer than any context; it was not even tokenised.

    `estimate` is about how many tokens it has.
    """

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"the prompt has {length} characters, over {limit}")
        self.length = length
        self.estimate = length // _CHARACTERS_PER_TOKEN


class UnknownTokenError(Exception):
    """A number that is no token of the vocabulary."""


def check_tokens(tokens: Iterable[int], vocabulary: Vocabulary) -> None:
    """Make sure that all of these are tokens: llama.cpp fails a whole batch for one that is none.

    Raises:
        UnknownTokenError: one is none.
    """
    count = vocabulary.n_vocab
    unknown = next((token for token in tokens if not 0 <= token < count), None)
    if unknown is not None:
        raise UnknownTokenError(f"{unknown} is no token of this model; it has 0 to {count - 1}")


class PromptBuilder:
    """Builds prompts for one model."""

    def __init__(
        self, vocabulary: Vocabulary, template: ChatTemplate, *, max_characters: int
    ) -> None:
        self._vocabulary = vocabulary
        self._template = template
        self._guard = Guard(vocabulary.special_tokens, template.source)
        self._max_characters = max_characters

    @property
    def fallback(self) -> str:
        """Why the last prompt asks for calls as text, in tags; empty where it does not."""
        return self._template.fallback

    def build(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[dict[str, Any]],
        template_kwargs: dict[str, Any],
        histories: Iterable[tuple[Part, ...]],
    ) -> tuple[Part, ...]:
        """Return the prompt as parts.

        Args:
            messages: the conversation; a text of the assistant at its end stays open.
            tools: function objects in OpenAI's form.
            template_kwargs: further variables for the template.
            histories: the parts of the sequences that are kept.

        Raises:
            PromptTooLongError: the text cannot fit.
        """
        *before, last = messages or (ChatMessage(role="user"),)
        is_begun = bool(messages) and last.role == "assistant" and not last.tool_calls
        rendered = self._template.render(
            RenderInput(
                messages=[self._marked(each) for each in (before if is_begun else messages)],
                tools=self._guard.mark_value(list(tools)),
                variables=template_kwargs,
            )
        )
        if is_begun:
            rendered += self._guard.mark_own(last.content)
        return self._parts(rendered, histories)

    def build_raw(
        self, prompt: RawPrompt, histories: Iterable[tuple[Part, ...]]
    ) -> tuple[Part, ...]:
        """Return a prompt that no template touches as parts; written-out control tokens are such.

        Raises:
            PromptTooLongError: the text cannot fit.
            UnknownTokenError: a number is no token.
        """
        if isinstance(prompt, str):
            return self._parts(prompt.replace(MARKER, _REPLACEMENT), histories)
        if not prompt:
            return ()
        check_tokens(prompt, self._vocabulary)
        data = b"".join(map(self._vocabulary.piece, prompt))
        # No prompt begins with a marker, so none takes over tokens that may be cut in any way.
        text = MARKER + data.decode("utf-8", errors="replace")
        return (Part(text=text, tokens=tuple(prompt), generated=False),)

    def _parts(self, rendered: str, histories: Iterable[tuple[Part, ...]]) -> tuple[Part, ...]:
        if len(rendered) > self._max_characters:
            raise PromptTooLongError(len(rendered), self._max_characters)
        known, position = self._known_parts(rendered, histories)
        rest = rendered[position:]
        tokens = self._tokenize(rest)
        leading = self._vocabulary.leading_token
        if not known and leading is not None and tokens[:1] != [leading]:
            tokens.insert(0, leading)
        if not tokens:
            return known
        return (*known, Part(text=rest, tokens=tuple(tokens), generated=False))

    def _marked(self, message: ChatMessage) -> ChatMessage:
        mark = self._guard.mark_own if message.role == "assistant" else self._guard.mark
        calls = tuple(
            msgspec.structs.replace(
                call,
                name=self._guard.mark(call.name),
                arguments=self._guard.mark(call.arguments),
            )
            for call in message.tool_calls
        )
        return msgspec.structs.replace(
            message,
            content=mark(message.content),
            tool_calls=calls,
            name=self._guard.mark(message.name),
            tool_call_id=self._guard.mark(message.tool_call_id),
        )

    def _known_parts(
        self, text: str, histories: Iterable[tuple[Part, ...]]
    ) -> tuple[tuple[Part, ...], int]:
        """Return the longest run of kept parts the text begins with, and where it ends.

        It ends behind generated text and where a tokeniser cuts anyway, so that the tokens of
        what follows do not depend on what stands before.
        """
        best: tuple[Part, ...] = ()
        best_end = 0
        for parts in histories:
            end = 0
            for index, part in enumerate(parts):
                after = _end_of_part(text, end, part)
                if after is None:
                    break
                end = after
                if part.generated and end > best_end and self._guard.is_border(text, end):
                    best, best_end = parts[: index + 1], end
        return best, best_end

    def _tokenize(self, text: str) -> list[int]:
        tokens: list[int] = []
        for fragment in text.split(MARKER):
            if fragment:
                tokens += self._vocabulary.tokenize(fragment, parse_special=True)
        return tokens


def _end_of_part(text: str, position: int, part: Part) -> int | None:
    """Return where the part ends if the text goes on with it at this position.

    Rendered parts must agree in their markers too, or the literal text of a message could pass
    for the template's control tokens. Generated parts carry no markers: their tokens are the
    model's own.
    """
    if text.startswith(part.text, position):
        return position + len(part.text)
    if not part.generated or MARKER not in text:
        return None
    for character in part.text:
        if text.startswith(MARKER, position):
            position += 1
        if not text.startswith(character, position):
            return None
        position += 1
    return position
