"""What tools of MCP servers are called here: `alias__tool`, and back. Pure.

    files + read_file      files__read_file
    files + read.file      files__read_file_1f6a2c08     no dots in names of tools here
    9p + stat              m_9p__stat                    a name begins with a letter

A name depends on its server's alias and on the tool's own name, never on other servers or on the
order of things, so it is the same after a restart. An alias has no underscore: what stands before
the first two of them is the alias.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec

SEPARATOR = "__"
MODELS_PREFIX = f"mcp{SEPARATOR}"
"""What models write before the names of such tools."""
NAME_LIMIT = 64
_DIGEST_LENGTHS = (8, 16)
_BEFORE_A_DIGIT = "m_"

_ALLOWED = re.compile(r"[A-Za-z0-9_-]+")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]+")


class ServerNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names of one server's tools.

    Attributes:
        names: what each tool is called here, by its own name; in the order of the server.
        others: further spellings that lead to a tool, by its own name; none is one of `names`.
        lost: own names of tools that can have no name, as another tool of the server has it.
    """

    names: dict[str, str]
    others: dict[str, tuple[str, ...]]
    lost: tuple[str, ...] = ()


def prefix_of(alias: str) -> str:
    """Return what the names of a server's tools begin with, the separator included."""
    return (alias if alias[:1].isalpha() else _BEFORE_A_DIGIT + alias) + SEPARATOR


def alias_of(name: str) -> str:
    """Return the alias in a name; "" where there is none."""
    before, separator, _ = name.partition(SEPARATOR)
    return before.removeprefix(_BEFORE_A_DIGIT) if separator else ""


def names_of(alias: str, tools: Iterable[str]) -> ServerNames:
    """Name the tools of a server.

    A tool whose own name fits keeps it whatever the others are called; one that comes twice is
    the first of its name.
    """
    prefix, own = prefix_of(alias), tuple(dict.fromkeys(tools))
    taken = {prefix + tool for tool in own if _fits(prefix, tool)}
    names: dict[str, str] = {}
    lost: list[str] = []
    for tool in own:
        if _fits(prefix, tool):
            names[tool] = prefix + tool
            continue
        name = next((each for each in _mapped(prefix, tool) if each not in taken), "")
        if not name:
            lost.append(tool)
            continue
        taken.add(name)
        names[tool] = name
    return ServerNames(names=names, others=_others(prefix, names), lost=tuple(lost))


def is_matched(tool: str, patterns: Iterable[str]) -> bool:
    """Tell whether a tool's own name is one of the patterns, which may end in `*`."""
    return any(
        tool.startswith(pattern[:-1]) if pattern.endswith("*") else tool == pattern
        for pattern in patterns
    )


def approval_of(alias: str, tool: str, name: str, entries: Iterable[str]) -> str:
    """Return the entry of auto_approve that names a tool; "" where there is none.

    An entry is `alias__tool` with the tool's own name, the name that it has here, or `alias__*`;
    one that names the tool goes before the pattern.
    """
    found = set(entries)
    wanted = (f"{alias}{SEPARATOR}{tool}", name, f"{alias}{SEPARATOR}*")
    return next((entry for entry in wanted if entry in found), "")


def _fits(prefix: str, tool: str) -> bool:
    return bool(_ALLOWED.fullmatch(tool)) and len(prefix) + len(tool) <= NAME_LIMIT


def _mapped(prefix: str, tool: str) -> Iterable[str]:
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()
    readable = _FORBIDDEN.sub("_", tool).strip("_") or "tool"
    for length in _DIGEST_LENGTHS:
        room = NAME_LIMIT - len(prefix) - length - 1
        yield f"{prefix}{readable[:room]}_{digest[:length]}"


def _others(prefix: str, names: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Return what models write as well: `mcp__files__read`, and a mapped name without its end."""
    taken, wanted = set(names.values()), dict[str, list[str]]()
    for tool, name in names.items():
        spellings = [f"mcp{SEPARATOR}{name}"]
        if name != prefix + tool:
            spellings.append(prefix + (_FORBIDDEN.sub("_", tool).strip("_") or "tool"))
        for spelling in spellings:
            if len(spelling) <= NAME_LIMIT and spelling not in taken:
                wanted.setdefault(spelling, []).append(tool)
    others: dict[str, tuple[str, ...]] = {}
    for spelling, tools in wanted.items():
        if len(tools) == 1:  # what could mean two tools means none
            others[tools[0]] = (*others.get(tools[0], ()), spelling)
    return others
