"""Text made safe to show and to splice: pure functions, used by the daemon and by clients.

`single_line` and `paragraph` are the two sanitizers of texts that go into a prompt. The others
drop nothing; they write characters out, `‹U+202E›`: `visible` and `visible_line` all that cannot
be seen (approvals), `terminal_safe` only what a terminal would act on, read in another order or
not show at all (tool output, model text), so that emoji and foreign scripts stay as they are.
"""

import re
import unicodedata

NAME_LIMIT = 64
DESCRIPTION_LIMIT = 200
ELLIPSIS = "…"
MARKS_LIMIT = 8
LOOKALIKES_LIMIT = 5

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
_ACTIVE_CLASS = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b"
    r"\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0"
    r"\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Joiners and the two selectors of emoji have their place after characters beyond ASCII (and the
# selectors after a keycap's); elsewhere, and one after the other, they only hide.
_ACTIVE = re.compile(
    rf"[{_ACTIVE_CLASS}]|(?<=[\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?=[\x00-\x7f\u200c\u200d])"
    r"|(?<=[\x00-\x22\x24-\x29\x2b-\x2f\x3a-\x7f])[\ufe0e\ufe0f]|[\ufe0e\ufe0f](?=[\ufe0e\ufe0f])"
)
# A run that could hold too many marks: neither letters, nor blanks, nor ASCII.
_MAYBE_MARKS = re.compile(r"[^\x00-\u02ff\w\s]{2,}")
# Letters of other scripts that most fonts draw as a Latin one: Cyrillic, Greek, Armenian.
_LIKE_LATIN = frozenset("аАВсСеЕёЁНіІїЇјЈКМоОрРѕЅТхХуУһԁԛԝӏҺԌΑΒΕΖΗΙΚΜΝΟΡΤΥΧοαρνιυκγϲϳօսհցոքզլՕՍ")
_WORD = re.compile(r"\w+")
_FENCE = re.compile("`{3,}")
_NOT_VISIBLE = re.compile(f"[{_INVISIBLE}]")
_NOT_VISIBLE_IN_LINE = re.compile(f"[{_INVISIBLE}\t\n]")


def single_line(text: str, limit: int = DESCRIPTION_LIMIT) -> str:
    """Return the text as one line: C0 and DEL become blanks, then at most `limit` characters."""
    return shortened(_C0_AND_DEL.sub(" ", text).strip(), limit)


def paragraph(text: str) -> str:
    r"""Return the text with `\n` and `\t` kept and every other C0 and DEL dropped."""
    return _C0_BUT_BREAKS.sub("", text)


def fenced(text: str) -> str:
    """Return text in a fence that nothing in it ends."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def without_hidden(text: str) -> str:
    """Return the text without what no eye sees and a model reads: bidi controls, tags and such.

    Blanks stay, and the joiners and selectors that emoji and some scripts need.
    """
    return _ACTIVE.sub("", text)


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


def with_few_marks(text: str, limit: int = MARKS_LIMIT) -> str:
    """Return the text with at most so many combining marks on one character; more are counted.

    Hundreds of them on one character paint over the lines above and below it.
    """
    return _MAYBE_MARKS.sub(lambda match: _few_marks(match.group(), limit), text)


def ascii_json(text: str) -> str:
    r"""Return JSON text with what a terminal could act on as `\u` escapes; it means the same."""
    return _NOT_VISIBLE.sub(_escaped, text)


def has_invisible(text: str) -> bool:
    """Return whether `visible` would change the text."""
    return _NOT_VISIBLE.search(text) is not None


def lookalikes(text: str, limit: int = LOOKALIKES_LIMIT) -> list[str]:
    """Return words in which letters of another script pass for Latin ones, each such letter named.

    `p‹а CYRILLIC SMALL LETTER A›ypal` reads as a word of Latin letters. A text that is plainly of
    another script is left alone, and so are letters that nobody takes for Latin ones (`Δt`).
    """
    words = [word for word in _WORD.findall(text) if not word.isascii()]
    is_foreign = any(_is_foreign(each) for word in words for each in word)
    found: dict[str, None] = {}
    for word in words:
        strange = {each for each in word if each in _LIKE_LATIN or _is_styled(each)}
        is_mixed = any(unicodedata.name(each, "").startswith("LATIN") for each in word)
        is_whole = len(word) > 1 and not is_foreign and strange >= set(word)
        if strange and (is_mixed or is_whole or any(map(_is_styled, strange))):
            found["".join(_named(each) if each in strange else each for each in word)] = None
        if len(found) == limit:
            break
    return list(found)


def _is_foreign(letter: str) -> bool:
    """Whether a letter is of a script with lookalikes and is none."""
    name = unicodedata.name(letter, "")
    return name.startswith(("CYRILLIC", "GREEK", "ARMENIAN")) and letter not in _LIKE_LATIN


def _is_styled(letter: str) -> bool:
    """Whether it is a Latin letter in another form, or one of a script that borrowed them."""
    forms = ("FULLWIDTH LATIN", "MATHEMATICAL ", "CHEROKEE")
    return unicodedata.name(letter, "").startswith(forms)


def _named(letter: str) -> str:
    return f"‹{letter} {unicodedata.name(letter, '')}›"


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters, the cut marked by an ellipsis."""
    if len(text) <= limit:
        return text
    return text[: max(limit - len(ELLIPSIS), 0)] + ELLIPSIS[:limit]


def _few_marks(run: str, limit: int) -> str:
    parts: list[str] = []
    marks = 0
    for character in run:
        marks = marks + 1 if unicodedata.category(character) in {"Mn", "Me"} else 0
        if marks <= limit:
            parts.append(character)
        elif marks == limit + 1:
            parts.append("‹more marks›")
    return "".join(parts)


def _escaped(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _written_out(match: re.Match[str]) -> str:
    return f"‹U+{ord(match.group()):04X}›"


def shown_name(name: str) -> str:
    """Return a file's name as one line of valid text."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text.replace("\n", "\\n").replace("\r", "\\r")
