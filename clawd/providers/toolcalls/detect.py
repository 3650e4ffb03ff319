"""Chooses the parser for a model by its chat template, and reads a call that is the whole answer.

Whatever its family's form is, a model may write bare JSON, or JSON in a fence, as its whole answer:

    {"name": "file_list", "arguments": {"path": "src"}}

Small models and tuned ones write so under templates that ask for a tag. JSON may be the answer as
well, so it is a call only when nothing else stands beside it and it names an offered tool. Text
that may still become such an answer is held back, all other text passes at once.

Reads a chat template for what its prompts end with, without running it.

    {% if add_generation_prompt %}<|assistant|>{{ '<think>' if enable_thinking else '' }}{% endif %}

Templates are not trusted and are rendered in the worker only. Here the parsed template is walked
once: loops and calls count as unknown text, what nobody sets is undefined, and an unknown condition
counts as true, for it asks for what a usual conversation has (a user's message at its end).
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jinja2
import jinja2.meta
import msgspec
from jinja2 import nodes

from clawd.providers.base import EFFORT, SWITCHES, CallDelta
from clawd.providers.toolcalls.base import (
    Frames,
    ParsedCall,
    ParsedDelta,
    ParserOptions,
    ToolCallParser,
    answer_calls,
)
from clawd.providers.toolcalls.families import CALL_MARKERS, family_for
from clawd.providers.toolcalls.forms import HERMES_FORM
from clawd.providers.toolcalls.marked import marked_parser
from clawd.wire.events import TextDelta

_MAX_CHARACTERS = 512 * 1024
# A tag of Hugging Face's, around what a model generated.
_GENERATION = re.compile(r"\{%[-+]?[ \t\n]{0,8}(?:end)?generation[ \t\n]{0,8}[-+]?%\}")
_GIVEN = frozenset({"messages", "tools", "bos_token", "eos_token"})
_END_CHARACTERS = 4096

UNKNOWN = type("_Unknown", (), {})()
UNDEFINED = type("_Undefined", (), {})()
_UNKNOWN_TEXT = "\0"


def prompt_end(template: str) -> str:
    """Return the end of a template's prompts without blanks behind it, "" when it is not read."""
    if len(template) > _MAX_CHARACTERS:
        return ""
    try:
        environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)
        walk = _Walk()
        walk.run(environment.parse(_GENERATION.sub("", template)).body)
    except (jinja2.TemplateError, RecursionError):
        return ""
    # Unknown text at the end, such as an answer to go on with, is usually none.
    return walk.written().rstrip(f"{_UNKNOWN_TEXT} \t\n")


def variables_of(template: str) -> frozenset[str]:
    """Return the names that a template reads and nobody in it sets; none when it is not read."""
    if len(template) > _MAX_CHARACTERS:
        return frozenset()
    try:
        environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)
        tree = environment.parse(_GENERATION.sub("", template))
        return frozenset(jinja2.meta.find_undeclared_variables(tree))
    except (jinja2.TemplateError, RecursionError):
        return frozenset()


class _Walk:
    """Walks statements; attributes of namespaces are kept as `name.attribute`."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {"add_generation_prompt": True}
        self._known |= dict.fromkeys(_GIVEN, UNKNOWN)
        self._out = ""
        # Each takes the kind of node that it stands beside.
        self._readers: dict[type[nodes.Node], Callable[[Any], Any]] = {
            nodes.Name: self._named,
            nodes.Getattr: self._named,
            nodes.Concat: self._concatenated,
            nodes.Add: self._added,
            nodes.CondExpr: self._one_of,
            nodes.Filter: self._filtered,
            nodes.Compare: self._compared,
            nodes.Test: self._tested,
            nodes.Not: self._negated,
            nodes.And: self._both,
            nodes.Or: self._either,
        }

    def written(self) -> str:
        return self._out

    def run(self, body: Sequence[nodes.Node]) -> None:
        for node in body:
            match node:
                case nodes.Output():
                    for part in node.nodes:
                        self._write(self._value(part))
                case nodes.If():
                    self._choose(node)
                case nodes.Assign():
                    self._assign(node)
                case _:
                    self._forget(node)

    def _write(self, value: Any) -> None:
        self._out = (self._out + _text(value))[-_END_CHARACTERS:]

    def _choose(self, node: nodes.If) -> None:
        for branch in (node, *node.elif_):
            if self._truth(branch.test) is not False:
                self.run(branch.body)
                return
        self.run(node.else_)

    def _assign(self, node: nodes.Assign) -> None:
        value = node.node
        if isinstance(value, nodes.Call) and isinstance(node.target, nodes.Name):
            for pair in value.kwargs:
                self._known[f"{node.target.name}.{pair.key}"] = self._value(pair.value)
        if name := _name(node.target):
            self._known[name] = self._value(value)

    def _forget(self, node: nodes.Node) -> None:
        """Take what is not followed, such as a loop: what it sets and writes is unknown.

        A switch that is on stays on: messages that turn reasoning off are the rare ones.
        """
        targets = [one.target for one in node.find_all(nodes.Assign)]
        targets += [one.target for one in node.find_all(nodes.AssignBlock)]
        for name in map(_name, targets):
            if name and self._known.get(name) is not True:
                self._known[name] = UNKNOWN
        if isinstance(node, nodes.For):
            self._write(UNKNOWN)

    def _truth(self, node: nodes.Node) -> bool | None:
        """Return whether a condition holds; None when that is unknown."""
        value = self._value(node)
        if value is UNKNOWN:
            return None
        return False if value is UNDEFINED else bool(value)

    def _value(self, node: nodes.Node) -> Any:
        if isinstance(node, nodes.TemplateData):
            return node.data
        if isinstance(node, nodes.Const):
            return node.value
        read = self._readers.get(type(node))
        return UNKNOWN if read is None else read(node)

    def _named(self, node: nodes.Node) -> Any:
        name = _name(node)
        if name in self._known:
            return self._known[name]
        return UNDEFINED if isinstance(node, nodes.Name) else UNKNOWN

    def _one_of(self, node: nodes.CondExpr) -> Any:
        if self._truth(node.test) is not False:
            return self._value(node.expr1)
        return self._value(node.expr2) if node.expr2 is not None else ""

    def _filtered(self, node: nodes.Filter) -> Any:
        value = self._value(node.node) if node.node is not None else UNKNOWN
        if node.name in {"default", "d"} and value is UNDEFINED:
            return self._value(node.args[0]) if node.args else ""
        if node.name in {"default", "d", "string", "safe"}:
            return value
        return value.strip() if node.name == "trim" and isinstance(value, str) else UNKNOWN

    def _concatenated(self, node: nodes.Concat) -> str:
        return "".join(_text(self._value(part)) for part in node.nodes)

    def _added(self, node: nodes.Add) -> Any:
        left, right = self._value(node.left), self._value(node.right)
        is_text = isinstance(left, str) or isinstance(right, str)
        return _text(left) + _text(right) if is_text else UNKNOWN

    def _negated(self, node: nodes.Not) -> Any:
        inner = self._truth(node.node)
        return UNKNOWN if inner is None else not inner

    def _both(self, node: nodes.And) -> Any:
        both = {self._truth(node.left), self._truth(node.right)}
        return False if False in both else UNKNOWN if None in both else True

    def _either(self, node: nodes.Or) -> Any:
        either = {self._truth(node.left), self._truth(node.right)}
        return True if True in either else UNKNOWN if None in either else False

    def _compared(self, node: nodes.Compare) -> Any:
        sides = (self._value(node.expr), self._value(node.ops[0].expr))
        is_partial = any(isinstance(side, str) and _UNKNOWN_TEXT in side for side in sides)
        if len(node.ops) != 1 or UNKNOWN in sides or is_partial:
            return UNKNOWN
        operator = node.ops[0].op
        if operator not in {"eq", "ne"}:
            return UNKNOWN
        return (sides[0] == sides[1]) is (operator == "eq")

    def _tested(self, node: nodes.Test) -> Any:
        value = self._value(node.node)
        if value is UNKNOWN:
            return UNKNOWN
        kinds = {
            "defined": value is not UNDEFINED,
            "undefined": value is UNDEFINED,
            "none": value is None,
            "true": value is True,
            "false": value is False,
            "string": isinstance(value, str),
            "boolean": isinstance(value, bool),
        }
        return kinds.get(node.name, UNKNOWN)


def _name(node: nodes.Node) -> str:
    """Return what a name is kept under, "" for what is none."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.NSRef):
        return f"{node.name}.{node.attr}"
    owner = _name(node.node) if isinstance(node, nodes.Getattr) else ""
    return f"{owner}.{node.attr}" if isinstance(node, nodes.Getattr) and owner else ""


def _text(value: Any) -> str:
    if value is UNDEFINED:
        return ""
    return value if isinstance(value, str) else _UNKNOWN_TEXT


_MODELS = 16
_ENDS_OF_MESSAGES = frozenset({"<|end|>", "<|eom|>", "<|close|>think<|sep|>"})


class Habits(NamedTuple):
    """How a model answers.

    Attributes:
        frames: how it writes calls, the usual way first.
        thoughts: the markers around reasoning at the start of an answer that hides calls.
        starts_in_reasoning: its prompts end within reasoning.
    """

    frames: Frames
    thoughts: tuple[tuple[str, str], ...]
    starts_in_reasoning: bool


@lru_cache(maxsize=_MODELS)
def habits_of(template: str) -> Habits:
    """Return how a model with this chat template answers."""
    family = family_for(template)
    is_open = prompt_end(template).endswith(tuple(opening for opening, _ in family.thoughts))
    thoughts = family.thoughts if family.hides_calls else ()
    return Habits(family.frames_of(template), thoughts, is_open)


def habits_after(template: str, begun: str) -> Habits:
    """Return how a model goes on with an answer that began with this text."""
    habits = habits_of(template)
    if not begun:
        return habits
    thoughts = family_for(template).thoughts
    opened = max((begun.rfind(opening) for opening, _ in thoughts), default=-1)
    closed = max((begun.rfind(closing) for _, closing in thoughts), default=-1)
    return habits._replace(starts_in_reasoning=opened > closed)


def habits_behind(template: str, end: str) -> Habits:
    """Return how a model answers a prompt that ends so, which its variables may have changed."""
    openings = tuple(opening for opening, _ in family_for(template).thoughts)
    return habits_of(template)._replace(starts_in_reasoning=end.rstrip().endswith(openings))


def out_of_reasoning(template: str, begun: str) -> str:
    """Return the beginning of an answer so that it stands behind the reasoning that prompts open.

    A beginning that ends reasoning by itself is left alone, and so is an empty one.
    """
    family = family_for(template)
    end = prompt_end(template) if begun and habits_of(template).starts_in_reasoning else ""
    for opening, closing in family.thoughts:
        if end.endswith(opening) and closing not in begun:
            return f"{closing}\n\n{begun}"
    return begun


def parser_of(template: str, options: ParserOptions, habits: Habits) -> ToolCallParser:
    """Return the parser of one answer of a model with these habits.

    In every family an answer that is a call of an offered tool and nothing else is that call.
    """
    starts = habits.starts_in_reasoning
    parser = family_for(template).make(msgspec.structs.replace(options, starts_in_reasoning=starts))
    return _WholeAnswer(parser, options) if options.calls and options.schemas else parser


def also_in_tags(parser: ToolCallParser, options: ParserOptions) -> ToolCallParser:
    """Return a parser that reads calls in `<tool_call>` tags, too, in what another takes for text.

    For prompts that ask for them because the chat template could not be used.
    """
    return _Chained(parser, marked_parser(options, HERMES_FORM))


class _Chained:
    """Two parsers: what the first takes for text goes through the second."""

    def __init__(self, first: ToolCallParser, second: ToolCallParser) -> None:
        self._first = first
        self._second = second
        self._calls = -1

    def feed(self, text: str) -> list[ParsedDelta]:
        return self._numbered(self._through(self._first.feed(text)))

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        last = self._through(self._first.finish(is_cut=is_cut))
        return self._numbered([*last, *self._second.finish(is_cut=is_cut)])

    def _through(self, deltas: list[ParsedDelta]) -> list[ParsedDelta]:
        passed: list[ParsedDelta] = []
        for delta in deltas:
            passed += self._second.feed(delta.text) if isinstance(delta, TextDelta) else [delta]
        return passed

    def _numbered(self, deltas: list[ParsedDelta]) -> list[ParsedDelta]:
        """Return the deltas with the calls of both counted as one row; a name begins a call."""
        numbered: list[ParsedDelta] = []
        for delta in deltas:
            if isinstance(delta, CallDelta):
                self._calls += bool(delta.name)
                delta = msgspec.structs.replace(delta, index=self._calls)
            numbered.append(delta)
        return numbered


@lru_cache(maxsize=_MODELS)
def thinking_variables(template: str) -> frozenset[str]:
    """Return which of the variables about thinking a chat template reads."""
    return variables_of(template) & (SWITCHES | {EFFORT})


def end_of_thought(template: str, prompt_end: str, written: str) -> str:
    """Return the marker that ends the reasoning an answer is in, "" for none.

    Of families that begin another message behind it there is none: what follows is the model's.
    """
    text = prompt_end.rstrip() + written
    for opening, closing in family_for(template).thoughts:
        at = text.rfind(opening)
        if at >= 0 and closing not in text[at:] and closing not in _ENDS_OF_MESSAGES:
            return closing
    return ""


def looks_like_call(text: str) -> bool:
    """Return whether an answer's text holds a call that could not be parsed."""
    return any(marker in text for marker in CALL_MARKERS)


_LANGUAGES = ("json", "tool_call", "tool_code", "")
_FENCED = re.compile(r"```(?:json|tool_call|tool_code)?\s*(?P<body>.*?)\s*(?:```)?", re.DOTALL)
_BETWEEN = re.compile(r"[\s;,]*")
_NAMES = ('"name":"', '"tool_name":"', '"function":"')
# What a call may begin with besides its name; what follows says whether it is one.
_OTHERS = ('"id":"', '"type":"function"', '"function":{', '"arguments":{', '"parameters":{')
_SEEN_CHARACTERS = 300
_JSON = json.JSONDecoder()


class _WholeAnswer:
    """Reads what another parser took for text, where that is all of the answer."""

    def __init__(self, inner: ToolCallParser, options: ParserOptions) -> None:
        self._inner = inner
        self._options = options
        self._held: list[str] | None = []  # None: nothing more is held back
        self._head = ""
        self._is_one = True  # as far as its head tells

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        return self._passed(self._inner.feed(text))

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        """Take the end of the text."""
        deltas = self._passed(self._inner.finish(is_cut=is_cut))
        if not self._held:
            return deltas
        text, self._held = "".join(self._held), None
        if is_cut:  # the beginning of a call is no text, and what only looks like one still is
            return deltas if _names_a_tool(text, self._options) else [*deltas, TextDelta(text=text)]
        calls = _calls(text, self._options)
        if not calls:
            return [*deltas, TextDelta(text=text)]
        told = (
            CallDelta(index=index, name=call.name, arguments=call.arguments)
            for index, call in enumerate(calls)
        )
        return [*deltas, *told]

    def _passed(self, deltas: list[ParsedDelta]) -> list[ParsedDelta]:
        """Return the deltas that are not held back, in their order."""
        if self._held is None:
            return deltas
        passed: list[ParsedDelta] = []
        for delta in deltas:
            if self._held is None or not isinstance(delta, TextDelta | CallDelta):
                passed.append(delta)
            elif isinstance(delta, TextDelta) and self._may_begin(delta.text):
                self._held.append(delta.text)
            else:
                held, self._held = "".join(self._held), None
                passed += [TextDelta(text=held)] if held else []
                passed.append(delta)
        return passed

    def _may_begin(self, more: str) -> bool:
        """Return whether the text so far, with this behind it, may be a call and nothing else."""
        if len(self._head) < _SEEN_CHARACTERS:
            self._head += more[:_SEEN_CHARACTERS]
            self._is_one = _may_be_call(self._head, self._options)
        return self._is_one


def _may_be_call(head: str, options: ParserOptions) -> bool:
    """Return whether a text that begins so may be a call of an offered tool."""
    seen = "".join(head.split())
    for language in _LANGUAGES:
        fence = f"```{language}"
        if fence.startswith(seen):
            return True
        if seen.startswith(fence) and seen[len(fence) :].startswith(("{", "[")):
            seen = seen[len(fence) :]
            break
    seen = seen.removeprefix("[")
    if not seen.startswith("{"):
        return not seen
    key = seen[1:]
    for named in _NAMES:
        if named.startswith(key):
            return True
        if key.startswith(named):
            said, quote, _ = key.removeprefix(named).partition('"')
            return any(name == said if quote else name.startswith(said) for name in options.schemas)
    return any(other.startswith(key) or key.startswith(other) for other in _OTHERS)


def _names_a_tool(text: str, options: ParserOptions) -> bool:
    """Return whether the beginning of a call got as far as the whole name of an offered tool."""
    named = re.search(r'"(?:name|tool_name|function)"\s*:\s*"([^"]+)"', text[:_SEEN_CHARACTERS])
    return named is not None and named[1] in options.schemas


def _calls(text: str, options: ParserOptions) -> list[ParsedCall]:
    """Return the calls that the text is, one after the other or in a list; none for all else."""
    fenced = _FENCED.fullmatch(text.strip())
    body = fenced["body"] if fenced else text.strip()
    found: list[ParsedCall] = []
    at = 0
    while at < len(body):
        try:
            _, end = _JSON.raw_decode(body, at)
        except (ValueError, RecursionError):
            return []
        calls = answer_calls(body[at:end], options)
        if calls is None:
            return []
        found += calls
        between = _BETWEEN.match(body, end)
        at = between.end() if between else end
    return found
