"""Text made safe to show and to splice: pure functions, used by the daemon and by clients.

`single_line` and `paragraph` are the two sanitizers of texts that go into a prompt. The others
drop nothing; they write characters out, `‹U+202E›`: `visible` and `visible_line` all that cannot
be seen (approvals), `terminal_safe` only what a terminal would act on or read in another order
(tool output, model text), so that emoji and foreign scripts stay as they are.
"""

import re

NAME_LIMIT = 64
DESCRIPTION_LIMIT = 200
ELLIPSIS = "…"

_C0_AND_DEL = re.compile(r"[\x00-\x1f\x7f]")
_C0_BUT_BREAKS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

# What a terminal acts on or an eye cannot see: C0 and DEL, C1, soft hyphen, the combining
# grapheme joiner, the letter mark and other bidi controls, fillers that render as nothing, zero
# width and line separators, invisible operators, variation selectors, the byte order mark,
# interlinear and object replacement, surrogates, tags and the selector supplement. Blanks other
# than U+0020 are written out as well: they part no words for a shell but look as if they did.
_INVISIBLE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5"
    r"\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ud800-\udfff"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
_ACTIVE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f"
    r"\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_NOT_VISIBLE = re.compile(f"[{_INVISIBLE}]")
_NOT_VISIBLE_IN_LINE = re.compile(f"[{_INVISIBLE}\t\n]")


def single_line(text: str, limit: int = DESCRIPTION_LIMIT) -> str:
    """Return the text as one line: C0 and DEL become blanks, then at most `limit` characters."""
    return shortened(_C0_AND_DEL.sub(" ", text).strip(), limit)


def paragraph(text: str) -> str:
    r"""Return the text with `\n` and `\t` kept and every other C0 and DEL dropped."""
    return _C0_BUT_BREAKS.sub("", text)


def visible(text: str) -> str:
    r"""Return the text with every control and invisible character written out; keeps `\n`, `\t`.

    No escape sequence, bidi override, tag or zero-width character survives, so the result shows
    on a terminal exactly what it holds.
    """
    return _NOT_VISIBLE.sub(_written_out, text)


def visible_line(text: str, limit: int = 0) -> str:
    r"""Return `visible` text on one line, `\n` and `\t` written out too; 0 means no limit."""
    line = _NOT_VISIBLE_IN_LINE.sub(_written_out, text)
    return shortened(line, limit) if limit else line


def terminal_safe(text: str) -> str:
    r"""Return the text with what a terminal acts on written out; keeps `\n`, `\t`.

    Gone are escape sequences (C0, DEL, C1), bidi controls, line separators, surrogates and tags.
    """
    return _ACTIVE.sub(_written_out, text)


def has_invisible(text: str) -> bool:
    """Tell whether `visible` would change the text."""
    return _NOT_VISIBLE.search(text) is not None


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters, the cut marked by an ellipsis."""
    if len(text) <= limit:
        return text
    return text[: max(limit - len(ELLIPSIS), 0)] + ELLIPSIS[:limit]


def _written_out(match: re.Match[str]) -> str:
    return f"‹U+{ord(match.group()):04X}›"
