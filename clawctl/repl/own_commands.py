"""The person's own commands: `commands/NAME.md` in clawd's home, each a message to fill in.

    ---
    description: Review what is staged.
    argument-hint: "[FOLDER]"
    allowed-tools: Read, Bash(git *)
    ---
    Review these changes of $1 by the rules in @docs/style.md:

    !`git diff --staged -- $1`

`$ARGUMENTS` is what stands behind the command, `$1` to `$9` its words. `!` runs a command of the
shell through the daemon's gate, with a receipt, and what it printed stands in its place.
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from clawd.errors import InvalidRequestError
from clawd.paths import layout

FOLDER = "commands"
MAX_BYTES = 64 * 1024
MAX_COMMANDS = 200
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_FRONT = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)(.*)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"([a-z-]+):[ \t]*(.*)")
_ENTRIES = re.compile(r"(?:\([^)]*\)?|[^\s,(])+")
_PLACE = re.compile(r"\$(ARGUMENTS|[1-9])(?![\w])")
_SHELL = re.compile(r"!`([^`\n]+)`")
_MARK = "\0"


class OwnCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the person's own.

    Attributes:
        hint: what may stand behind it.
        allowed_tools: calls of other tools are asked about; () narrows nothing.
    """

    name: str
    description: str = ""
    hint: str = ""
    allowed_tools: tuple[str, ...] = ()
    body: str

    @property
    def usage(self) -> str:
        """How it is written."""
        return f"/{self.name} {self.hint}".rstrip()

    def to_run(self, arguments: str) -> list[str]:
        """Return the commands of the shell that come before the message.

        Raises:
            InvalidRequestError: the arguments cannot be parted into words.
        """
        found, words = _SHELL.findall(self.body), _words(arguments)
        return [_with(each, arguments, words, quote=True) for each in found]

    def filled(self, arguments: str, printed: Sequence[str]) -> tuple[str, str]:
        """Return the message without what these commands printed, and with it.

        Raises:
            InvalidRequestError: the arguments cannot be parted into words.
        """
        text = _with(_SHELL.sub(_MARK, self.body), arguments, _words(arguments))
        if arguments and not _PLACE.search(self.body):
            text = f"{text}\n\n{arguments}"
        bare, *rest = text.split(_MARK)
        whole = bare + "".join(f"{out}{part}" for out, part in zip(printed, rest, strict=True))
        return text.replace(_MARK, ""), whole


def own_commands() -> list[OwnCommand]:
    """Return the commands that there are, by name; files that are none are left out."""
    try:
        names = sorted(each.stem for each in _folder().iterdir() if each.suffix == ".md")
    except OSError:
        return []
    found = (_read(name) for name in names[:MAX_COMMANDS])
    return [each for each in found if each is not None]


def own_command(line: str) -> tuple[OwnCommand, str] | None:
    """Return the command that a line calls and what stands behind it, None where it calls none."""
    name, _, rest = line.removeprefix("/").partition(" ")
    found = _read(name.rstrip("\n")) if line.startswith("/") else None
    return None if found is None else (found, rest.strip())


def _folder() -> Path:
    return layout().home / FOLDER


def _read(name: str) -> OwnCommand | None:
    if not _NAME.fullmatch(name):
        return None
    try:
        with (_folder() / f"{name}.md").open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError):
        return None
    if len(data) > MAX_BYTES:
        return None
    front = _FRONT.match(text.replace("\r\n", "\n").replace(_MARK, ""))
    head, body = front.groups() if front else ("", text.replace(_MARK, ""))
    fields = dict(_FIELD.findall(head))
    about = {key: value.strip().strip("\"'") for key, value in fields.items()}
    return OwnCommand(
        name=name,
        description=about.get("description", "") or body.strip().partition("\n")[0],
        hint=about.get("argument-hint", ""),
        allowed_tools=tuple(_ENTRIES.findall(about.get("allowed-tools", ""))),
        body=body.strip(),
    )


def _words(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError as error:
        raise InvalidRequestError(f"the arguments cannot be parted: {error}") from error


def _with(text: str, arguments: str, words: list[str], *, quote: bool = False) -> str:
    """Return a text with the arguments in their places, quoted for a shell where it is for one."""

    def place(found: re.Match[str]) -> str:
        if found[1] == "ARGUMENTS":
            return shlex.join(words) if quote else arguments
        word = words[int(found[1]) - 1] if int(found[1]) <= len(words) else ""
        return shlex.quote(word) if quote else word

    return _PLACE.sub(place, text)
