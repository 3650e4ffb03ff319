"""What a docstring says of a function and of its arguments: Google style, or `:param`. Pure."""

import inspect
import re

import msgspec

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?):\s*$"
)
_ARGUMENTS = frozenset({"Args", "Arguments", "Parameters"})
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_PARAM = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
_FIELD = re.compile(r"^:\w+[^:]*:")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a docstring says: the first line, the text before its sections, its arguments."""

    short: str = ""
    text: str = ""
    arguments: dict[str, str] = {}


def read_docstring(docstring: str | None) -> Told:
    """Return what a docstring says."""
    text: list[str] = []
    arguments: dict[str, str] = {}
    section, entry, indent = "", "", 0
    for line in inspect.cleandoc(docstring or "").splitlines():
        words = line.strip()
        if found := _SECTION.match(line):
            section, entry = found[1], ""
        elif found := _PARAM.match(words):
            section, entry, indent = "Args", found[1], len(line) - len(line.lstrip())
            arguments[entry] = found[2]
        elif _FIELD.match(words):
            section, entry = "Returns", ""
        elif not section:
            text.append(line)
        elif section in _ARGUMENTS and words:
            depth = len(line) - len(line.lstrip())
            found = _ENTRY.match(words)
            if found and (not entry or depth <= indent):
                entry, indent = found[1], depth
                arguments[entry] = found[2]
            elif entry:
                arguments[entry] = f"{arguments[entry]} {words}".strip()
    body = "\n".join(text).strip()
    return Told(short=body.partition("\n")[0].strip(), text=body, arguments=arguments)
