"""Types values that a format carries bare, without quotes, by what the tool's schema accepts.

    <parameter=count>5</parameter>      5 for an integer, "5" for a string

A value of none of the accepted types stays the string it is: the check of the arguments tells the
model what was expected.
"""

import re
from typing import Any

import msgspec

from clawd.providers.toolcalls.json_calls import decode

_BLANKS = " \t\r\n"  # what JSON takes for blanks; str.strip takes more
_MAX_SCHEMA_NODES = 200
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


class Arguments:
    """Gathers the arguments of one call, in order; `parameters` is the tool's schema, if known."""

    def __init__(self, parameters: dict[str, Any] | None) -> None:
        self._parameters = parameters
        self._values: dict[str, str] = {}

    def add(self, key: str, text: str) -> None:
        """Add a bare value."""
        self._values[key] = typed(text, accepted_by(self._parameters, key))

    def add_loosely(self, key: str, text: str) -> None:
        """Add a bare value that is of another type than accepted rather than a string."""
        bare = text.strip(_BLANKS)
        bare = _PYTHON_WORDS.get(bare, bare)
        value = decode(bare)
        is_other = bare == "null" or not (value is None or isinstance(value, str))
        if is_other and "string" not in accepted_by(self._parameters, key).types:
            self._values[key] = bare
        else:
            self.add(key, text)

    def add_string(self, key: str, text: str) -> None:
        """Add a value that the format itself calls a string."""
        self._values[key] = encode(text)

    def add_json(self, key: str, text: str) -> None:
        """Add a value that is well-formed JSON."""
        self._values[key] = text

    def text(self) -> str:
        """Return the JSON object."""
        pairs = (f"{encode(key)}: {value}" for key, value in self._values.items())
        return "{" + ", ".join(pairs) + "}"


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What a schema accepts: names of JSON types, strings of an enum. No types: anything."""

    types: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()


def typed(text: str, accepted: Accepted) -> str:
    """Return a bare value as JSON text."""
    bare = text.strip(_BLANKS)
    if text in accepted.strings or bare in accepted.strings:
        return encode(text if text in accepted.strings else bare)
    if accepted.types == {"string"}:
        return encode(text)
    return _literal(bare, accepted.types) or encode(text)


def literal(text: str, accepted: Accepted) -> str | None:
    """Return the JSON of a value that stands bare where strings are quoted.

    None when it is neither a literal nor anything that is accepted as a string.
    """
    if accepted.types == {"string"}:
        return encode(text)
    text = _PYTHON_WORDS.get(text, text)
    if _LITERAL.fullmatch(text):
        return text
    return encode(text) if "string" in accepted.types else None


def encode(text: str) -> str:
    """Return text as a JSON string; halves of a surrogate pair are joined, lone ones replaced."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return msgspec.json.encode(whole).decode("utf-8")


def _literal(bare: str, types: frozenset[str]) -> str:
    """Return as JSON what is of an accepted type other than string; "" when it is not."""
    word = _PYTHON_WORDS.get(bare)
    if word is not None and (_TYPES[type(decode(word))] in types):
        return word
    value = decode(bare)
    if isinstance(value, str) or (value is None and bare != "null"):
        return ""
    return bare if not types or _kinds(value) & types else ""


def _kinds(value: Any) -> set[str]:
    """Return the JSON types that a value is of: an integer is a number, and 5.0 an integer."""
    kind = _TYPES[type(value)]
    if kind == "integer" or (kind == "number" and value.is_integer()):
        return {"integer", "number"}
    return {kind}


def accepted_by(parameters: dict[str, Any] | None, key: str) -> Accepted:
    """Gather what a parameter's schema accepts over references, unions and enums."""
    if parameters is None:
        return Accepted()
    properties = parameters.get("properties")
    node = properties.get(key) if isinstance(properties, dict) else None
    waiting = [parameters.get("additionalProperties") if node is None else node]
    types: set[str] = set()
    strings: set[str] = set()
    for _ in range(_MAX_SCHEMA_NODES):
        if not waiting:
            return Accepted(types=frozenset(types), strings=frozenset(strings))
        node = waiting.pop()
        if not isinstance(node, dict):
            return Accepted()
        values = _values(node)
        types.update(_TYPES[type(value)] for value in values if type(value) in _TYPES)
        strings.update(value for value in values if isinstance(value, str))
        if not values:
            names = _type_names(node)
            parts = [] if names else _parts(node, parameters)
            if not names and not parts:
                return Accepted()
            types.update(names)
            waiting += parts
    return Accepted()


def _values(node: dict[str, Any]) -> list[Any]:
    """Return the values that an enum or a constant allows."""
    values = node.get("enum")
    if isinstance(values, list):
        return values
    return [node["const"]] if "const" in node else []


def _parts(node: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    """Return the schemas that a schema refers to or is a union of."""
    reference = node.get("$ref")
    if isinstance(reference, str):
        target: Any = root
        for step in reference.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            target = target.get(step) if isinstance(target, dict) else None
        return [target]
    return [
        part
        for word in ("anyOf", "oneOf", "allOf")
        if isinstance(parts := node.get(word), list)
        for part in parts
    ]


def _type_names(node: dict[str, Any]) -> list[str]:
    names = node.get("type")
    if isinstance(names, str):
        return [names]
    if isinstance(names, list):
        return [name for name in names if isinstance(name, str)]
    guesses = {"properties": "object", "items": "array", "pattern": "string"}
    return [name for word, name in guesses.items() if word in node]
