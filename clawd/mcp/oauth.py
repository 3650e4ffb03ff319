"""Signing in at a server by OAuth: the SDK's flow, with a file for the tokens and a local listener.

    {"url": "https://mcp.example.org/mcp", "port": 40123, "tokens": {…}, "client": {…}}

The file is 0600 in the home. Tokens that were given for another URL are not used. A person opens
the address that the server's state tells; the browser comes back to a port of this machine.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from clawd.kernel.files import replace_file
from clawd.mcp.model import ServerSettings
from clawd.mcp.server_hosts import ConnectError

SIGN_IN_LIMIT_S = 300.0
_HEAD_LIMIT_S = 30.0
_MAX_HEAD = 16 << 10
_MAX_ADDRESS = 8 << 10
_SAFE_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")

_log = logging.getLogger(__name__)

OnSignIn = Callable[[str], Awaitable[None]]


class TokenFile:
    """The tokens of one server, as the SDK wants them kept. Never raises for a file that is bad."""

    def __init__(
        self, path: Path, url: str, client: OAuthClientInformationFull | None = None
    ) -> None:
        self._path = path
        self._url = url
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, None where there are none for this URL."""
        given = (await self._load()).get("tokens")
        try:
            return OAuthToken.model_validate(given) if given else None
        except ValidationError:
            return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        await self._update("tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return what the server registered us as; by hand, if that was configured."""
        if self._client is not None:
            return self._client
        given = (await self._load()).get("client")
        try:
            return OAuthClientInformationFull.model_validate(given) if given else None
        except ValidationError:
            return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep what the server registered us as."""
        await self._update("client", client_info.model_dump(mode="json", exclude_none=True))

    async def port(self) -> int:
        """Return the port that the browser comes back to, 0 where none was kept."""
        kept = (await self._load()).get("port")
        return kept if isinstance(kept, int) and 1024 <= kept <= 65535 else 0

    async def move(self, port: int) -> None:
        """Keep a port, and not what was registered with another one."""
        kept = {"tokens": (await self._load()).get("tokens")}
        await self._write({"url": self._url, "port": port} | (kept if kept["tokens"] else {}))

    async def forget(self) -> None:
        """Keep nothing any more."""
        await asyncio.to_thread(self._path.unlink, missing_ok=True)

    async def _update(self, key: str, value: Any) -> None:
        await self._write(await self._load() | {"url": self._url, key: value})

    async def _write(self, data: dict[str, Any]) -> None:
        await asyncio.to_thread(replace_file, self._path, json.dumps(data).encode())

    async def _load(self) -> dict[str, Any]:
        try:
            data = json.loads(await asyncio.to_thread(self._path.read_bytes))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) and data.get("url") == self._url else {}


@contextlib.asynccontextmanager
async def sign_in_auth(
    settings: ServerSettings, folder: Path, on_sign_in: OnSignIn
) -> AsyncIterator[OAuthClientProvider]:
    """Give what signs requests, and signs in where that is needed; a port is held for the body.

    Args:
        settings: of the server.
        folder: where the tokens are kept; it is there.
        on_sign_in: takes the address that a person must open.

    Raises:
        ConnectError: no port is free.
    """
    file = TokenFile(token_path(folder, settings.alias), settings.url, _registered(settings))
    callback = await _held(file)

    async def asked(address: str) -> None:
        try:
            await callback.listen(address)
        except OSError as error:
            # What was signed in there is over as well, or nobody would be asked.
            await file.forget()
            reason = f"port {callback.port}, where the browser comes back to: {error.strerror}"
            raise OAuthFlowError(f"{reason}; the next try takes another") from error
        # No secret: the user who opens it must still sign in, and comes back to this machine.
        _log.warning("an MCP server wants a person to sign in: %s: %s", settings.alias, address)
        await on_sign_in(address)

    try:
        yield OAuthClientProvider(
            server_url=settings.url,
            client_metadata=OAuthClientMetadata(
                client_name="clawd",
                redirect_uris=[AnyUrl(callback.url)],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
            ),
            storage=file,
            redirect_handler=asked,
            callback_handler=callback.wait,
        )
    finally:
        callback.close()


async def _held(file: TokenFile) -> "Callback":
    """Hold the port that was registered; another where it is taken and nobody is signed in."""
    callback = Callback(await file.port())
    if callback.port and (callback.hold() or await file.get_tokens() is not None):
        return callback
    callback = Callback(0)
    if not callback.hold():
        raise ConnectError("127.0.0.1 has no port free for the browser to come back to")
    try:
        await file.move(callback.port)
    except BaseException:
        callback.close()
        raise
    return callback


def _registered(settings: ServerSettings) -> OAuthClientInformationFull | None:
    """Return the registration that was made by hand."""
    if not settings.oauth_client_id:
        return None
    secret = settings.oauth_client_secret or None
    return OAuthClientInformationFull(
        client_id=settings.oauth_client_id,
        client_secret=secret,
        token_endpoint_auth_method="client_secret_basic" if secret else "none",
        redirect_uris=None,
    )


def token_path(folder: Path, alias: str) -> Path:
    """Return where a server's tokens are kept."""
    is_plain = _SAFE_NAME.fullmatch(alias) is not None
    name = alias if is_plain else hashlib.sha256(alias.encode()).hexdigest()[:32]
    return folder / f"oauth-{name}.json"


class Callback:
    """Waits, on the loopback interface only, for the browser to come back once.

    The port is held before anybody is told of it: the system would give it to the next who asks.

    Args:
        port: to hold; 0 for one that is free.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._came: asyncio.Future[AuthorizationCodeResult] | None = None
        self._state = ""

    @property
    def url(self) -> str:
        """Where the browser is to come back to."""
        return f"http://127.0.0.1:{self.port}/callback"

    def hold(self) -> bool:
        """Keep the port from others, without listening yet; False where one of them has it."""
        with contextlib.suppress(OSError):
            self._bind()
        return self._socket is not None

    async def listen(self, address: str) -> None:
        """Begin to listen for who comes back from an address.

        Raises:
            OAuthFlowError: nobody could open it, or be known again.
            OSError: another program has the port.
        """
        states = parse_qs(urlsplit(address).query).get("state", [""])
        if len(address) > _MAX_ADDRESS or not states[-1]:
            raise OAuthFlowError("the server's address to sign in at cannot be opened")
        self._state = states[-1]
        self._came = asyncio.get_running_loop().create_future()
        held = self._socket or self._bind()
        # Begun in two steps: a server that nobody knows of yet could not be closed.
        self._server = await asyncio.start_server(
            self._serve, sock=held, limit=_MAX_HEAD, start_serving=False
        )
        self._socket = None  # the server's now
        try:
            await self._server.start_serving()
        except BaseException:
            self.close()  # or the next try would find its own port taken
            raise

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the code. Raises OAuthFlowError when nobody comes."""
        assert self._came is not None
        try:
            async with asyncio.timeout(SIGN_IN_LIMIT_S):
                return await self._came
        except TimeoutError:
            raise OAuthFlowError(f"nobody signed in within {SIGN_IN_LIMIT_S:g} s") from None
        finally:
            self.close()
            self.hold()  # for the next time

    def close(self) -> None:
        """Let the port go."""
        for held in (self._server, self._socket):
            if held is not None:
                held.close()
        self._server = self._socket = None

    def _bind(self) -> socket.socket:
        bound = socket.socket()
        try:
            # Connections of a sign-in before may not be quite over.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", self.port))
        except OSError:
            bound.close()
            raise
        self.port = int(bound.getsockname()[1])
        self._socket = bound
        return bound

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_LIMIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._taken(head)
                body = f"{text}\n".encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _taken(self, head: bytes) -> tuple[str, str]:
        """Take the code out of a request that shows the state which was given out.

        Any program of this machine may come here; one that knows no state ends no sign-in.
        """
        method, _, rest = head.decode("latin-1").partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        words = {name: values[0] for name, values in parse_qs(target.query).items()}
        state = words.get("state", "").encode()
        is_ours = bool(self._state) and hmac.compare_digest(state, self._state.encode())
        if method != "GET" or target.path != "/callback" or not is_ours:
            return "404 Not Found", "There is nothing here."
        if self._came is None or self._came.done():
            return "410 Gone", "This sign-in is over."
        result = AuthorizationCodeResult(
            code=words.get("code", ""), state=words["state"], iss=words.get("iss")
        )
        self._came.set_result(result)
        return "200 OK", "Thank you. You may close this page; clawd goes on by itself."
