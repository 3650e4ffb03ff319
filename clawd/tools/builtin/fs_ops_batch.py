"""What the operations of a batch mean before anything is done: their order, what goes together.

They are done in their order, each after those before it: a read after a write sees what was
written. The edits of one file are one step, made together where the first of them stands, each
against the file as it is then, so that line numbers are those of the file before the batch. Only a
`write` of the file parts them: edits after it are of what it wrote.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from clawd.errors import InvalidRequestError
from clawd.tools.base import Arguments
from clawd.tools.builtin.editing import Edit, EditError, edit_of, overlapping_lines
from clawd.tools.schema import decode_arguments
from clawd.tools.verbs import NO_CHOICE, choice_of

MAX_OPERATIONS = 50
MAX_FILES = 20
EXAMPLE = (
    '{"operations": [{"op": "read", "path": "a.txt"}, {"op": "edit", "path": "b.txt", '
    '"start_line": 2, "end_line": 3, "new_text": "new lines"}]}'
)

Verb = Literal["read", "write", "edit", "append", "list", "glob", "grep", "check"]
# Other names of the argument `op`, and what models call the operations elsewhere.
_VERB_NAMES = ("op", "operation", "action", "verb", "type", "tool", "name")
_PATH_NAMES = (
    "path", "file", "filename", "file_path", "filepath", "dir", "directory", "folder",
)  # fmt: skip
_WORDS: dict[str, Verb] = {
    "cat": "read", "open": "read", "view": "read", "show": "read", "get": "read",
    "create": "write", "overwrite": "write", "save": "write", "put": "write",
    "replace": "edit", "modify": "edit", "patch": "edit", "change": "edit",
    "add": "append", "ls": "list", "dir": "list", "find": "glob", "search": "grep",
    "exists": "check", "stat": "check",
}  # fmt: skip
_OF_FILES = frozenset({"read", "write", "edit", "append", "check"})
CHANGING = frozenset({"write", "append", "edit"})


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation.

    Attributes:
        number: its place in the batch, from 1.
        arguments: as its flat tool takes them.
        place: the resolved path of what it works on.
    """

    number: int
    verb: Verb
    arguments: dict[str, Any]
    place: str

    @property
    def title(self) -> str:
        """The operation for people and models: `edit a.py`."""
        subject = self.arguments.get("pattern") or self.arguments.get("path", ".")
        return f"{self.verb} {subject}"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is done at once: one operation, or the edits of one file.

    Attributes:
        edits: the edits that the operations mean, none for others.
        is_as_found: whether nothing of the batch changes the file before it.
    """

    operations: tuple[Operation, ...]
    edits: tuple[Edit, ...] = ()
    is_as_found: bool = True


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that can be meant.

    Attributes:
        steps: in the order in which they are done.
        files: how many files it names.
        continues: whether it goes on after a failure.
    """

    operations: tuple[Operation, ...]
    steps: tuple[Step, ...]
    files: int
    continues: bool


def operations_of(
    arguments: Arguments,
    schemas: Mapping[Verb, Mapping[str, Any]],
    place_of: Callable[[str], str],
) -> tuple[Operation, ...]:
    """Return the operations that the arguments name, by the arguments alone.

    What is refused here is refused whenever it is asked, wherever its paths lead by then.

    Args:
        arguments: of the tool.
        schemas: the parameters of each operation's flat tool.
        place_of: resolves a path.

    Raises:
        InvalidRequestError: they cannot be meant, and nothing may be done.
    """
    given = arguments["operations"]
    if not 1 <= len(given) <= MAX_OPERATIONS:
        raise refusal(f"a batch has 1 to {MAX_OPERATIONS} operations, this one has {len(given)}")
    return tuple(
        _operation(number, each, schemas, place_of) for number, each in enumerate(given, 1)
    )


def batch_of(arguments: Arguments, operations: tuple[Operation, ...]) -> Batch:
    """Return what the operations mean together, by where their paths lead now.

    Raises:
        InvalidRequestError: it cannot be meant, and nothing of it may be done.
    """
    files = {each.place for each in operations if each.verb in _OF_FILES}
    if len(files) > MAX_FILES:
        raise refusal(f"a batch names at most {MAX_FILES} files, this one names {len(files)}")
    return Batch(
        operations=operations,
        steps=tuple(map(_step, _grouped(operations))),
        files=len(files),
        continues=bool(arguments.get("continue_on_error")),
    )


def refusal(message: str) -> InvalidRequestError:
    """Return the refusal of a whole batch."""
    return InvalidRequestError(
        f"{message}; nothing was done.", hint=f"Correct arguments look like this: {EXAMPLE}"
    )


def _operation(
    number: int,
    given: dict[str, Any],
    schemas: Mapping[Verb, Mapping[str, Any]],
    place_of: Callable[[str], str],
) -> Operation:
    _check_one_meaning(number, given)
    said = next((name for name in _VERB_NAMES if given.get(name)), "")
    rest = {name: value for name, value in given.items() if name != said}
    verb = _verb(str(given[said])) if said else _inferred(rest)
    if verb is None:
        what = f"has op {str(given[said])[:40]!r}" if said else "has no op"
        raise refusal(f"operation {number} {what}; it must be one of {', '.join(schemas)}")
    try:
        decoded = decode_arguments(rest, schemas[verb])
    except InvalidRequestError as error:
        raise refusal(f"operation {number} ({verb}): {error.message}") from error
    if verb == "edit":
        _check_edit(number, decoded)
    place = place_of(decoded.get("path") or ".")
    return Operation(number=number, verb=verb, arguments=decoded, place=place)


def _check_edit(number: int, arguments: Arguments) -> None:
    try:
        edit_of(arguments)
    except EditError as error:
        raise refusal(f"operation {number} (edit): {error.message}") from error


def _check_one_meaning(number: int, given: Mapping[str, Any]) -> None:
    """Refuse an operation that says two things: a person who is asked may read the wrong one."""
    verbs = {_verb(str(given[name])) for name in _VERB_NAMES if given.get(name)} - {None}
    paths = {str(given[name]).strip() for name in _PATH_NAMES if given.get(name)}
    if len(verbs) > 1 or len(paths) > 1:
        raise refusal(f"operation {number} names two {'paths' if len(paths) > 1 else 'operations'}")


def _verb(word: str) -> Verb | None:
    """Return the operation that a word means: `file_read` and `reads` are `read`."""
    plain = re.sub(r"[^a-z]+", "_", word.lower()).strip("_")
    plain = re.sub(r"^(file|fs)_|_(file|files|path)$", "", plain)
    if plain in _WORDS:
        return _WORDS[plain]
    verbs = {str(each): each for each in get_args(Verb)}
    meant = choice_of(plain, verbs)
    return None if meant is NO_CHOICE else verbs[meant]


def _inferred(given: Mapping[str, Any]) -> Verb | None:
    """Return the only operation that takes these arguments, or None."""
    if "new_text" in given:
        return "edit"
    if given.keys() & {"max_lines", "offset", "max_bytes"}:
        return "read"
    return "grep" if given.keys() & {"ignore_case", "max_results"} else None


def _grouped(operations: tuple[Operation, ...]) -> list[tuple[list[Operation], bool]]:
    """Return what goes together, and whether its file is then as the batch found it."""
    groups: list[tuple[list[Operation], bool]] = []
    edits: dict[str, list[Operation]] = {}
    changed: set[str] = set()
    for each in operations:
        if each.verb == "edit" and each.place in edits:
            edits[each.place].append(each)
            continue
        groups.append(([each], each.place not in changed))
        if each.verb == "edit":
            edits[each.place] = groups[-1][0]
        elif each.verb == "write":
            edits.pop(each.place, None)
        if each.verb in CHANGING:
            changed.add(each.place)
    return groups


def _step(group: tuple[list[Operation], bool]) -> Step:
    operations, is_as_found = group
    if operations[0].verb != "edit":
        return Step(operations=tuple(operations), is_as_found=is_as_found)
    edits = [edit_of(each.arguments) for each in operations]
    if (both := overlapping_lines(edits)) is not None:
        raise overlap(operations[both[0]], operations[both[1]])
    return Step(operations=tuple(operations), edits=tuple(edits), is_as_found=is_as_found)


def overlap(one: Operation, other: Operation) -> InvalidRequestError:
    """Return the refusal of a batch in which two edits overlap."""
    return refusal(
        f"operations {one.number} and {other.number} change the same part of "
        f"{other.arguments['path']}; line numbers are those of the file before the batch"
    )
