"""`allowed-tools` of a skill that a turn has read: every other call is asked about. Pure.

    allowed-tools: Read, Grep Bash(git log *) mcp__github__get_issue

The names are clawd's own, or those that other agents have for the same tools. In parentheses stand
words of a command, or a path. What is named is judged as before; nothing is allowed by it.
"""

from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from clawd.security.approval_rules import covers_words, matches_file
from clawd.security.risk import Action
from clawd.tools.naming import ALIASES, words_of

INWARD = frozenset({"ask_user", "calculator", "job", "plan", "skill_read", "time", "tool_lookup"})
"""They reach nothing beyond the conversation, so no list needs to name them."""
_READERS = frozenset({"check_path", "cwd", "file_list", "file_read", "glob", "grep", "workspace"})
_WRITERS = frozenset({"file_append", "file_edit", "file_write"})
_FAMILIES = {"read": _READERS, "edit": _WRITERS}
_SERVER = "mcp__"


class Narrowing(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that are not asked about further, and what says so: `the skill notes`."""

    by: str
    tools: tuple[str, ...]


def outside(narrowings: tuple[Narrowing, ...], action: Action) -> str:
    """Return why a call is asked about: a narrowing does not name it; "" where each does."""
    for each in narrowings:
        if action.tool not in INWARD and not any(_names(tool, action) for tool in each.tools):
            return f"{each.by} allows itself only: {', '.join(each.tools)}"
    return ""


def may_name(narrowing: Narrowing, tool: str) -> bool:
    """Return whether a narrowing names some call of a tool."""
    named = (each.partition("(")[0] for each in narrowing.tools)
    return tool in INWARD or any(_is_named(each, tool) for each in named)


def _names(entry: str, action: Action) -> bool:
    name, _, rest = entry.partition("(")
    if not _is_named(name, action.tool):
        return False
    pattern = rest.removesuffix(")").strip()
    if pattern in {"", "*"}:
        return True
    if action.tool == "shell":
        return covers_words(pattern.replace(":*", " *"), action.assessment.needs)
    return bool(action.places) and all(_lies_in(pattern, place, action) for place in action.places)


def _is_named(name: str, tool: str) -> bool:
    if name.startswith(_SERVER):  # mcp__server, mcp__server__tool
        wanted = name.removeprefix(_SERVER)
        return fnmatchcase(tool, wanted if "__" in wanted else f"{wanted}__*")
    if fnmatchcase(tool, name):
        return True
    word = "_".join(words_of(name))
    known = _FAMILIES.get(word, frozenset())
    return tool in known or tool in {ALIASES.get(word), ALIASES.get(word.replace("_", ""))}


def _lies_in(pattern: str, place: str, action: Action) -> bool:
    path = Path(place)
    return path.is_relative_to(action.workspace) and matches_file(
        pattern.removeprefix("./"), str(path.relative_to(action.workspace)), hidden=True
    )
