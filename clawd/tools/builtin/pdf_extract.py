"""The tool `pdf_extract`: the text of a PDF, from the workspace or the web.

What is in a PDF: its text, page by page, and its pages as pictures where it has no text.

It is read in the sandbox; what is returned may still hold any words, and pictures of any content.
"""

import base64
import binascii
import mimetypes
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
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
from clawd.tools.builtin.transfer import (
    TransferFailure,
    assess_address,
    cleaned,
    get,
    kind_of,
    one_line,
    size_of,
)
from clawd.tools.pictures import LONGEST_SIDE
from clawd.tools.reader import Reader, Reading
from clawd.wire.pictures import looks_like_pdf

LAST_PAGE = 1_000_000
MAX_PICTURES = 10
Ranges = tuple[tuple[int, int], ...]
"""Pages from and to, sorted and without overlap."""
ALL_PAGES: Ranges = ((1, LAST_PAGE),)


class PdfText(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a document.

    Attributes:
        text: each page below a line `--- page N ---`, with title and number of pages before them.
        pages: so many it has.
        read: so many were read.
        left_out: wanted pages that were not, as `1-3,5`.
        pictures: files of the first pages, where no page that was read has text.
        problem: why nothing was read, to stand behind the name of the document; else "".
    """

    text: str = ""
    pages: int = 0
    read: int = 0
    left_out: str = ""
    pictures: tuple[bytes, ...] = ()
    problem: str = ""


async def read_pdf(data: bytes, ranges: Ranges, deps: BuiltinDeps) -> PdfText:
    """Return what is in the pages of a PDF, as many as one reading may take.

    Raises:
        SandboxUnavailableError: there is no sandbox of the required level here.
    """
    web = deps.web
    reader = Reader(
        deps.sandbox, timeout_s=web.extract_timeout_s, memory_bytes=web.extract_memory_bytes
    )
    job = {
        "kind": "pdf",
        "ranges": limited(ranges, web.max_pdf_pages),
        "pictures": MAX_PICTURES,
        "longest_side": LONGEST_SIDE,
    }
    return _text_of(await reader.read(job, data), ranges)


def _text_of(reading: Reading, ranges: Ranges) -> PdfText:
    count = reading.first("pages")
    if not isinstance(count, int):
        why = str(reading.first("error") or "") or reading.problem
        if why == "encrypted":
            why = "it is encrypted and opens only with a password"
        return PdfText(problem=f": {one_line(why, 300)}")
    lines = [f"pages: {count}"]
    if title := one_line(str(reading.first("title") or ""), 200):
        lines.insert(0, f"title: {title}")
    given = [each for each in reading.answers if isinstance(each.get("page"), int)]
    pages = {each["page"]: each for each in given if "picture" not in each}
    pictures = {each["page"]: _file(each) for each in given if "picture" in each}
    if pictures:
        pages = {number: pages.get(number, {}) for number in pictures}
    for number, each in pages.items():
        lines += ["", f"--- page {number} ---", _page_text(each, is_shown=number in pictures)]
    if not pages:
        asked = reading.problem or "none of these pages"
        return PdfText(problem=f" has {count} pages, {asked}")
    if reading.problem:
        lines += ["", f"[{reading.problem}]"]
    return PdfText(
        text="\n".join(lines),
        pages=count,
        read=len(pages),
        left_out=_written(missing(ranges, set(pages), count)),
        pictures=tuple(pictures.values()),
    )


def _file(answer: Mapping[str, Any]) -> bytes:
    """Return the picture of a page; a broken-in process may have said anything, so maybe none."""
    try:
        return base64.b64decode(str(answer["picture"]), validate=True)
    except (ValueError, binascii.Error):
        return b""


def _page_text(answer: Mapping[str, Any], *, is_shown: bool) -> str:
    if is_shown:
        return "(no text; the page is shown as a picture)"
    if "error" in answer:
        return f"(this page cannot be read: {one_line(str(answer['error']), 200)})"
    text = str(answer.get("text", ""))
    shown = cleaned(text).strip() or "(no text; it may be a picture)"
    if answer.get("length") != len(text):
        shown += f"\n[cut: the page has {answer.get('length')} characters]"
    return shown


def missing(ranges: Ranges, read: set[int], count: int) -> Ranges:
    """Return the wanted pages of the document that were not read; it may claim any count."""
    known = sorted(read)
    left: list[tuple[int, int]] = []
    for first, wanted in ranges:
        at, last = first, min(wanted, count, LAST_PAGE)
        for number in known[bisect_left(known, first) : bisect_right(known, last)]:
            if at < number:
                left.append((at, number - 1))
            at = number + 1
        if at <= last:
            left.append((at, last))
    return tuple(left)


def limited(ranges: Ranges, most: int) -> Ranges:
    """Return the first `most` pages of the ranges."""
    kept, room = [], most
    for first, last in ranges:
        if room <= 0:
            break
        kept.append((first, min(last, first + room - 1)))
        room -= last - first + 1
    return tuple(kept)


def _written(ranges: Ranges) -> str:
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


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
