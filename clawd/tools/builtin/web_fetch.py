"""The tool `web_fetch`: the readable text and the links of a page."""

import functools
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.builtin import transfer
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.reader import MAX_CHARS, Reader, Reading

MAX_LINKS = 50
_MIN_BYTES = 1_024
_LINK_CHARS = 120


class WebFetchTool(Tool):
    """Fetches a page."""

    name: ClassVar[str] = "web_fetch"
    short: ClassVar[str] = "Fetch a web page and show its readable text and links."
    description: ClassVar[str] = (
        "Answers title, address, main text and up to "
        f"{MAX_LINKS} links of the page; JSON, XML and plain text are shown as they are. Scripts "
        "are not run. `max_bytes` limits what is read of it. At most five redirects are followed. "
        "For a PDF use pdf_extract, for status and headers http. Addresses of this machine and of "
        "private networks are refused unless the owner allowed them."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "url": {"type": "string", "description": "Address, http:// or https://."},
            "max_bytes": {"type": "integer", "description": "How much of the page to read."},
        },
        "url",
    )
    starts_process: ClassVar[bool] = True
    # A host's name and a path are data too, wherever they lead.
    outward: ClassVar[bool | None] = True

    def __init__(self, deps: BuiltinDeps) -> None:
        self._deps = deps
        web = deps.web
        self._reader = Reader(
            deps.sandbox, timeout_s=web.extract_timeout_s, memory_bytes=web.extract_memory_bytes
        )
        self.timeout_s = deps.http_timeout_s + web.extract_timeout_s + 10

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return transfer.assess_address(arguments["url"], self._deps.network, "fetches a page")

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        return Touched()  # its process sees no file

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        most = self._deps.web.max_page_bytes
        limit = min(max(_MIN_BYTES, arguments.get("max_bytes", most)), most)
        answer = await transfer.get(arguments["url"], self._deps, max_bytes=limit)
        if isinstance(answer, transfer.TransferFailure):
            return answer.result()
        kind = transfer.kind_of(answer.body, answer.kind)
        if kind == "application/pdf":
            url = answer.target.url
            told = f'{url} is a PDF: call pdf_extract with {{"source": "{url}"}}'
            return failed(told, mime=kind, untrusted_source=answer.target.host)
        text = None
        if transfer.is_readable(kind):
            text = await in_thread(lambda: transfer.decoded(answer.body, answer.charset))
        if text is None:
            return _no_text(answer, kind)
        if not transfer.is_page(kind):
            return await in_thread(functools.partial(_plain, answer, kind, text))
        job = {"kind": "page", "url": answer.target.url, "max_links": MAX_LINKS}
        reading = await self._reader.read(job, text.encode("utf-8", "replace"))
        return _page(answer, kind, reading)


def _no_text(answer: transfer.Response, kind: str) -> ToolResult:
    size = transfer.size_of(answer)
    if transfer.is_readable(kind):
        kind = f"it says {kind}, but holds binary data"
    return failed(
        f"{answer.target.url} is no text: {transfer.one_line(kind, 100)}, {size}",
        mime=transfer.one_line(kind, 100),
        untrusted_source=answer.target.host,
    )


def _page(answer: transfer.Response, kind: str, reading: Reading) -> ToolResult:
    """Tell what was read; a reading that a limit ended may have got that far."""
    texts = [each for each in reading.answers if isinstance(each.get("text"), str)]
    if not texts:
        problem = reading.problem or "nothing could be read"
        return failed(
            f"{answer.target.url}: {problem}. The tool http shows the page as it is.",
            untrusted_source=answer.target.host,
        )
    best = texts[-1]
    lines = []
    if title := transfer.one_line(str(reading.first("title") or ""), 200):
        lines.append(f"title: {title}")
    lines += [f"url: {answer.target.url}", ""]
    text = transfer.cleaned(best["text"]).strip()
    lines.append(text or "(no readable text; the page may be made by scripts, which are not run)")
    if best.get("length") != len(best["text"]):
        lines.append(f"[cut: the text has {best.get('length')} characters]")
    links = _links(reading.first("links"))
    if links:
        lines += ["", "links:", *links]
    return _found_told(answer, kind, "\n".join(lines), links=len(links))


def _links(found: object) -> list[str]:
    lines = []
    for each in found if isinstance(found, list) else []:
        if not (isinstance(each, list) and len(each) == 2):
            continue
        url, label = (
            transfer.one_line(str(each[0]), 2_048),
            transfer.one_line(str(each[1]), _LINK_CHARS),
        )
        lines.append(f"- {label}: {url}" if label else f"- {url}")
    return lines[:MAX_LINKS]


def _plain(answer: transfer.Response, kind: str, raw: str) -> ToolResult:
    text = transfer.cleaned(raw)
    shown = text[:MAX_CHARS] or "(empty)"
    if len(text) > MAX_CHARS:
        shown += f"\n[cut: the text has {len(text)} characters]"
    return _found_told(answer, kind, shown)


def _found_told(answer: transfer.Response, kind: str, text: str, **facts: Any) -> ToolResult:
    if answer.is_cut:
        text += f"\n[cut: only the first {len(answer.body)} bytes of the page were read]"
    return succeeded(
        text,
        status=answer.status,
        url=answer.target.url,
        mime=kind,
        bytes=len(answer.body),
        truncated=answer.is_cut,
        untrusted_source=answer.target.host,
        **facts,
    )
