"""Reading a page: its title, its main text by trafilatura, its links. Runs in the sandbox.

The links, and all visible text, are read in one pass that needs no tree.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

from typing_extensions import override

_SILENT = frozenset({"script", "style", "template", "svg", "select", "iframe"})
_BREAKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote br dd div dl dt fieldset figure footer form h1 h2 h3 h4 "
        "h5 h6 header hr li main nav ol p pre section table td th tr ul",
    )
)
_MAX_LINKS = 2_000
_MAX_LINK_TEXT = 200
_MAX_URL = 2_048


def read(job: dict[str, Any], data: bytes) -> Iterator[dict[str, Any]]:
    """Yield `{"title", "links"}` and then `{"text", "is_main"}` of a page in UTF-8.

    `is_main` is False when no main text was found and `text` is all that the page shows.
    """
    html = data.decode("utf-8", "replace")
    outline = _Outline(job["url"])
    outline.feed(html)
    outline.close()
    yield {"title": outline.title, "links": list(outline.links.items())[: job["max_links"]]}
    # All text first: should the search for the main part meet a limit, there is something.
    everything = outline.text
    limit = job["max_chars"]
    yield {"text": everything[:limit], "length": len(everything), "is_main": False}
    if main := _main_text(html, job["url"]):
        yield {"text": main[:limit], "length": len(main), "is_main": True}


def _main_text(html: str, url: str) -> str:
    import trafilatura

    try:
        found = trafilatura.extract(
            html,
            url=url,
            output_format="markdown",
            include_comments=False,
            include_tables=True,
            favor_recall=True,
        )
    except Exception:  # noqa: BLE001 - whatever a hostile page does to it, there is the other text
        return ""
    return found or ""


class _Outline(HTMLParser):
    """Collects what a page shows; feed it the page, then read the attributes.

    Args:
        url: the page's, which relative links start from.

    Attributes:
        title: of the page; may be empty.
        links: absolute addresses with the text of the link, each address once.
    """

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.links: dict[str, str] = {}
        self._base = url
        self._own = url.partition("#")[0]
        self._parts: list[str] = []
        self._silent: list[str] = []
        self._in_title = False
        self._link = ""
        self._link_text: list[str] = []

    @property
    def text(self) -> str:
        """All visible text, a line for each block."""
        lines = (" ".join(line.split()) for line in "".join(self._parts).split("\n"))
        return "\n".join(line for line in lines if line)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        elif tag == "base":
            self._base = _joined(self._own, dict(attrs).get("href") or "") or self._base
        elif tag == "a":
            self._end_link()
            self._link = _joined(self._base, dict(attrs).get("href") or "")
        elif tag == "body":
            self._silent.clear()
        elif tag in _SILENT:
            self._silent.append(tag)
        if tag in _BREAKS:
            self._parts.append("\n")

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
            self.title = " ".join(self.title.split())[:_MAX_LINK_TEXT]
        elif tag == "a":
            self._end_link()
        elif tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        if tag in _BREAKS:
            self._parts.append("\n")

    @override
    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = (self.title + data)[:10_000]
        elif not self._silent:
            self._parts.append(data)
            if self._link:
                self._link_text.append(data[:_MAX_LINK_TEXT])

    @override
    def close(self) -> None:
        super().close()
        self._end_link()
        self.title = " ".join(self.title.split())[:_MAX_LINK_TEXT]

    def _end_link(self) -> None:
        url, self._link = self._link, ""
        text = " ".join(" ".join(self._link_text).split())[:_MAX_LINK_TEXT]
        self._link_text = []
        if url and url.partition("#")[0] != self._own and len(self.links) < _MAX_LINKS:
            self.links[url] = self.links.get(url) or text


def _joined(base: str, href: str) -> str:
    """Return an absolute web address, or nothing."""
    text = re.sub(r"[\x00-\x20\x7f]+", "", href)
    if not text or text.startswith("#"):
        return ""
    try:
        url = urljoin(base, text)
        parts = urlsplit(url)
        has_host = bool(parts.hostname)
    except ValueError:
        return ""
    is_web = parts.scheme in {"http", "https"} and has_host
    return url if is_web and len(url) <= _MAX_URL else ""
