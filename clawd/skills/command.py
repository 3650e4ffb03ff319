"""Commands of one's own: a Markdown file each, `/NAME` for a message to fill in. Pure.

    ---
    description: Review what is staged.
    argument-hint: "[FOLDER]"
    allowed-tools: Read, Bash(git *)
    ---
    Review these changes of $1 by the rules in @docs/style.md:

    !`git diff --staged -- $1`

`$ARGUMENTS` is what stands behind the command, `$1` to `$9` its words. What stands in `!` is for
the shell, and what it prints takes its place.
"""

import re
import shlex
from collections.abc import Sequence
from functools import cached_property

import msgspec

from clawd.errors import InvalidRequestError
from clawd.skills.skill_file import MAX_DESCRIPTION, SkillFile, read_definition
from clawd.wire.skills import SkillProblem

COMMAND_PATTERN = r"[a-z][a-z0-9_-]*"
MAX_SHELL_COMMANDS = 20
MAX_FILLED = 4 << 20
_PLACE = re.compile(r"\$(ARGUMENTS|[1-9])(?!\w)")
_SHELL = re.compile(r"!`([^`\n]+)`")
_UNSAFE = re.compile(r"""\\(?:\$\w*|.)|\$?(?:'[^']*'?|"(?:\\.|[^"\\])*"?)|\$\$\w*""")


def read_command(data: bytes, name: str) -> SkillFile:
    """Return what a file of a command says, with all that is wrong with it."""
    about = read_definition(data, name, pattern=COMMAND_PATTERN)
    lines = _SHELL.findall(about.body)
    wrong = {
        f"runs {len(lines)} commands; at most {MAX_SHELL_COMMANDS}": len(lines)
        > MAX_SHELL_COMMANDS,
        "has $ARGUMENTS or $1 to $9 of a command in quotes, or behind a backslash or another $; "
        "write them free, they are quoted when they are filled in": any(map(_is_unsafe, lines)),
    }
    found = tuple(SkillProblem(text=why) for why, is_so in wrong.items() if is_so)
    first = about.body.partition("\n")[0][:MAX_DESCRIPTION]
    return msgspec.structs.replace(
        about, description=about.description or first, problems=(*about.problems, *found)
    )


class Filling:
    """A command's text with what stands behind it in its places.

    Raises:
        InvalidRequestError: by all of it: the arguments cannot be filled in, or are too long.
    """

    def __init__(self, body: str, arguments: str) -> None:
        places = len(_PLACE.findall(body))
        if len(body) + (places + 1) * len(arguments) > MAX_FILLED:
            raise InvalidRequestError(
                f"the message would have more than {MAX_FILLED >> 20} MiB",
                hint="Save the text to a file of the workspace and name it with @file.",
            )
        if "\0" in arguments:
            raise InvalidRequestError("the arguments hold a NUL", hint="Leave it out.")
        # Every second part is a command of the shell.
        self._parts = _SHELL.split(body)
        self._arguments = arguments
        if arguments and not places:
            self._parts[-1] += "\n\n$ARGUMENTS"

    def shell_commands(self) -> list[str]:
        """Return what the shell runs before there is a message, with the arguments quoted."""
        return [_PLACE.sub(self._quoted, each) for each in self._parts[1::2]]

    def message(self, printed: Sequence[str]) -> tuple[str, str]:
        """Return the message without what its commands printed, and with it.

        What was printed is text: no place in it is filled in, and nothing of it is run.
        """
        first, *texts = (_PLACE.sub(self._plain, each) for each in self._parts[::2])
        whole = (f"{out}{text}" for out, text in zip(printed, texts, strict=True))
        return "".join((first, *texts)), "".join((first, *whole))

    @cached_property
    def _words(self) -> list[str]:
        try:
            return shlex.split(self._arguments)
        except ValueError as error:
            raise InvalidRequestError(
                f"the arguments cannot be parted into words: {error}",
                hint='Quote them as for a shell, as in /review "it\'s here".',
            ) from error

    def _word(self, number: str) -> str:
        return "".join(self._words[int(number) - 1 : int(number)])

    def _plain(self, place: re.Match[str]) -> str:
        return self._arguments if place[1] == "ARGUMENTS" else self._word(place[1])

    def _quoted(self, place: re.Match[str]) -> str:
        words = self._words if place[1] == "ARGUMENTS" else [self._word(place[1])]
        if any("\n" in word or "\r" in word for word in words):
            raise InvalidRequestError(
                "an argument for a command of the shell has a line break", hint="Leave it out."
            )
        return shlex.join(words)


def _is_unsafe(command: str) -> bool:
    """Return whether a place stands where a quoted argument could leave its quotes."""
    return any(_PLACE.search(found.group()) for found in _UNSAFE.finditer(command))
