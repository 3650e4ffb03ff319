"""A conversation to the tokens of a prompt: render, find what is known already, tokenise the rest.

What a model generated keeps its own tokens as long as its text is unchanged. A tokeniser may cut
the same text differently than the model did, and one different token would throw away the prefix
cache from there on. So every kept sequence remembers the parts it was made of; a new prompt that
begins with the same parts takes over their tokens.

Where a model does not think, many templates end the prompt with reasoning that is empty, and leave
that out, or write it otherwise, once the answer is history. What was evaluated stays then: it costs
a few tokens, and without them all that was said since would be evaluated again.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from clawd.engine.protocol import CallFrame, ChatMessage, Infill, RawPrompt
from clawd.engine.worker import pictures
from clawd.engine.worker.backend import InfillTokens, SpecialToken, Vocabulary
from clawd.engine.worker.template import ChatTemplate, RenderInput
from clawd.wire.pictures import Picture

# Keeps the text of messages from becoming control tokens.
#
# A marker, a character that no text may interchange (Unicode noncharacter U+FDD0), is put behind
# the first character of every special token that is written out in a message. Rendered text is
# cut at the markers before it is tokenised, so a tokeniser sees `<` and `|im_end|>` apart and finds
# no special token, whatever the template did with the text around it.

MARKER = "\ufdd0"


class TokenGuard:
    """Marks special tokens in text; made for one vocabulary and its template.

    Control tokens are marked everywhere. User-defined ones (`<tool_call>`, `<think>`) only where
    the template gives them a meaning, as vocabularies list HTML tags and white space among them
    too, and not in what the model itself said before.
    """

    def __init__(self, special_tokens: Iterable[SpecialToken], template_source: str) -> None:
        tokens = [token for token in special_tokens if token.text]
        control = {token.text for token in tokens if token.is_control}
        defined = {
            token.text
            for token in tokens
            if len(token.text.strip()) > 2 and token.text in template_source
        }
        self._any = _pattern({token.text for token in tokens})
        self._control = _pattern(control)
        self._all = _pattern(control | defined)

    def mark(self, text: str) -> str:
        """Return text of a user, a tool or an operator with special tokens marked."""
        return _mark(text, self._all)

    def mark_own(self, text: str) -> str:
        """Return text that the model wrote with control tokens marked."""
        return _mark(text, self._control)

    def mark_value(self, value: Any) -> Any:
        """Return a JSON-like value with every string in it marked."""
        if isinstance(value, str):
            return self.mark(value)
        if isinstance(value, dict):
            return {self.mark_value(key): self.mark_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mark_value(item) for item in value]
        return value

    def is_border(self, text: str, position: int) -> bool:
        """Return whether a tokeniser cuts at this position: the end, or a special token."""
        if position >= len(text):
            return True
        return self._any is not None and self._any.match(text, position) is not None


def _pattern(texts: set[str]) -> re.Pattern[str] | None:
    if not texts:
        return None
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first)))


def _mark(text: str, pattern: re.Pattern[str] | None) -> str:
    text = _plain_text(text)
    if pattern is None:
        return text
    # Marking one may leave another that began inside it; each round marks shorter ones.
    while pattern.search(text):
        text = pattern.sub(_with_marker, text)
    return text


def _with_marker(match: re.Match[str]) -> str:
    found = match.group()
    return f"{found[0]}{MARKER}{found[1:]}" if len(found) > 1 else _REPLACEMENT


def _plain_text(text: str) -> str:
    """Return text without the characters that have a meaning of their own here."""
    return text.replace(MARKER, _REPLACEMENT).replace(pictures.SIGN, _REPLACEMENT)


_REPLACEMENT = "\ufffd"
_CHARACTERS_PER_TOKEN = 4
_SEEING = (
    "leave the pictures out, or ask a model that sees: `clawctl model show NAME` names its vision"
)
# What stands in for names that the request does not have, as models know it from their training.
_PROJECT, _THIS_FILE, _SNIPPET = "project\n", "filename\n", "\n\n--- snippet ---\n\n"
# Reasoning without a word in it, as templates write it, with the blanks around it.
_NO_THOUGHT = re.compile(
    r"\s*(?:(?:</?(?:\w+:)?(?:think|thought|thinking)>|<\|(?:START|END)_THINKING\|>|\[/?THINK\]"
    r"|<\|channel>thought\n<channel\|>)\s*)+|\s+"
)
_CLOSED = re.compile(r"</|END_THINKING|\[/THINK\]|<channel\|>")
_NO_THOUGHT_CHARACTERS = 64


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a sequence's text and its tokens; `generated` by the model or rendered."""

    text: str
    tokens: tuple[int, ...]
    generated: bool


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of all parts, as a tokeniser reads it."""
    return pictures.without_signs("".join(part.text for part in parts).replace(MARKER, ""))


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


class NoInfillError(Exception):
    """The vocabulary has no tokens for what is before a gap, behind it and in it."""

    hint = (
        "use a model that was trained to fill in the middle (FIM), such as Qwen2.5-Coder, or send "
        "no suffix"
    )

    def __init__(self) -> None:
        super().__init__("this model fills in no gaps: its vocabulary has no tokens (FIM) for them")


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
    """Builds prompts for one model.

    Args:
        vocabulary: the model's.
        template: the model's.
        max_characters: of a prompt.
        album: what the model knows pictures by, None for one that sees none.
        blindness: why it sees none.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: ChatTemplate,
        *,
        max_characters: int,
        album: pictures.Album | None = None,
        blindness: str = "",
    ) -> None:
        self._album = album
        self._blindness = blindness
        self._pictures: dict[str, Picture] = {}
        self._vocabulary = vocabulary
        self._template = template
        self._guard = TokenGuard(vocabulary.special_tokens, template.source)
        self._max_characters = max_characters

    @property
    def fallback(self) -> str:
        """Why the last prompt asks for calls as text, in tags; empty where it does not."""
        return self._template.fallback

    @property
    def template_notes(self) -> tuple[str, ...]:
        """What had to be done otherwise with the chat template so far."""
        return tuple(self._template.notes)

    def build(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[dict[str, Any]],
        template_kwargs: dict[str, Any],
        histories: Iterable[tuple[Part, ...]],
        frames: tuple[CallFrame, ...] = (),
        appended: str = "",
    ) -> tuple[Part, ...]:
        """Return the prompt as parts.

        Args:
            messages: the conversation; a text of the assistant at its end stays open.
            tools: function objects in OpenAI's form.
            template_kwargs: further variables for the template.
            histories: the parts of the sequences that are kept.
            frames: how the model writes calls.
            appended: what follows the text of the assistant at the end; control tokens are such.

        Raises:
            PromptTooLongError: the text cannot fit.
            PictureError: the model sees no pictures, or not these.
        """
        self._pictures = {
            picture.sha256: picture for message in messages for picture in message.pictures
        }
        if self._pictures and self._album is None:
            raise pictures.PictureError(f"the model sees no pictures: {self._blindness}", _SEEING)
        *before, last = messages or (ChatMessage(role="user"),)
        is_begun = bool(messages) and last.role == "assistant" and not last.tool_calls
        rendered = self._template.render(
            RenderInput(
                messages=[self._marked(each) for each in (before if is_begun else messages)],
                tools=self._guard.mark_value(list(tools)),
                variables=template_kwargs,
                frames=frames,
            )
        )
        if is_begun:
            rendered += self._guard.mark_own(last.content) + appended
        if not self._pictures.keys() <= set(pictures.split_at_signs(rendered)[1::2]):
            raise pictures.PictureError(
                "the chat template of the model leaves pictures out", _SEEING
            )
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
            return self._parts(_plain_text(prompt), histories)
        if not prompt:
            return ()
        check_tokens(prompt, self._vocabulary)
        data = b"".join(map(self._vocabulary.piece, prompt))
        # No prompt begins with a marker, so none takes over tokens that may be cut in any way.
        text = MARKER + data.decode("utf-8", errors="replace")
        return (Part(text=text, tokens=tuple(prompt), generated=False),)

    def build_infill(self, asked: Infill) -> tuple[Part, ...]:
        """Return the prompt of a gap as parts: other files, then what is before and behind it.

        Raises:
            NoInfillError: the vocabulary has no tokens for that.
            PromptTooLongError: the text cannot fit.
        """
        marks = self._vocabulary.infill_tokens
        if marks is None:
            raise NoInfillError
        texts = (asked.prefix, asked.suffix, asked.begun, *(file.text for file in asked.files))
        length = sum(map(len, texts))
        if length > self._max_characters:
            raise PromptTooLongError(length, self._max_characters)
        leading = self._vocabulary.leading_token
        return self.build_raw(
            (
                *([] if leading is None else [leading]),
                *self._files(asked, marks),
                marks.prefix,
                *self._plain(asked.prefix),
                marks.suffix,
                *self._plain(asked.suffix),
                marks.middle,
                *self._plain(asked.begun),
            ),
            (),
        )

    def _files(self, asked: Infill, marks: InfillTokens) -> list[int]:
        """Return the tokens of the other files, each behind its name where the model knows such."""
        if not asked.files:
            return []
        tokens: list[int] = []
        if marks.repository is not None:
            tokens += [marks.repository, *self._plain(_PROJECT)]
        for file in asked.files:
            if marks.file is None:
                tokens += self._plain(_SNIPPET)
            else:
                tokens += [marks.file, *self._plain(f"{file.name}\n")]
            tokens += self._plain(file.text)
        if marks.file is not None:
            tokens += [marks.file, *self._plain(_THIS_FILE)]
        return tokens

    def _plain(self, text: str) -> list[int]:
        return self._vocabulary.tokenize(text, parse_special=False) if text else []

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
            content="".join(map(pictures.sign_of, message.pictures)) + mark(message.content),
            reasoning=self._guard.mark_own(message.reasoning),
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
            for count, end in enumerate(_ends(text, parts), 1):
                is_said = parts[count - 1].generated
                if is_said and end > best_end and self._guard.is_border(text, end):
                    best, best_end = parts[:count], end
        return best, best_end

    def _tokenize(self, text: str) -> list[int]:
        tokens: list[int] = []
        for place, text_or_digest in enumerate(pictures.split_at_signs(text)):
            if place % 2 and self._album is not None:
                tokens += self._album.tokens(self._pictures[text_or_digest])
                continue
            for fragment in text_or_digest.split(MARKER):
                if fragment:
                    tokens += self._vocabulary.tokenize(fragment, parse_special=True)
        return tokens


def _ends(text: str, parts: tuple[Part, ...]) -> Iterator[int]:
    """Yield where each of the parts ends in a text, as far as it is made of them."""
    position = 0
    for index in range(0, len(parts), 2):
        exchange = parts[index : index + 2]  # what was asked, and what was said to it
        ends = _exact_ends(text, position, exchange)
        if len(ends) < len(exchange):
            ends = _ends_beside_thought(text, position, exchange) or ends
        yield from ends
        if len(ends) < len(exchange):
            return
        position = ends[-1]


def _exact_ends(text: str, position: int, parts: tuple[Part, ...]) -> list[int]:
    ends: list[int] = []
    for part in parts:
        end = _end_of_part(text, position, part)
        if end is None:
            break
        ends.append(end)
        position = end
    return ends


def _ends_beside_thought(text: str, position: int, parts: tuple[Part, ...]) -> list[int]:
    """Return where parts end that differ from the text in reasoning without a word in it only.

    It was closed, by the template or by the model: nothing that follows is taken for reasoning.
    """
    if [part.generated for part in parts] != [False, True]:
        return []
    asked, said = (part.text for part in parts)
    blank = _NO_THOUGHT.match(said)
    words = said[blank.end() :] if blank else said
    before = asked + said[: len(said) - len(words)]
    done = 0
    for found in _NO_THOUGHT.finditer(before):
        if not _CLOSED.search(found[0]):
            continue
        if not text.startswith(before[done : found.start()], position):
            return []
        position += found.start() - done
        blank = _NO_THOUGHT.match(text, position, position + _NO_THOUGHT_CHARACTERS)
        position, done = blank.end() if blank else position, found.end()
    if not words or not done or not text.startswith(before[done:], position):
        return []
    position += len(before) - done
    end = _end_of_said(text, position, words)
    return [] if end is None else [position, end]


def _end_of_part(text: str, position: int, part: Part) -> int | None:
    """Return where the part ends if the text goes on with it at this position.

    Rendered parts must agree in their markers too, or the literal text of a message could pass
    for the template's control tokens. Generated parts carry no markers: their tokens are the
    model's own.
    """
    if part.generated:
        return _end_of_said(text, position, part.text)
    return position + len(part.text) if text.startswith(part.text, position) else None


def _end_of_said(text: str, position: int, said: str) -> int | None:
    if text.startswith(said, position):
        return position + len(said)
    if MARKER not in text:
        return None
    for character in said:
        if text.startswith(MARKER, position):
            position += 1
        if not text.startswith(character, position):
            return None
        position += 1
    return position
