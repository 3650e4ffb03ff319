"""One entry as a file: a header, an empty line, the body. Pure.

    keywords: backup, server
    created: 2026-11-21T08:00:00Z by a model in conv-01KAJ5…
    updated: 2026-11-21T09:00:00Z by uid 1000
    untrusted: web_fetch example.org

    The backup server is nas2.

Whoever writes an entry gets this header before his text, and the header ends at the first empty
line: nothing in a body can be taken for a header, whatever it looks like. By hand a header may
also stand between two lines of `---`, as other programs write it.
"""

import msgspec

from clawd.memory.knowledge.keywords import header_keywords
from clawd.wire.safe_text import paragraph, shortened, single_line

HEADER_LIMIT_BYTES = 32 * 1024
MAX_SOURCES = 20
SEPARATOR = "\n\n---\n\n"

_SOURCE_LIMIT = 200
_FENCE = "---"
_NAMES = ("keywords", "created", "updated", "untrusted")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an entry.

    Attributes:
        keywords: sorted.
        created: when and by whom, as one line; may be empty where a hand wrote it.
        updated: the same of the last change.
        untrusted: where untrusted text in it came from; empty for none.
    """

    keywords: tuple[str, ...]
    created: str = ""
    updated: str = ""
    untrusted: tuple[str, ...] = ()


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A file, read.

    Attributes:
        header: None where there is none; then all of the file is the body.
        offset: how many bytes of the file stand before the body.
    """

    header: Header | None
    body: str
    offset: int = 0


def render(header: Header, body: str) -> bytes:
    """Return the file of an entry; the body is one that `clean_body` gave."""
    lines = [f"keywords: {', '.join(header.keywords)}"]
    for name, value in (("created", header.created), ("updated", header.updated)):
        if value:
            lines.append(f"{name}: {single_line(value)}")
    lines += [f"untrusted: {source}" for source in bounded_sources(header.untrusted)]
    return ("\n".join(lines) + f"\n\n{body}\n").encode(errors="replace")


def parse(data: bytes) -> Parsed:
    """Read a file, or the beginning of one."""
    text = data.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    fenced = lines[0].rstrip() == _FENCE
    found: dict[str, list[str]] = {name: [] for name in _NAMES}
    at = 1 if fenced else 0
    while at < len(lines):
        name, colon, value = lines[at].partition(":")
        if lines[at].rstrip() == (_FENCE if fenced else ""):
            at += 1
            break
        is_known = bool(colon) and name in found
        if not is_known and not fenced:
            break
        if is_known:
            found[name].append(value.strip())
        at += 1
    keywords = header_keywords(found["keywords"][0]) if found["keywords"] else ()
    if not keywords:
        return Parsed(header=None, body=clean_body(text))
    header = Header(
        keywords=keywords,
        created="".join(found["created"][:1]),
        updated="".join(found["updated"][:1]),
        untrusted=bounded_sources(tuple(filter(None, found["untrusted"]))),
    )
    offset = sum(len(line.encode()) + 1 for line in lines[:at])
    return Parsed(header=header, body=clean_body("\n".join(lines[at:])), offset=offset)


def clean_body(text: str) -> str:
    r"""Return a text as a body: no control characters but `\n` and `\t`, no empty lines around."""
    return paragraph(text.replace("\r\n", "\n")).strip("\n").rstrip()


def bounded_sources(sources: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources one line each, each once, and not more than a header holds."""
    lines = [single_line(source, _SOURCE_LIMIT) or "unknown sources" for source in sources]
    distinct = list(dict.fromkeys(lines))
    if len(distinct) <= MAX_SOURCES:
        return tuple(distinct)
    return (*distinct[: MAX_SOURCES - 1], "more sources")


def snippet(body: str, limit: int) -> str:
    """Return the beginning of a body as one line."""
    return shortened(" ".join(single_line(body[: 4 * limit], 4 * limit).split()), limit)
