"""Asks servers for what a model is and for its bytes: whom, through which proxy, with which key.

Encrypted, or on this machine's loopback; a key goes to the host that it is for and nowhere else,
not with a redirect either. Proxies come from `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`,
certificates from `SSL_CERT_FILE`, as everywhere.
"""

import http.client
import ipaddress
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import IO, Any, cast

from typing_extensions import override

from clawd import __version__
from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError

TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 32 << 20
CODE = "download"

_PASSING = frozenset({408, 425, 429})


class TryAgainError(Exception):
    """A server could not be reached or asked to be left alone; `wait_s` is what it asked for."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.message = message
        self.wait_s = wait_s


class Web:
    """Opens addresses. `timeout_s` is the longest silence of a server."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        trusted = ssl.create_default_context()
        self._opener = _opener(urllib.request.ProxyHandler(), trusted)
        # This machine is asked without a proxy, which could not reach it.
        self._near = _opener(urllib.request.ProxyHandler({}), trusted)

    def open(
        self, url: str, *, token: str = "", headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Ask for an address and return the answer, its head read; to be closed.

        Raises:
            TryAgainError: nobody answered, or not now.
            ClawError: it is refused, there is nothing, or it may not be asked.
        """
        check_address(url)
        request = urllib.request.Request(url, headers=dict(headers or {}))  # noqa: S310 checked
        request.add_header("Accept-Encoding", "identity")
        request.add_header("User-Agent", f"clawctl/{__version__}")
        if token:
            # Not among the headers that go along with a redirect.
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        opener = self._near if is_loopback(url) else self._opener
        try:
            answer = opener.open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error, url, has_token=bool(token)) from None
        except urllib.error.URLError as error:
            raise _unreachable(error, url) from error
        except (OSError, http.client.HTTPException) as error:
            raise TryAgainError(f"{shown(url)}: {_words(error)}") from error
        return cast("http.client.HTTPResponse", answer)

    def json(self, url: str, *, token: str = "", accept: str = "application/json") -> Any:
        """Return what an address answers, decoded.

        Raises:
            ClawError: it does not answer, or no JSON.
        """
        try:
            with self.open(url, token=token, headers={"Accept": accept}) as answer:
                data = answer.read(MAX_ANSWER_BYTES + 1)
            if len(data) > MAX_ANSWER_BYTES:
                raise ClawError(
                    f"{shown(url)} answered more than {MAX_ANSWER_BYTES} bytes", code=CODE
                )
            return json.loads(data)
        except TryAgainError as error:
            raise ClawError(error.message, code=CODE, hint="Try it again.") from error
        except (OSError, http.client.HTTPException) as error:
            raise ClawError(f"{shown(url)}: {_words(error)}", code=CODE) from error
        except ValueError as error:
            raise ClawError(
                f"{shown(url)} did not answer with JSON",
                code=CODE,
                hint="Is it what HF_ENDPOINT or the name of the registry should be?",
            ) from error


def check_address(url: str) -> None:
    """Refuse an address that is not encrypted and not on this machine.

    Raises:
        InvalidRequestError: it is none that may be asked.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequestError(f"{url!r} is not an address: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidRequestError(f"{shown(url)} is not an address of the web; expected https://…")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequestError(
            f"the address of {host} holds a name or a password",
            hint="Keys come from the environment (HF_TOKEN), never from an address.",
        )
    if parts.scheme == "http" and not is_loopback(url):
        raise InvalidRequestError(
            f"{shown(url)} is not encrypted; expected https:// (http:// only for this machine)",
            hint="What a model is made of could be exchanged on the way.",
        )


def is_loopback(url: str) -> bool:
    """Return whether an address is this machine's own."""
    host = urllib.parse.urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """Return an address as it may be displayed: what is behind ? may be a signature."""
    parts = urllib.parse.urlsplit(url)
    host = (parts.netloc or "").rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to where an address may lead, with the key to the same place only."""

    max_redirections = 5

    @override
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        try:
            check_address(newurl)
            if is_loopback(newurl) and not is_loopback(req.full_url):
                raise ForbiddenError(f"{shown(req.full_url)} led to this machine ({shown(newurl)})")
        except ClawError:
            fp.close()  # nobody else does once this raises
            raise
        after = super().redirect_request(req, fp, code, msg, headers, newurl)
        key = req.unredirected_hdrs.get("Authorization")
        if after is not None and key and _origin(newurl) == _origin(req.full_url):
            after.add_unredirected_header("Authorization", key)
        return after


def _opener(
    proxies: urllib.request.ProxyHandler, trusted: ssl.SSLContext
) -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        proxies,
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=trusted),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _origin(url: str) -> tuple[str, str, int]:
    parts = urllib.parse.urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port


def _refusal(error: urllib.error.HTTPError, url: str, *, has_token: bool) -> Exception:
    status, place = error.code, shown(url)
    if status in _PASSING or status >= 500:
        return TryAgainError(f"{place} answered {status}", _retry_after(error))
    if status in {401, 403}:
        key = "the key in HF_TOKEN is not enough" if has_token else "no key was given"
        return ForbiddenError(
            f"{place} answered {status}: {key}",
            hint="Accept the model's licence on its page, then export HF_TOKEN with a key that may "
            "read it.",
        )
    if status in {404, 410}:
        return NotFoundError(f"{place} answered {status}: there is nothing of this name")
    return ClawError(f"{place} answered {status}", code=CODE)


def _retry_after(error: urllib.error.HTTPError) -> float:
    try:
        return max(0.0, float(error.headers.get("Retry-After") or 0))
    except ValueError:
        return 0.0


def _unreachable(error: urllib.error.URLError, url: str) -> Exception:
    if isinstance(error.reason, ssl.SSLCertVerificationError):
        return ForbiddenError(
            f"{shown(url)} has a certificate that is not trusted: {error.reason.verify_message}",
            hint="Where the network has its own certificates, name their file in SSL_CERT_FILE.",
        )
    reason = error.reason
    return TryAgainError(
        f"{shown(url)}: {_words(reason) if isinstance(reason, Exception) else reason}"
    )


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
