"""SKILL.md as the Agent Skills standard has it: fields between two `---`, then Markdown. Pure.

    ---
    name: release-notes
    description: Writes release notes. Use when a version is about to be published.
    metadata:
      author: ada
    ---
    1. Read the commits since the last tag …

The fields are YAML. Of YAML this reads what they need: text, plain, quoted or as a block (`|` and
`>`), one map of texts and one list of texts. Anchors, tags and nested maps are problems, never
guesses.

Commands of one's own: a Markdown file each, `/NAME` for a message to fill in.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from clawd.errors import InvalidRequestError
from clawd.wire.safe_text import paragraph, visible_line, without_hidden
from clawd.wire.skills import SkillProblem

FILE_NAME = "SKILL.md"
NAME_PATTERN = r"[a-z0-9]+(-[a-z0-9]+)*"
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_FILE_BYTES = 256 * 1024
MAX_PROBLEMS = 50
_TEXTS = ("name", "description", "license", "compatibility")
_FIELDS = (*_TEXTS, "metadata", "allowed-tools")
_FENCE = "---"
_SHOWN = 60

_FRONT = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)(.*)", re.DOTALL | re.MULTILINE)
_SIMPLE = re.compile(r"^([a-z-]+):[ \t]*(.*)$", re.MULTILINE)
_ITEM = re.compile(r"^[ \t]*- (.+)$", re.MULTILINE)
_KEY = re.compile(r"""[^\s'"#&*!|>%@`{}\[\],-][^'"#]*""")
_BLOCK = re.compile(r"([|>])([+-]?[1-9]?|[1-9][+-])(\s+#.*)?")
_COMMENT = re.compile(r"(^|\s)#.*$")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(#.*)?', re.DOTALL)
_SINGLE = re.compile(r"'((?:[^']|'')*)'\s*(#.*)?", re.DOTALL)
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(["\\/nt ]))')
_ESCAPED = {"n": "\n", "t": "\t"}


class SkillFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a SKILL.md says.

    Attributes:
        name: and the texts that follow: the standard's fields, "" where they are left out.
        allowed_tools: what it says it needs; it grants nothing, and calls of others are asked
            about once a turn has read the skill.
        hint: what may stand behind a command.
        workspace: `copy` for an agent that changes a copy of it; "" for one that reads it.
        body: the Markdown after the fields.
        problems: why it is no skill by the standard, in the order of lines; empty for a good one.
    """

    name: str = ""
    description: str = ""
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    hint: str = ""
    workspace: str = ""
    body: str = ""
    problems: tuple[SkillProblem, ...] = ()


def split_tools(text: str) -> tuple[str, ...]:
    """Return the entries of `allowed-tools`: commas and spaces part them, not in parentheses."""
    return tuple(re.findall(r"(?:\([^)]*\)?|[^\s,(])+", text))


def read_definition(data: bytes, name: str, *, pattern: str = NAME_PATTERN) -> SkillFile:
    """Return what a Markdown file of an agent or a command says, with all that is wrong with it.

    Its fields are `key: value`; those that nothing here knows are ignored, as other programs'.

    Args:
        data: the file; more than `MAX_FILE_BYTES` are a problem.
        name: of the file, which `name` is if it is there.
        pattern: which names there may be.
    """
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return SkillFile(problems=(SkillProblem(text="is no UTF-8 text"),))
    front = _FRONT.match(text)
    head, body = front.groups() if front else ("", text)
    plain = {key: value.strip().strip("\"'") for key, value in _SIMPLE.findall(head)}
    tools = plain.get("tools") or plain.get("allowed-tools") or ", ".join(_ITEM.findall(head))
    is_name = re.fullmatch(pattern, name) is not None and len(name) <= MAX_NAME
    wrong = {
        f"has more than {MAX_FILE_BYTES} bytes": len(data) > MAX_FILE_BYTES,
        f"is called {visible_line(name, _SHOWN)!r}; lower-case letters, digits and single hyphens "
        "between them are wanted (a command begins with a letter and may have _)": not is_name,
        "has no text": not body.strip(),
        "holds control or hidden characters": without_hidden(paragraph(text)) != text,
        "has another `name` than its file": plain.get("name", name) != name,
    }
    return SkillFile(
        name=name,
        description=plain.get("description", "")[:MAX_DESCRIPTION],
        allowed_tools=split_tools(tools),
        hint=plain.get("argument-hint", ""),
        workspace="copy" if _is_apart(plain) else "",
        body=body.strip(),
        problems=tuple(SkillProblem(text=why) for why, is_so in wrong.items() if is_so),
    )


def _is_apart(fields: Mapping[str, str]) -> bool:
    """Return whether an agent works beside the workspace; `isolation` is what others call it."""
    return fields.get("workspace") == "copy" or fields.get("isolation") in {"copy", "worktree"}


class _Line(NamedTuple):
    number: int
    text: str

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip(" "))

    @property
    def is_empty(self) -> bool:
        stripped = self.text.strip()
        return not stripped or stripped.startswith("#")


class _InvalidError(Exception):
    """A line that cannot be read, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.problem = SkillProblem(line=line, text=why)


def read_skill_file(data: bytes, folder: str) -> SkillFile:
    """Return what a SKILL.md says, with everything that is wrong with it.

    Args:
        data: the file; more than `MAX_FILE_BYTES` are a problem.
        folder: the name of the folder that it lies in, which the standard wants it to have.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        return SkillFile(problems=(SkillProblem(line=number, text="is no UTF-8 text"),))
    if len(data) > MAX_FILE_BYTES:
        why = f"SKILL.md has {len(data)} bytes; at most {MAX_FILE_BYTES} are read"
        return SkillFile(problems=(SkillProblem(text=why),))
    lines = [_Line(n, line.removesuffix("\r")) for n, line in enumerate(text.split("\n"), 1)]
    end = next((at for at, line in enumerate(lines) if at and line.text.rstrip() == _FENCE), 0)
    if lines[0].text.rstrip() != _FENCE or not end:
        why = "has no second" if lines[0].text.rstrip() == _FENCE else "does not begin with a"
        return SkillFile(problems=(SkillProblem(line=1, text=f"SKILL.md {why} line {_FENCE}"),))
    reader = _Reader(lines[1:end])
    body = "\n".join(line.text for line in lines[end + 1 :]).strip()
    return reader.skill(folder, body)


class _Reader:
    """Reads the fields; keeps every problem that it meets.

    Args:
        lines: those between the two fences.
    """

    def __init__(self, lines: Sequence[_Line]) -> None:
        self._lines = lines
        self._found: dict[str, tuple[int, str | dict[str, str] | tuple[str, ...]]] = {}
        self._problems: list[SkillProblem] = []

    def skill(self, folder: str, body: str) -> SkillFile:
        """Return the skill, judged by the standard."""
        self._read()
        texts = {key: self._text(key) for key in _TEXTS}
        self._judge(texts, folder)
        return SkillFile(
            **texts,
            metadata=self._metadata(),
            allowed_tools=self._tools(),
            body=body,
            problems=tuple(sorted(self._problems, key=lambda each: each.line)[:MAX_PROBLEMS]),
        )

    def _say(self, line: int, text: str) -> None:
        self._problems.append(SkillProblem(line=line, text=text))

    def _read(self) -> None:
        for head, rest in self._fields():
            try:
                key, inline = _entry(head)
                if key in self._found:
                    raise _InvalidError(
                        head.number, f"`{visible_line(key, _SHOWN)}` stands here twice"
                    )
                self._found[key] = head.number, ""
                value = _value(key, head.number, inline, rest)
            except _InvalidError as error:
                self._problems.append(error.problem)
                continue
            self._found[key] = head.number, value
            if any(without_hidden(paragraph(text)) != text for text in (key, *_texts_in(value))):
                shown = visible_line(f"{key}: {value}", _SHOWN)
                self._say(head.number, f"holds control or hidden characters: {shown}")
            if key not in _FIELDS:
                known, shown = ", ".join(_FIELDS), visible_line(key, _SHOWN)
                self._say(
                    head.number,
                    f"`{shown}` is no field of the standard ({known}); own ones go below metadata",
                )

    def _fields(self) -> Iterator[tuple[_Line, list[_Line]]]:
        """Yield each line that begins a field, and those that belong to it."""
        head: _Line | None = None
        rest: list[_Line] = []
        for line in self._lines:
            belongs = line.is_empty or line.indent or line.text.startswith(("- ", "\t"))
            if head is not None and belongs:
                rest.append(line)
            elif not line.is_empty and belongs:
                self._say(line.number, "is set in, but nothing stands above it")
            elif not line.is_empty:
                if head is not None:
                    yield head, rest
                head, rest = line, []
        if head is not None:
            yield head, rest

    def _text(self, key: str) -> str:
        line, value = self._found.get(key, (0, ""))
        if isinstance(value, str):
            return value.strip()
        self._say(line, f"`{key}` must be a text")
        return ""

    def _metadata(self) -> dict[str, str]:
        line, value = self._found.get("metadata", (0, {}))
        if isinstance(value, dict):
            return value
        if value:
            self._say(line, "`metadata` must be a map of texts, one a line below it")
        return {}

    def _tools(self) -> tuple[str, ...]:
        line, value = self._found.get("allowed-tools", (0, ()))
        if isinstance(value, dict):
            self._say(line, "`allowed-tools` must be a text or a list")
            return ()
        return split_tools(value) if isinstance(value, str) else value

    def _judge(self, texts: dict[str, str], folder: str) -> None:
        at = {key: line for key, (line, _) in self._found.items()}
        unread = {each.line for each in self._problems}
        for key in ("name", "description"):
            if not texts[key] and at.get(key) not in unread:
                self._say(at.get(key, 1), f"`{key}` is {'empty' if key in at else 'missing'}")
        for key, most in (
            ("name", MAX_NAME),
            ("description", MAX_DESCRIPTION),
            ("compatibility", MAX_COMPATIBILITY),
        ):
            if len(texts[key]) > most:
                self._say(at[key], f"`{key}` has {len(texts[key])} characters; at most {most}")
        if at.get("compatibility", 0) not in {0, *unread} and not texts["compatibility"]:
            self._say(at["compatibility"], "`compatibility` is empty; leave it out")
        name = texts["name"]
        if name and not re.fullmatch(NAME_PATTERN, name):
            self._say(
                at["name"],
                f"`name` is {visible_line(name, _SHOWN)!r}; it may have lower-case letters, digits "
                "and single hyphens between them",
            )
        elif name and name != folder:
            shown = visible_line(folder, _SHOWN)
            self._say(at["name"], f"`name` is {name!r}, but the folder is {shown!r}")


def _entry(line: _Line) -> tuple[str, str]:
    """Return key and value of a line `key: value`."""
    key, colon, value = line.text.strip().partition(":")
    if not colon or (value and value[0] not in " \t") or not _KEY.fullmatch(key):
        shown = visible_line(line.text.strip(), _SHOWN)
        raise _InvalidError(line.number, f"is no `key: value`: {shown}")
    return key.strip(), value.strip()


def _is_entry(line: _Line) -> bool:
    try:
        _entry(line)
    except _InvalidError:
        return False
    return True


def _texts_in(value: str | dict[str, str] | tuple[str, ...]) -> Iterable[str]:
    """Return all texts of a field's value."""
    if isinstance(value, dict):
        return (*value, *value.values())
    return (value,) if isinstance(value, str) else value


def _value(
    key: str, number: int, inline: str, rest: Sequence[_Line]
) -> str | dict[str, str] | tuple[str, ...]:
    """Return the value of a field from the text behind its colon and the lines below it."""
    if _BLOCK.fullmatch(inline):
        return _block(inline[0] == ">", rest)
    filled = [line for line in rest if not line.is_empty]
    is_nested = not inline or inline.startswith("#")
    if is_nested and filled and filled[0].text.lstrip().startswith("- "):
        return tuple(_listed(filled))
    if is_nested and filled and (key == "metadata" or _is_entry(filled[0])):
        return _mapped(filled)
    if inline.startswith("[") and key == "allowed-tools":
        return _flow(number, inline)
    for line in filled:
        if line.text.startswith(("\t", "- ")):
            raise _InvalidError(line.number, "cannot be read here; set it in with blanks")
    return _scalar(number, "" if is_nested else inline, filled)


def _scalar(number: int, inline: str, rest: Sequence[_Line] = ()) -> str:
    """Return a text that stands behind a colon or dash, and goes on in further lines."""
    whole = " ".join(filter(None, [inline, *(line.text.strip() for line in rest)]))
    if whole.startswith(('"', "'")):
        pattern = _DOUBLE if whole[0] == '"' else _SINGLE
        found = pattern.fullmatch(whole)
        if found is None:
            raise _InvalidError(
                number, f"a text that begins with {whole[0]} must end with it, alone"
            )
        return _unescaped(number, found[1]) if whole[0] == '"' else found[1].replace("''", "'")
    if whole.startswith(("&", "*", "!", "{", "[", "%", "@", "`", "|", ">", ",", "]", "}")):
        raise _InvalidError(
            number,
            f"{visible_line(whole, _SHOWN)} is more of YAML than a skill needs; put it in quotes",
        )
    texts = [inline, *(line.text.strip() for line in rest)]
    plain = " ".join(filter(None, (_COMMENT.sub("", text).strip() for text in texts)))
    if plain.startswith(("- ", "? ", ": ")) or re.search(r":(\s|$)", plain):
        raise _InvalidError(
            number, "holds a colon and a blank, or a mark of YAML; put it in quotes"
        )
    return plain


def _unescaped(number: int, text: str) -> str:
    if "\\" in _ESCAPE.sub("", text):
        raise _InvalidError(number, r"knows only \" \\ \/ \n \t \xNN and \uNNNN in double quotes")

    def plain(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        return chr(int(code, 16)) if code else _ESCAPED.get(found[3], found[3])

    return _ESCAPE.sub(plain, text)


def _block(is_folded: bool, rest: Sequence[_Line]) -> str:  # noqa: FBT001 - which of two marks
    r"""Return a block of text; where it is folded, a line break between two lines is a blank."""
    lines = [line.text for line in rest]
    indents = [line.indent for line in rest if line.text.strip()]
    cut = indents[0] if indents else 0
    for line in rest:
        if line.text.strip() and line.indent < cut:
            raise _InvalidError(line.number, "is set in less than the text that it belongs to")
    text = "\n".join(line[cut:].rstrip() for line in lines).strip("\n")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text).replace("\n\n", "\n") if is_folded else text


def _listed(lines: Sequence[_Line]) -> Iterator[str]:
    indent = lines[0].indent
    for line in lines:
        item = line.text.strip()
        if line.indent != indent or not item.startswith("- "):
            raise _InvalidError(line.number, "is no item `- text` of the list above")
        yield _scalar(line.number, item[2:].strip())


def _mapped(lines: Sequence[_Line]) -> dict[str, str]:
    indent, found = lines[0].indent, dict[str, str]()
    for line in lines:
        key, value = _entry(line)
        if line.indent != indent:
            raise _InvalidError(line.number, "is set in differently; metadata holds texts alone")
        if key in found:
            raise _InvalidError(line.number, f"`{visible_line(key, _SHOWN)}` stands here twice")
        found[key] = _scalar(line.number, value)
    return found


def _flow(number: int, inline: str) -> tuple[str, ...]:
    """Return a list that is written as `[one, two]`."""
    found = re.fullmatch(r"\[([^\[\]{}]*)\]\s*(#.*)?", inline)
    if found is None:
        raise _InvalidError(number, "must be a list of texts on one line, or one below the other")
    parts = [part.strip() for part in found[1].split(",")]
    return tuple(_scalar(number, part) for part in parts if part)


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
