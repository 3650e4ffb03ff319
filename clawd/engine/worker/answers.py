"""Answers what is asked beside generations: counts, tokens, texts, prompts."""

from collections.abc import Callable, Iterable
from typing import assert_never

from clawd.engine.protocol import (
    CountTokens,
    Detokenize,
    Generate,
    QuestionFailed,
    Rendered,
    RenderPrompt,
    Reply,
    TokenCounts,
    Tokenize,
    TokenPieces,
    TokenText,
)
from clawd.engine.worker.backend import Vocabulary
from clawd.engine.worker.prompt import (
    Part,
    PromptBuilder,
    PromptTooLongError,
    UnknownTokenError,
    check_tokens,
    text_of,
    tokens_of,
)

# Nothing else is done meanwhile, for up to a second (measured on a slow core).
MAX_TOKENIZED_CHARACTERS = 512 * 1024


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

    def parts_of(self, request: Generate | RenderPrompt) -> tuple[Part, ...]:
        """Return the prompt of a request.

        Raises:
            PromptTooLongError: it cannot fit.
            UnknownTokenError: a number is no token.
        """
        if request.prompt is not None:
            return self._prompts.build_raw(request.prompt, self._histories())
        return self._prompts.build(
            request.messages, request.tools, request.template_kwargs, self._histories()
        )

    @property
    def fallback(self) -> str:
        """Why the prompt of the last request asks for calls as text; empty where it does not."""
        return self._prompts.fallback

    def answer(self, question: CountTokens | Tokenize | Detokenize | RenderPrompt) -> Reply:
        """Return the answer, or why there is none."""
        try:
            match question:
                case CountTokens():
                    return self._count(question)
                case Tokenize():
                    return self._tokenize(question)
                case Detokenize():
                    check_tokens(question.tokens, self._vocabulary)
                    data = b"".join(map(self._vocabulary.piece, question.tokens))
                    return TokenText(id=question.id, data=data)
                case RenderPrompt():
                    parts = self.parts_of(question)
                    tokens = len(tokens_of(parts))
                    return Rendered(id=question.id, text=text_of(parts), tokens=tokens)
                case _:
                    assert_never(question)
        except (UnknownTokenError, PromptTooLongError) as error:
            return QuestionFailed(id=question.id, code="invalid_request", message=str(error))

    def _count(self, question: CountTokens) -> TokenCounts:
        tokenize = self._vocabulary.tokenize
        counts = tuple(len(tokenize(text, parse_special=False)) for text in question.texts)
        return TokenCounts(id=question.id, counts=counts)

    def _tokenize(self, question: Tokenize) -> Reply:
        size = len(question.text)
        if size > MAX_TOKENIZED_CHARACTERS:
            return QuestionFailed(
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
        return TokenPieces(id=question.id, tokens=tuple(tokens), pieces=pieces)
