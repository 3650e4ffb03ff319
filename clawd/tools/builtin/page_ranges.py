"""Which pages of a document are meant by `1-3,5`. Pure."""

import re

from clawd.errors import InvalidRequestError

Ranges = tuple[tuple[int, int], ...]

LAST_PAGE = 1_000_000
_MAX_PARTS = 100
_MAX_LENGTH = 1_000
_PART = re.compile(r"(\d{1,7})?\s*(?:(-|–|\.\.|:)\s*(\d{1,7})?)?", re.ASCII)


def page_ranges(text: str) -> Ranges:
    """Return the ranges that a text means, sorted and without overlap; empty text means all pages.

    Raises:
        InvalidRequestError: it means none.
    """
    if len(text) > _MAX_LENGTH:
        raise _refusal(text)
    spec = re.sub(r"^\s*pages?\b|[\[\]\"']", "", text.strip().lower()).strip()
    if spec in {"", "all", "*"}:
        return ((1, LAST_PAGE),)
    parts = re.split(r"\s*[,;]\s*|\s+(?!\s*[-–:.])(?<![-–:.] )", spec)
    if len(parts) > _MAX_PARTS:
        raise _refusal(text)
    return _joined(sorted(_range(part, text) for part in parts))


def limited(ranges: Ranges, most: int) -> Ranges:
    """Return the first `most` pages of the ranges."""
    kept, room = [], most
    for first, last in ranges:
        if room <= 0:
            break
        kept.append((first, min(last, first + room - 1)))
        room -= last - first + 1
    return tuple(kept)


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
