"""Small changes to the text of a config: one value set, one section added, all else left alone.

A config that a person has edited is theirs: comments, order and spelling stay as they are.
"""

import re

import msgspec

from clawd.errors import ConfigError

_SECTION = re.compile(r"^\s*\[")


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


def with_section(text: str, name: str, values: dict[str, str]) -> str:
    """Return the text with a section added to its end."""
    lines = [f"\n[{name}]", *(f"{key} = {quoted(value)}" for key, value in values.items() if value)]
    end = "" if not text or text.endswith("\n") else "\n"
    return text + end + "\n".join(lines) + "\n"


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
    ends = [*heads[1:], len(lines)]
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
