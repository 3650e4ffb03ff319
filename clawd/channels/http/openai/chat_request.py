"""The body of /v1/chat/completions as clawd's own request, and how the client wants it told."""

from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.body import field, invalid
from clawd.channels.http.clawd_events import wants_events
from clawd.channels.http.exchange import ModelRequest
from clawd.channels.http.openai.fields import (
    MAX_TOP_LOGPROBS,
    flag,
    flags_of,
    given,
    read_choices,
    read_metadata,
    read_sampling,
    refuse,
)
from clawd.channels.http.openai.formats import read_format
from clawd.channels.http.openai.messages import read_messages
from clawd.channels.http.openai.tools import read_choice, read_tools
from clawd.channels.http.wishes import with_wishes
from clawd.providers.base import Sampling

LIMITS = ("max_completion_tokens", "max_tokens", "n_predict")


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """How a client wants an answer told.

    Attributes:
        stream: piece by piece.
        usage: tokens, in a chunk of their own at the end of a stream.
        events: what clawd does beside the answer.
        progress: events about the evaluation of the prompt.
        llama_progress: the same in llama.cpp's words.
        echo: the prompt's text before the answer's.
    """

    stream: bool = False
    usage: bool = False
    events: bool = False
    progress: bool = False
    llama_progress: bool = False
    echo: bool = False


class ChatAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, how many answers are wanted, and how to tell them."""

    request: ModelRequest
    choices: int
    telling: Telling


def read_chat(body: dict[str, Any], request: web.Request) -> ChatAsked:
    """Return what a chat body asks for.

    Raises:
        InvalidRequestError: a field cannot be meant; the error names it.
    """
    _refuse_unsupported(body)
    history = read_messages(body)
    choice, tools = read_choice(body, read_tools(body))
    sampling = with_logprobs(body, read_sampling(body, limits=LIMITS))
    answer_format = read_format(body)
    telling = read_telling(body, request)
    brings_choice = choice == "none" and not tools
    asked = ModelRequest(
        messages=history.messages,
        system=history.system,
        tools=tools,
        tool_choice=choice,
        parallel_calls=given(body, "parallel_tool_calls", bool),
        response_format=answer_format,
        sampling=sampling,
        model=field(body, "model", str, ""),
        is_plain=bool(sampling.logprobs) or history.is_one_pass or brings_choice,
        wants_progress=telling.progress or telling.llama_progress,
        metadata=read_metadata(body),
    )
    return ChatAsked(
        request=with_wishes(asked, request, body), choices=read_choices(body), telling=telling
    )


def repeated(request: ModelRequest, count: int) -> list[ModelRequest]:
    """Return a request so often; each has a seed of its own where the request has one."""
    if count == 1:
        return [request]
    sampling = request.sampling
    seeds = [None if sampling.seed is None else sampling.seed + number for number in range(count)]
    return [
        msgspec.structs.replace(
            request, is_plain=True, sampling=msgspec.structs.replace(sampling, seed=seed)
        )
        for seed in seeds
    ]


def read_telling(body: dict[str, Any], request: web.Request) -> Telling:
    """Return how an answer is to be told.

    Raises:
        InvalidRequestError: a field is of another type.
    """
    options = flags_of(body, "stream_options")
    events = flag(options, "clawd_events", default=wants_events(request), at="stream_options")
    return Telling(
        stream=flag(body, "stream"),
        usage=flag(options, "include_usage", at="stream_options"),
        events=events,
        progress=flag(options, "clawd_prompt_progress", default=events, at="stream_options"),
        llama_progress=flag(body, "return_progress"),
    )


def with_logprobs(body: dict[str, Any], sampling: Sampling) -> Sampling:
    """Return the sampling with the log probabilities that a chat body asks for.

    Raises:
        InvalidRequestError: more than there can be, or the likeliest without any.
    """
    wanted = flag(body, "logprobs")
    top = field(body, "top_logprobs", int, 0)
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise invalid("top_logprobs", f"is {top}, expected 0 to {MAX_TOP_LOGPROBS}")
    if top and not wanted:
        raise invalid("top_logprobs", "needs logprobs to be true")
    if not wanted:
        return sampling
    return msgspec.structs.replace(sampling, logprobs=True, top_logprobs=top)


def _refuse_unsupported(body: dict[str, Any]) -> None:
    refuse(body, "grammar", "is not supported", "Use response_format with a JSON Schema.")
    refuse(body, "functions", "is the old form", "Use tools.")
    modalities = field(body, "modalities", list[Any], [])
    if any(each != "text" for each in modalities):
        raise invalid("modalities", "only text can be answered")
