"""Rules for the arguments of one call: a JSON object, or one by one as a family writes them.

JSON is held to the tool's schema. Arguments that stand one by one, as tags or behind equal signs,
are held to their names, to which of them must be there, and each to its own schema, but for this:
a string that stands bare is held to its length and to the values of an `enum`, not to a `pattern`
or a `format`; what may be a string among other things may be any text; and a schema whose root is
no plain object (`anyOf`, `$ref`) holds none of them. Where lists and objects have a notation of
their own, they are held as deep as `items` and `properties` tell.
"""

import re
from typing import Any

from clawd.engine.protocol import ParameterForm, StringForm
from clawd.engine.worker.lark import Rules, as_json, quote
from clawd.engine.worker.schema import SchemaError, object_of

_HOLE = re.compile(r"%(\?[^%]+|ws|digits|id|key)%")
_FIXED = {"ws": "ws", "digits": "DIGITS", "id": "ID"}
_SCALARS = {"type": ["number", "boolean", "null"]}
_UNIONS = ("anyOf", "oneOf")
# Keywords of what is no string, where no type is given.
_TELLING = ("properties", "items", "allOf", "minimum", "maximum")
_MAX_REFS = 16
_MAX_DEPTH = 16
_MAX_NODES = 1000
_MAX_PROPERTIES = 1000


def arguments_rule(rules: Rules, form: ParameterForm | None, schema: Any) -> str:
    """Return the expression of a tool's arguments.

    Raises:
        SchemaError: no grammar can be made of the schema.
    """
    if form is None:
        return rules.json(object_of(schema))
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"a schema is an object or a boolean, not {schema!r:.60}")
    try:
        return _Parameters(rules, form, schema).all()
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SchemaError(f"the schema is malformed: {error}") from None


def frame_text(text: str, key: str = "") -> str:
    """Return a frame's text as an expression; `key` is that of `%key%`."""
    parts = _HOLE.split(text)
    found = [quote(parts[0])] if parts[0] else []
    for hole, literal in zip(parts[1::2], parts[2::2], strict=True):
        if hole.startswith("?"):
            found.append(f"({quote(hole[1:])})?")
        else:
            found.append(key if hole == "key" else _FIXED[hole])
        if literal:
            found.append(quote(literal))
    return " ".join(found)


class _Parameters:
    """The arguments of one tool, one by one."""

    def __init__(self, rules: Rules, form: ParameterForm, schema: Any) -> None:
        self._rules = rules
        self._form = form
        self._schema = schema
        self._quote = form.strings[0].key.removeprefix(form.key) if form.nests else ""
        self._any_value: tuple[str, str, str] = ("", "", "")
        self._known: dict[tuple[int, int], str] = {}

    def all(self) -> str:
        schema = self._schema
        if not isinstance(schema, dict) or any(key in schema for key in ("$ref", *_UNIONS)):
            return self._any()
        required = list(schema.get("required", ()))
        properties = dict(schema.get("properties", {}))
        for name in required:
            properties.setdefault(name, True)
        if len(properties) > _MAX_PROPERTIES:
            raise SchemaError(f"{len(properties)} properties are over {_MAX_PROPERTIES}")
        members = [
            (self._one(quote(name), part), name in required) for name, part in properties.items()
        ]
        if not members:
            return '""' if schema.get("additionalProperties", True) is False else self._any()
        first = self._rules.members(members, frame_text(self._form.separator))
        return first if required else f"({first})?"

    def _any(self) -> str:
        """Return any arguments."""
        one = self._one("NAME", schema=True)
        return self._rules.add(f"({one} ({frame_text(self._form.separator)} {one})*)?")

    def _one(self, key: str, schema: Any) -> str:
        """Return the rule of one argument; `key` is the expression of its name."""
        if self._form.nests:
            return self._rules.add(f"{frame_text(self._form.key, key)} {self._nested(schema, 0)}")
        schema = self._resolved(schema)
        values = _values(schema)
        others = [value for value in values if not isinstance(value, str)]
        strings = self._form.strings if self._may_be_string(schema) else ()
        found = [
            f"{frame_text(form.key, key)} {self._string(form, schema)} {frame_text(form.end)}"
            for form in strings
        ]
        value = ""
        if not strings or (schema is True and strings[0].key != self._form.key):
            value = self._rules.json(self._rooted(schema))
        elif others:
            value = self._rules.one_of_texts(list(map(as_json, others)))
        if value:
            found.append(f"{frame_text(self._form.key, key)} {value} {frame_text(self._form.end)}")
        return self._rules.choice([self._rules.add(one.strip()) for one in found])

    def _nested(self, schema: Any, depth: int) -> str:
        """Return the rule of a value in a notation of its own; each part is looked at once."""
        schema = self._resolved(schema)
        key = (id(schema), depth)
        if key not in self._known:
            self._known[key] = self._new_nested(schema, depth)
        return self._known[key]

    def _new_nested(self, schema: Any, depth: int) -> str:
        types = schema.get("type") if isinstance(schema, dict) else None
        if _values(schema) or (schema is not True and self._may_be_string(schema)):
            return self._quoted(schema)
        if types == "object" and depth < _MAX_DEPTH and schema.get("properties"):
            return self._rules.add(self._object(schema, depth))
        if types == "array" and depth < _MAX_DEPTH and isinstance(schema.get("items"), dict):
            item = self._nested(schema["items"], depth + 1)
            return self._rules.add(self._list(item, schema))
        if types in {"integer", "number", "boolean", "null"}:
            return self._rules.json(schema)
        value, keyed, listed = self._loose()
        return keyed if types == "object" else listed if types == "array" else value

    def _quoted(self, schema: Any) -> str:
        """Return the rule of a string between quotes, or of an enum."""
        found = []
        if self._may_be_string(schema):
            text = self._string(self._form.strings[0], schema)
            found.append(self._rules.add(f"{quote(self._quote)} {text}"))
        others = [value for value in _values(schema) if not isinstance(value, str)]
        return self._rules.choice(
            [*found, *([self._rules.one_of_texts(list(map(as_json, others)))] if others else [])]
        )

    def _object(self, schema: dict[str, Any], depth: int) -> str:
        required = schema.get("required", ())
        members = []
        for name, part in schema["properties"].items():
            value = self._nested(part, depth + 1)
            member = self._rules.add(f"{frame_text(self._form.key, quote(name))} {value}")
            members.append((member, name in required))
        first = self._rules.members(members, frame_text(self._form.separator))
        return f'"{{" {first if required else f"({first})?"} "}}"'

    def _list(self, item: str, schema: dict[str, Any]) -> str:
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        if high == 0:
            return '"[" "]"'
        following = self._rules.add(f"{frame_text(self._form.separator)} {item}")
        rest = self._rules.repeat(following, max(low - 1, 0), None if high is None else high - 1)
        return f'"[" {item} {rest} "]"' if low else f'"[" ({item} {rest})? "]"'

    def _loose(self) -> tuple[str, str, str]:
        """Return the rules of any value, any object, any list."""
        if not self._any_value[0]:
            value, listed, keyed = (self._rules.reserve() for _ in range(3))
            self._any_value = (value, keyed, listed)
            separator = frame_text(self._form.separator)
            member = self._rules.add(f"{frame_text(self._form.key, 'NAME')} {value}")
            self._rules.define(keyed, f'"{{" ({member} ({separator} {member})*)? "}}"')
            self._rules.define(listed, f'"[" ({value} ({separator} {value})*)? "]"')
            text = f"{quote(self._quote)} {self._rules.until(self._form.strings[0].stop)}"
            scalar = self._rules.json(_SCALARS)
            self._rules.define(value, f"{text} | {scalar} | {keyed} | {listed}")
        return self._any_value

    def _string(self, form: StringForm, schema: Any) -> str:
        """Return the rule of a bare string and what ends it."""
        texts = [value for value in _values(schema) if isinstance(value, str)]
        if texts:
            return self._rules.one_of_texts([text + form.stop for text in texts])
        low, high = 0, None
        if isinstance(schema, dict):
            low, high = schema.get("minLength", 0), schema.get("maxLength")
        if not low and high is None and not form.excludes:
            return self._rules.until(form.stop)
        text = self._rules.bounded(form.excludes or form.stop[0], low, high)
        return f"{text} {quote(form.stop)}"

    def _may_be_string(self, schema: Any) -> bool:
        waiting = [schema]
        for _ in range(_MAX_NODES):
            if not waiting:
                return False
            node = self._resolved(waiting.pop())
            parts = _parts(node)
            waiting += parts
            if not parts and _takes_strings(node):
                return True
        raise SchemaError(f"its unions have more than {_MAX_NODES} parts")

    def _resolved(self, schema: Any) -> Any:
        """Follow a reference into the tool's own definitions."""
        for _ in range(_MAX_REFS):
            if not isinstance(schema, dict) or set(schema) != {"$ref"}:
                return True if schema == {} else schema
            target: Any = self._schema
            for step in schema["$ref"].split("/")[1:]:
                target = target[step] if isinstance(target, dict) and step in target else None
            schema = target
        return None

    def _rooted(self, schema: Any) -> Any:
        """Return a schema with the definitions that it may refer to."""
        if not isinstance(schema, dict) or not isinstance(self._schema, dict):
            return schema
        return schema | {
            key: self._schema[key] for key in ("$defs", "definitions") if key in self._schema
        }


def _parts(schema: Any) -> list[Any]:
    """Return the schemas that a schema is a union of."""
    if not isinstance(schema, dict) or _values(schema):
        return []
    return [part for union in _UNIONS for part in schema.get(union, ())]


def _takes_strings(schema: Any) -> bool:
    """Say whether a schema that is no union takes strings."""
    if not isinstance(schema, dict):
        return schema is True
    if values := _values(schema):
        return any(isinstance(value, str) for value in values)
    types = schema.get("type")
    if types is None:
        return not any(key in schema for key in _TELLING)
    return types == "string" or (isinstance(types, list) and "string" in types)


def _values(schema: Any) -> list[Any]:
    """Return the values that an enum or a constant allows."""
    if not isinstance(schema, dict):
        return []
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))
