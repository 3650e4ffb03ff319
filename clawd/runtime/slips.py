"""What a small model gets wrong in its calls, found before they are judged.

A model of less than a billion parameters now and then loses, doubles or swaps a letter of a name:
`puttplan.txt` where the person wrote `putzplan.txt`. Read, that fails; written, it makes a second
file. So a name that stands nowhere in the conversation is taken for the only one there that is
next to it. A digit is never a slip, and neither is another ending: `file3.txt` and `file.md` may
well be meant beside `file1.txt` and `file.txt`. The words of a pattern that is searched for are put
right likewise, but only where a letter is another one: a word without its ending finds more, and
may well be meant. What is put right is what is judged, shown, run and kept in the receipt.

And where the text that is to be replaced is not in the file, it replaces some other line. So an
edit is doubted that takes out a text of which the person named no word, and keeps no word of it.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from clawd.providers.base import ToolCall

_WORD = re.compile(r"[\w./~+@-]+")
_NAME = re.compile(r".*\w\.[A-Za-z]\w{0,7}")
_LONGEST_NAME = 255
_LONGEST_EDIT = 2_000  # characters; more is no line that was taken for another
_DIGITS = re.compile(r"\d+")
_SHORTEST_STEM = 4  # letters before the ending; less is next to too much
_LONG_STEM = 8  # here two slips are still the same name
_PATHS = ("path", "source")
_COMMAND = "command"
_PATTERN = "pattern"
_LETTERS = re.compile(r"[^\W\d_]{6,}")
READ_CHARS = 200_000
"""Of the conversation, from its end."""
UNNAMED = "nobody named the text that it replaces"
UNSURE = "the model was unsure of it"
_WORDS = re.compile(r"[^\W_]{2,}")
_STEM_LETTERS = 4  # words that begin alike are forms of one
_BY_PLACE = re.compile(
    r"\d|#|\b(?:lines?|headings?|headlines?|titles?|first|second|third|last|top|bottom|translate|"
    r"zeilen?|überschrift(?:en)?|titel|(?:erst|zweit|dritt|letzt|oberst|unterst)e[nrs]?|übersetze?)\b",
    re.IGNORECASE,
)


def put_right(call: ToolCall, said: Iterable[str], workspace: Path) -> ToolCall:
    """Return a call with the names of files, and the words to search for, of the conversation.

    Args:
        call: as the model wrote it.
        said: what the person said and what tools returned, the newest last.
        workspace: the name of a file that is there is no slip.
    """
    try:
        given = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return call
    wanted = (*_PATHS, _COMMAND, _PATTERN)
    texts: dict[str, str] = {key: given[key] for key in wanted if isinstance(given.get(key), str)}
    if not texts:
        return call
    read = tuple(_end_of(said))
    names = {name for text in read for name in _names_in(text)}

    def name_meant(found: re.Match[str]) -> str:
        name = found[0].rstrip(".")
        if not _is_name(name) or name in names or os.path.lexists(workspace / name):
            return found[0]
        return _meant(name, names) + found[0][len(name) :]

    def put(key: str, text: str) -> str:
        if key == _PATTERN:
            return _with_words(text, read)
        is_named = key == _COMMAND or _WORD.fullmatch(text)
        return _WORD.sub(name_meant, text) if is_named else text

    fresh = {key: put(key, text) for key, text in texts.items()}
    if fresh == texts:
        return call
    # With blanks, as small models are taught to write it: the prompt behind it is what they know.
    return msgspec.structs.replace(call, arguments=json.dumps(given | fresh, ensure_ascii=False))


def doubt(call: ToolCall, asked: Iterable[str]) -> str:
    """Return why an edit is not to be trusted, or "".

    Args:
        call: as it will be made.
        asked: what the person said. Who names a text by its place need not name its words.
    """
    try:
        given = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return ""
    old, new = given.get("old_text"), given.get("new_text")
    if not (isinstance(old, str) and isinstance(new, str)) or len(old) + len(new) > _LONGEST_EDIT:
        return ""
    removed, said = _words_of(old), tuple(asked)
    if not removed or any(map(_BY_PLACE.search, said)):
        return ""
    stems = {word[:_STEM_LETTERS] for text in said for word in _words_of(text)}
    is_named = any(word[:_STEM_LETTERS] in stems for word in removed)
    kept = ((one, other) for one in removed for other in _words_of(new))
    is_kept = any(_is_slip(one, other, 2 if len(one) > 2 else 0) for one, other in kept)
    return "" if is_kept or is_named else UNNAMED


def _words_of(text: str) -> set[str]:
    return {word.casefold() for word in _WORDS.findall(text)}


def _names_in(text: str) -> Iterator[str]:
    return filter(_is_name, (word.rstrip(".") for word in _WORD.findall(text)))


def _is_name(word: str) -> bool:
    # What follows a scheme names a host: nobody's text may lead a call to another one.
    is_short = len(word) <= _LONGEST_NAME
    return is_short and not word.startswith("//") and _NAME.fullmatch(word) is not None


def _end_of(said: Iterable[str]) -> Iterator[str]:
    left = READ_CHARS
    for text in reversed(tuple(said)):
        yield text[-left:]
        left -= len(text)
        if left <= 0:
            return


def _with_words(pattern: str, read: Iterable[str]) -> str:
    """Return a pattern whose words that were not said are those said with one other letter."""
    spelt = {word.casefold(): word for text in read for word in _LETTERS.findall(text)}

    def meant(found: re.Match[str]) -> str:
        word = found[0].casefold()
        near = [each for each in spelt if len(each) == len(word) and _is_other_letter(word, each)]
        return spelt[near[0]] if word not in spelt and len(near) == 1 else found[0]

    return _LETTERS.sub(meant, pattern) if pattern.replace(" ", "").isalpha() else pattern


def _is_other_letter(one: str, other: str) -> bool:
    return sum(a != b for a, b in zip(one, other, strict=True)) == 1


def _meant(name: str, known: set[str]) -> str:
    """Return the only known name that is next to this one, else the name itself."""
    near = {each for each in known if _is_next(name, each)}
    if not near:
        folder, slash, last = name.rpartition("/")
        lasts = {each.rpartition("/")[2] for each in known}
        if slash and last not in lasts:
            near = {f"{folder}/{each}" for each in lasts if _is_next(last, each)}
    return near.pop() if len(near) == 1 else name


def _is_next(name: str, other: str) -> bool:
    stem, _, ending = name.rpartition(".")
    other_stem, _, other_ending = other.rpartition(".")
    shortest = min(len(stem), len(other_stem))
    if ending != other_ending or shortest < _SHORTEST_STEM:
        return False
    if _DIGITS.findall(stem) != _DIGITS.findall(other_stem):
        return False
    return _is_slip(stem, other_stem, 2 if shortest >= _LONG_STEM else 1)


def _is_slip(one: str, other: str, most: int) -> bool:
    """Return whether so many letters at most are lost, added, or others, or changed places."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    one, other = one[same:], other[same:]
    if not one or not other:
        return len(one) + len(other) <= most
    if not most or abs(len(one) - len(other)) > most:
        return False
    is_swapped = one[:2] == other[1::-1]
    return (
        _is_slip(one[1:], other[1:], most - 1)
        or _is_slip(one[1:], other, most - 1)
        or _is_slip(one, other[1:], most - 1)
        or (is_swapped and _is_slip(one[2:], other[2:], most - 1))
    )
