"""What a request's answer is held to: schemas to one grammar, and from which text on it holds.

Pure planning. Where a tool's schema cannot be held whole, what cannot be is left out and named,
and the others live. A call, whether it is required or a model began it by itself, is one of a tool
that is offered.

The arguments of one call are a JSON object, or stand one by one as a family writes them. JSON is
held to the tool's schema. Arguments that stand one by one, as tags or behind equal signs, are held
to their names, to which of them must be there, and each to its own schema, but for this: a string
that stands bare is held to its length and to the values of an `enum`, not to a `pattern` or a
`format`; what may be a string among other things may be any text; and a schema whose root is no
plain object (`anyOf`, `$ref`) holds none of them. Where lists and objects have a notation of their
own, they are held as deep as `items` and `properties` tell.

The grammar is in Lark, as llguidance reads it. A schema stands in it as it is, behind `%json`;
llguidance makes the rules of it.
"""

import contextlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from clawd.engine.protocol import CallFrame, Grammar, ParameterForm, StringForm
from clawd.engine.worker.guidance import Matcher, MissingError, SlowError
from clawd.engine.worker.schema import (
    LOOSENED,
    OPTIONS,
    SchemaError,
    object_of,
    prepared,
    whereabouts,
    without,
)

MAX_RULES = 20_000
MAX_BYTES = 2 * 1024 * 1024
MAX_REPETITIONS = 100_000
MAX_IN_ANY_ORDER = 48

# Whatever tokens write it is taken, not only those that the tokeniser would choose.
_OPTIONS = '%llguidance {"no_forcing": true}'
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x{9f}"
# The blanks that models write; a longer run is how small ones lose themselves.
_SHARED = {
    "ws": "WS?",
    "WS": r"/ |\n[ \t]{0,20}/",
    "TEXT": f"/[^{_CONTROLS}]*/",
    "NAME": "/[a-zA-Z_][a-zA-Z_0-9]*/",
    "ID": "/[a-zA-Z0-9]{9}/",
    "DIGITS": "/[0-9]{1,3}/",
}


class Rules:
    """The rules of one grammar; equal bodies share a rule."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._size = 0

    def add(self, body: str) -> str:
        """Return the name of a rule with this body.

        Raises:
            SchemaError: the grammar becomes too large.
        """
        return self._named("r", body)

    def reserve(self) -> str:
        """Return the name of a rule that is defined later."""
        return self._define(f"r{len(self._rules)}", "")

    def define(self, name: str, body: str) -> None:
        """Give a reserved rule its body.

        Raises:
            SchemaError: the grammar becomes too large.
        """
        self._define(name, body)

    def json(self, schema: Any) -> str:
        """Return a rule for the JSON values that a schema takes.

        Raises:
            SchemaError: it is no schema, or too much of one.
        """
        ready = prepared(schema)
        if ready is False:
            raise SchemaError("the schema false allows nothing")
        options = {"x-guidance": OPTIONS}
        return self.add(f"%json {json.dumps(options if ready is True else options | ready)}")

    def choice(self, alternatives: Sequence[str]) -> str:
        """Return a rule that is one of several rules."""
        distinct = list(dict.fromkeys(alternatives))
        return distinct[0] if len(distinct) == 1 else self.add(" | ".join(distinct))

    def one_of_texts(self, texts: Sequence[str]) -> str:
        """Return a rule for one of several texts."""
        return self.choice([self.add(quote(text)) for text in sorted(set(texts))])

    def until(self, stop: str) -> str:
        """Return a rule for any text without `stop` in it, and `stop` behind it."""
        body = f"TEXT {quote(stop)}"
        if body not in self._names:
            name = f"r{len(self._rules)}"
            self._names[body] = name
            self._define(f"{name}[lazy]", body)
        return self._names[body]

    def bounded(self, excluded: str, low: int, high: int | None) -> str:
        """Return a terminal for text of bounded length without some characters.

        Raises:
            SchemaError: more than a grammar can count.
        """
        inside = "".join(f"\\x{{{ord(char):x}}}" for char in sorted(set(excluded)))
        return self._named("T", f"/[^{_CONTROLS}{inside}]{_counted(low, high)}/")

    def repeat(self, item: str, low: int, high: int | None) -> str:
        """Return an expression for `low` to `high` items (None: any number).

        Raises:
            SchemaError: more than a grammar can count.
        """
        return f"{item}{_counted(low, high)}"

    def members(self, members: Sequence[tuple[str, bool]], separator: str) -> str:
        """Return a rule for one or more members, each (rule, is required); "" for none.

        Each comes once at most, up to MAX_IN_ANY_ORDER in any order, more in the one given.
        `separator` is the expression between two.
        """
        if not members or len(members) > MAX_IN_ANY_ORDER:
            return self._in_order(members, separator)
        first, more = self.reserve(), self.reserve()
        chosen = " | ".join(
            f"{rule} {more}::set_bit({at}) %if bit_clear({at})"
            for at, (rule, _) in enumerate(members)
        )
        required = [f"bit_set({at})" for at, (_, must) in enumerate(members) if must]
        whole = "true"
        for condition in required:
            whole = condition if whole == "true" else f"and({whole}, {condition})"
        self._define(f"{first}::_", chosen)
        # Not behind the last one: a separator there leads nowhere.
        others = f"{separator} {first}::_ %if not(is_ones([0:{len(members)}]))"
        self._define(f"{more}::_", f'"" %if {whole} | {others}')
        return f"{first}::0x0"

    def text(self, root: str) -> str:
        """Return the grammar, beginning with the rule `start`."""
        lines = [_OPTIONS, f"start: {root}"]
        lines += [f"{name}: {body}" for name, body in (_SHARED | self._rules).items() if body]
        return "\n".join(lines) + "\n"

    def _in_order(self, members: Sequence[tuple[str, bool]], separator: str) -> str:
        """Return a rule for members in their order, made from the last to the first.

        `first` begins with one of the members from here on, `more` may follow a member. After a
        separator few rules are open at a time, not one per subset.
        """
        first, more, must = "", '""', False
        for rule, is_required in reversed(members):
            here = self.add(f"{rule} {more}")
            first = here if is_required or not first else self.add(f"{here} | {first}")
            must = must or is_required
            following = f"{separator} {first}"
            more = self.add(following if must else f"({following})?")
        return first

    def _named(self, prefix: str, body: str) -> str:
        name = self._names.get(body)
        if name is None:
            name = self._names[body] = self._define(f"{prefix}{len(self._rules)}", body)
        return name

    def _define(self, name: str, body: str) -> str:
        self._rules[name] = body
        self._size += len(body)
        if len(self._rules) > MAX_RULES or self._size > MAX_BYTES:
            raise SchemaError(
                f"the schema needs more than {MAX_RULES} rules or {MAX_BYTES >> 20} MiB of grammar"
            )
        return name


def as_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def quote(text: str) -> str:
    """Return text as a literal."""
    return json.dumps(text, ensure_ascii=False)


def _counted(low: int, high: int | None) -> str:
    if max(low, high or 0) > MAX_REPETITIONS:
        raise SchemaError(f"{max(low, high or 0)} repetitions are over {MAX_REPETITIONS}")
    if high is not None and high < low:
        raise SchemaError(f"at least {low} and at most {high} contradict each other")
    return f"{{{low},{'' if high is None else high}}}"


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
    """Return whether a schema that is no union takes strings."""
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


REASONING_OPEN = b"<think>"
MAX_KEPT = 32
MAX_NAME = 128
THE_ANSWER = ""  # as no tool is called


class GrammarPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A grammar at its beginning.

    Attributes:
        matcher: what holds; None where there is nothing to hold with.
        markers: texts with which it begins to hold, again and again; it describes them as well.
        starts: such texts that count as the first thing of an answer only.
        is_lazy: it waits for one of these, and may end before the answer does.
        is_last: nothing follows what it describes.
        thoughts: the markers around reasoning, which it leaves alone.
        in_reasoning: the prompt ends within reasoning.
        quarantined: tools whose schema is not held whole, and why; by the name "" what was left
            out of the schema of the answer itself.
    """

    matcher: Matcher | None = None
    markers: tuple[bytes, ...] = ()
    starts: tuple[bytes, ...] = ()
    is_lazy: bool = False
    is_last: bool = False
    thoughts: tuple[tuple[bytes, bytes], ...] = ((REASONING_OPEN, b"</think>"),)
    in_reasoning: bool = False
    quarantined: dict[str, str] = {}


class GrammarPlanner:
    """Plans grammars and keeps the last ones: an agent asks with the same tools every time.

    `compile_text` makes a matcher of a grammar, or raises SchemaError (guidance.py).
    """

    def __init__(self, compile_text: Callable[[str], Matcher]) -> None:
        self._compile = compile_text
        self._kept: OrderedDict[bytes, GrammarPlan] = OrderedDict()

    def plan(self, grammar: Grammar) -> GrammarPlan | None:
        """Return the plan; None when nothing is asked for, or nothing tells where a call begins.

        Raises:
            SchemaError: the one schema that is required cannot be held.
        """
        if grammar.kind == "none" or (grammar.lazy and not _frames(grammar)):
            return None
        try:
            key = msgspec.msgpack.encode(grammar)
        except RecursionError:
            raise SchemaError("a schema is nested too deeply") from None
        plan = self._kept.get(key)
        if plan is None:
            plan = self._kept[key] = self._planned(grammar)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return plan

    def _planned(self, grammar: Grammar) -> GrammarPlan:
        frames = _frames(grammar)
        noted: dict[str, str] = {}
        matcher, wanted = None, grammar
        try:
            matcher = self._compile(_text(grammar, frames))
        except (MissingError, SlowError) as error:
            if not grammar.lazy:
                raise
            noted = dict.fromkeys(grammar.tools, str(error))
        except SchemaError:
            # Which one is it? Each is tried by itself, and then what is left of all.
            wanted, noted = self._holdable(grammar, frames)
            matcher = self._compile(_text(wanted, frames))
        names = list(wanted.tools)
        found = {at_start: _markers(frames, names, at_start=at_start) for at_start in (True, False)}
        return GrammarPlan(
            matcher=matcher,
            markers=found[False] if grammar.lazy else (),
            starts=found[True] if grammar.lazy else (),
            is_lazy=grammar.lazy,
            is_last=grammar.single,
            thoughts=tuple((begin.encode(), end.encode()) for begin, end in grammar.thoughts),
            in_reasoning=grammar.in_reasoning,
            quarantined=noted,
        )

    def _holdable(
        self, grammar: Grammar, frames: tuple[CallFrame, ...]
    ) -> tuple[Grammar, dict[str, str]]:
        """Return what of a request can be held, and what was left out of it, and why.

        Raises:
            SchemaError: the schema of the answer cannot be, and nothing may be left out of it, or
                no tool that is required.
        """
        schema, tools, noted = grammar.schema, dict[str, Any](), dict[str, str]()
        if grammar.kind == "json_schema":
            schema, told = self._loosened(schema, None, is_strict=not grammar.loose)
            noted |= {THE_ANSWER: told} if told else {}
        forms = list({repr(frame.parameters): frame.parameters for frame in frames}.values())
        for name, given in grammar.tools.items():
            try:
                _check_name(name)
                tools[name], told = given, ""
                for form in forms:
                    held = partial(arguments_rule, form=form)
                    tools[name], more = self._loosened(tools[name], held, is_strict=False)
                    told = told or more
            except SchemaError as error:
                tools.pop(name, None)
                told = str(error)
                if grammar.lazy and name and len(name) <= MAX_NAME:
                    tools[name] = True
            noted |= {name: told} if told else {}
        if not tools and grammar.kind == "tool_call":
            reasons = "; ".join(f"{name}: {why}" for name, why in noted.items())
            raise SchemaError(f"no tool can be called under a grammar ({reasons or 'none given'})")
        return msgspec.structs.replace(grammar, schema=schema, tools=tools), noted

    def _loosened(
        self, schema: Any, held: Callable[..., str] | None, *, is_strict: bool
    ) -> tuple[Any, str]:
        """Return a schema as it can be held, and what was left out of it, and why.

        `held` adds to rules what it describes; None for its JSON.

        Raises:
            SchemaError: it cannot be, and nothing may be left out or that does not help.
        """

        def check(tried: Any) -> None:
            rules = Rules()
            self._compile(rules.text(held(rules, schema=tried) if held else rules.json(tried)))

        try:
            check(schema)
        except SlowError:
            raise
        except SchemaError as error:
            refused = SchemaError(f"{error}{whereabouts(schema, str(error))}")
        else:
            return schema, ""
        if is_strict:
            raise refused
        for names in LOOSENED:
            looser, had = without(schema, names)
            with contextlib.suppress(SchemaError):
                check(looser)
                return looser, f"{', '.join(sorted(had))} ({refused})"
        raise refused


def _frames(grammar: Grammar) -> tuple[CallFrame, ...]:
    """Return the frames in which a call may come: by itself in any that has a marker."""
    if grammar.lazy:
        return tuple(frame for frame in grammar.frames if frame.marker)
    return grammar.frames[:1]


def _markers(
    frames: tuple[CallFrame, ...], names: list[str], *, at_start: bool
) -> tuple[bytes, ...]:
    found = [markers(frame, names) for frame in frames if frame.at_start is at_start]
    return tuple(dict.fromkeys(marker for some in found for marker in some))


def _check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME:
        raise SchemaError(f"the tool's name has {len(name)} characters, expected 1 to {MAX_NAME}")


def _text(grammar: Grammar, frames: tuple[CallFrame, ...]) -> str:
    """Return the grammar of everything together.

    Raises:
        SchemaError: something of it cannot be held.
    """
    rules = Rules()
    roots = []
    if grammar.kind == "json_schema":
        roots.append(rules.json(grammar.schema))
    parallel = (grammar.parallel or grammar.lazy) and not grammar.single
    for name in grammar.tools:
        _check_name(name)
    if grammar.tools:
        tools = list(grammar.tools.items())
        roots += [calls_rule(rules, frame, tools, parallel=parallel) for frame in frames]
    if not roots:
        raise SchemaError("no tool can be called")
    return rules.text(rules.choice(roots))


_NAME = re.compile(r'%(?:name|"name")%')

Tools = Sequence[tuple[str, Any]]


def calls_rule(rules: Rules, frame: CallFrame, tools: Tools, *, parallel: bool) -> str:
    """Return the rule of what an answer's calls are in a frame.

    Args:
        rules: the grammar.
        frame: how they are written.
        tools: names and schemas of those that may be called.
        parallel: several calls may stand in a row, where the frame has that.

    Raises:
        SchemaError: no grammar can be made of it.
    """
    call = _call(rules, frame, tools)
    row = call
    if parallel and frame.separator is not None:
        row = f"{call} ({frame_text(frame.separator)} {call})*"
    return rules.add(f"{frame_text(frame.opening)} {row} {frame_text(frame.closing)}".strip())


def markers(frame: CallFrame, names: Sequence[str]) -> list[bytes]:
    """Return what tells that a call of one of these tools has begun; nothing where it cannot."""
    if not _NAME.search(frame.marker):
        return [frame.marker.encode()] if frame.marker else []
    return [
        frame.marker.replace("%name%", name).replace('%"name"%', as_json(name)).encode()
        for name in names
    ]


def _call(rules: Rules, frame: CallFrame, tools: Tools) -> str:
    before, hole, rest = _split(frame.call)
    between, _, after = rest.partition("%arguments%")
    is_json = hole == '%"name"%'
    found = []
    for name, schema in tools:
        written = quote(as_json(name) if is_json else name)
        arguments = arguments_rule(rules, frame.parameters, schema)
        found.append(rules.add(f"{written} {frame_text(between)} {arguments}"))
    return rules.add(f"{frame_text(before)} {rules.choice(found)} {frame_text(after)}".strip())


def _split(call: str) -> tuple[str, str, str]:
    found = _NAME.search(call)
    assert found is not None, f"a frame without a name: {call!r}"
    return call[: found.start()], found[0], call[found.end() :]
