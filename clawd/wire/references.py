"""How session files are named and referred to: `file+session://shell-3.txt`.

A reference is written in one way only. What looks like one and is none is refused, and never taken
for a path: without that, `file+session:/x` would be a folder of the workspace.
"""

import re
import unicodedata
from urllib.parse import unquote

from clawd.errors import InvalidRequestError

SCHEME = "file+session://"
NAME_LIMIT = 100
EXAMPLE = '{"path": "file+session://notes.txt"}'

_MENTION = re.compile(r'(?<![\w@/.])@(?:"([^"\n]+)"|([^\s"@][^\s"]*))')
_NOT_OF_A_NAME = ".,;:!?)]}'\""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_LIMIT - 1}}}")
_LOOK = re.compile(r"(^|[/\\])[\s\"'`]*file\s*\+\s*session\s*:")
_DECODINGS = 4


def mentions(text: str) -> list[tuple[str, ...]]:
    """Return what `@` names in a text, each with the readings that it has, the longest first.

    A mark at the end may belong to the sentence.
    """
    words = (quoted or plain for quoted, plain in _MENTION.findall(text))
    return [
        tuple(filter(None, dict.fromkeys((word, word.rstrip(_NOT_OF_A_NAME))))) for word in words
    ]


def reference(name: str) -> str:
    """Return what refers to a session file."""
    return SCHEME + name


def is_name(name: str) -> bool:
    """Return whether a session file may have this name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return a name that a session file may have.

    Raises:
        InvalidRequestError: it is none.
    """
    if not is_name(name):
        raise InvalidRequestError(
            f"{name[:NAME_LIMIT]!r} is no name of a session file",
            hint=f"1 to {NAME_LIMIT} letters, digits, dots, dashes and underscores, the first a "
            "letter or a digit, as in notes.txt.",
        )
    return name


def looks_like_reference(path: str) -> bool:
    """Return whether a path is a reference, or was meant as one, or could be mistaken for one.

    In any case of letters, percent-encoded, with other slashes, behind other folders.
    """
    for _ in range(_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    folded = unicodedata.normalize("NFKC", path).casefold()
    return "session" in folded and _LOOK.search(folded) is not None


def no_path(path: str) -> InvalidRequestError:
    """Return the refusal of a session file where only a path of the file system is taken."""
    return InvalidRequestError(
        f"{path[: 2 * NAME_LIMIT]!r} is no path of the file system: session files are for "
        "file_read, file_write, file_append, file_list and grep, one in a call, written just so: "
        f"{EXAMPLE}"
    )


def name_in(path: str) -> str:
    """Return the name in a reference; "" in one that means all session files.

    Raises:
        InvalidRequestError: it is not exactly a reference.
    """
    text = path.strip()
    name = text.removeprefix(SCHEME)
    if not text.startswith(SCHEME) or (name and not is_name(name)):
        raise InvalidRequestError(
            f"{text[: 2 * NAME_LIMIT]!r} is no session file: write file+session:// and a name of "
            f"letters, digits, dots, dashes and underscores, as in {EXAMPLE}"
        )
    return name
