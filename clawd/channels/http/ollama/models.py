"""Ollama's door to models: /api/tags, /api/show, /api/ps, /api/version; and what it has no way to.

Models come from files on this machine and from the configuration: creating, copying and pushing
them is answered with 501. `keeping` pulls and removes.
"""

import asyncio
import contextlib
import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.app import GATEWAY, KEEPING, Gateway, caller_of
from clawd.channels.http.body import read_object
from clawd.channels.http.catalogue import LATEST, capabilities_of, find, listed
from clawd.channels.http.errors import message_of, nothing_starts
from clawd.channels.http.ollama.chat import local_model_of, model_of
from clawd.engine.gguf import GgufHead, files_of, read_head
from clawd.engine.protocol import ModelInfo
from clawd.engine.slot import ModelStatus
from clawd.errors import BusyError, ClawError, InvalidRequestError, ModelLoadError
from clawd.wire.models import ListLoadedModels, LoadModel, UnloadModel

# Ollama's door to the folder of models: POST /api/pull and DELETE /api/delete.
#
# clawctl's own downloader does both, as a process beside the daemon: what it refuses is refused
# here, what has come is kept, and one that hangs or grows takes nothing of the daemon with it.
# What can be named is a model of the catalogue, of the Hugging Face hub or of Ollama's registry,
# and never an address: a key for models must not make this machine ask others. One
# at a time.

_PROGRAM = ("-P", "-m", "clawctl.model_pull")
_SILENCE_S = 900.0
"""Without a line the process is ended: all its own tries end before."""

_HUB = re.compile(
    r"(?:hf:|(?:hf|huggingface)\.co/)(?P<rest>[\w.-]+/[\w.-]+(?:[:@][\w./:-]+)?)", re.ASCII
)
_REGISTRY = re.compile(r"[\w-][\w.-]*(?:/[\w.-]+)?(?::[\w.-]+)?", re.ASCII)
_RETRY_S = 30.0
_MAX_NAME = 300
_GRACE_S = 5.0
_LOOK_S = 0.5


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """What the process prints: how far it is, or how it ended."""

    status: str = ""
    digest: str = ""
    total: int = 0
    completed: int = 0
    error: str = ""
    code: str = ""
    hint: str = ""


async def _post_pull(request: web.Request) -> web.StreamResponse:
    """Answer POST /api/pull: bring a model into the folder, and say how far it is in lines."""
    body = await read_object(request)
    ref = ref_of(_name_of(body))
    streams = body.get("stream", True)
    if not isinstance(streams, bool):
        raise InvalidRequestError("stream must be true or false")
    async with _alone(request), _running(request, "pull", ref) as lines:
        if not streams:
            async for _ in lines:
                pass
            return web.json_response({"status": "success"})
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        try:
            await _write(response, {"status": "pulling manifest"})
            async for line in lines:
                await _write(response, line)
            await _write(response, {"status": "success"})
        except ClawError as error:
            with contextlib.suppress(ConnectionError):
                await _write(response, {"error": message_of(error)})
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response


async def _delete_model(request: web.Request) -> web.Response:
    """Answer DELETE /api/delete: remove a model's files; of one that was imported the link."""
    name = _name_of(await read_object(request))
    gateway = request.app[GATEWAY]
    async with _alone(request):
        with contextlib.suppress(ClawError):  # it was not loaded, or is none
            stem = name.removesuffix(LATEST).replace(":", "-")  # the one that `rm` removes
            await gateway.invoke(UnloadModel(name=stem), caller_of(request).principal)
        async with _running(request, "rm", name) as lines:
            async for _ in lines:
                pass
    return web.Response()


def ref_of(name: str) -> str:
    """Return what a name of Ollama's clients is to a pull: never an address, nor another registry.

    Raises:
        InvalidRequestError: it is none of the catalogue, the hub or Ollama's registry.
    """
    if found := _HUB.fullmatch(name):
        return f"hf:{found['rest']}"
    plain = name.removeprefix("ollama:").removeprefix("registry.ollama.ai/")
    if not _REGISTRY.fullmatch(plain):
        raise InvalidRequestError(
            f"{name!r} is not pulled over HTTP: expected NAME[:TAG], hf.co/ORG/REPO[:QUANT], or a "
            "name of the catalogue",
            hint="At the machine itself clawctl model pull takes addresses, too.",
        )
    return f"ollama:{plain}"


def _name_of(body: dict[str, Any]) -> str:
    name = model_of(body)
    if len(name) > _MAX_NAME or not name.isprintable() or name.startswith("-"):
        raise InvalidRequestError(f"{name[:40]!r} is no name of a model")
    return name


@asynccontextmanager
async def _alone(request: web.Request) -> AsyncIterator[None]:
    lock = request.app[KEEPING]
    if lock.locked():
        raise BusyError("a model is being pulled or removed already", retry_after_s=_RETRY_S)
    async with lock:
        yield


@asynccontextmanager
async def _running(
    request: web.Request, what: str, name: str
) -> AsyncIterator[AsyncGenerator[dict[str, Any], None]]:
    """Start the process, and end it when its lines are no longer read."""
    folder = (await asyncio.to_thread(request.app[GATEWAY].models)).folder
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *_PROGRAM,
        what,
        folder,
        name,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env=dict(os.environ),
        start_new_session=True,
    )
    lines = _lines(request, process)
    try:
        yield lines
    finally:
        await lines.aclose()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        async with asyncio.timeout(_GRACE_S):
            await process.wait()


async def _lines(
    request: web.Request, process: asyncio.subprocess.Process
) -> AsyncGenerator[dict[str, Any], None]:
    """Return what Ollama's clients read of each line.

    Raises:
        ClawError: it failed, hung, or the emergency stop was set meanwhile.
    """
    assert process.stdout is not None
    while True:
        data = await _next(request, process.stdout)
        if not data:
            raise ClawError("the pull ended without a result; what has come is kept")
        try:
            line = msgspec.json.decode(data, type=_Line)
        except msgspec.DecodeError as error:
            raise ClawError(f"the pull said what cannot be read: {error}") from error
        if line.error:
            raise ClawError(line.error, code=line.code, hint=line.hint)
        if line.status == "success":
            return
        told: dict[str, Any] = {"status": line.status}
        if line.digest:
            told["digest"] = line.digest
        if line.total:
            told |= {"total": line.total, "completed": line.completed}
        yield told


async def _next(request: web.Request, output: asyncio.StreamReader) -> bytes:
    """Return the next line, unless the stop is set, the client leaves, or none comes."""
    silent_at = time.monotonic() + _SILENCE_S
    while True:
        if request.app[GATEWAY].is_stopped():
            raise nothing_starts()
        if request.transport is None or request.transport.is_closing():
            raise ClawError("the client left", code="cancelled")
        try:
            async with asyncio.timeout(_LOOK_S):
                return await output.readline()
        except TimeoutError as error:
            if time.monotonic() > silent_at:
                raise ClawError(f"the pull said nothing for {_SILENCE_S:g} s") from error


async def _write(response: web.StreamResponse, told: dict[str, Any]) -> None:
    await response.write(msgspec.json.encode(told) + b"\n")


# Clients refuse what is older than the first one whose answers they can read.
_API_LEVEL = "0.6.4"
_EPOCH = datetime.fromtimestamp(0, UTC)
_UNKNOWN = "unknown"
_THINKING = ("<think>", "enable_thinking", "reasoning_content")
# Editors look for this in the template (Continue does) to know whether a gap can be filled in; to
# a chat template it is a comment.
_TAKES_SUFFIX = "{#- {{ .Prompt }}{{ .Suffix }} -#}"
_STEPS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_MAX_HEADS = 256
_CANNOT = ("push", "create", "copy", "blobs/{digest}")


async def _get_tags(request: web.Request) -> web.Response:
    """Answer GET /api/tags: the models that can be asked for."""
    gateway = request.app[GATEWAY]
    models = await listed(gateway)
    known = await asyncio.to_thread(lambda: [_of_file(model.path) for model in models])
    lines = [
        {
            "name": model.name,
            "model": model.name,
            "modified_at": _stamp(at),
            "size": model.size_bytes,
            "digest": _digest(model.name, model.path, at),
            "details": _details(head, is_local=model.is_local)
            | {"capabilities": model.capabilities},
        }
        for model, (at, head) in zip(models, known, strict=True)
    ]
    return web.json_response({"models": lines})


async def _get_ps(request: web.Request) -> web.Response:
    """Answer GET /api/ps: the models that are loaded, under the names that /api/tags has."""
    gateway = request.app[GATEWAY]
    names = {model.path: model.name for model in await listed(gateway) if model.is_local}
    loaded = await gateway.invoke(ListLoadedModels(), caller_of(request).principal)
    lines = []
    for line in loaded.items:
        if line.state != "ready":
            continue
        at, head = await asyncio.to_thread(_of_file, line.path)
        name = names.get(line.path, line.name)
        lines.append(
            {
                "name": name,
                "model": name,
                "size": line.size_bytes,
                "digest": _digest(name, line.path, at),
                "details": _details(head, is_local=True),
                "size_vram": 0,
                "context_length": line.context_size,
            }
        )
    return web.json_response({"models": lines})


async def _post_show(request: web.Request) -> web.Response:
    """Answer POST /api/show: what a model is; loads it, for nobody else can tell."""
    gateway = request.app[GATEWAY]
    choice = await find(gateway, model_of(await read_object(request)))
    able = choice.provider.capabilities()
    told: dict[str, Any] = {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _details(None, is_local=False),
        "model_info": {"general.architecture": _UNKNOWN, "general.basename": choice.name},
        "capabilities": capabilities_of(choice.provider, choice.model),
        "modified_at": _stamp(_EPOCH),
    }
    if name := local_model_of(gateway, choice):
        line = await gateway.invoke(LoadModel(name=name), caller_of(request).principal)
        at, head = await asyncio.to_thread(_of_file, line.path)
        told |= {"modified_at": _stamp(at), "details": _details(head, is_local=True)}
        told["capabilities"] = capabilities_of(choice.provider, choice.model)  # once it is loaded
        told |= _shown(_infos(gateway).get(line.path), told)
    elif able.context_size:
        told["model_info"][f"{_UNKNOWN}.context_length"] = able.context_size
    return web.json_response(told)


async def _get_version(request: web.Request) -> web.Response:
    """Answer GET /api/version: the version of Ollama's API that is spoken, and clawd's own."""
    own = request.app[GATEWAY].version
    return web.json_response({"version": _API_LEVEL, "clawd": own, "server": f"clawd/{own}"})


async def _refuse(request: web.Request) -> web.Response:
    """Answer what is not done here."""
    raise ClawError(
        f"{request.path} is not supported: models are files on this machine",
        code="not_supported",
        hint="Fetch one with `clawctl model pull REF`, or add one with `clawctl model add FILE`.",
    )


def _infos(gateway: Gateway) -> dict[str, ModelInfo]:
    """Return what is loaded, by path."""
    known: list[ModelStatus] = gateway.engine.status()
    return {each.path: each.info for each in known if each.info is not None}


def _shown(info: ModelInfo | None, told: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a loaded model; `context_length` is what can be used of it here."""
    if info is None:
        return {}
    able = told["capabilities"] if info.generates else ["rerank" if info.ranks else "embedding"]
    able = [*able, "insert"] if info.infills else able
    thinks = info.generates and any(mark in info.chat_template for mark in _THINKING)
    return {
        "template": info.chat_template + (_TAKES_SUFFIX if info.infills else ""),
        "capabilities": [*able, *(["thinking"] if thinks else [])],
        "model_info": {
            "general.architecture": info.architecture,
            "general.basename": told["model_info"]["general.basename"],
            "general.parameter_count": info.n_params,
            f"{info.architecture}.context_length": info.n_ctx,
            f"{info.architecture}.vocab_size": info.n_vocab,
        },
    }


def _details(head: GgufHead | None, *, is_local: bool) -> dict[str, Any]:
    family = head.architecture if head else ""
    return {
        "parent_model": "",
        "format": "gguf" if is_local else "",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": _size(head.parameters) if head else "",
        "quantization_level": head.quantization if head else "",
    }


def _size(parameters: int) -> str:
    for step, letter in _STEPS:
        if parameters >= step:
            return f"{parameters / step:.1f}{letter}"
    return str(parameters)


def _digest(name: str, path: str, changed_at: datetime) -> str:
    """Return what is another one when the model is another one; its content is not read for it."""
    mark = f"{name}\0{path}\0{changed_at.isoformat()}"
    return hashlib.sha256(mark.encode("utf-8", "replace")).hexdigest()


def _of_file(path: str) -> tuple[datetime, GgufHead | None]:
    """Return when a model's file was last changed, and what it tells of itself; blocks."""
    if not path:
        return _EPOCH, None
    try:
        parts = [(part, part.stat()) for part in files_of(Path(path))]
    except OSError:
        return _EPOCH, None
    head = _head(tuple((part, at.st_ino, at.st_size, at.st_mtime_ns) for part, at in parts))
    first = next(at for part, at in parts if part == Path(path))
    return datetime.fromtimestamp(first.st_mtime, UTC), head


@functools.lru_cache(maxsize=_MAX_HEADS)
def _head(parts: tuple[tuple[Path, int, int, int], ...]) -> GgufHead | None:
    """Return what the files of a model tell of it, None where they cannot be read.

    Args:
        parts: each file with what is another number once it is another file.
    """
    try:
        heads = [read_head(part) for part, *_ in parts]
    except ModelLoadError:
        return None
    return msgspec.structs.replace(heads[0], parameters=sum(each.parameters for each in heads))


def _stamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


ROUTES = [
    web.post("/api/pull", _post_pull),
    web.delete("/api/delete", _delete_model),
    web.get("/api/tags", _get_tags),
    web.get("/api/ps", _get_ps),
    web.get("/api/version", _get_version),
    web.post("/api/show", _post_show),
    *(web.route("*", f"/api/{name}", _refuse) for name in _CANNOT),
]
