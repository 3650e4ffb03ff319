"""JSON Schema as rules of a GBNF grammar.

What the rules describe validates against the schema; not everything that validates is described:
no properties beside those with names, and these in the schema's order only; a `oneOf` is an
`anyOf`; `format` binds for dates, times and UUIDs only. A keyword that can be neither described
nor left out is refused with its name.
"""

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from clawd.engine.worker.gbnf import Rules, SchemaError, as_json, quote
from clawd.engine.worker.members import members_rule
from clawd.engine.worker.pattern import pattern_rule
from clawd.engine.worker.ranges import integer_between, number_between
from clawd.engine.worker.schema_merge import ImpossibleError, merged

MAX_DEPTH = 48
MAX_PROPERTIES = 1000
# References multiply: each of thirty definitions with two to the next one makes a billion.
MAX_STEPS = 20_000

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_REFUSED = (
    "not",
    "if",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "contains",
    "unevaluatedItems",
    "multipleOf",
    "propertyNames",
)
_STRING_FORMATS = {
    "date": r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])$",
    "time": r"^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$",
    "uuid": r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
}
_STRING_FORMATS["date-time"] = (
    _STRING_FORMATS["date"][:-1] + "T" + _STRING_FORMATS["time"].removeprefix("^")
)
_OF_TYPE = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("pattern", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}


_OF_NAMES = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")
_HARD = frozenset({*_REFUSED, "patternProperties", "unevaluatedProperties", "uniqueItems"})
_BOUNDS = frozenset(
    {"minProperties", "maxProperties", "format", *_OF_TYPE["string"], *_OF_TYPE["number"]}
)
LOOSENED = (_HARD, _HARD | _BOUNDS)
"""What a schema that need not be held is tried without, the hardest first."""


def without(schema: Any, names: frozenset[str]) -> tuple[Any, frozenset[str]]:
    """Return a schema without some keywords wherever they stand, and those that it had."""
    had: set[str] = set()

    def walk(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        had.update(names & value.keys())
        return {name: inner(name, value[name]) for name in value if name not in names}

    def inner(name: str, value: Any) -> Any:
        if name in _OF_NAMES and isinstance(value, dict):
            return {each: walk(schema) for each, schema in value.items()}
        if name in _LISTS and isinstance(value, list):
            return [walk(each) for each in value]
        return walk(value) if name in _SINGLE else value

    return walk(schema), frozenset(had)


def schema_rule(rules: Rules, schema: Any) -> str:
    """Add what a schema describes and return the name of its rule.

    Raises:
        SchemaError: no grammar can be made of it.
    """
    try:
        return _Converter(rules, schema).value(schema, 0)
    except RecursionError:
        raise SchemaError("the schema is nested too deeply") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SchemaError(f"the schema is malformed: {error}") from None


class _Converter:
    """Walks one schema; a `$ref` becomes one rule however often it is used."""

    def __init__(self, rules: Rules, root: Any) -> None:
        self._rules = rules
        self._root = root
        self._refs: dict[str, str] = {}
        self._steps = 0

    def value(self, schema: Any, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH}")
        if schema is True:
            return "value"
        if schema is False:
            raise ImpossibleError("the schema false allows nothing")
        if not isinstance(schema, dict):
            raise SchemaError(f"a schema is an object or a boolean, not {schema!r:.60}")
        if set(schema) == {"$ref"}:
            return self._ref(schema["$ref"], depth)
        return self._constrained(self._flat(schema, depth), depth)

    def _constrained(self, schema: dict[str, Any], depth: int) -> str:
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._any_of(schema, keyword, depth)
        for keyword in _REFUSED:
            if keyword in schema and not _is_neutral(keyword, schema):
                raise SchemaError(f"{keyword} cannot be written as a grammar")
        if "const" in schema:
            return self._values(schema, [schema["const"]])
        if "enum" in schema:
            return self._values(schema, schema["enum"])
        return self._of_types(schema, depth)

    def _flat(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return the schema with `$ref` and `allOf` laid over what is beside them."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SchemaError(f"allOf and $ref make more than {MAX_STEPS} schemas of it")
        flat = {key: value for key, value in schema.items() if key not in {"$ref", "allOf"}}
        others = list(schema.get("allOf", ()))
        if "$ref" in schema:
            others.append(self._target(schema["$ref"]))
        for other in others:
            if depth > MAX_DEPTH:
                raise SchemaError(f"allOf or $ref is nested deeper than {MAX_DEPTH}")
            if not isinstance(other, dict):
                raise SchemaError("allOf with a schema that is no object")
            flat = merged(flat, self._flat(other, depth + 1))
        return flat

    def _any_of(self, schema: dict[str, Any], keyword: str, depth: int) -> str:
        base = {key: value for key, value in schema.items() if key != keyword}
        found: list[str] = []
        reason = f"{keyword} is empty"
        for alternative in schema[keyword]:
            try:
                found.append(self._alternative(base, alternative, depth))
            except ImpossibleError as error:
                reason = str(error)
        if not found:
            raise ImpossibleError(reason)
        return self._rules.choice(found)

    def _alternative(self, base: dict[str, Any], alternative: Any, depth: int) -> str:
        if not any(key in base for key in _BINDING) or not isinstance(alternative, dict):
            return self.value(alternative, depth + 1)
        return self.value(merged(base, self._flat(alternative, depth + 1)), depth + 1)

    def _ref(self, ref: Any, depth: int) -> str:
        if ref not in self._refs:
            self._refs[ref] = self._rules.reserve()
            self._rules.define(self._refs[ref], self.value(self._target(ref), depth + 1))
        return self._refs[ref]

    def _target(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise SchemaError(f"$ref {ref!r:.80} does not point into the schema (#/…)")
        target = self._root
        for step in ref.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, dict) and key in target:
                target = target[key]
            else:
                raise SchemaError(f"$ref {ref!r:.80} points to nothing")
        return target

    def _values(self, schema: dict[str, Any], values: list[Any]) -> str:
        extra = [key for keys in _OF_TYPE.values() for key in keys if key in schema]
        if extra:
            raise SchemaError(f"enum or const together with {extra[0]}")
        types = _types(schema) if "type" in schema else _TYPES
        fitting = [value for value in values if _type_of(value) & set(types)]
        if not fitting:
            raise ImpossibleError("enum or const has no value of the type")
        return self._rules.one_of(fitting)

    def _of_types(self, schema: dict[str, Any], depth: int) -> str:
        types = _types(schema)
        if not types:
            return "value"
        if "number" in types:
            types = tuple(name for name in types if name != "integer")
        return self._rules.choice([self._of_type(name, schema, depth) for name in types])

    def _of_type(self, name: str, schema: dict[str, Any], depth: int) -> str:
        match name:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return self._number(schema, is_integer=name == "integer")
            case _:
                return name

    # Objects

    def _object(self, schema: dict[str, Any], depth: int) -> str:
        if not isinstance(schema.get("required", []), list | tuple):
            raise SchemaError("required is no list of names")
        required = set(schema.get("required", ()))
        properties: dict[str, Any] = dict(schema.get("properties", {}))
        others = schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            properties.setdefault(name, others)
        if len(properties) > MAX_PROPERTIES:
            raise SchemaError(f"{len(properties)} properties are over {MAX_PROPERTIES}")
        if schema.get("patternProperties"):
            raise SchemaError("patternProperties cannot be written as a grammar")
        if not properties and others is not False:
            return self._map(schema, others, depth)
        if schema.get("minProperties", 0) > len(required):
            raise SchemaError("minProperties is over the number of required properties")
        if schema.get("maxProperties", math.inf) < len(properties):
            raise SchemaError("maxProperties is under the number of properties")
        members = []
        for name, value in properties.items():
            rule = self._rules.add(f"{self._key(name)} {self.value(value, depth + 1)}")
            members.append((rule, name in required))
        first = members_rule(self._rules, members, '"," ws', keeps_order=True)
        return self._rules.add(_braced(first, must=any(is_required for _, is_required in members)))

    def _key(self, name: str) -> str:
        return f"{quote(as_json(name))} {quote(':')} ws"

    def _map(self, schema: dict[str, Any], others: Any, depth: int) -> str:
        low, high = schema.get("minProperties", 0), schema.get("maxProperties")
        if low > 1:
            raise SchemaError("minProperties over 1 of an object without named properties")
        if others is True and not low and high is None:
            return "object"
        member = self._rules.add(f'string ":" ws {self.value(others, depth + 1)}')
        return self._rules.add(self._list("{", member, (low, high), "}"))

    # Arrays

    def _array(self, schema: dict[str, Any], depth: int) -> str:
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        items = schema.get("items", True)
        first = schema.get("prefixItems", ())
        if isinstance(items, list):
            first, items = items, schema.get("additionalItems", True)
        if schema.get("uniqueItems") and (high is None or high > 1):
            raise SchemaError("uniqueItems cannot be written as a grammar")
        if first:
            return self._tuple([self.value(item, depth + 1) for item in first], items, schema)
        if items is False:
            if low:
                raise ImpossibleError("minItems of an array that may have none")
            return self._rules.add('"[" ws "]"')
        if items is True and not low and high is None:
            return "array"
        item = self.value(items, depth + 1)
        return self._rules.add(self._list("[", item, (low, high), "]"))

    def _tuple(self, first: list[str], items: Any, schema: dict[str, Any]) -> str:
        low, high = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        if high < len(first):
            first = first[: int(high)]
        more = low - len(first)
        if more > 0:
            if items is False:
                raise ImpossibleError("minItems over the number of prefixItems")
            first = first + [self.value(items, 1)] * more
        inside = ' "," ws '.join(first)
        return self._rules.add(f'"[" ws {inside} ws "]"')

    def _list(self, opening: str, item: str, bounds: tuple[int, int | None], closing: str) -> str:
        low, high = bounds
        if high == 0:
            return f'"{opening}" ws "{closing}"'
        next_one = self._rules.add(f'"," ws {item}')
        rest = self._rules.repeat(next_one, max(low - 1, 0), None if high is None else high - 1)
        filled = f"{item} {rest} ws"
        return f'"{opening}" ws {filled if low else f"({filled})?"} "{closing}"'

    # Strings and numbers

    def _string(self, schema: dict[str, Any]) -> str:
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        pattern = schema.get("pattern")
        known = _STRING_FORMATS.get(schema.get("format", ""))
        if pattern is None and not low and high is None:
            return pattern_rule(self._rules, known) if known else "string"
        if known or (pattern is not None and (low or high is not None)):
            raise SchemaError("pattern, format and length of one string together")
        if pattern is not None:
            return pattern_rule(self._rules, pattern)
        return self._rules.add(f'"\\"" {self._rules.repeat("char", low, high)} "\\""')

    def _number(self, schema: dict[str, Any], *, is_integer: bool) -> str:
        low, low_open = _bound(schema, "minimum", "exclusiveMinimum", -1)
        high, high_open = _bound(schema, "maximum", "exclusiveMaximum", 1)
        if math.isinf(low) and math.isinf(high):
            return "integer" if is_integer else "number"
        if not is_integer:
            return self._rules.add(
                number_between(low, high, low_open=low_open, high_open=high_open)
            )
        first = math.floor(low) + 1 if low_open else low if math.isinf(low) else math.ceil(low)
        last = math.ceil(high) - 1 if high_open else high
        return self._rules.add(integer_between(first, last))


_BINDING = (
    *(key for keys in _OF_TYPE.values() for key in keys),
    "type",
    "enum",
    "const",
    *_REFUSED,
)


def _braced(first: str, *, must: bool) -> str:
    if not first:
        return '"{" ws "}"'
    return f'"{{" ws {first} ws "}}"' if must else f'"{{" ws ({first} ws)? "}}"'


def _is_neutral(keyword: str, schema: dict[str, Any]) -> bool:
    """Say whether a keyword binds nothing that the grammar describes."""
    value = schema[keyword]
    if keyword == "multipleOf":
        return value == 1 and schema.get("type") == "integer"
    return value is True or value == {}


def _types(schema: dict[str, Any]) -> tuple[str, ...]:
    """Return the types that a schema names, or those that its keywords are about."""
    given = schema.get("type")
    if given is None:
        return tuple(name for name, keys in _OF_TYPE.items() if any(key in schema for key in keys))[
            :1
        ]
    types = (given,) if isinstance(given, str) else tuple(given)
    unknown = [name for name in types if name not in _TYPES]
    if unknown or not types:
        raise SchemaError(f"type {given!r:.60} is none of {', '.join(_TYPES)}")
    return types


def _type_of(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int | float):
        return {"integer", "number"} if value == math.floor(value) else {"number"}
    names = {type(None): "null", str: "string", list: "array"}
    return {names.get(type(value), "object")}


def _bound(schema: dict[str, Any], closed: str, opened: str, direction: int) -> tuple[float, bool]:
    """Return the tighter of two bounds (no bound is infinite), and whether it is excluded."""
    bound, is_open = schema.get(closed, direction * math.inf), False
    other = schema.get(opened)
    if other is True:  # draft 4: the closed bound is meant
        return bound, True
    if other is not None and other is not False and direction * (bound - other) >= 0:
        return other, True
    return bound, is_open
