"""The body of /v1/responses as clawd's own request. Nothing is kept between requests here.

`input` is a text, or items: messages, calls, results of calls, reasoning. Items that a model is
not shown (reasoning, calls of tools that ran elsewhere) are passed over.
"""

from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.body import check_items, field, invalid
from clawd.channels.http.clawd_events import wants_events
from clawd.channels.http.exchange import ModelRequest
from clawd.channels.http.openai.fields import (
    MAX_TOP_LOGPROBS,
    flag,
    flags_of,
    given,
    read_metadata,
    read_sampling,
    refuse,
)
from clawd.channels.http.openai.formats import read_text_format
from clawd.channels.http.openai.history import History
from clawd.channels.http.openai.messages import read_arguments, read_content
from clawd.channels.http.openai.tools import flat_name, read_choice, read_namespaces, read_tools
from clawd.channels.http.wishes import with_wishes
from clawd.errors import InvalidRequestError
from clawd.providers.base import Sampling, ToolCall

_STATELESS = "Nothing is stored between requests: send the whole conversation as input."
_LOGPROBS = "message.output_text.logprobs"
_ECHOED = ("instructions", "max_output_tokens", "temperature", "top_p", "tool_choice")


class ResponseAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and how to tell its answer.

    Attributes:
        stream: piece by piece.
        events: also what clawd does beside the answer.
        progress: also the evaluation of the prompt.
        summarises: reasoning is told as a summary, because the client asked for one.
        echoed: fields of the body that an answer repeats.
        places: namespace and name of the functions that stand in one, by what they are offered as.
    """

    request: ModelRequest
    stream: bool = False
    events: bool = False
    progress: bool = False
    summarises: bool = False
    echoed: dict[str, Any] = {}
    places: dict[str, tuple[str, str]] = {}


def read_response(body: dict[str, Any], request: web.Request) -> ResponseAsked:
    """Return what a body asks for.

    Raises:
        InvalidRequestError: a field cannot be meant; the error names it.
    """
    _refuse_unsupported(body)
    history = read_input(body)
    functions = read_tools(body, is_flat=True)
    inner, places = read_namespaces(body, functions)
    choice, tools = read_choice(body, functions + inner)
    sampling = _with_logprobs(body, read_sampling(body, limits=("max_output_tokens",)))
    answer_format = read_text_format(flags_of(body, "text"))
    options = flags_of(body, "stream_options")
    events = flag(options, "clawd_events", default=wants_events(request))
    progress = flag(options, "clawd_prompt_progress", default=events)
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
        wants_progress=progress,
        metadata=read_metadata(body),
    )
    return ResponseAsked(
        request=with_wishes(asked, request, body),
        stream=flag(body, "stream"),
        events=events,
        progress=progress,
        summarises=_wants_summary(body),
        echoed=_echoed(body),
        places=places,
    )


def read_input(body: dict[str, Any]) -> History:
    """Return the conversation of a body: its instructions, then its input.

    Raises:
        InvalidRequestError: it is no conversation; the error names the place.
    """
    history = History()
    history.add_system(field(body, "instructions", str, ""))
    items = body.get("input")
    check_items("input", items)
    if isinstance(items, str):
        history.add_user(items)
    elif isinstance(items, list):
        for number, item in enumerate(items):
            if not isinstance(item, dict):
                raise invalid(f"input[{number}]", "expected an object")
            _read_item(item, f"input[{number}]", history)
    else:
        raise invalid("input", "expected text or a list of items")
    history.checked("input")
    return history


def _read_item(item: dict[str, Any], place: str, history: History) -> None:
    kind = item.get("type", "message")
    match kind:
        case "message":
            _read_message(item, place, history)
        case "function_call":
            name = item.get("name")
            if not isinstance(name, str) or not name:
                raise invalid(f"{place}.name", "expected a name")
            namespace = item.get("namespace")
            if isinstance(namespace, str) and namespace:
                name = flat_name(namespace, name)
            arguments = read_arguments(item.get("arguments"), f"{place}.arguments")
            call_id = _call_id(item, place)
            history.add_call(ToolCall(id=call_id, name=name, arguments=arguments))
        case "function_call_output":
            output = read_content(item.get("output"), f"{place}.output")
            history.add_result(_call_id(item, place), output)
        case "item_reference":
            raise InvalidRequestError(
                f"{place}: items of earlier answers are not kept",
                hint=_STATELESS,
                data={"param": place},
            )
        case _:
            if not isinstance(kind, str):
                raise invalid(f"{place}.type", "expected a name")


def _read_message(item: dict[str, Any], place: str, history: History) -> None:
    role, content = item.get("role"), item.get("content")
    between = "" if role == "assistant" else "\n"
    text = read_content(content, f"{place}.content", between=between)
    match role:
        case "system" | "developer":
            history.add_system(text)
        case "user":
            if content is None:
                raise invalid(f"{place}.content", "expected what the user says")
            history.add_user(text)
        case "assistant":
            history.go_on(text)
        case _:
            raise invalid(f"{place}.role", "expected one of system, developer, user, assistant")


def _call_id(item: dict[str, Any], place: str) -> str:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise invalid(f"{place}.call_id", "expected the id of a call")
    return call_id


def _refuse_unsupported(body: dict[str, Any]) -> None:
    refuse(body, "previous_response_id", "is not supported", _STATELESS)
    refuse(body, "conversation", "is not supported", _STATELESS)
    refuse(body, "prompt", "is not supported: no prompts are stored here", "Use instructions.")
    refuse(body, "background", "is not supported", "Leave it out, and use stream.")


def _with_logprobs(body: dict[str, Any], sampling: Sampling) -> Sampling:
    top = field(body, "top_logprobs", int, 0)
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise invalid("top_logprobs", f"is {top}, expected 0 to {MAX_TOP_LOGPROBS}")
    if _LOGPROBS not in field(body, "include", list[Any], []):
        return sampling
    return msgspec.structs.replace(sampling, logprobs=True, top_logprobs=top)


def _wants_summary(body: dict[str, Any]) -> bool:
    reasoning = body.get("reasoning")
    if not isinstance(reasoning, dict):
        return False
    wanted = reasoning.get("summary", reasoning.get("generate_summary"))
    return isinstance(wanted, str) and wanted != "none"


def _echoed(body: dict[str, Any]) -> dict[str, Any]:
    told = {name: body[name] for name in _ECHOED if body.get(name) is not None}
    text = body.get("text")
    if isinstance(text, dict) and isinstance(text.get("format"), dict):
        told["text"] = {"format": text["format"]}
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        told["metadata"] = metadata
    if isinstance(body.get("parallel_tool_calls"), bool):
        told["parallel_tool_calls"] = body["parallel_tool_calls"]
    return told
