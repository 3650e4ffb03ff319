"""Keywords: what a model or a person wrote, brought into the form that names an entry. Pure.

"Backup server" and "server, backup" both name the entry `backup_server.md`. Case and accents are
taken off, quotes and brackets around a word too; what cannot be meant in one way is refused with
a form to copy. `fix-` before the name means the fixed entry of these keywords.
"""

import re
import unicodedata

import msgspec

from clawd.errors import InvalidRequestError

MAX_KEYWORDS = 8
KEYWORD_LIMIT = 32
STEM_LIMIT = 64
FIXED = "fix-"
SUFFIX = ".md"

_TEXT_LIMIT = 2_000
_SHOWN = 60
_EXAMPLE = "backup server"
_KEYWORD = re.compile(r"[A-Za-z0-9+][A-Za-z0-9._+-]{0,31}")
_BREAKS = re.compile(r"[\s,/_]+")
_BEFORE = "\"'`´‘’“”«»()[]{}<>*#.,:;!?-"
_AFTER = "\"'`´‘’“”«»()[]{}<>*.,:;!?-"


class EntryName(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry is called.

    Attributes:
        keywords: sorted, each once.
        fixed: whether the entry may not be changed.
    """

    keywords: tuple[str, ...]
    fixed: bool = False

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return (FIXED if self.fixed else "") + "_".join(self.keywords)

    @property
    def file(self) -> str:
        """The file's name."""
        return self.stem + SUFFIX


class WantedEntries(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are meant: those with all of the keywords; `fixed`: only fixed ones."""

    keywords: tuple[str, ...]
    fixed: bool = False


def entry_name(text: str, *, fixed: bool = False) -> EntryName:
    """Return the name of the entry that is to be written.

    Raises:
        InvalidRequestError: no entry can be called so; the message shows a form that can.
    """
    wanted = wanted_entries(text)
    if wanted.fixed and not fixed:
        plain = " ".join(wanted.keywords)
        raise InvalidRequestError(
            f'"{FIXED}" begins the names of fixed entries, which cannot be changed; for one of '
            f'your own write {_shown(plain)}, or for a new fixed one "fix": true'
        )
    name = EntryName(keywords=wanted.keywords, fixed=fixed)
    if len(name.stem) > STEM_LIMIT:
        raise InvalidRequestError(
            f"these keywords make a name of {len(name.stem)} characters, and {STEM_LIMIT} is the "
            f"most; write fewer or shorter ones: {_shown(_fitting(wanted.keywords))}"
        )
    return name


def wanted_entries(text: str) -> WantedEntries:
    """Return which entries a text means: keywords, or a name such as `fix-backup_server.md`.

    Raises:
        InvalidRequestError: none can be meant.
    """
    words = _words(text)
    fixed = bool(words) and words[0].startswith(FIXED)
    if fixed:
        words[0] = words[0].removeprefix(FIXED)
    found: list[str] = []
    for word in filter(None, words):
        _check(word)
        if word not in found:
            found.append(word)
    if not found:
        raise InvalidRequestError(f"there is no keyword in it; write words: {_shown(_EXAMPLE)}")
    if len(found) > MAX_KEYWORDS:
        raise InvalidRequestError(
            f"these are {len(found)} keywords, and {MAX_KEYWORDS} is the most; write fewer: "
            f"{_shown(_fitting(tuple(found)))}"
        )
    return WantedEntries(keywords=tuple(sorted(found)), fixed=fixed)


def searched_keywords(text: str) -> tuple[str, ...]:
    """Return the keywords to look for: the first eight words that can be keywords.

    Raises:
        InvalidRequestError: there is none.
    """
    found: list[str] = []
    for given in _words(text):
        word = given.removeprefix(FIXED)
        if _KEYWORD.fullmatch(word) and word not in found:
            found.append(word)
    if not found:
        raise InvalidRequestError(
            f"there is no keyword in it to look for; write words: {_shown(_EXAMPLE)}"
        )
    return tuple(found[:MAX_KEYWORDS])


def header_keywords(text: str) -> tuple[str, ...]:
    """Return the keywords of a header, which a hand may have written; those that cannot be go."""
    try:
        return tuple(sorted(searched_keywords(text)))
    except InvalidRequestError:
        return ()


def is_plain_word(keyword: str) -> bool:
    """Return whether a keyword is one short word, which can say nothing more than itself."""
    return len(keyword) <= _PLAIN_LIMIT and keyword.isascii() and keyword.isalnum()


_PLAIN_LIMIT = 20


def _words(text: str) -> list[str]:
    """Return the words of the text, without what stands around them.

    Raises:
        InvalidRequestError: it is much too long.
    """
    if len(text) > _TEXT_LIMIT:
        raise InvalidRequestError(
            f"the keywords are {len(text)} characters long; write up to {MAX_KEYWORDS} words: "
            f"{_shown(_EXAMPLE)}"
        )
    whole = unicodedata.normalize("NFKC", text).strip()
    words = [_plain(word) for word in _BREAKS.split(whole.removesuffix(SUFFIX))]
    return [word for word in words if any(map(str.isalnum, word))]


def _plain(word: str) -> str:
    letters = unicodedata.normalize("NFKD", word.casefold())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return bare.lstrip(_BEFORE).rstrip(_AFTER)


def _check(word: str) -> None:
    if word.startswith(FIXED):
        better = word.removeprefix(FIXED) or _EXAMPLE
        raise InvalidRequestError(
            f"keyword {_shown(word)} begins with {FIXED!r}, as only the names of fixed entries "
            f"do; write {_shown(better)}"
        )
    if _KEYWORD.fullmatch(word):
        return
    raise InvalidRequestError(
        f"keyword {_shown(word)} is none: a keyword has 1 to {KEYWORD_LIMIT} letters, digits or "
        f"any of . + - ; write it as {_shown(_nearest(word))}"
    )


def _nearest(word: str) -> str:
    bare = re.sub(r"[^a-z0-9._+-]+", "-", word)[:KEYWORD_LIMIT].strip(_AFTER)
    return bare if _KEYWORD.fullmatch(bare) else _EXAMPLE


def _fitting(keywords: tuple[str, ...]) -> str:
    kept: list[str] = []
    for word in keywords[:MAX_KEYWORDS]:
        if len(FIXED) + len("_".join([*kept, word])) <= STEM_LIMIT:
            kept.append(word)
    return " ".join(kept)


def _shown(text: str) -> str:
    """Return the text quoted as JSON has it, so that control characters show."""
    return msgspec.json.encode(text[:_SHOWN].encode(errors="replace").decode()).decode()
