"""Takes private keys and rows of base64 out of a text, whole or cut off, line by line. Pure.

-----BEGIN … PRIVATE KEY-----        everything up to the END, or to the end of the text
MIIEvQIBADANBgkqhkiG9w0BAQEFAASC…    two such lines or more, and a shorter one after them
-----END … PRIVATE KEY-----          with the lines of base64 before it
"""

import re
from itertools import groupby

TAG = "[secret]"
LONG_CHARS, MIDDLE_CHARS = 56, 40

_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}(?:PRIVATE KEY|SECRET)[A-Z0-9 ]{0,20}-----")
_END = re.compile(r"-----END [A-Z0-9 ]{1,80}-----")
# Before a line may stand what cat -n, grep -n and diff put there.
_BASE64 = re.compile(
    r"[ \t|>+-]{0,8}+(?:[0-9]{1,7}[:\t-][ \t]{0,4})?+([A-Za-z0-9+/]++)={0,2}+[ \t\r]*+"
)


def without_key_blocks(text: str) -> str:
    """Return the text with each block replaced by `[secret]`; lines around it stay."""
    return _without_rows(_without_begun(text))


def _without_begun(text: str) -> str:
    parts, at = list[str](), 0
    while (begin := _BEGIN.search(text, at)) is not None:
        parts += (text[at : begin.start()], TAG)
        end = _END.search(text, begin.end())
        at = len(text) if end is None else end.end()
    return "".join([*parts, text[at:]])


def _without_rows(text: str) -> str:
    lines = text.split("\n")
    sizes = [_chars(line) for line in lines]
    is_key = [False] * len(lines)
    for at in range(1, len(lines)):
        if sizes[at - 1] >= LONG_CHARS and sizes[at] >= LONG_CHARS:
            is_key[at - 1 : at + 1] = True, True
        elif sizes[at] and is_key[at - 1] and sizes[at - 1] >= LONG_CHARS:
            is_key[at] = True
    for at, line in enumerate(lines):
        if _END.search(line):
            _mark_back(at, sizes, is_key)
    out = list[str]()
    for gone, group in groupby(zip(is_key, lines, strict=True), key=lambda pair: pair[0]):
        out += [TAG] if gone else [line for _, line in group]
    return "\n".join(out)


def _mark_back(end: int, sizes: list[int], is_key: list[bool]) -> None:
    """Mark the line of an END and the key before it, whose last line may be short."""
    is_key[end] = True
    at = end - 1
    while at >= 0 and not is_key[at] and sizes[at] >= (1 if at == end - 1 else MIDDLE_CHARS):
        is_key[at] = True
        at -= 1


def _chars(line: str) -> int:
    """Return how many characters of base64 a line is, 0 when it is anything else."""
    match = _BASE64.fullmatch(line)
    return len(match[1]) if match else 0
