"""The tool `pdf_extract`: the text of a PDF, from the workspace or the web."""

import mimetypes
import re
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.security.risk import Assessment
from clawd.security.workspace import Workspace
from clawd.tools.base import (
    Arguments,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.builtin.file_text import nearest_names
from clawd.tools.builtin.file_tools import FileTool
from clawd.tools.builtin.pdf_text import ALL_PAGES, LAST_PAGE, PdfText, Ranges, read_pdf
from clawd.tools.builtin.transfer import (
    TransferFailure,
    assess_address,
    get,
    kind_of,
    one_line,
    size_of,
)
from clawd.wire.pictures import looks_like_pdf

_MAX_PARTS = 100
_MAX_LENGTH = 1_000
_PART = re.compile(r"(\d{1,7})?\s*(?:(-|–|\.\.|:)\s*(\d{1,7})?)?", re.ASCII)


class _Pdf(msgspec.Struct, frozen=True, kw_only=True):
    """A document and where it came from."""

    data: bytes
    facts: dict[str, Any]


class PdfExtractTool(FileTool):
    """Reads a PDF."""

    name: ClassVar[str] = "pdf_extract"
    short: ClassVar[str] = "Show the text of a PDF file or of a PDF at a web address."
    description: ClassVar[str] = (
        "`source` is a path in the workspace or an address with http:// or https://. `pages` says "
        'which pages, as in "1-3,5"; all by default. Answers the text of each page below a line '
        "`--- page N ---`. Scanned pages have no text and are shown as pictures. A last line says "
        "which pages were left out and how to ask for them."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "source": {"type": "string", "description": "Path or address of the PDF."},
            "pages": {"type": "string", "description": 'Which pages, as in "1-3,5".'},
        },
        "source",
    )
    starts_process: ClassVar[bool] = True
    outward: ClassVar[bool | None] = True

    def __init__(self, deps: BuiltinDeps) -> None:
        super().__init__(deps)
        self._deps = deps
        self.timeout_s = deps.http_timeout_s + deps.web.extract_timeout_s + 10

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        source = arguments["source"].strip()
        if _is_address(source):
            return assess_address(source, self._deps.network, "fetches a PDF")
        return self._assess(source, context, "low", "reads a PDF")

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        source = arguments["source"].strip()
        if _is_address(source):
            return Touched()
        # Its process sees nothing of the workspace but these bytes.
        return Touched(reads=(self._located(source, context).path,))

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        source, ranges = arguments["source"].strip(), page_ranges(arguments.get("pages", ""))
        if _is_address(source):
            found = await self._fetched(source)
        else:
            limit = self._deps.web.max_pdf_bytes
            found = await in_thread(lambda: _from_file(source, self._opened(context), limit))
        if isinstance(found, ToolResult):
            return found
        text = await read_pdf(found.data, ranges, self._deps)
        return _told(source, found.facts, text)

    async def _fetched(self, url: str) -> _Pdf | ToolResult:
        limit = self._deps.web.max_pdf_bytes
        answer = await get(url, self._deps, max_bytes=limit)
        if isinstance(answer, TransferFailure):
            return answer.result()
        facts = {"url": answer.target.url, "untrusted_source": answer.target.host}
        if not looks_like_pdf(answer.body):
            kind, size = one_line(kind_of(answer.body, answer.kind), 100), size_of(answer)
            other = " web_fetch shows a page." if kind == "text/html" else ""
            return failed(f"{answer.target.url} is no PDF: {kind}, {size}.{other}", **facts)
        if answer.is_cut:
            return failed(_too_large(answer.target.url, size_of(answer), limit), **facts)
        return _Pdf(data=answer.body, facts=facts)


def _is_address(source: str) -> bool:
    """Whether a source is meant as an address; the network's rules refuse all but the web's."""
    return "://" in source


def _from_file(path: str, opened: Workspace, limit: int) -> _Pdf | ToolResult:
    if not path:
        raise InvalidRequestError("source is empty", hint='Write source = "paper.pdf".')
    with opened as workspace:
        try:
            file = workspace.open_read(path)
        except NotFoundError as error:
            near = nearest_names(workspace, path)
            return failed(f"{error.message}{near or '; file_list shows what is there'}")
        with file:
            data = file.read(limit + 1)
    if not looks_like_pdf(data):
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        return failed(f"{path} is no PDF: {kind_of(data, kind)}. file_read shows a text file.")
    if len(data) > limit:
        return failed(_too_large(path, f"over {limit} bytes", limit))
    return _Pdf(data=data, facts={})


def _too_large(source: str, size: str, limit: int) -> str:
    return f"{source} is too large: {size}; max_pdf_bytes in [web] is {limit}"


def _told(source: str, facts: dict[str, Any], found: PdfText) -> ToolResult:
    if found.problem:
        return failed(f"{source}{found.problem}", **facts)
    lines = [found.text]
    if found.left_out:
        more = f'[more: ask with pages = "{found.left_out}" for what was left out]'
        lines += ["", more]
    facts = {"pages": found.pages, "read": found.read, "truncated": bool(found.left_out)} | facts
    result = succeeded("\n".join(lines), **facts)
    return msgspec.structs.replace(result, images=found.pictures)


def page_ranges(text: str) -> Ranges:
    """Return the ranges that a text means, sorted and without overlap; empty text means all pages.

    Raises:
        InvalidRequestError: it means none.
    """
    if len(text) > _MAX_LENGTH:
        raise _refusal(text)
    spec = re.sub(r"^\s*pages?\b|[\[\]\"']", "", text.strip().lower()).strip()
    if spec in {"", "all", "*"}:
        return ALL_PAGES
    parts = re.split(r"\s*[,;]\s*|\s+(?!\s*[-–:.])(?<![-–:.] )", spec)
    if len(parts) > _MAX_PARTS:
        raise _refusal(text)
    return _joined(sorted(_range(part, text) for part in parts))


def _range(part: str, whole: str) -> tuple[int, int]:
    match = _PART.fullmatch(part)
    if match is None or not (match[1] or match[3]):
        raise _refusal(whole)
    first = int(match[1] or 1)
    last = int(match[3] or LAST_PAGE) if match[2] else first
    if not 1 <= first <= last <= LAST_PAGE:
        raise _refusal(whole)
    return first, last


def _joined(ranges: list[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _refusal(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{text[:80]!r} names no pages", hint='Write pages = "1-3,5"; the first page is 1.'
    )
