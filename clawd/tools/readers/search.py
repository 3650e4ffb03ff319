"""Asking a search engine by ddgs, without a network: what it asks and what it finds.

The parsers of ddgs run here with a client that answers from a list. When the list is at its end,
the request is told and the process ends; the daemon sends it, under its own rules, and asks again
with one answer more. So nothing untrusted is parsed outside the sandbox, and nothing inside
of it reaches the network.
"""

import importlib
import json
import sys
import types
from collections.abc import Iterator
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlencode, urlsplit

_MAX_RESULTS = 50


class _Wanted(BaseException):
    """Carries a request out of the parsers; no handler of theirs catches it."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.request = request


class _Answer:
    """A response as ddgs reads it."""

    def __init__(self, status: int, text: str) -> None:
        self.status_code = status
        self.text = text
        self.content = text.encode("utf-8", "replace")


class _Client:
    """Stands for ddgs's HTTP client and the native one that it holds."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.client = self
        self._answers = list(answers)
        self._headers: dict[str, str] = {}
        self._cookies: dict[str, str] = {}

    def headers_update(self, headers: dict[str, str]) -> None:
        self._headers |= headers

    def set_cookies(self, _url: str, cookies: dict[str, str]) -> None:
        self._cookies |= cookies

    def request(self, method: str, url: str, **more: Any) -> _Answer:
        if self._answers:
            answer = self._answers.pop(0)
            return _Answer(answer["status"], answer["text"])
        if params := more.get("params"):
            url += ("&" if "?" in url else "?") + urlencode(params)
        headers = self._headers | dict(more.get("headers") or {})
        cookies = self._cookies | dict(more.get("cookies") or {})
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        body = urlencode(more["data"]) if more.get("data") else ""
        raise _Wanted({"method": method, "url": url, "headers": headers, "body": body})


def read(job: dict[str, Any], data: bytes) -> Iterator[dict[str, Any]]:
    """Yield `{"request": …}` that is to be sent, or `{"results": […]}`, or `{"error": …}`.

    Args:
        job: `backend`, `query`, `region`, `safesearch`.
        data: JSON, the answers so far: a list of `{"status", "text"}`.
    """
    try:
        engine = _engine(job["backend"], json.loads(data))
        found = engine.search(job["query"], region=job["region"], safesearch=job["safesearch"])
    except _Wanted as wanted:
        yield {"request": wanted.request}
        return
    except Exception as error:  # noqa: BLE001 - a page that ddgs cannot read breaks it in any way
        yield {"error": type(error).__name__}
        return
    results = [
        {"title": str(each.title), "url": _unwrapped(str(each.href)), "snippet": str(each.body)}
        for each in (found or [])[:_MAX_RESULTS]
    ]
    yield {"results": results}


def _engine(backend: str, answers: list[dict[str, Any]]) -> Any:
    """Return ddgs's engine with our client in it."""
    native = types.ModuleType("primp")
    native.Client = _no_network  # type: ignore[attr-defined] # ddgs wants the names, nothing else
    native.TimeoutError = TimeoutError  # type: ignore[attr-defined] # likewise
    sys.modules["primp"] = native
    engines = importlib.import_module("ddgs.engines").ENGINES["text"]
    results = importlib.import_module("ddgs.results")
    # It takes the escapes out of addresses, which then lead elsewhere.
    plain = {**results.BaseResult._normalizers, "href": str}  # noqa: SLF001 - there is no switch
    results.BaseResult._normalizers = plain  # noqa: SLF001 - likewise
    kind = engines[backend]
    engine = kind.__new__(kind)
    engine.http_client = _Client(answers)
    engine.http_client.headers_update(dict(kind.headers_update))
    engine.results = []
    return engine


def _no_network(*_args: Any, **_more: Any) -> NoReturn:
    raise OSError("there is no network here")


def _unwrapped(url: str) -> str:
    """Return where DuckDuckGo's own redirect leads."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if (parts.hostname or "").endswith("duckduckgo.com") and parts.path == "/l/":
        return (parse_qs(parts.query).get("uddg") or [url])[0]
    return url
