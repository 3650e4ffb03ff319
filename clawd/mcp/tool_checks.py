"""From what a server says of its tools to what can be offered to a model. Pure.

Nothing here raises for what a server sent: a tool is taken, repaired and taken, or quarantined with
a reason. One bad tool never costs the others.
"""

import math
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec

from clawd.mcp.model import Quarantined, RemoteTool
from clawd.wire.safe_text import single_line

MAX_NAME = 256
MAX_DESCRIPTION = 8_000
MAX_TITLE = 200
MAX_SCHEMA_BYTES = 64 << 10
MAX_SCHEMA_DEPTH = 32
MAX_PAGES = 100
MAX_QUARANTINED = 100
_MAX_LOOKED_AT = 5_000
_MAX_CURSOR = 64 << 10
_INT_BOUNDS = (-(1 << 63), (1 << 64) - 1)
_SHOWN = 64


class ToolPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list of tools. `cursor` leads to the next; empty for the end."""

    tools: tuple[RemoteTool, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    cursor: str = ""


class Listing:
    """All pages together.

    Args:
        max_tools: how many tools are taken.
    """

    def __init__(self, max_tools: int) -> None:
        self._max_tools = max_tools
        self._tools: dict[str, RemoteTool] = {}
        self._quarantined: list[Quarantined] = []
        self._cursors: set[str] = set()
        self._pages = 0
        self._left_out = 0

    @property
    def tools(self) -> tuple[RemoteTool, ...]:
        """What can be offered, in the server's order."""
        return tuple(self._tools.values())

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """What cannot, and why; the last one counts what is not named."""
        if not self._left_out:
            return tuple(self._quarantined)
        more = Quarantined(name="…", reason=f"and {self._left_out} more")
        return (*self._quarantined, more)

    def add(self, page: ToolPage) -> str:
        """Take a page; return where the next is, empty when there is none to ask for."""
        for bad in page.quarantined:
            self._quarantine(bad.name, bad.reason)
        for tool in page.tools:
            if tool.name in self._tools:
                self._quarantine(tool.name, "the server names it twice; the first is taken")
            elif len(self._tools) >= self._max_tools:
                self._quarantine(tool.name, f"the server has more than {self._max_tools} tools")
            else:
                self._tools[tool.name] = tool
        self._pages += 1
        if not page.cursor or len(self._tools) >= self._max_tools:
            return ""
        if page.cursor in self._cursors:
            self._quarantine("…", "the server's list leads back to an earlier page")
            return ""
        if self._pages >= MAX_PAGES:
            self._quarantine("…", f"the server's list has more than {MAX_PAGES} pages")
            return ""
        self._cursors.add(page.cursor)
        return page.cursor

    def drop(self, names: set[str], reason: str) -> None:
        """Quarantine what was taken before."""
        for name in names & self._tools.keys():
            del self._tools[name]
            self._quarantine(name, reason)

    def _quarantine(self, name: str, reason: str) -> None:
        if len(self._quarantined) < MAX_QUARANTINED:
            self._quarantined.append(Quarantined(name=_shown(name), reason=reason))
        else:
            self._left_out += 1


def read_page(result: Any) -> ToolPage:
    """Read the result of `tools/list`, whatever it is."""
    items = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(items, list):
        bad = Quarantined(name="…", reason="the server's answer has no list of tools")
        return ToolPage(quarantined=(bad,))
    read = [read_tool(item) for item in items[:_MAX_LOOKED_AT]]
    bad_ones = [each for each in read if isinstance(each, Quarantined)]
    if len(items) > _MAX_LOOKED_AT:
        reason = f"{len(items) - _MAX_LOOKED_AT} tools of a page were not looked at"
        bad_ones.append(Quarantined(name="…", reason=reason))
    cursor = result.get("nextCursor")
    is_usable = isinstance(cursor, str) and len(cursor) <= _MAX_CURSOR
    return ToolPage(
        tools=tuple(each for each in read if isinstance(each, RemoteTool)),
        quarantined=tuple(bad_ones),
        cursor=cursor if is_usable else "",
    )


def read_tool(item: Any) -> RemoteTool | Quarantined:
    """Read one tool."""
    if not isinstance(item, dict):
        return Quarantined(name=_shown(item), reason="it is no object")
    name = item.get("name")
    if not isinstance(name, str):
        return Quarantined(name=_shown(name), reason="it has no name")
    if problem := _name_problem(name):
        return Quarantined(name=_shown(name), reason=problem)
    given = item.get("inputSchema")
    if problem := schema_problem(given):
        return Quarantined(name=_shown(name), reason=problem)
    schema, repairs = object_schema(given)
    description, cut = _text(item.get("description"), MAX_DESCRIPTION)
    repairs += ["its description was cut"] if cut else []
    hints = item.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    title = item.get("title") or hints.get("title")
    return RemoteTool(
        name=name,
        description=description,
        title=single_line(title, MAX_TITLE) if isinstance(title, str) else "",
        schema=schema,
        read_only=_hint(hints, "readOnlyHint"),
        destructive=_hint(hints, "destructiveHint"),
        idempotent=_hint(hints, "idempotentHint"),
        open_world=_hint(hints, "openWorldHint"),
        repaired="; ".join(repairs),
    )


def object_schema(given: Any) -> tuple[dict[str, Any], list[str]]:
    """Return a JSON Schema of type object, and what was wrong with the given one."""
    if not isinstance(given, dict):
        return _no_parameters(), ["it had no schema"]
    if not given:
        return _no_parameters(), ["its schema was empty"]
    schema, repairs = dict(given), []
    kind = schema.get("type")
    if kind != "object":
        is_object = kind is None or (isinstance(kind, list) and "object" in kind)
        if not is_object:
            return _no_parameters(), ["its schema was not that of an object"]
        schema["type"] = "object"
        repairs.append("its schema did not say that it is an object")
    if not isinstance(schema.get("properties", {}), dict):
        schema["properties"] = {}
        repairs.append("its properties were no object")
    required = schema.get("required", [])
    if not (isinstance(required, list) and all(isinstance(each, str) for each in required)):
        del schema["required"]
        repairs.append("what it requires was no list of names")
    return schema, repairs


def schema_problem(given: Any) -> str:
    """Return why a schema cannot be offered at all; empty when it can, or can be repaired."""
    if problem := json_problem(given, MAX_SCHEMA_DEPTH):
        return f"its schema {problem}"
    size = len(msgspec.json.encode(given))
    if size > MAX_SCHEMA_BYTES:
        return f"its schema has {size} bytes, more than {MAX_SCHEMA_BYTES}"
    return ""


def json_problem(value: Any, max_depth: int) -> str:
    """Return why a value of JSON cannot be handed on: too deep, or numbers nobody can write."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, str):
            if not _is_text(each):
                return "has text that is no Unicode"
        elif isinstance(each, dict | list):
            if depth > max_depth:
                return f"nests more than {max_depth} levels"
            waiting.extend((part, depth + 1) for part in _parts(each))
        elif problem := _number_problem(each):
            return problem
    return ""


def _number_problem(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "has a number that is none"
    if isinstance(value, int) and not _INT_BOUNDS[0] <= value <= _INT_BOUNDS[1]:
        return "has a number of more than 64 bits"
    return ""


def _parts(container: dict[str, Any] | list[Any]) -> Iterator[Any]:
    if isinstance(container, dict):
        yield from container.keys()
        yield from container.values()
    else:
        yield from container


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _name_problem(name: str) -> str:
    if not name.strip():
        return "it has no name"
    if len(name) > MAX_NAME:
        return f"its name has more than {MAX_NAME} characters"
    if any(unicodedata.category(each).startswith("C") for each in name):
        return "its name has characters that cannot be seen"
    return ""


def _text(value: Any, limit: int) -> tuple[str, bool]:
    """Return text without what moves a terminal or hides, and whether it was cut."""
    if not isinstance(value, str):
        return "", False
    head = value[: 4 * limit]
    clean = "".join(each for each in head if each in "\n\t" or unicodedata.category(each)[0] != "C")
    if len(clean) <= limit and len(head) == len(value):
        return clean, False
    return clean[:limit] + " …", True


def _hint(hints: dict[str, Any], name: str) -> bool | None:
    value = hints.get(name)
    return value if isinstance(value, bool) else None


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


def _shown(name: Any) -> str:
    if not isinstance(name, str):
        return f"({type(name).__name__})" if name is not None else "(none)"
    return single_line(name.encode("utf-8", "replace").decode(), _SHOWN) or "(empty)"
