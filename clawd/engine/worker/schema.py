"""JSON Schemas of clients made ready for llguidance: what it must not see, and what it cannot hold.

A value that it lets through validates against the schema. Beside that, objects have no properties
but those with names where the schema leaves that open; these come in the schema's order; `format`
binds where it is known. What cannot be held is named with the place where it stands.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any
from urllib.parse import unquote

import msgspec

MAX_BYTES = 256 * 1024
MAX_DEPTH = 64
# References multiply: each of thirty definitions with two to the next one makes a billion.
MAX_PARTS = 2000
MAX_PROPERTIES = 1000
# Patterns for one value multiply, too: of forty nothing came in minutes.
MAX_PATTERNS = 4
# llguidance's work grows with the divisor, and nothing ends it: 100,003 took 0.4 s, 1,000,003 7 s.
MAX_DIVISOR = 10_000
MAX_COMMON_DIVISOR = 100_000

# How JSON may be laid out, and that nothing is left out in silence.
OPTIONS = {
    "whitespace_pattern": r"( |\n[ \t]{0,20})",
    "json_allow_general_unicode_escapes": True,
    "lenient": False,
    "coerce_one_of": False,
}

_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "hostname"),
        *("ipv4", "ipv6", "uuid", "uri"),
    }
)
_UNHELD = frozenset(
    {
        *("not", "if", "then", "else", "contains", "minContains", "maxContains"),
        *("propertyNames", "dependentSchemas", "dependentRequired", "dependencies"),
        *("unevaluatedItems", "unevaluatedProperties", "uniqueItems"),
    }
)
_ODD = frozenset({"patternProperties", "pattern", "multipleOf", "oneOf"})
_BOUNDS = frozenset(
    {
        *("minProperties", "maxProperties", "format", "minLength", "maxLength"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
    }
)
LOOSENED = (_UNHELD, _UNHELD | _ODD, _UNHELD | _ODD | _BOUNDS)
"""What a schema that need not be held is tried without, the hardest first."""

_OF_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE = (
    *("items", "additionalItems", "additionalProperties", "not", "if", "then", "else"),
    *("contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
)
_UNIONS = ("anyOf", "oneOf", "allOf")
_OF_OBJECTS = ("properties", "required", "additionalProperties", "patternProperties")
_SAYING_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "not": (False,),
    "uniqueItems": (False,),
    **dict.fromkeys(("propertyNames", "unevaluatedItems", "unevaluatedProperties"), (True, {})),
    **dict.fromkeys(("dependentSchemas", "dependentRequired", "dependencies"), ({},)),
}
_OLD_DIALECT = re.compile(r"json-schema\.org/draft-0[3-7]/")
_BESIDE_REF = ("$ref", "$defs", "definitions")


class SchemaError(Exception):
    """A schema that no answer can be held to; the message says why."""


class SchemaPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One schema within another: where it stands (a JSON pointer), and what it is."""

    pointer: str
    schema: dict[str, Any]


def prepared(schema: Any, *, closes: bool = True) -> Any:
    """Return a schema as llguidance may have it.

    Args:
        schema: whatever a client sent.
        closes: objects with named properties take no others, where the schema does not say.

    Raises:
        SchemaError: it is none, or so large that its work would have no end.
    """
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"a schema is an object or a boolean, not {schema!r:.60}")
    try:
        if len(json.dumps(schema)) > MAX_BYTES:
            raise SchemaError(f"the schema is longer than {MAX_BYTES} bytes")
        found = list(_places(schema))
        _check_properties(found)
        _check_divisors(found)
        known = {place.pointer: place.schema for place in found}
        _check_references(known)
        _check_patterns(known)
        shared = frozenset(_combined_targets(known)) if closes else frozenset()
        walk = _Preparation(known, shared, closes=closes)
        return walk.of(schema, "#", is_open=False)
    except RecursionError:
        raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise SchemaError(f"the schema is malformed: {error}") from None


def object_of(schema: Any) -> Any:
    """Return a schema whose values are objects, as arguments are."""
    if not isinstance(schema, dict):
        return {"type": "object"} if schema is True else schema
    if "$ref" in schema or "type" in schema or any(union in schema for union in _UNIONS):
        return schema
    return {"type": "object", **schema}


def without(schema: Any, names: frozenset[str]) -> tuple[Any, frozenset[str]]:
    """Return a schema without some keywords wherever they stand, and those that it had.

    A `oneOf` becomes an `anyOf`.
    """
    had: set[str] = set()

    def walk(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        had.update(names & value.keys())
        kept = {name: inner(name, value[name]) for name in value if name not in names}
        if "oneOf" in names and "oneOf" in value and "anyOf" not in value:
            kept["anyOf"] = inner("oneOf", value["oneOf"])
        return kept

    def inner(name: str, value: Any) -> Any:
        if name in _OF_NAMES and isinstance(value, dict):
            return {each: walk(schema) for each, schema in value.items()}
        if name in _LISTS and isinstance(value, list):
            return [walk(each) for each in value]
        return walk(value) if name in _SINGLE else value

    return walk(schema), frozenset(had)


def whereabouts(schema: Any, told: str) -> str:
    """Return where the keyword stands that a refusal names, as the end of a sentence."""
    if not isinstance(schema, dict):
        return ""
    for place in _places(schema):
        for name in place.schema:
            if f'"{name}"' in told or told.startswith(f"{name} "):
                return f" (at {place.pointer}/{name})"
    return ""


def _places(schema: Any, pointer: str = "#", depth: int = 0) -> Iterator[SchemaPlace]:
    """Yield every schema within a schema, itself first.

    Raises:
        SchemaError: it is nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH}")
    if not isinstance(schema, dict):
        return
    yield SchemaPlace(pointer=pointer, schema=schema)
    for name, value in schema.items():
        if name in _OF_NAMES and isinstance(value, dict):
            for key, each in value.items():
                step = key.replace("~", "~0").replace("/", "~1")
                yield from _places(each, f"{pointer}/{name}/{step}", depth + 1)
        elif name in _LISTS and isinstance(value, list):
            for at, each in enumerate(value):
                yield from _places(each, f"{pointer}/{name}/{at}", depth + 1)
        elif name in _SINGLE:
            yield from _places(value, f"{pointer}/{name}", depth + 1)


def _check_properties(places: list[SchemaPlace]) -> None:
    for place in places:
        if "$recursiveRef" in place.schema:
            raise SchemaError(f"$recursiveRef cannot be held (at {place.pointer}/$recursiveRef)")
    count = sum(len(place.schema.get("properties", ())) for place in places)
    if count > MAX_PROPERTIES:
        raise SchemaError(f"{count} properties are over {MAX_PROPERTIES}")


def _check_divisors(places: list[SchemaPlace]) -> None:
    together = 1
    for place in places:
        value = place.schema.get("multipleOf")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise SchemaError(f"multipleOf is {value!r:.40}, expected a number over 0")
        exact = Fraction(str(value)) if math.isfinite(value) else Fraction(MAX_DIVISOR + 1)
        size = exact.numerator * exact.denominator
        together = math.lcm(together, size)
        if size > MAX_DIVISOR or together > MAX_COMMON_DIVISOR:
            raise SchemaError(
                f"multipleOf {value} is more than can be held, {MAX_DIVISOR} by itself and "
                f"{MAX_COMMON_DIVISOR} together with others (at {place.pointer}/multipleOf)"
            )


def _check_references(places: Mapping[str, Any]) -> None:
    """Refuse a schema that is what it refers to, which no answer ends, or multiplies by that.

    Raises:
        SchemaError: there is one.
    """
    done: dict[str, int] = {}
    for start in places:
        open_ones: list[tuple[str, list[str]]] = [(start, _same_value(start, places[start]))]
        path = {start}
        while open_ones:
            pointer, following = open_ones[-1]
            if not following:
                parts = _same_value(pointer, places[pointer])
                done[pointer] = 1 + sum(done.get(part, 0) for part in parts)
                if done[pointer] > MAX_PARTS:
                    raise SchemaError(f"references make over {MAX_PARTS} of it (at {pointer})")
                path.discard(pointer)
                open_ones.pop()
                continue
            target = following.pop()
            if target in path:
                raise SchemaError(f"$ref leads back to itself (at {target})")
            if target in places and target not in done:
                path.add(target)
                open_ones.append((target, _same_value(target, places[target])))


def _check_patterns(places: Mapping[str, Any]) -> None:
    counts: dict[str, int] = {}

    def count(pointer: str) -> int:
        if pointer not in counts:
            schema = places.get(pointer, {})
            parts = [unquote(schema["$ref"])] if isinstance(schema.get("$ref"), str) else []
            parts += [f"{pointer}/allOf/{at}" for at in range(len(schema.get("allOf", ())))]
            counts[pointer] = ("pattern" in schema) + sum(map(count, parts))
        return counts[pointer]

    for pointer in places:
        if count(pointer) > MAX_PATTERNS:
            raise SchemaError(
                f"pattern: {counts[pointer]} for one value are over {MAX_PATTERNS} (at {pointer})"
            )


def _same_value(pointer: str, schema: Mapping[str, Any]) -> list[str]:
    """Return pointers to the schemas that look at the same value as this one."""
    found = [unquote(schema["$ref"])] if isinstance(schema.get("$ref"), str) else []
    for union in ("allOf", "anyOf", "oneOf"):
        found += [f"{pointer}/{union}/{at}" for at in range(len(schema.get(union, ())))]
    return found


def _combined_targets(known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references to schemas that hold together with others, and must stay open for it."""
    for schema in known.values():
        if "$ref" in schema and any(key in schema for key in (*_OF_OBJECTS, *_UNIONS)):
            yield schema["$ref"]
        if _is_combination(schema, known):
            for union in _UNIONS:
                for part in schema.get(union, ()):
                    if isinstance(part, dict) and "$ref" in part:
                        yield part["$ref"]


def _is_combination(schema: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether a schema's properties are said in several places, or tell others apart."""
    unions = [union for union in _UNIONS if union in schema]
    if not unions:
        return False
    if len(unions) > 1 or any(key in schema for key in (*_OF_OBJECTS, "$ref")):
        return True
    if unions == ["oneOf"]:
        # What one alternative leaves open may be what another one takes.
        return not _are_told_apart(schema["oneOf"], known)
    return unions == ["allOf"] and len(schema["allOf"]) > 1


def _are_told_apart(alternatives: Any, known: Mapping[str, Any]) -> bool:
    """Return whether no value is of two of these: by type, or by a property that all must have."""
    parts = [_target(part, known) for part in alternatives]
    types = [part.get("type") for part in parts]
    if all(isinstance(each, str) for each in types) and len(set(types)) == len(types):
        return not {"integer", "number"} <= set(types)
    names = [set(part.get("required", ())) & set(part.get("properties", ())) for part in parts]
    common = sorted(set.intersection(*names)) if names and types == ["object"] * len(types) else []
    return any(_differ([_constants(part["properties"][name]) for part in parts]) for name in common)


def _constants(schema: Any) -> set[str]:
    """Return the plain values that a schema allows, as text; none where it lists none."""
    if not isinstance(schema, dict):
        return set()
    listed = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if any(isinstance(each, dict | list) for each in listed):
        return set()
    # 1 and 1.0 are one value, 1 and true are two.
    numbers = {str(float(each)) for each in listed if type(each) in {int, float}}
    return numbers | {json.dumps(each) for each in listed if type(each) not in {int, float}}


def _differ(found: list[set[str]]) -> bool:
    """Return whether each of these has values, and no two have one together."""
    return all(found) and len(set.union(*found)) == sum(map(len, found))


def _target(schema: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a schema that is only a reference refers to, or the schema itself."""
    if isinstance(schema, dict) and "$ref" in schema:
        schema = known.get(unquote(schema["$ref"]))
    return schema if isinstance(schema, dict) else {}


class _Preparation:
    """Walks one schema once.

    Args:
        known: the schemas within it, by pointer.
        shared: pointers to schemas that are laid over others and stay open for that.
        closes: objects with named properties are closed.
    """

    def __init__(self, known: Mapping[str, Any], shared: frozenset[str], *, closes: bool) -> None:
        self._known = known
        self._shared = shared
        self._closes = closes
        self._is_old = _is_old(known.get("#"))

    def of(self, schema: Any, pointer: str, *, is_open: bool) -> Any:
        if not isinstance(schema, dict):
            return schema
        if self._is_old and "$ref" in schema:
            schema = {name: schema[name] for name in _BESIDE_REF if name in schema}
        is_open = is_open or pointer in self._shared
        combines = is_open or _is_combination(schema, self._known)
        found: dict[str, Any] = {}
        for name, value in schema.items():
            if name == "x-guidance" or _says_nothing(name, value, schema):
                continue
            found[name] = self._inner(name, value, f"{pointer}/{name}", is_open=combines)
        provable = "oneOf" in found and "anyOf" not in found
        if provable and _are_told_apart(schema["oneOf"], self._known):
            # To llguidance it is not, where references stand between.
            found = {("anyOf" if name == "oneOf" else name): found[name] for name in found}
        if self._closes and not combines and _is_unsaid(schema):
            found["additionalProperties"] = False
        return _modern(found)

    def _inner(self, name: str, value: Any, pointer: str, *, is_open: bool) -> Any:
        is_open = is_open and name not in {"$defs", "definitions"}
        if name in _OF_NAMES and isinstance(value, dict):
            steps = {key: key.replace("~", "~0").replace("/", "~1") for key in value}
            return {
                key: self.of(each, f"{pointer}/{steps[key]}", is_open=is_open)
                for key, each in value.items()
            }
        if name in _LISTS and isinstance(value, list):
            return [
                self.of(each, f"{pointer}/{at}", is_open=is_open) for at, each in enumerate(value)
            ]
        return self.of(value, pointer, is_open=is_open) if name in _SINGLE else value


def _is_old(schema: Any) -> bool:
    """Return whether a schema says that it is of draft 7 or before."""
    told = schema.get("$schema") if isinstance(schema, dict) else None
    return isinstance(told, str) and _OLD_DIALECT.search(told) is not None


def _is_unsaid(schema: Mapping[str, Any]) -> bool:
    """Return whether an object names properties and does not say what of others."""
    others = ("additionalProperties", "patternProperties", "unevaluatedProperties", "$ref")
    return bool(schema.get("properties")) and not any(name in schema for name in others)


def _says_nothing(name: str, value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a keyword binds nothing, though llguidance refuses it."""
    if name == "format":
        return value not in _FORMATS
    if name in {"then", "else"}:
        return "if" not in schema
    if name == "if":
        return "then" not in schema and "else" not in schema
    if name == "$schema":
        return True  # what it changes is changed here
    return any(value is each or (value == each == {}) for each in _SAYING_NOTHING.get(name, ()))


def _modern(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with what drafts 4 to 7 write differently as 2020-12 has it."""
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    for closed, opened in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(opened), bool):
            is_excluded = schema.pop(opened)
            if is_excluded and closed in schema:
                schema[opened] = schema.pop(closed)
    return schema
