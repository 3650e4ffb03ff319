"""The expressions of procedures and the templates that hold them. Pure.

    when = "disk.ok and not (summary.json.severity == 'low')"
    prompt = "Summarise: {{ log }}"

A reference begins with the id of an earlier step, `inputs`, `item`, `index` or `run`. Of a step,
`.output` (which may be left out), `.error`, `.status`, `.ok`, `.exit_code`, `.items` and `.json`
can be named; `.json` reads its output and goes on by keys and numbers. There are `and`, `or`,
`not`, comparisons, `in`, texts, numbers, `true` and `false`, and nothing that could act or loop.

Values against JSON Schema, as far as procedures need it: types, enums, bounds, parts.
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec

MAX_DEPTH = 16

TYPES: Mapping[str, Callable[[object], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def read_json(text: str) -> Any:
    """Return what JSON text holds; numbers are finite.

    Raises:
        ValueError: it is none, or nested too deep.
    """

    def finite(word: str) -> float:
        value = float(word)
        if not math.isfinite(value):
            raise ValueError(f"{word} is no number")
        return value

    try:
        return json.loads(text, parse_constant=finite, parse_float=finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def type_of(rule: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types that a schema allows; empty for any."""
    kind = rule.get("type")
    if isinstance(kind, str):
        return (kind,)
    return tuple(each for each in kind if isinstance(each, str)) if isinstance(kind, list) else ()


def schema_problem(rule: object, depth: int = 0) -> str:
    """Return what is wrong with a schema; "" for nothing."""
    if not isinstance(rule, dict) or depth > MAX_DEPTH:
        return f"a schema is a table, nested at most {MAX_DEPTH} deep"
    kinds = rule.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in TYPES:
            return f"the type {kind!r:.40} is none of {', '.join(TYPES)}"
    properties, required = rule.get("properties", {}), rule.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return "`properties` is a table and `required` a list of its names"
    if missing := [each for each in required if each not in properties]:
        return f"`required` names {missing[0]!r:.40}, which is no property"
    below = [*properties.values(), *([rule["items"]] if "items" in rule else [])]
    return next(filter(None, (schema_problem(each, depth + 1) for each in below)), "")


def problem_of_value(value: object, rule: object, at: str = "") -> str:
    """Return why a value does not fit a schema, with the way to the part; "" where it does."""
    if not isinstance(rule, Mapping):
        return ""
    where = f"{at}: " if at else ""
    kinds = type_of(rule)
    if kinds and not any(kind in TYPES and TYPES[kind](value) for kind in kinds):
        return f"{where}{_shown(value)} is no {' or '.join(kinds)}"
    if "enum" in rule and value not in rule["enum"]:
        return f"{where}{_shown(value)} is none of {', '.join(map(_shown, rule['enum']))}"
    if "const" in rule and value != rule["const"]:
        return f"{where}{_shown(value)} is not {_shown(rule['const'])}"
    return _problem_of_size(value, rule, where) or _problem_of_parts(value, rule, at)


def _problem_of_size(value: object, rule: Mapping[str, Any], where: str) -> str:
    is_number = TYPES["number"](value)
    size: Any = value if is_number else len(value) if isinstance(value, str | list) else None
    if size is None:
        return ""
    kind = "" if is_number else "Length" if isinstance(value, str) else "Items"
    least, most = (rule.get(f"{word}{kind}" if kind else f"{word}imum") for word in ("min", "max"))
    if TYPES["number"](least) and size < least:
        return f"{where}{_shown(value)} is under {least}"
    if TYPES["number"](most) and size > most:
        return f"{where}{_shown(value)} is over {most}"
    return ""


def _problem_of_parts(value: object, rule: Mapping[str, Any], at: str) -> str:
    if isinstance(value, list):
        found = (
            problem_of_value(each, rule.get("items"), f"{at}[{number}]")
            for number, each in enumerate(value)
        )
        return next(filter(None, found), "")
    if not isinstance(value, dict):
        return ""
    where = f"{at}: " if at else ""
    properties = rule.get("properties") or {}
    for name in rule.get("required") or ():
        if name not in value:
            return f"{where}{name!r} is missing"
    for name, each in value.items():
        if name not in properties:
            if rule.get("additionalProperties") is False:
                return f"{where}{name!r:.40} is not known there"
            continue
        if why := problem_of_value(each, properties[name], f"{at}.{name}" if at else name):
            return why
    return ""


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


MAX_EXPRESSION = 1000
MAX_NESTED = 20
ValueType = Literal["string", "integer", "number", "boolean", "array", "any"]
STEP_FIELDS: dict[str, ValueType] = {
    "output": "string",
    "error": "string",
    "status": "string",
    "ok": "boolean",
    "exit_code": "integer",
    "items": "array",
    "json": "any",
}
RUN_FIELDS = ("id", "name")

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<number>-?\d+(?:\.\d+)?)"""
    r"""|(?P<path>[a-z][a-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)|(?P<mark>==|!=|<=|>=|<|>|\(|\)))"""
)
_TEMPLATE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
# Comments, here-documents and what evaluates words once more, quoted or not.
_NOT_BESIDE = ("#", "<<", "`", "((", "[[", "${")
# What takes the next word for a program of its own: `sh -c`, `eval`, `python3 -c`, `source`.
_AGAIN = re.compile(
    r"(?:(?:^|[\s;&|(])(?:eval|source|\.|trap)|\s-\w*[ceE]|\s--(?:eval|command|exec))[\s=]+\{\{"
)
_WORDS = frozenset({"and", "or", "not", "in", "true", "false"})
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "in": lambda left, right: left in right,
}


class ExpressionError(ValueError):
    """An expression that cannot be read, or has no value."""


class Expression(msgspec.Struct, frozen=True):
    """A part of an expression: an operator with its operands, a value, or a reference."""

    kind: Literal["value", "path", "not", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in"]
    value: Any = None
    parts: "tuple[Expression, ...]" = ()


def parse(text: str) -> Expression:
    """Return what an expression is.

    Raises:
        ExpressionError: it is none; the message says where.
    """
    if len(text) > MAX_EXPRESSION:
        raise ExpressionError(f"it is longer than {MAX_EXPRESSION} characters")
    reader = _Reader(list(_tokens(text)))
    node = reader.either()
    if reader.rest:
        raise ExpressionError(f"{reader.rest[0][1]!r} is not expected there")
    return node


def references(node: Expression) -> Iterator[tuple[str, ...]]:
    """Yield every reference of an expression, in parts."""
    if node.kind == "path":
        yield tuple(str(node.value).split("."))
    for part in node.parts:
        yield from references(part)


def expressions_of(template: str) -> list[str]:
    """Return the expressions that a template holds."""
    return [found.strip() for found in _TEMPLATE.findall(template)]


def whole_expression(template: str) -> str:
    """Return the expression that a template is as a whole, so that its type is kept; or ""."""
    found = _TEMPLATE.fullmatch(template.strip())
    return found[1].strip() if found and "{{" not in found[1] else ""


def evaluate(node: Expression, scope: Mapping[str, Any]) -> Any:
    """Return the value of an expression.

    Args:
        node: the expression.
        scope: what references begin with; a step is a mapping with STEP_FIELDS.

    Raises:
        ExpressionError: it has none.
    """
    if node.kind == "value":
        return node.value
    if node.kind == "path":
        return _looked_up(tuple(str(node.value).split(".")), scope)
    if node.kind == "not":
        return not evaluate(node.parts[0], scope)
    if node.kind in {"and", "or"}:
        wanted = node.kind == "or"
        found = any(bool(evaluate(part, scope)) is wanted for part in node.parts)
        return wanted if found else not wanted
    left, right = (evaluate(part, scope) for part in node.parts)
    try:
        return bool(_COMPARE[node.kind](left, right))
    except TypeError as error:
        raise ExpressionError(f"{left!r:.40} and {right!r:.40} cannot be compared") from error


def render(template: str, scope: Mapping[str, Any], *, quoted: bool = False) -> Any:
    """Return a template with its values; one that is an expression as a whole is its value.

    `quoted` makes each value one word of a shell.

    Raises:
        ExpressionError: a value is missing.
    """
    whole = "" if quoted else whole_expression(template)
    if whole:
        return evaluate(parse(whole), scope)

    def filled(found: re.Match[str]) -> str:
        text = as_text(evaluate(parse(found[1].strip()), scope))
        return shlex.quote(text) if quoted else text

    return _TEMPLATE.sub(filled, template)


def render_tree(value: Any, scope: Mapping[str, Any]) -> Any:
    """Return JSON-like data with the templates in its texts filled in.

    Raises:
        ExpressionError: a value is missing.
    """
    if isinstance(value, str):
        return render(value, scope)
    if isinstance(value, list):
        return [render_tree(each, scope) for each in value]
    if isinstance(value, dict):
        return {name: render_tree(each, scope) for name, each in value.items()}
    return value


def as_text(value: Any) -> str:
    """Return a value as a template writes it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def texts_of(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every text of JSON-like data and the keys that lead there."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from texts_of(each, (*at, str(number)))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from texts_of(each, (*at, name))


def unquoted_problem(command: str) -> str:
    """Return why values cannot be put into a command safely; "" where they can.

    A value becomes one quoted word, which holds only where the shell reads words, and once: not
    within quotes, comments, here-documents and arithmetic.
    """
    if "{{" not in command:
        return ""
    plain = _TEMPLATE.sub("", command)
    for mark in _NOT_BESIDE:
        if mark in plain:
            return f"a command with a template may not have {mark}: it reads words in its own way"
    if _AGAIN.search(command):
        return "a template may not be what a program reads as commands; hand it over as an argument"
    opened = ""
    for piece in re.findall(r"\\.|\{\{.*?\}\}|['\"]", command, re.DOTALL):
        if piece[:2] == "{{" and opened:
            return "a template stands within quotes; it is quoted by itself, leave them out"
        if piece == opened:
            opened = ""
        elif piece in {"'", '"'} and not opened:
            opened = piece
    return ""


def _looked_up(path: tuple[str, ...], scope: Mapping[str, Any]) -> Any:
    head, *rest = path
    if head not in scope:
        raise ExpressionError(f"there is no {head!r} here")
    value = scope[head]
    if isinstance(value, StepValue):
        field = rest[0] if rest else "output"
        value, rest = value.field(field), rest[1:]
    for name in rest:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise ExpressionError(f"{'.'.join(path)} has no value: there is no {name!r}")
    return value


class StepValue(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression may know of a step."""

    status: str
    output: str = ""
    error: str = ""
    exit_code: int | None = None
    items: tuple[str, ...] = ()

    def field(self, name: str) -> Any:
        """Return one of STEP_FIELDS.

        Raises:
            ExpressionError: there is none of this name, or the output is no JSON.
        """
        match name:
            case "ok":
                return self.status == "done"
            case "items":
                return list(self.items)
            case "exit_code":
                return self.exit_code
            case "json":
                try:
                    return read_json(self.output)
                except ValueError as error:
                    raise ExpressionError("the output is no JSON") from error
            case "output" | "error" | "status":
                return getattr(self, name)
            case _:
                pass
        raise ExpressionError(f"a step has no {name!r}; it has {', '.join(STEP_FIELDS)}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    text = text.rstrip()
    if not text:
        raise ExpressionError("it is empty")
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ExpressionError(f"{text[at : at + 20].strip()!r} cannot be read")
        kind = str(found.lastgroup)
        word = found[kind]
        yield ("word" if kind == "path" and word in _WORDS else kind), word
        at = found.end()


class _Reader:
    """Reads tokens by descent: or, and, not, comparison, value."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.rest = tokens
        self._depth = 0

    def either(self) -> Expression:
        return self._chain("or", lambda: self._chain("and", self._denied))

    def _chain(self, word: Literal["or", "and"], part: Callable[[], Expression]) -> Expression:
        parts = [part()]
        while self._takes(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Expression(word, parts=tuple(parts))

    def _denied(self) -> Expression:
        if not self._takes("not"):
            return self._compared()
        self._enter()
        node = Expression("not", parts=(self._denied(),))
        self._depth -= 1
        return node

    def _compared(self) -> Expression:
        left = self._value()
        word = self.rest[0][1] if self.rest and self.rest[0][0] != "text" else ""
        if word in _COMPARE:
            self.rest.pop(0)
            return Expression(word, parts=(left, self._value()))  # type: ignore[arg-type]  # it is one
        return left

    def _value(self) -> Expression:
        if self._takes("("):
            self._enter()
            node = self.either()
            if not self._takes(")"):
                raise ExpressionError("a ) is missing")
            self._depth -= 1
            return node
        if not self.rest:
            raise ExpressionError("it ends where a value is expected")
        kind, word = self.rest.pop(0)
        if kind == "text":
            return Expression("value", word[1:-1])
        if kind == "number":
            return Expression("value", float(word) if "." in word else int(word))
        if word in {"true", "false"}:
            return Expression("value", word == "true")
        if kind == "path":
            return Expression("path", word)
        raise ExpressionError(f"a value is expected before {word!r}")

    def _takes(self, word: str) -> bool:
        if self.rest and self.rest[0][0] != "text" and self.rest[0][1] == word:
            self.rest.pop(0)
            return True
        return False

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTED:
            raise ExpressionError(f"it is nested more than {MAX_NESTED} deep")
