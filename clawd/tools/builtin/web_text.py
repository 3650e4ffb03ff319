"""What bytes of the web are, as text: their kind, their charset, and what is taken out. Pure."""

import codecs
import re
import unicodedata

# What browsers know, by its usual labels. Python knows codecs that are none, and slow ones.
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(-?[lb]e)?|(us-)?ascii|iso-?8859-?\d{1,2}|latin-?\d|(windows|cp)-?125\d|koi8-[ru]"
    r"|shift[_-]jis|sjis|windows-31j|euc-(jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5(-hkscs)?"
    r"|tis-620|windows-874|macintosh|ibm866|cp866"
)
# The web means these by the others.
_MEANT = {"windows-31j": "cp932", "windows-874": "cp874", "macintosh": "mac-roman"}
_LATIN = re.compile(r"iso-?8859-?1|latin-?1|(us-)?ascii")
# Every repetition here is bounded or ends where it can: no text makes them try for long.
_META = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]{0,300}?(?:charset|encoding)\s{0,9}=\s{0,9}["']?\s{0,9}([\w:.-]{2,40})""",
    re.IGNORECASE,
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SNIFFED_BYTES = 8192
_META_BYTES = 4096
_STRANGE_SHARE = 0.05
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "application/x-executable"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"OggS", "application/ogg"),
    (b"ID3", "audio/mpeg"),
)
_HTML_START = re.compile(
    rb"\s*(?:<!--(?:[^-]|-(?!->))*-->\s*)*<(?:!doctype\s+html|html|head|body|title)\b",
    re.IGNORECASE,
)
# Written to be unseen by people and read by models: tags, direction, variation, joiners' kin.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\U0001d173-\U0001d17a]"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def kind_of(body: bytes, claimed: str) -> str:
    """Return what a body is as a media type: by its beginning where that is certain, else as told.

    `application/octet-stream` is what is no text and tells nothing.
    """
    for start, kind in _MAGIC:
        if body.startswith(start):
            return kind
    if b"%PDF-" in body[:1024] and claimed in {"", "application/pdf", "application/octet-stream"}:
        return "application/pdf"
    if claimed and claimed != "application/octet-stream":
        return claimed
    if _HTML_START.match(body[:_META_BYTES]):
        return "text/html"
    return "text/plain" if not _is_binary(body, "") else "application/octet-stream"


def is_readable(kind: str) -> bool:
    """Whether a media type is one of text."""
    return (
        kind.startswith("text/")
        or kind.endswith(("+xml", "+json", "/json", "/xml", "/javascript", "/x-ndjson", "/yaml"))
        or kind in {"application/x-yaml", "application/toml", "application/sql"}
    )


def is_page(kind: str) -> bool:
    """Whether a media type is one of HTML."""
    return kind in {"text/html", "application/xhtml+xml"}


def decoded(body: bytes, declared: str) -> str | None:
    """Return a body as text, or None where it is no text whatever it says.

    The order: a byte order mark, valid UTF-8 beyond ASCII (which nothing else looks like), what the
    header declares, what the page declares, UTF-8. One that does not fit is passed over.
    """
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace")
    written = _META.search(body[:_META_BYTES])
    inside = written[1].decode("ascii", "replace") if written else ""
    candidates = [name for name in (_codec(declared), _codec(inside)) if name]
    wide = any(name.startswith("utf-16") for name in candidates)
    if _is_binary(body, "utf-16" if wide else ""):
        return None
    if not body.isascii() and not wide:
        candidates.insert(0, "utf-8")
    # The last character may be cut by the limit of size.
    for name in candidates:
        try:
            return codecs.getincrementaldecoder(name)("strict").decode(body)
        except (UnicodeDecodeError, LookupError):
            continue
    fallback = next((name for name in candidates if name != "utf-8"), "")
    return body.decode(fallback or ("cp1252" if not body.isascii() else "utf-8"), "replace")


def cleaned(text: str) -> str:
    """Return text without control characters and what is there to be unseen; lines stay lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNSEEN.sub("", _CONTROL.sub("", text))


def one_line(text: str, limit: int) -> str:
    """Return text on one line of at most `limit` characters."""
    line = " ".join(cleaned(unicodedata.normalize("NFC", text[: limit * 20])).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _codec(label: str) -> str:
    """Return the codec that a label means; empty for one that is not known here."""
    name = label.strip().strip("\"'").lower()
    if _LATIN.fullmatch(name):
        return "cp1252"
    if not _CHARSETS.fullmatch(name):
        return ""
    name = _MEANT.get(name, name)
    try:
        codecs.lookup(name)
    except LookupError:
        return ""
    return name


def _is_binary(body: bytes, charset: str) -> bool:
    head = body[:_SNIFFED_BYTES]
    if not head or charset:
        return False
    # Escape is a part of ISO-2022-JP; a few others are dirt that pages of people hold.
    strange = sum(head.count(byte) for byte in _STRANGE)
    return strange > 1 and strange > len(head) * _STRANGE_SHARE


_STRANGE = tuple(byte for byte in range(32) if byte not in {9, 10, 12, 13, 27})
