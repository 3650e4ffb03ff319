"""What is in a PDF: its text, page by page, and its pages as pictures where it has no text.

It is read in the sandbox; what is returned may still hold any words, and pictures of any content.
"""

import base64
import binascii
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

import msgspec

from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.transfer import cleaned, one_line
from clawd.tools.pictures import LONGEST_SIDE
from clawd.tools.reader import Reader, Reading

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
