"""POST /v1/completions: texts and token lists that no chat template touches, gone on with.

Writes answers as /v1/completions does: `text_completion`, whole or in chunks.

data: {"id":"cmpl-…","object":"text_completion","choices":[{"index":0,"text":"Hello",
       "logprobs":null,"finish_reason":null}],…}
data: [DONE]
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.answering import answer_many, open_many
from clawd.channels.http.app import GATEWAY, Gateway, caller_of
from clawd.channels.http.body import field, invalid, read_object
from clawd.channels.http.catalogue import find
from clawd.channels.http.embeddings import inputs_of
from clawd.channels.http.model_api import Answered, GatewayEvent, Generation, ModelRequest
from clawd.channels.http.openai import fields, wording
from clawd.channels.http.openai.chat import LIMITS, AnswerOptions, read_telling, repeated
from clawd.engine.protocol import TokenLogprob
from clawd.providers.base import Finished, Infill, RawPrompt, Sampling, Tokenizing, able
from clawd.wire.events import HopUsage, PromptEvaluated, PromptProgress, TextDelta

# The body of /v1/completions as clawd's own requests: one for each prompt and choice.

_MAX_ANSWERS = 32


class _CompletionAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in the order of their choices, and how to tell the answers.

    `choices` is how many of them, side by side, each prompt has.
    """

    requests: tuple[ModelRequest, ...]
    choices: int
    telling: AnswerOptions

    @property
    def prompts(self) -> tuple[RawPrompt, ...]:
        """The prompt of each choice; of a gap what is before it."""
        prompts = (each.prompt or "" for each in self.requests)
        return tuple(each.prefix if isinstance(each, Infill) else each for each in prompts)


def read_completion(body: dict[str, Any], request: web.Request) -> _CompletionAsked:
    """Return what a body asks for.

    Raises:
        InvalidRequestError: a field cannot be meant; the error names it.
    """
    fields.refuse(body, "grammar", "is not supported", "Use json_schema.")
    prompts = _with_suffix(body, inputs_of(body.get("prompt"), "prompt"))
    choices = fields.read_choices(body)
    if len(prompts) * choices > _MAX_ANSWERS:
        raise invalid(
            "prompt",
            f"{len(prompts)} prompts with {choices} choices, at most {_MAX_ANSWERS} in all",
        )
    best_of = field(body, "best_of", int, choices)
    if best_of != choices:
        raise invalid("best_of", "is not supported; it may be what n is")
    sampling = _with_logprobs(body, fields.read_sampling(body, limits=LIMITS))
    echo = fields.flag(body, "echo")
    if echo and sampling.logprobs:
        raise invalid("echo", "is not supported with logprobs: those of the prompt are not known")
    telling = msgspec.structs.replace(read_telling(body, request), echo=echo)
    asked = ModelRequest(
        response_format=fields.read_format(body),
        sampling=sampling,
        model=field(body, "model", str, ""),
        inject=False,
        is_plain=True,
        wants_progress=telling.progress or telling.llama_progress,
        metadata=fields.read_metadata(body),
    )
    requests = [
        each
        for prompt in prompts
        for each in repeated(msgspec.structs.replace(asked, prompt=prompt), choices)
    ]
    return _CompletionAsked(requests=tuple(requests), choices=choices, telling=telling)


def _with_suffix(body: dict[str, Any], prompts: list[RawPrompt]) -> list[RawPrompt | Infill]:
    """Return the prompts as what is before a gap, where the body says what is behind it."""
    suffix = field(body, "suffix", str, "")
    if not suffix:
        return list(prompts)
    gaps: list[RawPrompt | Infill] = []
    for prompt in prompts:
        if not isinstance(prompt, str):
            raise invalid("suffix", "goes with a text as prompt, not with token ids")
        gaps.append(Infill(prefix=prompt, suffix=suffix))
    return gaps


def _with_logprobs(body: dict[str, Any], sampling: Sampling) -> Sampling:
    top = fields.given(body, "logprobs", int)
    if top is None:
        return sampling
    if not 0 <= top <= fields.MAX_TOP_LOGPROBS:
        raise invalid("logprobs", f"is {top}, expected 0 to {fields.MAX_TOP_LOGPROBS}")
    return msgspec.structs.replace(sampling, logprobs=True, top_logprobs=top)


class CompletionAnswer:
    """One answer of /v1/completions.

    Args:
        telling: how the client wants it.
        before: the text that stands before each choice: its prompt where that is asked for.
        choices: how many answer each prompt.
    """

    content_type = wording.STREAM_TYPE
    ping = wording.PING

    def __init__(self, telling: AnswerOptions, *, before: Sequence[str], choices: int = 1) -> None:
        self._telling = telling
        self._per_prompt = choices
        self._before = tuple(before)
        self._id = wording.new_id("cmpl-")
        self._created = int(time.time())
        self._model = ""
        self._texts = [""] * len(self._before)
        self._told_logprobs = [0] * len(self._before)
        self._evaluated: dict[int, PromptEvaluated] = {}
        self._usages = [HopUsage()] * len(self._before)
        self._progress = wording.ProgressTold()

    def begin(self, generations: Sequence[Generation]) -> Iterable[bytes]:
        """Return the prompts, where they are to be echoed."""
        self._model = generations[0].model
        for index, text in enumerate(self._before):
            if text:
                yield self._chunk(index, text)

    def take(self, number: int, event: GatewayEvent) -> Iterable[bytes]:
        """Return the chunks of an event of a choice."""
        match event:
            case Finished():
                self._usages[number] = event.usage
                return self._finish(number, event)
            case TextDelta():
                return self._said(number, event)
            case PromptEvaluated():
                self._evaluated[number] = event
                return self._progressed(self._progress.finish(event)) if number == 0 else ()
            case PromptProgress():
                return self._progressed(self._progress.take(event)) if number == 0 else ()
            case _:
                return ()

    def end(self) -> Iterable[bytes]:
        """Return what closes the stream."""
        if self._telling.usage:
            usage = wording.usage_value(self._usages, choices=self._per_prompt)
            yield wording.sse(self._frame([]) | {"usage": usage})
        yield wording.DONE

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return what every client raises as an error."""
        return (wording.sse(wording.error_value(error)),)

    def whole(self, generations: Sequence[Generation], answers: Sequence[Answered]) -> Any:
        """Return a whole completion."""
        told: dict[str, Any] = self._frame([]) | {
            "model": generations[0].model,
            "choices": [self._choice(index, each) for index, each in enumerate(answers)],
            "usage": wording.usage_value(
                [each.usage for each in answers], choices=self._per_prompt
            ),
        }
        timings = wording.timings_value(answers[0].evaluated, answers[0].finished)
        return told | ({"timings": timings} if timings is not None else {})

    def _said(self, index: int, event: TextDelta) -> list[bytes]:
        offset = len(self._before[index]) + len(self._texts[index])
        self._texts[index] += event.text
        tokens = wording.logprobs_of(event)
        self._told_logprobs[index] += len(tokens)
        if not event.text and not tokens:
            return []
        return [self._chunk(index, event.text, _logprobs(tokens, offset))]

    def _progressed(self, events: Iterable[PromptProgress]) -> list[bytes]:
        if not self._telling.llama_progress:
            return []
        return [
            wording.sse(self._frame([]) | {"prompt_progress": self._progress.value(event)})
            for event in events
        ]

    def _finish(self, index: int, finished: Finished) -> list[bytes]:
        chunks: list[bytes] = []
        if finished.logprobs and not self._told_logprobs[index]:
            tokens = wording.of_content(finished.logprobs, self._texts[index])
            chunks.append(self._chunk(index, "", _logprobs(tokens, len(self._before[index]))))
        frame = self._frame([_piece(index, "", None, _reason(finished))])
        timings = wording.timings_value(self._evaluated.get(index), finished)
        return [*chunks, wording.sse(frame | ({"timings": timings} if timings is not None else {}))]

    def _choice(self, index: int, answered: Answered) -> dict[str, Any]:
        before = self._before[index]
        tokens = wording.of_content(answered.logprobs, answered.text)
        told = _logprobs(tokens, len(before))
        return _piece(index, before + answered.text, told, _reason(answered.finished))

    def _chunk(self, index: int, text: str, logprobs: dict[str, Any] | None = None) -> bytes:
        return wording.sse(self._frame([_piece(index, text, logprobs, None)]))

    def _frame(self, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": wording.FINGERPRINT,
            "choices": choices,
        }


def _piece(
    index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _reason(finished: Finished) -> str:
    return "length" if finished.reason == "length" else "stop"


def _logprobs(tokens: tuple[TokenLogprob, ...], offset: int) -> dict[str, Any] | None:
    """Return the old form of log probabilities: lists side by side."""
    if not tokens:
        return None
    offsets: list[int] = []
    joined = b""
    for token in tokens:
        offsets.append(offset + len(joined.decode(errors="ignore")))
        joined += token.piece
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_bounded(token.logprob) for token in tokens],
        "top_logprobs": [
            {one.text: _bounded(one.logprob) for one in token.top} for token in tokens
        ],
        "text_offset": offsets,
    }


def _bounded(logprob: float) -> float:
    return min(0.0, max(-1e4, logprob))


async def _post_completions(request: web.Request) -> web.StreamResponse:
    """Answer POST /v1/completions."""
    gateway = request.app[GATEWAY]
    asked = read_completion(
        await fields.with_token_ids(gateway, await read_object(request)), request
    )
    before = await _echoed(gateway, asked)
    opened = await open_many(gateway.generations, asked.requests, caller_of(request))
    dialect = CompletionAnswer(asked.telling, before=before, choices=asked.choices)
    return await answer_many(request, opened, dialect, stream=asked.telling.stream)


async def _echoed(gateway: Gateway, asked: _CompletionAsked) -> list[str]:
    """Return the text before each choice: nothing, or its prompt."""
    if not asked.telling.echo:
        return [""] * len(asked.requests)
    model = asked.requests[0].model
    texts: dict[RawPrompt, str] = {}
    for prompt in asked.prompts:
        if prompt not in texts:
            texts[prompt] = await _text_of(gateway, model, prompt)
    return [texts[prompt] for prompt in asked.prompts]


async def _text_of(gateway: Gateway, model: str, prompt: RawPrompt) -> str:
    if isinstance(prompt, str):
        return prompt
    choice = await find(gateway, model)
    found = able(choice.provider, Tokenizing, choice.model)  # type: ignore[type-abstract]
    if found is None:
        raise invalid("echo", f"provider {choice.provider.name()} cannot tell the text of tokens")
    provider, own_name = found
    return (await provider.detokenize(own_name, prompt)).decode(errors="replace")


ROUTES = [
    web.post("/v1/completions", _post_completions),
    web.post("/completions", _post_completions),
]
