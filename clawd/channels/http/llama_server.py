"""What llama.cpp's server answers beside chat: infilling, tokens and facts about itself."""

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.answering import answer
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import field, invalid, is_token, read_object
from clawd.channels.http.catalogue import find_able
from clawd.channels.http.model_api import Answered, GatewayEvent, Generation, ModelRequest
from clawd.channels.http.openai import fields
from clawd.channels.http.openai.chat import read_chat
from clawd.channels.http.openai.wording import PING, STREAM_TYPE, error_value, sse, timings_value
from clawd.engine.protocol import MAX_ANSWER_TOKENS
from clawd.errors import BusyError
from clawd.providers.base import (
    ChatRequest,
    Described,
    Finished,
    Infill,
    InfillFile,
    Seeing,
    Serving,
    Tokenizing,
    TokenList,
)
from clawd.wire.events import PromptEvaluated, TextDelta

# POST /infill, in llama-server's form: what stands in the gap between two texts.
#
# {"input_prefix": "def add(a, b):\n", "input_suffix": "\n\nprint(add(1, 2))\n",
#  "input_extra": [{"filename": "maths.py", "text": "…"}], "prompt": "    return", "n_predict": 64}
#
# The prompt is made of token ids where the model is: nothing that these texts spell out counts as a
# control token. With `n_predict` 0 the prompt is read, so that it is known when it comes again.

_MAX_FILES = 256


async def _post_infill(request: web.Request) -> web.StreamResponse:
    """Answer POST /infill."""
    gateway = request.app[GATEWAY]
    body = await fields.with_token_ids(gateway, await read_object(request))
    asked = infill_request(body)
    only_reads = fields.given(body, "n_predict", int) == 0
    generation = await gateway.generations.open(asked, caller_of(request))
    dialect = _InfillAnswer(only_reads=only_reads)
    return await answer(request, generation, dialect, stream=fields.flag(body, "stream"))


def infill_request(body: dict[str, Any]) -> ModelRequest:
    """Return the request of a body.

    Raises:
        InvalidRequestError: a field is missing or cannot be meant; the error names it.
    """
    fields.refuse(body, "grammar", "is not supported", "Use json_schema.")
    for name in ("input_prefix", "input_suffix"):
        if body.get(name) is None:
            raise invalid(name, "is needed, and may be empty")
    # Nothing is written by no engine: one token is, and is not told.
    least = {"n_predict": 1} if fields.given(body, "n_predict", int) == 0 else {}
    sampling = fields.read_sampling(body | least, limits=("n_predict", "max_tokens"))
    return ModelRequest(
        prompt=Infill(
            prefix=field(body, "input_prefix", str, ""),
            suffix=field(body, "input_suffix", str, ""),
            files=_files(field(body, "input_extra", list[Any], [])),
            begun=field(body, "prompt", str, ""),
        ),
        response_format=fields.read_format(body),
        sampling=sampling,
        model=field(body, "model", str, ""),
        inject=False,
        is_plain=True,
        metadata=fields.read_metadata(body),
    )


def _files(listed: list[Any]) -> tuple[InfillFile, ...]:
    if len(listed) > _MAX_FILES:
        raise invalid("input_extra", f"{len(listed)} files, at most {_MAX_FILES} are taken")
    files: list[InfillFile] = []
    for number, each in enumerate(listed):
        where = f"input_extra[{number}]"
        if not isinstance(each, dict) or not isinstance(each.get("text"), str):
            raise invalid(where, "expected an object with filename and text")
        name = field(each, "filename", str, "tmp", at=where)
        files.append(InfillFile(name=name, text=each["text"]))
    return tuple(files)


class _InfillAnswer:
    """One answer of /infill.

    Args:
        only_reads: nothing was to be written; the token that was all the same is not told.
    """

    content_type = STREAM_TYPE
    ping = PING

    def __init__(self, *, only_reads: bool = False) -> None:
        self._only_reads = only_reads
        self._model = ""
        self._evaluated: PromptEvaluated | None = None

    def begin(self, generation: Generation) -> Iterable[bytes]:
        """Return nothing: a stream begins with its first text."""
        self._model = generation.model
        return ()

    def take(self, event: GatewayEvent) -> Iterable[bytes]:
        """Return the event of a piece of text, or of the end."""
        match event:
            case TextDelta() if not self._only_reads:
                return (sse({"index": 0, "content": event.text, "tokens": [], "stop": False}),)
            case PromptEvaluated():
                self._evaluated = event
            case Finished():
                return (sse(self._told("", event, self._evaluated)),)
            case _:
                pass
        return ()

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return the event of an error."""
        return (sse(error_value(error)),)

    def whole(self, generation: Generation, answered: Answered) -> Any:
        """Return a whole answer."""
        self._model = generation.model
        return self._told(answered.text, answered.finished, answered.evaluated)

    def _told(
        self, text: str, finished: Finished, evaluated: PromptEvaluated | None
    ) -> dict[str, Any]:
        usage = finished.usage
        ended = "limit" if finished.reason == "length" else "eos"
        written = 0 if self._only_reads else usage.completion_tokens
        return {
            "index": 0,
            "content": "" if self._only_reads else text,
            "tokens": [],
            "stop": True,
            "model": self._model,
            "tokens_predicted": written,
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": usage.cached_tokens,
            "truncated": False,
            "stop_type": "word" if finished.stopped_by else ended,
            "stopping_word": finished.stopped_by,
            "timings": timings_value(evaluated, finished),
        }


# llama.cpp's routes about tokens and prompts.
#
# POST /tokenize        {"content": "…", "add_special": false, "parse_special": true,
#                        "with_pieces": false} → {"tokens": [1, 2]} or [{"id": 1, "piece": "…"}]
# POST /detokenize      {"tokens": [1, 2]} → {"content": "…"}
# POST /apply-template  {"messages": […], "tools": […]} → {"prompt": "…"}
#
# Each takes `model`, too; without it the default model is meant.

_MAX_PARTS = 4096
_NO_TOKENIZER = "has no tokenizer that clawd can ask"


async def _post_tokenize(request: web.Request) -> web.Response:
    """Answer POST /tokenize."""
    caller_of(request)
    body = await read_object(request)
    parts = _parts(body.get("content"))
    add_special = field(body, "add_special", bool, False)  # noqa: FBT003 - a default
    parse_special = field(body, "parse_special", bool, True)  # noqa: FBT003 - a default
    provider, model, _ = await _tokenizer(request, body)
    found: list[tuple[int, bytes]] = []
    for number, part in enumerate(parts):
        if isinstance(part, int):
            found.append((part, await provider.detokenize(model, [part])))
            continue
        cut = await provider.tokenize(
            model,
            part,
            # What begins a text begins the first one.
            add_special=add_special and number == 0,
            parse_special=parse_special,
        )
        found += _pairs(cut)
    if field(body, "with_pieces", bool, False):  # noqa: FBT003 - a default
        return _json({"tokens": [{"id": id_, "piece": _piece(piece)} for id_, piece in found]})
    return _json({"tokens": [id_ for id_, _ in found]})


async def _post_detokenize(request: web.Request) -> web.Response:
    """Answer POST /detokenize."""
    caller_of(request)
    body = await read_object(request)
    tokens = body.get("tokens")
    if not isinstance(tokens, list) or not all(map(is_token, tokens)):
        raise invalid("tokens", "expected a list of token ids")
    provider, model, _ = await _tokenizer(request, body)
    data = await provider.detokenize(model, tokens)
    return _json({"content": data.decode("utf-8", "replace")})


async def _post_apply_template(request: web.Request) -> web.Response:
    """Answer POST /apply-template: the prompt of the client's messages and tools alone."""
    caller_of(request)
    body = await read_object(request)
    asked = read_chat(body, request).request
    if any(message.pictures for message in asked.messages):
        raise invalid("messages", "a prompt is text; pictures have no place in it")
    provider, model, _ = await _tokenizer(request, body)
    written = await provider.render(
        ChatRequest(
            messages=asked.messages,
            system=asked.system or "",
            tools=asked.tools,
            tool_choice=asked.tool_choice if asked.tools else "auto",
            model=model,
        )
    )
    return _json({"prompt": written.text})


async def _tokenizer(request: web.Request, body: dict[str, Any]) -> tuple[Tokenizing, str, str]:
    name = field(body, "model", str, "")
    return await find_able(
        request.app[GATEWAY],
        name,
        Tokenizing,  # type: ignore[type-abstract]
        _NO_TOKENIZER,
    )


def _parts(content: Any) -> list[str | int]:
    """Return the parts of a text, which may be a list of texts and tokens; nothing has none."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [content]
    is_list = isinstance(content, list) and len(content) <= _MAX_PARTS
    if not is_list or not all(isinstance(each, str) or is_token(each) for each in content):
        raise invalid("content", f"expected a text, or at most {_MAX_PARTS} texts and token ids")
    return list(content)


def _pairs(cut: TokenList) -> list[tuple[int, bytes]]:
    return list(zip(cut.tokens, cut.pieces, strict=True))


def _piece(piece: bytes) -> str | list[int]:
    """Return a piece as text, or as bytes where it ends inside a character."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


# llama.cpp's GET /props and GET /slots: what a local model is, and which of its slots are busy.
#
# `?model=` names a model, without it the default one is meant; who runs no models answers 501.
# No slot ever shows what it works on.

_RETRY_S = 1.0
_NO_MODELS = "runs no models itself"
_PARAMS = (
    "seed", "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty",
    "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length",
    "xtc_probability", "xtc_threshold", "stop",
)  # fmt: skip
# How llama.cpp tells a seed that is drawn anew.
_ANY_SEED = 2**32 - 1


async def _get_props(request: web.Request) -> web.Response:
    """Answer GET /props; loads the model."""
    caller = caller_of(request)
    provider, model, name = await _serving(request)
    found = await provider.describe(model)
    path = found.path if caller.principal.is_admin else PurePath(found.path).name
    version = request.app[GATEWAY].version
    return web.json_response(
        {
            "default_generation_settings": {
                "id": 0,
                "n_ctx": found.n_ctx,
                "is_processing": False,
                "params": params_of(found),
            },
            "total_slots": found.n_parallel,
            "n_ctx": found.n_ctx,
            "model_alias": name,
            "model_path": path,
            "modalities": {
                "vision": isinstance(provider, Seeing) and provider.sees(model),
                "audio": False,
            },
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "chat_template": found.chat_template,
            "bos_token": found.bos_token,
            "eos_token": found.eos_token,
            "embedding_size": found.embedding_size,
            "build_info": f"clawd {version}",
        }
    )


async def _get_slots(request: web.Request) -> web.Response:
    """Answer GET /slots; never loads a model."""
    caller_of(request)
    provider, model, _ = await _serving(request)
    slots = await provider.slots(model)
    if request.query.get("fail_on_no_slot") not in {None, "", "0"} and all(
        slot.is_processing for slot in slots
    ):
        raise BusyError("no slot available", retry_after_s=_RETRY_S)
    return web.json_response(
        [{"id": s.id, "n_ctx": s.n_ctx, "is_processing": s.is_processing} for s in slots]
    )


async def _serving(request: web.Request) -> tuple[Serving, str, str]:
    name = request.query.get("model", "")
    return await find_able(
        request.app[GATEWAY],
        name,
        Serving,  # type: ignore[type-abstract]
        _NO_MODELS,
    )


def params_of(found: Described) -> dict[str, Any]:
    """Return how a model answers where a request is silent; every answer has a limit."""
    params = {name: found.sampling[name] for name in _PARAMS if name in found.sampling}
    if params.get("seed", 0) < 0:
        params["seed"] = _ANY_SEED
    most = min(MAX_ANSWER_TOKENS, found.n_ctx)
    return params | {"n_predict": found.sampling.get("max_tokens") or most}


ROUTES = [
    web.post("/infill", _post_infill),
    web.post("/tokenize", _post_tokenize),
    web.post("/detokenize", _post_detokenize),
    web.post("/apply-template", _post_apply_template),
    web.get("/props", _get_props),
    web.get("/slots", _get_slots),
]
