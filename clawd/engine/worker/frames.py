"""Rules for calls as a family of models writes them, from the family's frames.

JSON arguments are held to the tool's schema. Arguments that stand one by one, as tags or behind
equal signs, are held to their names, to which of them must be there, and each to its own schema,
but for this: a string that stands bare is held to its length and to the values of an `enum`, not
to a `pattern` or a `format`; what may be a string among other things may be any text; and a schema
whose root is no plain object (`anyOf`, `$ref`) holds none of them.
"""

import re
from collections.abc import Sequence
from typing import Any

from clawd.engine.protocol import CallFrame, ParameterForm, StringForm
from clawd.engine.worker.gbnf import (
    NAME_RANGES,
    TEXT_RANGES,
    Rules,
    SchemaError,
    as_json,
    character_class,
    quote,
    without,
)
from clawd.engine.worker.members import members_rule
from clawd.engine.worker.schema import MAX_PROPERTIES, schema_rule

_HOLE = re.compile(r'%(\?[^%]+|name|"name"|arguments|ws|digits|id|key)%')
_NAME = re.compile(r'%(?:name|"name")%')
_FIXED = {"ws": "ws", "digits": "[0-9]{1,3}", "id": "[a-zA-Z0-9]{9}"}
_UNIONS = ("anyOf", "oneOf")
# Keywords of what is no string, where no type is given.
_TELLING = ("properties", "items", "allOf", "minimum", "maximum")
_MAX_REFS = 16

Tools = Sequence[tuple[str, Any]]


def calls_rule(rules: Rules, frame: CallFrame, tools: Tools, *, lazy: bool, parallel: bool) -> str:
    """Return the rule of what an answer's calls are in a frame.

    Args:
        rules: the grammar.
        frame: how they are written.
        tools: names and schemas of those that may be called.
        lazy: the model begins by itself: tools of other names may be called too, with anything.
        parallel: several calls may stand in a row, where the frame has that.

    Raises:
        SchemaError: no grammar can be made of it.
    """
    call = _call(rules, frame, tools, lazy=lazy and not _NAME.search(frame.marker))
    row = call
    if parallel and frame.separator is not None:
        row = f"{call} ({_text(frame.separator)} {call})*"
    return rules.add(f"{_text(frame.opening)} {row} {_text(frame.closing)}".strip())


def markers(frame: CallFrame, tools: Tools) -> list[bytes]:
    """Return what tells that a call of one of these tools has begun; nothing where it cannot."""
    if not _NAME.search(frame.marker):
        return [frame.marker.encode()] if frame.marker else []
    return [
        frame.marker.replace("%name%", name).replace('%"name"%', as_json(name)).encode()
        for name, _ in tools
    ]


def arguments_rule(rules: Rules, form: ParameterForm | None, schema: Any) -> str:
    """Return the expression of a tool's arguments.

    Raises:
        SchemaError: no grammar can be made of the schema.
    """
    if form is None:
        rule = schema_rule(rules, schema)
        return "object" if rule == "value" else rule
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"a schema is an object or a boolean, not {schema!r:.60}")
    try:
        return _Parameters(rules, form, schema).all()
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SchemaError(f"the schema is malformed: {error}") from None


def _call(rules: Rules, frame: CallFrame, tools: Tools, *, lazy: bool) -> str:
    before, hole, rest = _split(frame.call)
    between, _, after = rest.partition("%arguments%")
    is_json = hole == '%"name"%'
    found = []
    for name, schema in tools:
        written = quote(as_json(name) if is_json else name)
        arguments = arguments_rule(rules, frame.parameters, schema)
        found.append(rules.add(f"{written} {_text(between)} {arguments}"))
    if lazy:
        names = [name for name, _ in tools]
        other = rules.other_than(names) if is_json else rules.other_name_than(names)
        arguments = arguments_rule(rules, frame.parameters, True)
        found.append(rules.add(f"{other} {_text(between)} {arguments}"))
    return rules.add(f"{_text(before)} {rules.choice(found)} {_text(after)}".strip())


def _split(call: str) -> tuple[str, str, str]:
    found = _NAME.search(call)
    assert found is not None, f"a frame without a name: {call!r}"
    return call[: found.start()], found[0], call[found.end() :]


def _text(text: str, key: str = "") -> str:
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

    def all(self) -> str:
        schema = self._schema
        if not isinstance(schema, dict) or any(key in schema for key in ("$ref", *_UNIONS)):
            return self._any()
        required = list(schema.get("required", ()))
        properties = dict(schema.get("properties", {}))
        for name in required:
            properties.setdefault(name, True)
        if len(properties) > MAX_PROPERTIES:
            raise SchemaError(f"{len(properties)} properties are over {MAX_PROPERTIES}")
        members = [(self._one(quote(name), part), name in required) for name, part in
                   properties.items()]
        if not members:
            return '""' if schema.get("additionalProperties", True) is False else self._any()
        first = members_rule(self._rules, members, _text(self._form.separator) or '""')
        return first if required else f"({first})?"

    def _any(self) -> str:
        """Return any arguments."""
        name = self._rules.add(f"{character_class(NAME_RANGES)}{{1,64}}")
        one = self._one(name, True)
        return self._rules.add(f"({one} ({_text(self._form.separator)} {one})*)?")

    def _one(self, key: str, schema: Any) -> str:
        """Return the rule of one argument; `key` is the expression of its name."""
        schema = self._resolved(schema)
        values = _values(schema)
        others = [value for value in values if not isinstance(value, str)]
        strings = self._form.strings if self._may_be_string(schema) else ()
        found = [
            f"{_text(form.key, key)} {self._string(form, schema)} {_text(form.end)}"
            for form in strings
        ]
        value = ""
        if not strings or (schema is True and strings[0].key != self._form.key):
            value = schema_rule(self._rules, self._rooted(schema))
        elif others:
            value = self._rules.one_of(others)
        if value:
            found.append(f"{_text(self._form.key, key)} {value} {_text(self._form.end)}")
        return self._rules.choice([self._rules.add(one.strip()) for one in found])

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
        excluded = sorted(map(ord, set(form.excludes or form.stop[0])))
        char = self._rules.add(character_class(without(TEXT_RANGES, excluded)))
        return f"{self._rules.repeat(char, low, high)} {quote(form.stop)}"

    def _may_be_string(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return schema is True
        if values := _values(schema):
            return any(isinstance(value, str) for value in values)
        for union in _UNIONS:
            if union in schema:
                parts = map(self._resolved, schema[union])
                return any(self._may_be_string(part) for part in parts)
        types = schema.get("type")
        if types is None:
            return not any(key in schema for key in _TELLING)
        return types == "string" or (isinstance(types, list) and "string" in types)

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
        return schema | {key: self._schema[key] for key in ("$defs", "definitions")
                         if key in self._schema}


def _values(schema: Any) -> list[Any]:
    """Return the values that an enum or a constant allows."""
    if not isinstance(schema, dict):
        return []
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))
