"""Small changes to the text of a config: one value set, one section added, all else left alone.

A config that a person has edited is theirs: comments, order and spelling stay as they are.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

from clawd.errors import ConfigError

_SECTION = re.compile(r"^\s*\[")
_MAX_LINES = 2_000  # of one value

_Flat = dict[tuple[str, ...], Any]


def with_value(text: str, key: str, value: str) -> str:
    """Return the text with a key set, `default_model` or `security.autonomy`.

    Raises:
        ConfigError: the value there spans several lines.
    """
    section, _, name = key.rpartition(".")
    lines = text.splitlines(keepends=True)
    first, last = _bounds(lines, section)
    wanted = f"{name} = {quoted(value)}\n"
    there = re.compile(rf"^\s*{re.escape(name)}\s*=\s*(.*)$")
    for number in range(first, last):
        found = there.match(lines[number].rstrip("\r\n"))
        if found is None:
            continue
        if not _is_one_line(found[1]):
            raise ConfigError(
                f"{key} is written in a way that is left to you: {found[0].strip()[:80]}",
                hint=f"Set it yourself: clawctl config edit ({wanted.strip()})",
            )
        lines[number] = wanted
        return "".join(lines)
    if section and first == last == len(lines):
        end = "" if not lines or lines[-1].endswith("\n") else "\n"
        return "".join([*lines, f"{end}\n[{section}]\n", wanted])
    return "".join([*lines[:first], wanted, *lines[first:]])


def with_toml(text: str, key: str, value: str) -> str:
    """Return the text with a key set to a value that is written as TOML; a comment behind it stays.

    Raises:
        ConfigError: the key or the value is none, or the text is written in a way that cannot be
            changed in one place.
    """
    wanted, data = _names(key), _toml(f"value = {value}")
    if data is None or set(data) != {"value"}:
        raise ConfigError(f"{value!r} is no TOML value", hint='As in: 5, true, "text", ["a", "b"]')
    lines = text.splitlines(keepends=True)
    there = next((each for each in _assignments(lines) if each.names == wanted), None)
    if there is not None:
        left, _, right = "".join(lines[there.first : there.last]).partition("=")
        comment = _comment_of(right)
        new = f"{left.rstrip()} = {value}{comment and f'  {comment}'}\n"
        lines[there.first : there.last] = [new]
    else:
        lines = _with_line(lines, wanted, value)
    return _as_meant(text, "".join(lines), wanted, data["value"])


def without(text: str, key: str) -> str:
    """Return the text without a key, so that its built-in value is in force.

    Raises:
        ConfigError: the key is none, or the text is written in a way that cannot be changed in
            one place.
    """
    wanted = _names(key)
    lines = text.splitlines(keepends=True)
    for each in reversed(list(_assignments(lines))):
        if each.names == wanted:
            del lines[each.first : each.last]
    return _as_meant(text, "".join(lines), wanted, None)


class _Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the text, whole, and its lines: from `first` to before `last`."""

    names: tuple[str, ...]
    first: int
    last: int


def _names(key: str) -> tuple[str, ...]:
    """Return the names of a dotted key as TOML reads them.

    Raises:
        ConfigError: it is none.
    """
    data = _toml(f"{key} = 0") if "=" not in key and "\n" not in key else None
    if data is None:
        raise ConfigError(f"{key!r} is no key", hint="As in: security.autonomy")
    return _path_of(data)


def _toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _path_of(data: object) -> tuple[str, ...]:
    names: list[str] = []
    while isinstance(data, dict) and len(data) == 1:
        ((name, data),) = data.items()
        names.append(name)
    return tuple(names)


def _assignments(lines: list[str]) -> Iterator[_Assignment]:
    """Yield every key that is set; what a value spans is no key and no heading."""
    section: tuple[str, ...] | None = ()
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        if line.startswith("["):
            # Members of a list of tables have no key of their own.
            heading = None if line.startswith("[[") else _toml(line)
            section = None if heading is None else _path_of(heading)
        elif line and not line.startswith("#"):
            last = _end_of(lines, number)
            found = _toml(f"{line.partition('=')[0]} = 0")
            if found is not None and section is not None:
                yield _Assignment(names=(*section, *_path_of(found)), first=number, last=last)
            number = last
            continue
        number += 1


def _end_of(lines: list[str], first: int) -> int:
    """Return the number of the line behind an assignment."""
    for last in range(first + 1, min(first + _MAX_LINES, len(lines)) + 1):
        if _toml("".join(lines[first:last])) is not None:
            return last
    return first + 1


def _comment_of(value: str) -> str:
    """Return the comment behind a value, of its last line."""
    last = value.rstrip("\n").rpartition("\n")[2]
    start = len(value.rstrip("\n")) - len(last)
    for found in re.finditer("#", last):
        if _toml(f"value = {value[: start + found.start()]}") is not None:
            return last[found.start() :]
    return ""


def _with_line(lines: list[str], wanted: tuple[str, ...], value: str) -> list[str]:
    """Return the lines with one more: behind the comment that shows the key, else on top."""
    *section, name = wanted
    head = ".".join(map(_key, section))
    first, last = _bounds(lines, head)
    new = f"{_key(name)} = {value}\n"
    if head and first == last == len(lines):
        end = "" if not lines or lines[-1].endswith("\n") else "\n"
        return [*lines, f"{end}\n[{head}]\n", new]
    shown = re.compile(rf"^\s*#\s*{re.escape(name)}\s*=")
    at = next((n + 1 for n in range(first, last) if shown.match(lines[n])), first)
    end = "" if not at or lines[at - 1].endswith("\n") else "\n"
    return [*lines[:at], f"{end}{new}", *lines[at:]]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def _as_meant(before: str, after: str, key: tuple[str, ...], value: object) -> str:
    """Return the new text, if it differs from the old one in this key and in nothing else.

    Raises:
        ConfigError: it does not; `value` None is for a key that is not set.
    """
    old, new = _toml(before), _toml(after)
    if old is None:
        raise ConfigError("the config is no TOML", hint="Correct it: clawctl config edit")
    if new is None or _flat(new) != {**_flat(old, without=key), **_flat_value(key, value)}:
        raise ConfigError(
            f"{'.'.join(key)} is written in a way that is left to you",
            hint="Change it yourself: clawctl config edit",
        )
    return after


def _flat(data: object, at: tuple[str, ...] = (), *, without: tuple[str, ...] = ()) -> _Flat:
    if at and at == without:
        return {}
    if not isinstance(data, dict):
        return {at: data}
    flat: _Flat = {}
    for name, value in data.items():
        flat |= _flat(value, (*at, name), without=without)
    return flat


def _flat_value(key: tuple[str, ...], value: object) -> _Flat:
    return {} if value is None else _flat(value, key)


def with_section(text: str, name: str, values: dict[str, str]) -> str:
    """Return the text with a section added to its end."""
    lines = [f"\n[{name}]", *(f"{key} = {quoted(value)}" for key, value in values.items() if value)]
    end = "" if not text or text.endswith("\n") else "\n"
    return text + end + "\n".join(lines) + "\n"


def without_section(text: str, *names: str) -> str:
    """Return the text without a section, `"mcp", "servers", "files"`, and those within it.

    Raises:
        ConfigError: there is none, or it is written in a way that cannot be taken out.
    """
    kept: list[str] = []
    is_inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            heading = _toml(line)
            is_inside = heading is not None and _path_of(heading)[: len(names)] == names
        if not is_inside:
            kept.append(line)
    old, new = _toml(text), _toml("".join(kept))
    rest = {at: value for at, value in _flat(old or {}).items() if at[: len(names)] != names}
    if new is None or len(kept) == len(text.splitlines()) or _flat(new) != rest:
        raise ConfigError(
            f"[{'.'.join(names)}] is not in the config as a section of its own",
            hint="Take it out yourself: clawctl config edit",
        )
    return "".join(kept)


def has_section(text: str, name: str) -> bool:
    """Tell whether a section is written in the text, not counting comments."""
    return re.search(rf"^\s*\[\s*{re.escape(name)}\s*\]", text, re.MULTILINE) is not None


def quoted(text: str) -> str:
    """Return the text as a TOML string."""
    # A JSON string is a TOML string, but for DEL.
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _bounds(lines: list[str], section: str) -> tuple[int, int]:
    """Return the lines of a section, without its heading; of "", those before the first."""
    heads = [number for number, line in enumerate(lines) if _SECTION.match(line)]
    ends = [*heads[1:], len(lines)] if heads else []
    if not section:
        return 0, heads[0] if heads else len(lines)
    heading = re.compile(rf"^\s*\[\s*{re.escape(section)}\s*\]")
    for head, end in zip(heads, ends, strict=True):
        if heading.match(lines[head]):
            return head + 1, end
    return len(lines), len(lines)


def _is_one_line(value: str) -> bool:
    """Tell whether a plain string stands after `=`, and at most a comment after it."""
    return re.fullmatch(r"""("[^"\\]*"|'[^']*')\s*(#.*)?""", value.strip()) is not None
