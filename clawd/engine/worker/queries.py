"""Answers what is asked beside generations: counts, tokens, texts, prompts."""

from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec

from clawd.engine import protocol
from clawd.engine.worker.backend import Vocabulary
from clawd.engine.worker.pictures import PictureError
from clawd.engine.worker.prompt import (
    NoInfillError,
    Part,
    PromptBuilder,
    PromptTooLongError,
    UnknownTokenError,
    check_tokens,
    text_of,
    tokens_of,
)
from clawd.engine.worker.states import shared_length

# Nothing else is done meanwhile, for up to a second (measured on a slow core).
MAX_TOKENIZED_CHARACTERS = 512 * 1024


class PromptBeginning(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that prompts begin with; the first `stable` of them stay the same from day to day."""

    tokens: list[int]
    stable: int


# What users may say; a tokeniser joins each with what stands before it in another way.
_ANYTHING = ("x", "\n\n1", " [", "é")


class Answers:
    """Answers questions about one model; `histories` returns the parts of kept sequences."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompts: PromptBuilder,
        histories: Callable[[], Iterable[tuple[Part, ...]]],
    ) -> None:
        self._vocabulary = vocabulary
        self._prompts = prompts
        self._histories = histories

    def parts_of(self, request: protocol.Generate | protocol.RenderPrompt) -> tuple[Part, ...]:
        """Return the prompt of a request.

        Raises:
            PromptTooLongError: it cannot fit.
            UnknownTokenError: a number is no token.
            NoInfillError: a gap is to be filled in, and the model cannot.
            PictureError: the model sees no pictures, or not these.
        """
        if isinstance(request.prompt, protocol.Infill):
            return self._prompts.build_infill(request.prompt)
        if request.prompt is not None:
            return self._prompts.build_raw(request.prompt, self._histories())
        return self._prompts.build(
            request.messages,
            request.tools,
            request.template_kwargs,
            self._histories(),
            request.grammar.frames if isinstance(request, protocol.Generate) else request.frames,
            request.appended if isinstance(request, protocol.Generate) else "",
        )

    def beginning_of(self, request: protocol.Generate) -> PromptBeginning:
        """Return what every prompt begins with that has these messages, and what stays of it.

        The user's message, if there is one, is gone on with by whatever the user says.

        Raises:
            PromptTooLongError: it cannot fit.
        """
        lead = tuple(each for each in request.messages if each.role == "system")
        said = "".join(each.content for each in request.messages if each.role == "user")
        tokens = self._common(request, lead, said)
        stable = self._common(request, lead, "") if said else tokens
        return PromptBeginning(tokens=tokens, stable=min(len(stable), len(tokens)))

    def _common(
        self, request: protocol.Generate, lead: tuple[protocol.ChatMessage, ...], said: str
    ) -> list[int]:
        prompts = []
        for text in _ANYTHING:
            messages = (*lead, protocol.ChatMessage(role="user", content=said + text))
            asked = msgspec.structs.replace(request, messages=messages)
            prompts.append(tokens_of(self.parts_of(asked)))
        return prompts[0][: min(shared_length(prompts[0], other) for other in prompts[1:])]

    @property
    def fallback(self) -> str:
        """Why the prompt of the last request asks for calls as text; empty where it does not."""
        return self._prompts.fallback

    @property
    def template_notes(self) -> tuple[str, ...]:
        """What had to be done otherwise with the chat template so far."""
        return self._prompts.template_notes

    def answer(
        self,
        question: protocol.CountTokens
        | protocol.Tokenize
        | protocol.Detokenize
        | protocol.RenderPrompt,
    ) -> protocol.Reply:
        """Return the answer, or why there is none."""
        try:
            match question:
                case protocol.CountTokens():
                    return self._count(question)
                case protocol.Tokenize():
                    return self._tokenize(question)
                case protocol.Detokenize():
                    check_tokens(question.tokens, self._vocabulary)
                    data = b"".join(map(self._vocabulary.piece, question.tokens))
                    return protocol.TokenText(id=question.id, data=data)
                case protocol.RenderPrompt():
                    parts = self.parts_of(question)
                    tokens = len(tokens_of(parts))
                    return protocol.Rendered(id=question.id, text=text_of(parts), tokens=tokens)
                case _:
                    assert_never(question)
        except (UnknownTokenError, PromptTooLongError, NoInfillError, PictureError) as error:
            hint = error.hint if isinstance(error, PictureError) else ""
            told = str(error)
            return protocol.QuestionFailed(
                id=question.id, code="invalid_request", message=told, hint=hint
            )

    def _count(self, question: protocol.CountTokens) -> protocol.TokenCounts:
        tokenize = self._vocabulary.tokenize
        counts = tuple(len(tokenize(text, parse_special=False)) for text in question.texts)
        return protocol.TokenCounts(id=question.id, counts=counts)

    def _tokenize(self, question: protocol.Tokenize) -> protocol.Reply:
        size = len(question.text)
        if size > MAX_TOKENIZED_CHARACTERS:
            return protocol.QuestionFailed(
                id=question.id,
                code="invalid_request",
                message=f"the text has {size} characters, at most {MAX_TOKENIZED_CHARACTERS} are "
                "cut into tokens at a time",
                hint="cut it into pieces",
            )
        tokens = self._vocabulary.tokenize(
            question.text, parse_special=question.parse_special, add_special=question.add_special
        )
        pieces = tuple(map(self._vocabulary.piece, tokens))
        return protocol.TokenPieces(id=question.id, tokens=tuple(tokens), pieces=pieces)
