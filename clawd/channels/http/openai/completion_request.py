"""The body of /v1/completions as clawd's own requests: one for each prompt and choice."""

from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.body import field, invalid
from clawd.channels.http.embeddings import inputs_of
from clawd.channels.http.exchange import ModelRequest
from clawd.channels.http.openai.chat_request import LIMITS, Telling, read_telling, repeated
from clawd.channels.http.openai.fields import (
    MAX_TOP_LOGPROBS,
    flag,
    given,
    read_choices,
    read_metadata,
    read_sampling,
    refuse,
)
from clawd.channels.http.openai.formats import read_format
from clawd.providers.base import RawPrompt, Sampling

MAX_ANSWERS = 32


class CompletionAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in the order of their choices, and how to tell the answers.

    `choices` is how many of them, side by side, each prompt has.
    """

    requests: tuple[ModelRequest, ...]
    choices: int
    telling: Telling

    @property
    def prompts(self) -> tuple[RawPrompt, ...]:
        """The prompt of each choice."""
        return tuple(each.prompt or "" for each in self.requests)


def read_completion(body: dict[str, Any], request: web.Request) -> CompletionAsked:
    """Return what a body asks for.

    Raises:
        InvalidRequestError: a field cannot be meant; the error names it.
    """
    refuse(body, "suffix", "is not supported", "Put what follows into the prompt.")
    refuse(body, "grammar", "is not supported", "Use json_schema.")
    prompts = inputs_of(body.get("prompt"), "prompt")
    choices = read_choices(body)
    if len(prompts) * choices > MAX_ANSWERS:
        raise invalid(
            "prompt", f"{len(prompts)} prompts with {choices} choices, at most {MAX_ANSWERS} in all"
        )
    best_of = field(body, "best_of", int, choices)
    if best_of != choices:
        raise invalid("best_of", "is not supported; it may be what n is")
    sampling = _with_logprobs(body, read_sampling(body, limits=LIMITS))
    echo = flag(body, "echo")
    if echo and sampling.logprobs:
        raise invalid("echo", "is not supported with logprobs: those of the prompt are not known")
    telling = msgspec.structs.replace(read_telling(body, request), echo=echo)
    asked = ModelRequest(
        response_format=read_format(body),
        sampling=sampling,
        model=field(body, "model", str, ""),
        inject=False,
        is_plain=True,
        wants_progress=telling.progress or telling.llama_progress,
        metadata=read_metadata(body),
    )
    requests = [
        each
        for prompt in prompts
        for each in repeated(msgspec.structs.replace(asked, prompt=prompt), choices)
    ]
    return CompletionAsked(requests=tuple(requests), choices=choices, telling=telling)


def _with_logprobs(body: dict[str, Any], sampling: Sampling) -> Sampling:
    top = given(body, "logprobs", int)
    if top is None:
        return sampling
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise invalid("logprobs", f"is {top}, expected 0 to {MAX_TOP_LOGPROBS}")
    return msgspec.structs.replace(sampling, logprobs=True, top_logprobs=top)
