"""Bodies of Ollama's /api/chat and /api/generate as requests of ours. Pure.

    {"model": "…", "messages": [{"role": "user", "content": "…"}], "tools": [], "stream": false,
     "format": "json" | {schema}, "think": true, "keep_alive": "5m", "options": {"seed": 1}}

Arguments of calls are objects here, and calls need no ids: a result belongs to the oldest open call
of its tool.
"""

import re
from typing import Any

import msgspec

from clawd.channels.http.body import field, invalid
from clawd.channels.http.exchange import ModelRequest
from clawd.channels.http.numbers import count_of, number_of, seed_of, stops_of
from clawd.channels.http.schemas import without_nulls
from clawd.providers.base import Message, Sampling, ToolCall, ToolSpec

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


def chat_request(body: dict[str, Any]) -> ModelRequest:
    """Return the request of a body of /api/chat.

    Raises:
        InvalidRequestError: the body cannot be meant; says which field.
    """
    history = _History()
    for number, message in enumerate(field(body, "messages", list[Any], [])):
        history.add(f"messages[{number}]", message)
    # A system message alone is answered, too: as if nothing had been said.
    silent = (Message(role="user", content=""),) if history.system else ()
    return ModelRequest(
        messages=tuple(history.messages) or silent,
        system="\n\n".join(history.system) or None,
        tools=_tools(field(body, "tools", list[Any], [])),
        response_format=_format(body.get("format")),
        sampling=_sampling(field(body, "options", dict[str, Any], {})),
        model=model_of(body),
        is_plain=not history.messages,
    )


def generate_request(body: dict[str, Any]) -> ModelRequest:
    """Return the request of a body of /api/generate.

    Raises:
        InvalidRequestError: the body cannot be meant, or asks for what is not done here.
    """
    for name in ("suffix", "template"):
        if field(body, name, str, ""):
            raise invalid(name, "is not supported here; leave it out")
    _refuse_images("images", body)
    prompt = field(body, "prompt", str, "")
    asked = ModelRequest(
        response_format=_format(body.get("format")),
        sampling=_sampling(field(body, "options", dict[str, Any], {})),
        model=model_of(body),
    )
    if field(body, "raw", bool, default=False):
        return msgspec.structs.replace(asked, prompt=prompt)
    return msgspec.structs.replace(
        asked,
        messages=(Message(role="user", content=prompt),),
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
    """Say whether the client wants to see what the model thinks; it does unless it says no.

    Raises:
        InvalidRequestError: it says so in no way there is.
    """
    think = body.get("think")
    if think is None or isinstance(think, bool):
        return think is not False
    if think not in _LEVELS:
        raise invalid("think", "expected true, false, low, medium or high")
    return True


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
        _refuse_images(f"{where}.images", message)
        content = field(message, "content", str, "", at=where)
        match message.get("role"):
            case "system" | "developer":
                self.system.append(content)
            case "user":
                self.messages.append(Message(role="user", content=content))
            case "assistant":
                calls = self._made(where, field(message, "tool_calls", list[Any], [], at=where))
                self._open = list(calls)
                self.messages.append(Message(role="assistant", content=content, tool_calls=calls))
            case "tool":
                self.messages.append(self._result(where, message, content))
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
        top_k=count_of(options, "top_k", at="options"),
        seed=seed_of(options, at="options"),
        # -1 and -2 are as much as fits, which nothing said is too.
        max_tokens=count_of(options, "num_predict", at="options"),
        stop=stops_of(options, "stop", at="options"),
    )


def _refuse_images(where: str, holder: dict[str, Any]) -> None:
    if holder.get("images"):
        raise invalid(where, "images cannot be read: the model sees only text")
