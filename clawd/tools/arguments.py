"""Decoding the arguments of a call: what a model wrote, in the form that the schema asks for. Pure.

Tolerant where the meaning is plain (numbers as text, lists as JSON text, other spellings of a
name), strict where it is not: then the error carries an example to copy. Only what the schema's
top level, its items and its properties say is looked at; a tool's own server may say more.
"""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from clawd.errors import InvalidRequestError
from clawd.tools import loose_json
from clawd.tools.naming import MIN_LENGTH_OF_A_SLIP, NO_CHOICE, choice_of, is_slip_of_keys
from clawd.wire.safe_text import shortened

MAX_ARGUMENT_BYTES = 8 << 20
MAX_SHOWN_SCHEMA = 8_000
_OTHER_NAMES = {
    "path": (
        "file",
        "filename",
        "file_name",
        "file_path",
        "filepath",
        "pathname",
        "dir",
        "directory",
        "dirname",
        "folder",
        "target_file",
        "file_or_dir",
    ),
    "command": ("cmd", "script", "commandline", "shell_command"),
    "expression": ("expr", "input", "formula", "equation", "calculation"),
    "content": ("text", "contents", "data", "body", "file_text", "file_content", "value"),
    "query": ("q", "search", "text", "search_query", "search_term"),
    "pattern": ("regex", "glob"),
    "url": ("uri", "link", "address", "href"),
    "question": ("prompt", "text", "query", "message"),
    "keywords": ("keyword", "key", "keys", "tags"),
    "code": ("script", "python", "source"),
}
_EXAMPLES = {
    "path": "notes.txt",
    "command": "ls",
    "url": "https://example.org/",
    "expression": "12 * 7",
    "pattern": "*.txt",
    "content": "some text",
    "query": "some words",
    "question": "Which one?",
    "keywords": "two words",
}
# What models wrap arguments in, and what may stand beside the wrap and beside arguments.
_WRAPS = ("arguments", "parameters", "args", "kwargs", "params", "input", "properties")
_CALL_NAMES = frozenset({"name", "tool", "tool_name", "function", "function_name"})
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_NOISE = frozenset(
    {"explanation", "reason", "reasoning", "thought", "thoughts", "comment", "note", "purpose"}
    | {"intent", "title", "summary", "justification", "description", "type", "id", "call_id"}
    | {"tool_call_id", "security_risk"}
)
_MAX_DEPTH = loose_json.MAX_DEPTH
TRIMMED = frozenset({"path", "command", "url", "cwd", "source"})
# Text that is kept as it is; an object in its place is meant as JSON, a list could be lines.
_FREE = frozenset({"content", "text", "new_text", "old_text", "body", "data"})
_QUOTED = frozenset({"path", "url", "source"})
# One thing by its nature: no list and no object stands for it.
_SINGLE = frozenset(
    {"path", "command", "url", "cwd", "source", "pattern", "query", "question", "expression"}
    | {"name", "glob", "code"}
)
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_NULLS = frozenset({"", "null", "none"})


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What the arguments of a call are read against.

    Attributes:
        schema: JSON Schema of type object.
        tool: the tool's name; "" when nobody knows.
        example: arguments of a call that works; made from the schema when empty.
        other_names: what callers call an argument, by its real name; beside those known to all.
        documents: arguments that are kept to the letter, also where their name is one of a path.
        is_strict: whether an argument that the tool does not take is refused, because the call
            would do something else without it; noise and empty values are left out either way.
        is_exact: whether names and choices are read as they are written, but for case and
            separators, and nothing is left out: for tools whose words clawd does not know.
        shown_as: how the session calls the tool; what the example is for.
        shows_schema: whether a refusal shows the schema, which the model was not offered.
        properties: the rules of the arguments, by name; of the schema, as what follows.
        required: the arguments that must be there.
        actions: what its `action` can be; empty where it has none.
    """

    schema: Mapping[str, Any]
    tool: str = ""
    example: Mapping[str, Any] = {}
    other_names: Mapping[str, tuple[str, ...]] = {}
    documents: tuple[str, ...] = ()
    is_strict: bool = False
    is_exact: bool = False
    shown_as: str = ""
    shows_schema: bool = False
    properties: Mapping[str, Any] = {}
    required: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Read the schema, once for all calls."""
        rules = self.schema.get("properties")
        rules = rules if isinstance(rules, Mapping) else {}
        action = rules.get("action")
        choices = action.get("enum") if isinstance(action, Mapping) else None
        choices = choices if isinstance(choices, list) else ()
        msgspec.structs.force_setattr(self, "properties", rules)
        msgspec.structs.force_setattr(self, "required", tuple(self.schema.get("required", ())))
        msgspec.structs.force_setattr(self, "actions", tuple(map(str, choices)))

    def refusal(self, message: str) -> InvalidRequestError:
        """Return an error with an example to copy."""
        example = dict(self.example) or example_arguments(self.schema)
        shown = json.dumps(example, ensure_ascii=False)
        hint = f"Correct arguments look like this: {shown}"
        if self.shows_schema:
            schema = json.dumps(self.schema, ensure_ascii=False)
            hint += f"\nThe schema of the arguments: {shortened(schema, MAX_SHOWN_SCHEMA)}"
        return InvalidRequestError(message, hint=hint)


def decode_arguments(
    raw: str | Mapping[str, Any], schema: Mapping[str, Any], form: Form | None = None
) -> dict[str, Any]:
    """Decode the arguments of a call; keys come in the schema's order, unknown ones are dropped.

    Args:
        raw: the JSON text as the model wrote it, or an object that was decoded already.
        schema: JSON Schema of type object.
        form: what else is known of the tool.

    Raises:
        InvalidRequestError: they cannot be meant; the hint shows a call that could be.
    """
    form = form or Form(schema=schema)
    return fit_arguments(read_object(raw, form), form)


def fit_arguments(given: dict[str, Any], form: Form) -> dict[str, Any]:
    """Bring an object that was read already into the form that the schema asks for.

    Raises:
        InvalidRequestError: it cannot be meant; the hint shows a call that could be.
    """
    properties = form.properties
    extra = form.schema.get("additionalProperties")
    if not properties and extra is not False:
        return given
    found = given if given.keys() <= properties.keys() else renamed(given, form)
    decoded: dict[str, Any] = {}
    for name, rule in properties.items():
        if name not in found or (_means_nothing(found[name], rule)):
            continue
        is_document = name in form.documents
        given_value = found[name] if is_document else _trimmed(name, found[name])
        try:
            value = _fit(given_value, rule, _Place(name, 0, form.is_exact))
        except UnfitError as error:
            shown = json.dumps(found[name], ensure_ascii=False, default=str)[:80]
            raise form.refusal(f"argument `{name}` is {shown}, expected {error}") from error
        decoded[name] = value if is_document else _trimmed(name, value)
    unknown = {name: value for name, value in found.items() if name not in properties}
    if missing := [name for name in form.required if name not in decoded]:
        names = ", ".join(f"`{name}`" for name in missing)
        known = f"; given were {', '.join(sorted(given))[:200]}" if given else ""
        raise form.refusal(f"missing argument {names}{known}")
    if extra is True or isinstance(extra, dict):
        return decoded | unknown
    if form.is_strict or form.is_exact:
        _check_unknown(unknown, form)
    return decoded


def read_object(raw: str | Mapping[str, Any], form: Form) -> dict[str, Any]:
    """Return the object that a model meant, taken out of what it was wrapped in.

    Raises:
        InvalidRequestError: there is none.
    """
    value: Any = raw
    if isinstance(value, str):
        if len(value.encode("utf-8", "surrogatepass")) > MAX_ARGUMENT_BYTES:
            raise form.refusal(f"the arguments are longer than {MAX_ARGUMENT_BYTES} bytes")
        value = _parsed(value, form)
    if isinstance(value, str):  # an object that was encoded twice, or the one argument alone
        is_object = value.lstrip().startswith(("{", "`")) or not value.strip()
        value = _parsed(value, form) if is_object else [value]
    if value is None:
        return {}
    if isinstance(value, list):
        value = _by_place(value, form)
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise form.refusal(f"the arguments are a JSON {kind}, expected an object")
    given: dict[str, Any] = {}
    for written, item in value.items():
        name = (written if written.isascii() else _clean(written)).strip()
        try:
            cleaned = _cleaned(item, 0)
        except UnfitError as error:
            raise form.refusal(str(error)) from error
        if name in given and given[name] != cleaned:
            raise form.refusal(f"two values were given for `{name[:64]}`")
        given[name] = cleaned
    return given if given.keys() <= form.properties.keys() else _unwrapped(given, form)


def example_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that the schema would take: the required ones."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    wanted = schema.get("required", ())
    return {name: _example(name, properties.get(name, {}), 0) for name in wanted}


def shape(name: str) -> str:
    """Return a name without what people spell in different ways: case and separators."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _parsed(text: str, form: Form) -> Any:
    try:
        return loose_json.parse(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise form.refusal(f"the arguments are no JSON object: {reason}") from error


def _by_place(values: list[Any], form: Form) -> Any:
    """Return arguments that were given without names, in the order of the schema."""
    if len(values) == 1 and isinstance(values[0], Mapping):
        return values[0]
    rules = [form.properties.get(name) or {} for name in form.required]
    are_texts = all(rule.get("type") == "string" for rule in rules)
    is_ordered = len(rules) == 1 or not form.is_exact
    is_fitting = len(values) == len(rules) > 0 and _all_texts(values)
    if not (are_texts and is_ordered and is_fitting):
        names = ", ".join(f"`{name}`" for name in form.properties)
        raise form.refusal(f"the arguments are a list, expected an object with names: {names}")
    return dict(zip(form.required, values, strict=True))


def _all_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _unwrapped(given: dict[str, Any], form: Form) -> dict[str, Any]:
    """Take arguments out of `{"arguments": {…}}` and out of a whole call written once more."""
    wraps = [name for name in given if name in _WRAPS and name not in form.properties]
    inner = _inner_object(given[wraps[0]], form) if len(wraps) == 1 else None
    if inner is None:
        return given
    beside = {name: value for name, value in given.items() if name != wraps[0]}
    for name in _CALL_NAMES & set(beside) - set(form.properties):
        called = beside.pop(name)
        if form.tool and isinstance(called, str) and shape(called) != shape(form.tool):
            raise form.refusal(f"this is a call of {form.tool}, but it names {called[:64]!r}")
    if clash := [name for name in inner if name in beside and beside[name] != inner[name]]:
        raise form.refusal(f"two values were given for `{clash[0]}`")
    return beside | inner


def _inner_object(value: Any, form: Form) -> dict[str, Any] | None:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _parsed(value, form)
    return value if isinstance(value, dict) else None


def renamed(given: dict[str, Any], form: Form) -> dict[str, Any]:
    """Put values under the schema's names where their own can mean only one of these.

    Raises:
        InvalidRequestError: two different values are given for one argument.
    """
    properties = form.properties
    found = {name: value for name, value in given.items() if name in properties}
    meanings = _meanings(form)
    for name, value in given.items():
        if name in properties:
            continue
        slip = "" if form.is_exact else _slip_of(name, properties)
        meant = meanings.get(shape(name)) or slip or name
        if meant in found and meant in properties and _contradict(meant, found[meant], value):
            raise form.refusal(f"two values were given for `{meant}`: as {name} as well")
        if meant not in found or found[meant] in _NOTHING:
            found[meant] = value
    return found


def _slip_of(name: str, properties: Mapping[str, Any]) -> str:
    """Return the one argument that a name misses by a letter; "" when there is none."""
    near = [
        real
        for real in properties
        if len(real) >= MIN_LENGTH_OF_A_SLIP and is_slip_of_keys(shape(name), shape(real))
    ]
    return near[0] if len(near) == 1 else ""


def _contradict(name: str, one: Any, other: Any) -> bool:
    """Return whether two values for one argument are a contradiction; nothing contradicts nothing.

    An empty text can be what is to be written, so there it is a value like any other.
    """
    is_written = one == "" and name in _FREE
    return one != other and other not in _NOTHING and (is_written or one not in _NOTHING)


def _meanings(form: Form) -> dict[str, str]:
    """Return which argument a name means, by its shape; its own names go first."""
    meanings: dict[str, str] = {}
    tables: Iterable[Mapping[str, tuple[str, ...]]] = (form.other_names, _OTHER_NAMES)
    for real in form.properties:
        meanings[shape(real)] = real
    if form.is_exact:
        shapes = Counter(map(shape, form.properties))
        return {spelling: real for spelling, real in meanings.items() if shapes[spelling] == 1}
    for table in tables:
        for real, others in table.items():
            if real in form.properties and not (table is _OTHER_NAMES and real in form.other_names):
                for other in others:
                    meanings.setdefault(shape(other), real)
    return meanings


def _check_unknown(unknown: Mapping[str, Any], form: Form) -> None:
    """Refuse what would make a difference if the tool took it.

    Raises:
        InvalidRequestError: there is such an argument.
    """
    noise = frozenset[str]() if form.is_exact else _NOISE | _CALL_NAMES
    nothing: tuple[Any, ...] = (None,) if form.is_exact else (*_NOTHING, False, 0)
    asked = [name for name, value in unknown.items() if name not in noise and value not in nothing]
    if asked:
        takes = ", ".join(form.properties) or "no arguments"
        name = form.shown_as or form.tool or "the tool"
        raise form.refusal(f"{name} takes no argument `{asked[0][:64]}`; it takes {takes}")


def _cleaned(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise UnfitError(f"the arguments are nested more than {_MAX_DEPTH} deep")
    if isinstance(value, str):
        return value if value.isascii() else _clean(value)
    if isinstance(value, Mapping):
        return {_clean(str(name)): _cleaned(item, depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        # What an approval shows is canonical JSON, which cannot hold it.
        raise UnfitError(f"the arguments hold a number that is out of range ({value})")
    return value


def _clean(text: str) -> str:
    """Join surrogate pairs; replace lone ones, which no file and no socket would take."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _example(name: str, rule: Any, depth: int) -> Any:
    if not isinstance(rule, Mapping) or depth > _MAX_DEPTH:
        return "text"
    choices = rule.get("examples") or rule.get("enum")
    if isinstance(choices, list):
        return choices[0]
    kind = rule.get("type")
    alternatives = rule.get("anyOf") or rule.get("oneOf")
    if isinstance(alternatives, list) and alternatives:
        return _example(name, alternatives[0], depth + 1)
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if kind == "array":
        return [_example(name, rule.get("items", {}), depth + 1)]
    if kind == "object":
        inner = rule.get("properties") or {}
        return {key: _example(key, inner.get(key), depth + 1) for key in rule.get("required", ())}
    plain = {"integer": 1, "number": 1, "boolean": True}
    return rule.get("default", plain.get(str(kind), _EXAMPLES.get(name, "text")))


class UnfitError(Exception):
    """A value that does not fit; the text says what was expected."""


class _Place(NamedTuple):
    """Where a value stands: under which name, how deep, and whether choices are exact there."""

    name: str
    depth: int
    is_exact: bool

    def inside(self, name: str) -> "_Place":
        return _Place(name, self.depth + 1, self.is_exact)


def _fit(value: Any, rule: Any, place: _Place) -> Any:
    """Return the value in the form that a rule, a JSON Schema, asks for.

    Raises:
        UnfitError: it cannot be meant.
    """
    if not isinstance(rule, Mapping) or place.depth > _MAX_DEPTH:
        return value
    if isinstance(choices := rule.get("enum"), list):
        return _one_of(_only(value), choices, is_exact=place.is_exact)
    kinds = rule.get("type")
    alternatives = rule.get("anyOf") or rule.get("oneOf")
    if isinstance(kinds, list):
        alternatives = [{**rule, "type": kind} for kind in kinds]
    if isinstance(alternatives, list):
        return _first_fit(value, alternatives, place)
    one_fit = _FITS.get(kinds) if isinstance(kinds, str) else None
    return one_fit(value, rule, place) if one_fit else value


def _trimmed(name: str, value: Any) -> Any:
    """Return a path, a command or an address without blanks, and without quotes, around it."""
    if name not in TRIMMED or not isinstance(value, str):
        return value
    text = value.strip()
    if name in _QUOTED and len(text) > 2 and text[0] == text[-1] and text[0] in "\"'`":
        return text[1:-1].strip()
    return text


def _means_nothing(value: Any, rule: Any) -> bool:
    """Return whether a value stands for no argument: null, and `"null"` for a number."""
    if value is None:
        return True
    kind = rule.get("type") if isinstance(rule, Mapping) else None
    is_other = isinstance(kind, str) and kind in _FITS and kind != "string"
    return is_other and isinstance(value, str) and value.strip().lower() in _NULLS


def _one_of(value: Any, choices: list[Any], *, is_exact: bool) -> Any:
    meant = choice_of(value, choices, is_exact=is_exact)
    if meant is NO_CHOICE:
        raise UnfitError("one of " + ", ".join(str(choice) for choice in choices))
    return meant


def _only(value: Any) -> Any:
    """Return the one thing that a list holds, else the value."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _first_fit(value: Any, rules: list[Any], place: _Place) -> Any:
    """Prefer the alternative that takes the value as it is."""
    fits = []
    for rule in rules:
        try:
            fits.append(_fit(value, rule, place.inside(place.name)))
        except UnfitError:
            continue
    if not fits:
        raise UnfitError("another type")
    return next((one for one in fits if one == value and type(one) is type(value)), fits[0])


def _as_text(value: Any, _rule: Mapping[str, Any], place: _Place) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _listed_text(value, place.name)
    if isinstance(value, dict) and place.name in _SINGLE:
        raise UnfitError("one text, not an object")
    if isinstance(value, bool) and place.name in TRIMMED:
        raise UnfitError("a text")
    return json.dumps(value, ensure_ascii=False)


def _listed_text(value: list[Any], name: str) -> str:
    are_texts = all(isinstance(item, str) for item in value)
    if name == "keywords" and are_texts:
        return " ".join(value)
    if name == "command" and are_texts and _runs_a_shell(value):
        return shlex.join(value)
    if len(value) == 1 and isinstance(value[0], str) and name not in _FREE:
        return value[0]
    if name in _SINGLE:
        raise UnfitError("one text, not a list")
    if name in _FREE and are_texts:
        raise UnfitError(r"one text, its lines parted by \n, not a list")
    return json.dumps(value, ensure_ascii=False)


def _runs_a_shell(argv: list[str]) -> bool:
    """Return whether a list is surely one command in words, not several commands."""
    return len(argv) == 3 and argv[0] in {"bash", "sh", "/bin/sh", "/bin/bash"} and argv[1] in {
        "-c", "-lc"
    }  # fmt: skip


def _as_integer(value: Any, _rule: Mapping[str, Any], _place: _Place) -> int:
    number = _number(_only(value), "a whole number")
    if isinstance(number, float) and not number.is_integer():
        raise UnfitError("a whole number")
    return int(number)


def _as_number(value: Any, _rule: Mapping[str, Any], _place: _Place) -> int | float:
    return _number(_only(value), "a number")


def _number(value: Any, expected: str) -> int | float:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,300}", value.strip()):
        return int(value)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError as error:
            raise UnfitError(expected) from error
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UnfitError(expected)
    return value


def _as_boolean(value: Any, _rule: Mapping[str, Any], _place: _Place) -> bool:
    value = _only(value)
    text = str(value).strip().lower() if isinstance(value, (bool, int, str)) else ""
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise UnfitError("true or false")


def _as_list(value: Any, rule: Mapping[str, Any], place: _Place) -> list[Any]:
    items = rule.get("items", {})
    if isinstance(value, str):
        inner = _inner(value, "[", "a whole list")
        value = [value] if inner is None else inner
    elif not isinstance(value, list):
        value = [value]
    return [_fit(item, items, place.inside(f"{place.name} item")) for item in value]


def _as_object(value: Any, rule: Mapping[str, Any], place: _Place) -> dict[str, Any]:
    value = _only(value)
    if isinstance(value, str):
        value = _inner(value, "{", "an object")
    if not isinstance(value, dict):
        raise UnfitError("an object")
    properties = rule.get("properties") or {}
    if lacking := [name for name in rule.get("required", ()) if name not in value]:
        raise UnfitError(f"an object with `{lacking[0]}`")
    return {
        name: _fit(item, properties.get(name), place.inside(name)) for name, item in value.items()
    }


def _as_null(value: Any, _rule: Mapping[str, Any], _place: _Place) -> None:
    if value is not None:
        raise UnfitError("null")


_FITS: dict[str, Callable[[Any, Mapping[str, Any], _Place], Any]] = {
    "string": _as_text,
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "array": _as_list,
    "object": _as_object,
    "null": _as_null,
}


def _inner(text: str, opening: str, expected: str) -> Any:
    """Return what a text holds as JSON; None when it does not even begin so.

    Raises:
        UnfitError: it begins so and is broken.
    """
    if not text.lstrip().startswith(opening):
        return None
    try:
        return loose_json.parse(text)
    except (ValueError, RecursionError) as error:
        raise UnfitError(f"{expected} ({error})") from error
