"""The page at `/`: its files, and what it needs beside the routes that every client has.

The files are built from `web/` into the folder `page` beside this module: one document, one script,
one style sheet, an icon. The document's Content-Security-Policy names the two by their addresses;
nothing else may run, and nothing is fetched from anywhere else. Where the files were not built,
`/` says so, and everything else is served.

The page calls the methods of the control socket by their names (`POST /methods/{name}`), for those
with scope `admin`. It has no cookies: a browser marks each request with where it comes from
(`guard.py`), and a key, where one is needed, is a header that the page itself adds. A one-time
link (`clawctl page`) has its secret behind the `#`, which no browser sends; the page changes it for
a key.

What the page lets clawctl do: recommend a model, choose the one that answers, change servers.

A command of clawctl runs as a process beside the daemon, so that a config has one way to be
changed: what the command refuses is refused here. Its words are made from checked parameters, none
of which can be read as an option. Not to be had this way are files of the machine, variables of the
environment and hidden values of any kind: those take a terminal.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from aiohttp import web
from typing_extensions import override

from clawd.channels.http.app import GATEWAY, GOING_ON, LOGIN_PATH, PAGE_PATH, Gateway, caller_of
from clawd.channels.http.body import as_struct, read_object
from clawd.channels.http.errors import nothing_starts
from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.paths import layout
from clawd.wire.conversations import CompressConversation
from clawd.wire.daemon import CreateKey, ShowConfig
from clawd.wire.events import Event, TurnStarted
from clawd.wire.methods import METHODS
from clawd.wire.models import LoadModel
from clawd.wire.turns import SendMessage

_log = logging.getLogger(__name__)

_FOLDER = "page"
_DOCUMENT = "index.html"
_ICON = "icon.svg"
_MAX_ICON_BYTES = 256_000
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_ALIVE = "Ollama is running"
"""What clients of Ollama look for at `/`."""

_NOT_BUILT = """<!doctype html><meta charset="utf-8"><title>clawd</title>
<p>clawd is running. Its page was not built here: <code>make page</code> in the checkout builds it.
Everything else is served: <code>clawctl agent</code> in a terminal.</p>"""

_STARTING = (SendMessage, CompressConversation, LoadModel)
"""What sets a model to work, which nothing may over HTTP under the emergency stop."""

_LOGIN_DAYS = 30
_FOR_EVER = "public, max-age=31536000, immutable"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the page: `name` has a hash of its content where it may be kept for ever."""

    name: str
    data: bytes
    media_type: str

    @property
    def tag(self) -> str:
        """Its entity tag."""
        return f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'


@cache
def page_files() -> dict[str, File]:
    """Return the files of the page by name; none where it was not built."""
    folder = resources.files(__package__) / _FOLDER
    if not folder.is_dir():
        return {}
    found = {}
    for each in folder.iterdir():
        media_type = _TYPES.get(f".{each.name.rpartition('.')[2]}", "")
        if media_type and each.is_file():
            found[each.name] = File(name=each.name, data=each.read_bytes(), media_type=media_type)
    return found


def content_security_policy(host: str, names: list[str]) -> str:
    """Return the policy of the document: these files of this host, and no other, may run."""
    scripts = [f"{host}{PAGE_PATH}{name}" for name in names if name.endswith(".js")]
    styles = [f"{host}{PAGE_PATH}{name}" for name in names if name.endswith(".css")]
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(scripts),
        "style-src": " ".join(styles),
        "img-src": "'self' blob:",  # a blob is a file that was attached in this very tab
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


async def _root(request: web.Request) -> web.Response:
    """Answer a browser with the page, and every other client with the words it looks for."""
    is_browser = "text/html" in request.headers.get("Accept", "")
    if not (is_browser and request.app[GATEWAY].has_page):
        return web.Response(text=_ALIVE)
    files = page_files()
    document = files.get(_DOCUMENT)
    headers = {
        "Content-Security-Policy": content_security_policy(request.host, sorted(files)),
        "Cache-Control": "no-cache",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
    }
    body = _NOT_BUILT.encode() if document is None else document.data
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


async def _file(request: web.Request) -> web.Response:
    """Serve a file of the page."""
    name, icon = request.match_info["name"], request.app[GATEWAY].page_icon
    found = page_files().get(name)
    if found is not None and name == _ICON and icon:
        found = await asyncio.to_thread(_icon_of, Path(icon)) or found
    if not request.app[GATEWAY].has_page or found is None or found.name == _DOCUMENT:
        raise NotFoundError(f"there is nothing at {request.path}")
    is_named_by_content = "-" in found.name
    headers = {
        "ETag": found.tag,
        "Cache-Control": _FOR_EVER if is_named_by_content else "no-cache",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    }
    if found.tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    response = web.Response(
        body=found.data, content_type=found.media_type, charset="utf-8", headers=headers
    )
    response.enable_compression()
    return response


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _icon_of(path: Path) -> File | None:
    """Return the icon that the config names; None where it is no file of at most 256 kB."""
    data = b""
    with contextlib.suppress(OSError), open(path, "rb", opener=_without_waiting) as file:
        if S_ISREG(os.fstat(file.fileno()).st_mode):
            data = file.read(_MAX_ICON_BYTES + 1)
    if not 0 < len(data) <= _MAX_ICON_BYTES:
        _log.warning("page_icon: %s is no readable file of at most 256 kB", path)
        return None
    return File(name=_ICON, data=data, media_type=_TYPES[path.suffix.lower()])


async def _login(request: web.Request) -> web.Response:
    """Make the key of a browser that has opened a one-time link."""
    owner = caller_of(request).principal
    wanted = CreateKey(name="page", scopes=("chat", "tools", "admin"), days=_LOGIN_DAYS)
    made = await request.app[GATEWAY].invoke(wanted, owner)
    headers = {"Cache-Control": "no-store"}
    return web.json_response({"key": made.key}, headers=headers)


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that a message began."""

    conversation_id: str
    turn_id: str


async def _method(request: web.Request) -> web.Response:
    """Run a method of the control socket and return its report.

    A message that is detached is answered when its turn begins; the stream of events reports what
    happens then.
    """
    gateway, principal = request.app[GATEWAY], caller_of(request).principal
    name = request.match_info["name"]
    kind = METHODS.get(name)
    if kind is None:
        raise NotFoundError(f"there is no method {name[:64]!r}")
    params = as_struct(await read_object(request), kind)
    if isinstance(params, _STARTING) and gateway.is_stopped():
        raise nothing_starts()
    if isinstance(params, SendMessage) and params.detach:
        result: Any = await _started(request, params)
    elif getattr(params, "interactive", False):  # its approvals are answered on the page
        result = await gateway.stream(params, principal, _see)
    else:
        result = await gateway.invoke(params, principal)
    body = msgspec.json.encode(result)
    return web.Response(body=body, content_type="application/json")


async def _see(_event: Event) -> None:
    """Take an event that the page follows elsewhere."""


async def _started(request: web.Request, params: SendMessage) -> _Started:
    """Send a message, and return when its turn has begun.

    Raises:
        ClawError: it did not begin.
    """
    gateway, principal = request.app[GATEWAY], caller_of(request).principal
    began: asyncio.Future[_Started] = asyncio.get_running_loop().create_future()

    async def take(event: Event) -> None:
        if isinstance(event, TurnStarted) and not began.done():
            began.set_result(_Started(conversation_id=event.conversation_id, turn_id=event.turn_id))

    async def run() -> None:
        try:
            await gateway.stream(params, principal, take)
        except ClawError:
            if not began.done():  # else an event reports it
                raise

    turn = asyncio.create_task(run())
    going_on = request.app[GOING_ON]
    going_on.add(turn)
    turn.add_done_callback(going_on.discard)
    first: set[asyncio.Future[Any]] = {turn, began}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if not began.done():
        await turn
    return await began


ROUTES = [
    web.get("/", _root),
    web.get(PAGE_PATH + "{name}", _file),
    web.post(LOGIN_PATH, _login),
    web.post("/methods/{name}", _method),
]


_LIMIT_S = 300.0
Alias = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,31}\Z")]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]


class _Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command; its fields are the parameters."""

    changes_config: ClassVar[bool] = True

    def words(self) -> tuple[str, ...]:
        """Return the command and its arguments."""
        raise NotImplementedError


class RecommendModels(_Act, frozen=True):
    """Return which models of the catalogue fit this machine; measures for two seconds."""

    changes_config: ClassVar[bool] = False

    @override
    def words(self) -> tuple[str, ...]:
        return "model", "recommend", "--json"


class UseModel(_Act, frozen=True):
    """Answer from a model of the folder from now on, where nothing else is asked for."""

    name: Annotated[str, msgspec.Meta(pattern=r"\A[^-./\x00][^/\x00]{0,254}\Z")]

    @override
    def words(self) -> tuple[str, ...]:
        return "model", "use", "--json", "--", self.name


class AddServer(_Act, frozen=True):
    """Add an MCP server: an address without a secret, or a program with its arguments."""

    alias: Alias
    url: str = ""
    command: Annotated[tuple[Word, ...], msgspec.Meta(max_length=100)] = ()
    hosts: Annotated[tuple[Word, ...], msgspec.Meta(max_length=100)] = ()
    workspace: Literal["none", "read", "write"] = "read"

    @override
    def words(self) -> tuple[str, ...]:
        if bool(self.url) == bool(self.command):
            raise InvalidRequestError("a server has either an address or a program")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise InvalidRequestError("an address begins with http:// or https://")
        own = [f"--host={each}" for each in self.hosts]
        if self.command:
            own.append(f"--workspace={self.workspace}")
        return "mcp", "add", "--json", *own, "--", self.alias, *(self.command or (self.url,))


class SwitchServer(_Act, frozen=True):
    """Switch an MCP server of the config on or off, for good."""

    alias: Alias
    on: bool

    @override
    def words(self) -> tuple[str, ...]:
        key = f"mcp.servers.{self.alias}.enabled"
        return "config", "set", "--json", "--", key, "true" if self.on else "false"


class RemoveServer(_Act, frozen=True):
    """Take an MCP server out of the config."""

    alias: Alias

    @override
    def words(self) -> tuple[str, ...]:
        return "mcp", "remove", "--json", "--", self.alias


ACTS: dict[str, type[_Act]] = {
    "recommend_models": RecommendModels,
    "use_model": UseModel,
    "add_server": AddServer,
    "switch_server": SwitchServer,
    "remove_server": RemoveServer,
}


async def _post(request: web.Request) -> web.Response:
    """Run a command of clawctl and return its report."""
    name = request.match_info["act"]
    kind = ACTS.get(name)
    if kind is None:
        raise NotFoundError(f"there is no act {name[:64]!r}")
    act = as_struct(await read_object(request), kind)
    if act.changes_config:
        await _check_config(request.app[GATEWAY], request)
    return web.Response(body=await _run(act.words()), content_type="application/json")


async def _check_config(gateway: Gateway, request: web.Request) -> None:
    """Make sure that a command would change the config in force, and no other.

    Raises:
        InvalidRequestError: the daemon was started with another one than clawctl would find.
    """
    in_force = await gateway.invoke(ShowConfig(), caller_of(request).principal)
    if in_force.path != str(layout().config):
        raise InvalidRequestError(
            f"the config in force is {in_force.path}, which clawctl would not find",
            hint="Change it with an editor, then: kill -HUP the daemon.",
        )


async def _run(words: tuple[str, ...]) -> bytes:
    """Return what a command prints as JSON.

    Raises:
        ClawError: it failed; says what it said.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", "clawctl", "--no-start", "--quiet", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env=dict(os.environ),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            printed, errors = await process.communicate()
    except TimeoutError as error:
        raise ClawError(f"the command took more than {_LIMIT_S:g} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.returncode == 0:
        return printed
    raise _failure(printed, errors.decode("utf-8", "replace"))


def _failure(printed: bytes, errors: str) -> ClawError:
    try:
        error = msgspec.json.decode(printed)["error"]
        return ClawError(error["message"], code=error["code"], hint=error["hint"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return InvalidRequestError(errors.strip()[-500:] or "the command failed")


ACT_ROUTES = [web.post("/clawctl/{act}", _post)]
