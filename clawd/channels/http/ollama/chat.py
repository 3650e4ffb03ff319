"""Ollama's door for answers: POST /api/chat, /api/generate, /api/embed and /api/embeddings.

Streams are the default here, as there. No content type is asked for: some clients send none.

An answer in the words of Ollama's /api/chat and /api/generate: whole, or a JSON value a line.

    {"model": "…", "created_at": "…", "message": {"role": "assistant", "content": "He"},
     "done": false}
    {"model": "…", "created_at": "…", "message": {…}, "done": true, "done_reason": "stop",
     "total_duration": 1, "load_duration": 1, "prompt_eval_count": 1, "prompt_eval_duration": 1,
     "eval_count": 1, "eval_duration": 1}

Durations are nanoseconds. /api/generate has `response` (and `thinking`) where /api/chat has
`message`. Calls come whole, in one line.
"""

import contextlib
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from aiohttp import web

from clawd.channels.http import model_api
from clawd.channels.http.answering import answer
from clawd.channels.http.app import GATEWAY, Gateway, caller_of
from clawd.channels.http.body import (
    count_of,
    field,
    invalid,
    number_of,
    read_object,
    seed_of,
    stops_of,
    top_k_of,
    without_nulls,
)
from clawd.channels.http.catalogue import ModelChoice, find
from clawd.channels.http.embeddings import embed, embed_cut, inputs_of
from clawd.channels.http.errors import body_of, status_of
from clawd.channels.http.header_options import with_header_options
from clawd.channels.http.pictures import SentPicture, picture_of
from clawd.engine.models import AUTO
from clawd.errors import NotFoundError
from clawd.providers.base import (
    CallAssembler,
    CallDelta,
    Failed,
    Finished,
    Infill,
    Message,
    Sampling,
    ToolCall,
    ToolSpec,
    thinking,
)
from clawd.providers.local import LocalProvider
from clawd.wire.events import PromptEvaluated, ReasoningDelta, TextDelta
from clawd.wire.models import LoadModel, UnloadModel

Form = Literal["chat", "generate"]

_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


class OllamaAnswer:
    """Writes one answer; its clock starts when it is made."""

    content_type = "application/x-ndjson"
    # Clients of this dialect read every line as a piece of the answer.
    ping = b""

    def __init__(self, form: Form, *, shows_thoughts: bool = True) -> None:
        self._form = form
        self._shows_thoughts = shows_thoughts
        self._started = time.monotonic()
        self._model = ""
        self._calls = CallAssembler()
        self._evaluated: PromptEvaluated | None = None

    def begin(self, generation: model_api.Generation) -> Iterable[bytes]:
        """Return nothing: a stream begins with its first piece."""
        self._model = generation.model
        return ()

    def take(self, event: model_api.GatewayEvent) -> Iterable[bytes]:
        """Return what an event becomes."""
        match event:
            case TextDelta():
                return self._piece(text=event.text)
            case ReasoningDelta():
                return self._piece(thoughts=event.text) if self._shows_thoughts else ()
            case CallDelta():
                self._calls.add(event)
            case PromptEvaluated():
                self._evaluated = self._evaluated or event
            case Finished():
                calls = self._calls.calls()
                told = self._piece(calls=calls) if calls else []
                return [*told, _line(self._value() | self._end(event))]
            case Failed():
                return self.broken(event.error)
            case _:
                pass
        return ()

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return the line of an error; nothing follows it."""
        return [_line(body_of("ollama", error, status_of(error)))]

    def whole(self, generation: model_api.Generation, answered: model_api.Answered) -> Any:
        """Return the value of a whole answer."""
        self._model = generation.model
        self._evaluated = answered.evaluated
        thoughts = answered.reasoning if self._shows_thoughts else ""
        value = self._value(answered.text, thoughts, answered.calls)
        return value | self._end(answered.finished)

    def loaded(self, model: str, reason: Literal["load", "unload"]) -> dict[str, Any]:
        """Return the value that tells of a model that was loaded or unloaded, without an answer."""
        self._model = model
        return self._value() | {"done": True, "done_reason": reason}

    def _piece(
        self, text: str = "", thoughts: str = "", calls: tuple[ToolCall, ...] = ()
    ) -> list[bytes]:
        return [_line(self._value(text, thoughts, calls))]

    def _value(
        self, text: str = "", thoughts: str = "", calls: tuple[ToolCall, ...] = ()
    ) -> dict[str, Any]:
        head = {"model": self._model, "created_at": _now()}
        thinking = {"thinking": thoughts} if thoughts else {}
        if self._form == "generate":
            made = {"tool_calls": _told(calls)} if calls else {}
            return head | {"response": text} | thinking | made | {"done": False}
        message: dict[str, Any] = {"role": "assistant", "content": text} | thinking
        if calls:
            message["tool_calls"] = _told(calls)
        return head | {"message": message, "done": False}

    def _end(self, finished: Finished) -> dict[str, Any]:
        usage, before = finished.usage, self._evaluated
        total = int((time.monotonic() - self._started) * _NS_PER_S)
        prompt = int(before.elapsed_ms * _NS_PER_MS) if before else 0
        speed = usage.tokens_per_s
        generating = int(usage.completion_tokens / speed * _NS_PER_S) if speed > 0 else 0
        prompt_tokens = usage.prompt_tokens or (before.tokens if before else 0)
        return {
            "done": True,
            "done_reason": "length" if finished.reason == "length" else "stop",
            "total_duration": total,
            # What is left: waiting for a place, and for the model to be loaded.
            "load_duration": max(0, total - prompt - generating),
            "prompt_eval_count": prompt_tokens,
            "prompt_eval_duration": prompt,
            "eval_count": usage.completion_tokens,
            "eval_duration": generating,
        }


def _told(calls: tuple[ToolCall, ...]) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "function": {
                "index": number,
                "name": call.name,
                "arguments": model_api.object_of(call.arguments),
            },
        }
        for number, call in enumerate(calls)
    ]


def _line(value: dict[str, Any]) -> bytes:
    return model_api.on_one_line(value) + b"\n"


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


# Bodies of Ollama's /api/chat and /api/generate as requests of ours. Pure.
#
#     {"model": "…", "messages": [{"role": "user", "content": "…"}], "tools": [], "stream": false,
#      "format": "json" | {schema}, "think": true, "keep_alive": "5m", "options": {"seed": 1}}
#
# Arguments of calls are objects here, and calls need no ids: a result belongs to the oldest open
# call of its tool.

_FLOATS = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repeat_penalty": (0.0, 10.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
_LEVELS = ("low", "medium", "high", "max")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NO_PARAMETERS = {"type": "object", "properties": {}}


def chat_request(body: dict[str, Any]) -> model_api.ModelRequest:
    """Return the request of a body of /api/chat.

    Raises:
        InvalidRequestError: the body cannot be meant; says which field.
    """
    history = _History()
    for number, message in enumerate(field(body, "messages", list[Any], [])):
        history.add(f"messages[{number}]", message)
    # A system message alone is answered, too: as if nothing had been said.
    silent = (Message(role="user", content=""),) if history.system else ()
    return model_api.ModelRequest(
        messages=tuple(history.messages) or silent,
        system="\n\n".join(history.system) or None,
        tools=_tools(field(body, "tools", list[Any], [])),
        response_format=_format(body.get("format")),
        sampling=_with_thinking(body, _sampling(field(body, "options", dict[str, Any], {}))),
        model=model_of(body),
        is_plain=not history.messages,
    )


def generate_request(body: dict[str, Any]) -> model_api.ModelRequest:
    """Return the request of a body of /api/generate.

    Raises:
        InvalidRequestError: the body cannot be meant, or asks for what is not done here.
    """
    if field(body, "template", str, ""):
        raise invalid("template", "is not supported here; leave it out")
    seen = _pictures("images", body)
    prompt = field(body, "prompt", str, "")
    asked = model_api.ModelRequest(
        response_format=_format(body.get("format")),
        sampling=_with_thinking(body, _sampling(field(body, "options", dict[str, Any], {}))),
        model=model_of(body),
    )
    suffix, is_raw = field(body, "suffix", str, ""), field(body, "raw", bool, default=False)
    if seen and (suffix or is_raw):
        raise invalid("images", "go with neither a suffix nor a raw prompt")
    if suffix:
        return msgspec.structs.replace(asked, prompt=Infill(prefix=prompt, suffix=suffix))
    if is_raw:
        return msgspec.structs.replace(asked, prompt=prompt)
    return msgspec.structs.replace(
        asked,
        messages=(Message(role="user", content=prompt, pictures=seen),),
        system=field(body, "system", str, "") or None,
    )


def model_of(body: dict[str, Any]) -> str:
    """Return the model's name; older clients say `name`, and many add a tag.

    Raises:
        InvalidRequestError: there is none.
    """
    name = field(body, "model", str, "") or field(body, "name", str, "")
    if not name:
        raise invalid("model", "a model's name is needed; /api/tags lists them")
    return name.removesuffix(":latest")


def shows_thoughts(body: dict[str, Any]) -> bool:
    """Return whether the client wants to see what the model thinks; it does unless it says no.

    Raises:
        InvalidRequestError: it says so in no way there is.
    """
    think = body.get("think")
    if think is None or isinstance(think, bool):
        return think is not False
    if think not in _LEVELS:
        raise invalid("think", "expected true, false, low, medium or high")
    return True


def _with_thinking(body: dict[str, Any], sampling: Sampling) -> Sampling:
    """Return the sampling with what the chat template is told of thinking."""
    think = body.get("think")
    if think is None:
        return sampling
    wish = think if think in _LEVELS else "on" if think else "off"
    return msgspec.structs.replace(sampling, template_kwargs=thinking(wish))


def keep_alive_s(body: dict[str, Any]) -> float | None:
    """Return for how many seconds a model is to stay loaded; None where the body is silent.

    Negative is for ever. Numbers are seconds, texts are durations such as `1h30m`.

    Raises:
        InvalidRequestError: it is neither.
    """
    given = body.get("keep_alive")
    if given is None or given == "":
        return None
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    text = given.strip() if isinstance(given, str) else ""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if re.fullmatch(r"\d+", rest):
        return sign * float(rest)
    if not re.fullmatch(f"(?:{_DURATION.pattern})+", rest):
        raise invalid("keep_alive", 'expected seconds, or a duration such as "5m" or "1h30m"')
    return sign * sum(float(found[1]) * _UNITS_S[found[2]] for found in _DURATION.finditer(rest))


class _History:
    """Collects messages, and gives calls and results the ids that join them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.system: list[str] = []
        self._open: list[ToolCall] = []
        self._calls = 0

    def add(self, where: str, message: Any) -> None:
        if not isinstance(message, dict):
            raise invalid(where, "expected an object")
        seen = _pictures(f"{where}.images", message)
        if seen and message.get("role") not in {"user", "tool"}:
            raise invalid(f"{where}.images", "stand in messages of the user and of tools only")
        content = field(message, "content", str, "", at=where)
        match message.get("role"):
            case "system" | "developer":
                self.system.append(content)
            case "user":
                self.messages.append(Message(role="user", content=content, pictures=seen))
            case "assistant":
                calls = self._made(where, field(message, "tool_calls", list[Any], [], at=where))
                self._open = list(calls)
                thought = field(message, "thinking", str, "", at=where)
                self.messages.append(
                    Message(role="assistant", content=content, tool_calls=calls, reasoning=thought)
                )
            case "tool":
                said = self._result(where, message, content)
                self.messages.append(msgspec.structs.replace(said, pictures=seen))
            case role:
                raise invalid(f"{where}.role", f"{role!r} is none of system, user, assistant, tool")

    def _made(self, where: str, given: list[Any]) -> tuple[ToolCall, ...]:
        calls: list[ToolCall] = []
        for number, call in enumerate(given):
            here = f"{where}.tool_calls[{number}]"
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict) or not field(
                function, "name", str, "", at=f"{here}.function"
            ):
                raise invalid(here, "expected a function with a name and arguments")
            self._calls += 1
            call_id = field(call, "id", str, "", at=here) or f"call_{self._calls}"
            arguments = function.get("arguments")
            if not isinstance(arguments, str):
                given_object = field(
                    function, "arguments", dict[str, Any], {}, at=f"{here}.function"
                )
                arguments = msgspec.json.encode(given_object).decode()
            calls.append(ToolCall(id=call_id, name=function["name"], arguments=arguments or "{}"))
        return tuple(calls)

    def _result(self, where: str, message: dict[str, Any], content: str) -> Message:
        name, other, call_id = (
            field(message, key, str, "", at=where) for key in ("tool_name", "name", "tool_call_id")
        )
        name = name or other
        fitting = [call for call in self._open if call_id and call.id == call_id]
        fitting = fitting or [call for call in self._open if name and call.name == name]
        # A client that names another tool, or none, means the call that waits longest.
        call = next(iter(fitting or self._open), None)
        if call is not None:
            self._open.remove(call)
            call_id, name = call.id, call.name
        return Message(role="tool", content=content, tool_call_id=call_id, name=name)


def _tools(given: list[Any]) -> tuple[ToolSpec, ...]:
    tools: list[ToolSpec] = []
    for number, tool in enumerate(given):
        where = f"tools[{number}]"
        if not isinstance(tool, dict):
            raise invalid(where, "expected an object")
        if (tool.get("type") or "function") != "function":
            continue
        function = field(tool, "function", dict[str, Any], {}, at=where)
        inner = f"{where}.function"
        name = field(function, "name", str, "", at=inner)
        if not name:
            raise invalid(f"{inner}.name", "a tool needs a name")
        tools.append(
            ToolSpec(
                name=name,
                description=field(function, "description", str, "", at=inner),
                parameters=without_nulls(
                    field(function, "parameters", dict[str, Any], {}, at=inner)
                )
                or _NO_PARAMETERS,
            )
        )
    return tuple(tools)


def _format(given: Any) -> dict[str, Any] | None:
    if given is None or given == "":
        return None
    if given == "json":
        return {"type": "json_object"}
    if not isinstance(given, dict):
        raise invalid("format", 'expected "json" or a JSON Schema')
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": without_nulls(given), "strict": True},
    }


def _sampling(options: dict[str, Any]) -> Sampling:
    if isinstance(options.get("stop"), str):
        options = options | {"stop": [options["stop"]]}
    numbers: dict[str, Any] = {
        name: number_of(options, name, least=least, most=most, at="options")
        for name, (least, most) in _FLOATS.items()
    }
    return Sampling(
        **numbers,
        top_k=top_k_of(options, at="options"),
        seed=seed_of(options, at="options"),
        # -1 and -2 are as much as fits, which nothing said is too.
        max_tokens=count_of(options, "num_predict", at="options"),
        stop=stops_of(options, "stop", at="options"),
    )


def _pictures(where: str, holder: dict[str, Any]) -> tuple[SentPicture, ...]:
    given = holder.get("images") or []
    if not isinstance(given, list):
        raise invalid(where, "expected a list of pictures in base64")
    return tuple(picture_of(each, f"{where}[{number}]") for number, each in enumerate(given))


async def _post_chat(request: web.Request) -> web.StreamResponse:
    """Answer POST /api/chat."""
    body = await read_object(request)
    asked = chat_request(body) if body.get("messages") else None
    return await _answered(request, body, asked, "chat")


async def _post_generate(request: web.Request) -> web.StreamResponse:
    """Answer POST /api/generate."""
    body = await read_object(request)
    asked = generate_request(body)
    is_asked = bool(body.get("prompt") or body.get("suffix") or body.get("images"))
    return await _answered(request, body, asked if is_asked else None, "generate")


async def _post_embed(request: web.Request) -> web.Response:
    """Answer POST /api/embed: an embedding of each input."""
    started = time.monotonic()
    body = await read_object(request)
    given = body.get("input")
    inputs = [] if given is None or given == [] else inputs_of(given)
    dimensions = field(body, "dimensions", int, 0)
    makes = embed_cut if field(body, "truncate", bool, default=True) else embed
    result = await makes(request.app[GATEWAY], caller_of(request), model_of(body), inputs)
    if dimensions and result.vectors and dimensions != result.size:
        raise invalid(
            "dimensions",
            f"this model's vectors have {result.size} numbers and are not cut; {dimensions} asked",
        )
    return web.json_response(
        {
            "model": result.model,
            "embeddings": result.numbers(),
            "total_duration": int((time.monotonic() - started) * _NS_PER_S),
            "load_duration": 0,
            "prompt_eval_count": result.tokens,
        }
    )


async def _post_embeddings(request: web.Request) -> web.Response:
    """Answer POST /api/embeddings, the older form: one embedding."""
    body = await read_object(request)
    prompt = field(body, "prompt", str, "")
    inputs = [prompt] if prompt else []
    result = await embed(request.app[GATEWAY], caller_of(request), model_of(body), inputs)
    return web.json_response({"embedding": result.numbers()[0] if result.vectors else []})


async def _answered(
    request: web.Request, body: dict[str, Any], asked: model_api.ModelRequest | None, form: Form
) -> web.StreamResponse:
    """Answer a request, or load or unload a model where there is nothing to answer."""
    dialect = OllamaAnswer(form, shows_thoughts=shows_thoughts(body))
    stays_s = keep_alive_s(body)
    stream = field(body, "stream", bool, default=True)
    gateway, caller = request.app[GATEWAY], caller_of(request)
    if asked is None:
        model = model_of(body)
        done = await _load_or_unload(gateway, caller, model, stays_s)
        return web.json_response(dialect.loaded(model, done))
    generation = await gateway.generations.open(
        with_header_options(asked, request, body, streams=True), caller
    )
    return await answer(request, generation, dialect, stream=stream)


# Requests without a prompt: they load a model, or unload it with `"keep_alive": 0`.


async def _load_or_unload(
    gateway: Gateway, caller: model_api.Caller, model: str, keep_alive_s: float | None
) -> Literal["load", "unload"]:
    """Load a model, or unload it where it is to stay for no time; say which it was.

    A model that another server runs is neither: that server decides.

    Raises:
        ModelNotFoundError: there is none of this name.
        ForbiddenError: unloading is for admins.
        ClawError: it cannot be loaded.
    """
    name = local_model_of(gateway, await find(gateway, model))
    if keep_alive_s != 0:
        if name:
            await gateway.invoke(LoadModel(name=name), caller.principal)
        return "load"
    if name:
        with contextlib.suppress(NotFoundError):  # it was not loaded
            await gateway.invoke(UnloadModel(name=name), caller.principal)
    return "unload"


def local_model_of(gateway: Gateway, choice: ModelChoice) -> str:
    """Return the name of the model of this machine that a choice is; empty for another server's."""
    if not isinstance(choice.provider, LocalProvider):
        return ""
    provider = choice.provider.name()
    configured = (line.model for line in gateway.provider_lines() if line.name == provider)
    return choice.model or next(configured, "") or AUTO


ROUTES = [
    web.post("/api/chat", _post_chat),
    web.post("/api/generate", _post_generate),
    web.post("/api/embed", _post_embed),
    web.post("/api/embeddings", _post_embeddings),
]
