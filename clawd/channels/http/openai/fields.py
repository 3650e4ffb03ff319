"""Fields that bodies of OpenAI's endpoints share: sampling, tools' choice, who a request is for."""

import hashlib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from clawd.channels.http.app import Gateway
from clawd.channels.http.body import LISTS, OF_SCHEMAS, SINGLE, field, invalid, without_nulls
from clawd.channels.http.catalogue import find
from clawd.channels.http.model_api import ModelRequest
from clawd.channels.http.openai.messages import History
from clawd.errors import InvalidRequestError
from clawd.providers.base import EFFORTS, Sampling, Tokenizing, ToolSpec, thinking

_MAX_CHOICES = 16
_MAX_STOPS = 64
MAX_TOP_LOGPROBS = 20

_T = TypeVar("_T")
_MAX_INT = 2**31 - 1
_SEEDS = 2**31
_BANNED = -100.0
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "dry_multiplier",
    "dry_base",
    "xtc_probability",
    "xtc_threshold",
)
_COUNTS = ("top_k", "dry_allowed_length")
_NOT_NEGATIVE = ("temperature", "top_p", "min_p", "repeat_penalty")


def read_sampling(body: dict[str, Any], *, limits: tuple[str, ...]) -> Sampling:
    """Return the sampling that a body asks for; what it does not name is left as it is.

    Args:
        body: the request's.
        limits: names of the field that bounds the answer, the first that is given counts.

    Raises:
        InvalidRequestError: a field is of another type or out of range.
    """
    wishes: dict[str, Any] = {name: given(body, name, float) for name in _NUMBERS}
    wishes |= {name: given(body, name, int) for name in _COUNTS}
    wishes["typical_p"] = given(body, "typical_p", float)
    for name in _NOT_NEGATIVE:
        if wishes[name] is not None and wishes[name] < 0:
            raise invalid(name, f"is {wishes[name]}, expected 0 or more")
    return Sampling(
        **wishes,
        dry_last_n=given(body, "dry_penalty_last_n", int),
        dry_breakers=_breakers(body),
        seed=_seed(body),
        max_tokens=_max_tokens(body, limits),
        stop=_read_stop(body),
        logit_bias=_read_bias(body),
        template_kwargs=_read_template_kwargs(body),
    )


def _read_template_kwargs(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the variables of the chat template that a body asks for, those it names go first.

    An effort stands in `reasoning_effort`, or in `reasoning` as the Responses API has it.
    """
    name, effort = "reasoning_effort", field(body, "reasoning_effort", str, "")
    if not effort and isinstance(reasoning := body.get("reasoning"), dict):
        name, effort = "reasoning.effort", field(reasoning, "effort", str, "", at="reasoning")
    if effort and effort not in EFFORTS:
        raise invalid(name, f"is {effort!r}, expected one of {', '.join(EFFORTS)}")
    named = field(body, "chat_template_kwargs", dict[str, Any], {})
    return {**(thinking(effort) if effort else {}), **named} or None


def _read_stop(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the texts that end an answer: one, or a list of them."""
    stops = (
        [body["stop"]] if isinstance(body.get("stop"), str) else field(body, "stop", list[str], [])
    )
    if len(stops) > _MAX_STOPS:
        raise invalid("stop", f"has {len(stops)} texts, at most {_MAX_STOPS} are taken")
    return tuple(stop for stop in stops if stop)


def _read_bias(body: dict[str, Any]) -> dict[int, float] | None:
    """Return what is added to the logits, by token id.

    An object from ids to numbers, or llama.cpp's list of pairs; false there bans a token.
    """
    biases = body.get("logit_bias")
    if biases is None:
        return None
    if isinstance(biases, dict):
        pairs = list(biases.items())
    elif isinstance(biases, list) and all(isinstance(p, list) and len(p) == 2 for p in biases):
        pairs = [(token, bias) for token, bias in biases]
    else:
        raise invalid("logit_bias", "expected an object from token ids to numbers")
    return {_token(token): _bias(bias) for token, bias in pairs} or None


def read_request(
    body: dict[str, Any],
    history: History,
    *,
    tools: tuple[ToolSpec, ...],
    choice: str,
    sampling: Sampling,
) -> ModelRequest:
    """Return the request of a chat or of a response, but for its format and its progress.

    Raises:
        InvalidRequestError: a field cannot be meant; the error names it.
    """
    forbids_tools = choice == "none" and not tools
    return ModelRequest(
        messages=history.messages,
        system=history.system,
        tools=tools,
        tool_choice=choice,
        parallel_calls=given(body, "parallel_tool_calls", bool),
        sampling=sampling,
        model=field(body, "model", str, ""),
        is_plain=bool(sampling.logprobs) or history.is_one_pass or forbids_tools,
        metadata=read_metadata(body),
    )


def read_choices(body: dict[str, Any]) -> int:
    """Return how many answers are asked for."""
    count = field(body, "n", int, 1)
    if not 1 <= count <= _MAX_CHOICES:
        raise invalid("n", f"is {count}, expected 1 to {_MAX_CHOICES}")
    return count


def read_metadata(body: dict[str, Any]) -> dict[str, str]:
    """Return the hints for routers among the metadata: what is text."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return {}
    return {
        name: value
        for name, value in metadata.items()
        if isinstance(value, str) and name != "conversation_id"
    }


def given(body: dict[str, Any], name: str, kind: type[_T]) -> _T | None:
    """Return a field; None where it is absent or null.

    Raises:
        InvalidRequestError: it is of another type.
    """
    return None if body.get(name) is None else field(body, name, kind, kind())


def flag(body: dict[str, Any], name: str, *, default: bool = False, at: str = "") -> bool:
    """Return a field that is true or false; `at` is where its holder stands."""
    return field(body, name, bool, default, at=at)


def flags_of(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a field that holds options; null and absent are none."""
    return field(body, name, dict[str, Any], {})


def refuse(body: dict[str, Any], name: str, problem: str, hint: str = "") -> None:
    """Refuse a field that has any value.

    Raises:
        InvalidRequestError: it has.
    """
    if body.get(name) not in (None, "", [], {}, False):
        raise InvalidRequestError(f"{name} {problem}", hint=hint, data={"param": name})


def _max_tokens(body: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        count = given(body, name, int)
        if count is None or count == -1:
            continue
        if count < 1:
            raise invalid(name, f"is {count}, expected at least 1")
        return min(count, _MAX_INT)
    return None


def _seed(body: dict[str, Any]) -> int | None:
    seed = given(body, "seed", int)
    return None if seed is None or seed < 0 else seed % _SEEDS


def _breakers(body: dict[str, Any]) -> tuple[str, ...] | None:
    breakers = given(body, "dry_sequence_breakers", list[str])
    return None if breakers is None else tuple(breakers)


def _token(token: object) -> int:
    if isinstance(token, int) and not isinstance(token, bool) and token >= 0:
        return min(token, _MAX_INT)
    if isinstance(token, str) and token.isascii() and token.isdigit():
        return min(int(token[:10]), _MAX_INT)
    shown = msgspec.json.encode(token).decode()[:40]
    raise invalid("logit_bias", f"{shown} is no token id; POST /tokenize tells the ids of a text")


def _bias(bias: object) -> float:
    if bias is False:
        return _BANNED
    if isinstance(bias, int | float) and not isinstance(bias, bool):
        return max(-1e6, min(1e6, float(bias)))
    raise invalid("logit_bias", "expected numbers")


# The form that an answer is to have: text, JSON, or JSON by a schema.

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_MAX_SCHEMA_DEPTH = 64


def read_format(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the `response_format` of a chat body, or of its `json_schema`; None for text.

    Raises:
        InvalidRequestError: it is of a type that is not there, or its schema is none.
    """
    given = body.get("response_format")
    if given is None:
        schema = body.get("json_schema")
        return None if schema is None else _by_schema({"schema": schema}, "json_schema")
    if not isinstance(given, dict):
        raise invalid("response_format", "expected an object with a type")
    kind = given.get("type")
    if kind == "json_schema":
        return _by_schema(given.get("json_schema"), "response_format.json_schema")
    if kind == "json_object" and given.get("schema") is not None:
        return _by_schema({"schema": given["schema"]}, "response_format")
    return _plain(kind, "response_format")


def read_text_format(text: dict[str, Any]) -> dict[str, Any] | None:
    """Return the `format` of the `text` of a /v1/responses body; None for text.

    Raises:
        InvalidRequestError: as `read_format`.
    """
    given = text.get("format")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise invalid("text.format", "expected an object with a type")
    if given.get("type") == "json_schema":
        return _by_schema(given, "text.format")
    return _plain(given.get("type"), "text.format")


def _plain(kind: object, place: str) -> dict[str, Any] | None:
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    raise invalid(f"{place}.type", f"{kind!r} is none of text, json_object, json_schema")


def _by_schema(inner: object, place: str) -> dict[str, Any]:
    if not isinstance(inner, dict):
        raise invalid(place, "expected an object with a schema")
    schema = inner.get("schema")
    if not isinstance(schema, dict):
        raise invalid(f"{place}.schema", "expected a JSON Schema object")
    schema = without_nulls(schema)
    _check(schema, f"{place}.schema", _MAX_SCHEMA_DEPTH)
    name = inner.get("name")
    told = {"name": name if isinstance(name, str) and name else "answer", "schema": schema}
    if isinstance(inner.get("strict"), bool):
        told["strict"] = inner["strict"]
    return {"type": "json_schema", "json_schema": told}


def _check(schema: object, place: str, depth: int) -> None:
    """Refuse what is no schema, wherever it stands in one."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise invalid(place, "expected a JSON Schema")
    if not depth:
        raise invalid(place, f"is nested more than {_MAX_SCHEMA_DEPTH} schemas deep")
    _check_type(schema.get("type"), place)
    for inner_place, inner in _inner(schema, place):
        _check(inner, inner_place, depth - 1)


def _inner(schema: dict[str, Any], place: str) -> Iterator[tuple[str, object]]:
    """Yield what stands where a schema holds schemas, and where that is."""
    for name in OF_SCHEMAS:
        named = schema.get(name, {})
        if not isinstance(named, dict):
            raise invalid(f"{place}.{name}", "expected an object of schemas")
        yield from ((f"{place}.{name}.{key}", each) for key, each in named.items())
    for name in LISTS:
        listed = schema.get(name, [])
        if not isinstance(listed, list):
            raise invalid(f"{place}.{name}", "expected a list of schemas")
        yield from ((f"{place}.{name}[{at}]", each) for at, each in enumerate(listed))
    for name in SINGLE:
        single = schema.get(name, True)
        each_of = single if isinstance(single, list) and name == "items" else [single]
        yield from ((f"{place}.{name}", each) for each in each_of)


def _check_type(kind: object, place: str) -> None:
    if kind is None:
        return
    kinds = kind if isinstance(kind, list) else [kind]
    for each in kinds:
        if not isinstance(each, str) or each not in _TYPES:
            raise invalid(f"{place}.type", f"{each!r} is no type of JSON Schema")


# The tools that a client brings, and which of them it wants called.

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
_JOINT, _MAX_NAME, _MARK = "__", 64, 8
_WORDS = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def read_tools(body: dict[str, Any], *, is_flat: bool = False) -> tuple[ToolSpec, ...]:
    """Return the functions among the tools; tools of another type are passed over.

    Args:
        body: the request's.
        is_flat: name and parameters stand in the tool itself, as /v1/responses has it.

    Raises:
        InvalidRequestError: a function has no name, or no object of parameters.
    """
    tools: list[ToolSpec] = []
    for number, tool in enumerate(field(body, "tools", list[Any], [])):
        place = f"tools[{number}]"
        if not isinstance(tool, dict):
            raise invalid(place, "expected an object")
        if tool.get("type", "function") == "function":
            flat = is_flat and "function" not in tool
            inner, inner_place = (
                (tool, place) if flat else (tool.get("function"), f"{place}.function")
            )
            tools.append(_function(inner, inner_place))
    return tuple(tools)


def read_namespaces(
    body: dict[str, Any], tools: tuple[ToolSpec, ...]
) -> tuple[tuple[ToolSpec, ...], dict[str, tuple[str, str]]]:
    """Return the functions that stand in namespaces, as Codex brings those of its MCP servers.

    {"type": "namespace", "name": "mcp__files", "tools": [{"type": "function", "name": "read", …}]}
    is offered as `mcp__files__read`.

    Args:
        body: the request's.
        tools: functions that it brings outside of namespaces; theirs are the names.

    Returns:
        The functions by names of their own; for each such name the namespace and the name in it.

    Raises:
        InvalidRequestError: a function has no name, or no object of parameters.
    """
    taken = {tool.name for tool in tools}
    specs: list[ToolSpec] = []
    places: dict[str, tuple[str, str]] = {}
    for number, tool in enumerate(field(body, "tools", list[Any], [])):
        namespace, listed = tool.get("name"), tool.get("tools")
        if tool.get("type") != "namespace" or not isinstance(listed, list):
            continue
        if not isinstance(namespace, str) or not namespace:
            continue
        for inner_number, inner in enumerate(listed):
            if isinstance(inner, dict) and inner.get("type") != "function":
                continue
            spec = _function(inner, f"tools[{number}].tools[{inner_number}]")
            name = flat_name(namespace, spec.name)
            if name not in taken and name not in places:
                places[name] = (namespace, spec.name)
                specs.append(msgspec.structs.replace(spec, name=name))
    return tuple(specs), places


def flat_name(namespace: str, name: str) -> str:
    """Return the one name that a model knows a function of a namespace by; the same every time."""
    whole = f"{namespace}{_JOINT}{name}"
    if len(whole) <= _MAX_NAME:
        return whole
    mark = hashlib.sha256(whole.encode()).hexdigest()[:_MARK]
    return f"{whole[: _MAX_NAME - _MARK - 1]}_{mark}"


def read_choice(
    body: dict[str, Any], tools: tuple[ToolSpec, ...]
) -> tuple[str, tuple[ToolSpec, ...]]:
    """Return which tool is to be called, and the tools that may be.

    Returns:
        auto, none, required or a tool's name; the tools, fewer where the choice names some.

    Raises:
        InvalidRequestError: the choice has another form, or asks for a tool that is not there.
    """
    given = body.get("tool_choice")
    if given is None:
        return "auto", tools
    if isinstance(given, str) and given in _WORDS:
        choice = _WORDS[given]
    elif isinstance(given, dict) and given.get("type") == "allowed_tools":
        choice, tools = _allowed(given, tools)
    elif isinstance(given, dict) and given.get("type") in (*_WORDS, "function"):
        choice = _WORDS.get(given["type"]) or _name_of(given)
    else:
        raise invalid("tool_choice", "expected auto, none, required or a function")
    if choice in {"auto", "none"}:
        return choice, tools
    if not tools:
        raise invalid("tool_choice", f"is {choice!r}, but the request brings no function")
    if choice != "required" and choice not in {tool.name for tool in tools}:
        raise invalid("tool_choice", f"names {choice!r}, which is none of the request's tools")
    return choice, tools


def _function(function: object, place: str) -> ToolSpec:
    if not isinstance(function, dict):
        raise invalid(place, "expected an object")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(f"{place}.name", "expected a name")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = _NO_PARAMETERS
    if not isinstance(parameters, dict):
        raise invalid(f"{place}.parameters", "expected a JSON Schema object")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise invalid(f"{place}.description", "expected text")
    return ToolSpec(name=name, description=description or "", parameters=without_nulls(parameters))


def _name_of(choice: dict[str, Any]) -> str:
    """Return the name of a chosen function: flat, or in `function`."""
    inner = choice.get("function")
    name = inner.get("name") if isinstance(inner, dict) else choice.get("name")
    if not isinstance(name, str) or not name:
        raise invalid("tool_choice", "names no function")
    return name


def _allowed(
    choice: dict[str, Any], tools: tuple[ToolSpec, ...]
) -> tuple[str, tuple[ToolSpec, ...]]:
    inner = choice.get("allowed_tools")
    inner = inner if isinstance(inner, dict) else choice
    listed = inner.get("tools")
    if not isinstance(listed, list):
        raise invalid("tool_choice", "allowed_tools has no list of tools")
    names = {_name_of(tool) for tool in listed if isinstance(tool, dict)}
    mode = inner.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise invalid("tool_choice", "the mode of allowed_tools is auto or required")
    return mode, tuple(tool for tool in tools if tool.name in names)


# Biases of texts, as llama.cpp takes them: every token of the text gets the bias.

_MAX_TEXTS = 64


async def with_token_ids(gateway: Gateway, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body whose `logit_bias` names tokens by id, where the model's tokenizer is here.

    What cannot be turned into ids stays as it is, and is refused by who reads it.

    Raises:
        ClawError: the model is not there, or cannot be loaded.
    """
    pairs = _pairs(body.get("logit_bias"))
    texts = [token for token, _ in pairs if _is_text(token)]
    if not texts or len(texts) > _MAX_TEXTS:
        return body
    choice = await find(gateway, field(body, "model", str, ""))
    provider = choice.provider
    # Behind a router or a chain another model may answer, to which the ids are other texts.
    if not isinstance(provider, Tokenizing):
        return body
    found: list[list[Any]] = []
    for token, bias in pairs:
        if not _is_text(token):
            found.append([token, bias])
            continue
        cut = await provider.tokenize(choice.model, token, add_special=False, parse_special=True)
        found += [[each, bias] for each in cut.tokens]
    return body | {"logit_bias": found}


def _pairs(biases: object) -> list[tuple[Any, Any]]:
    if isinstance(biases, dict):
        return list(biases.items())
    if isinstance(biases, list) and all(isinstance(p, list) and len(p) == 2 for p in biases):
        return [(token, bias) for token, bias in biases]
    return []


def _is_text(token: object) -> bool:
    return isinstance(token, str) and bool(token) and not (token.isascii() and token.isdigit())
