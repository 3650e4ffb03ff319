"""Chooses the parser for a model by its chat template, and reads a call that is the whole answer.

Whatever its family's form is, a model may write bare JSON, or JSON in a fence, as its whole answer:

    {"name": "file_list", "arguments": {"path": "src"}}

Small models and tuned ones write so under templates that ask for a tag. JSON may be the answer as
well, so it is a call only when nothing else stands beside it and it names an offered tool. Text
that may still become such an answer is held back, all other text passes at once.
"""

import json
import re
from functools import lru_cache
from typing import NamedTuple

import msgspec

from clawd.providers.base import EFFORT, SWITCHES, CallDelta
from clawd.providers.toolcalls.base import (
    Frames,
    ParsedCall,
    ParsedDelta,
    ParserFactory,
    ParserOptions,
    ToolCallParser,
    answer_calls,
)
from clawd.providers.toolcalls.families import CALL_MARKERS, family_for
from clawd.providers.toolcalls.forms import HERMES_FORM
from clawd.providers.toolcalls.marked import marked_parser
from clawd.wire.events import TextDelta

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


def detect(template: str) -> ParserFactory:
    """Return what makes the parser for the answers of a model with this chat template."""
    family = family_for(template)
    starts_in_reasoning = habits_of(template).starts_in_reasoning

    def make(options: ParserOptions) -> ToolCallParser:
        if starts_in_reasoning:
            options = msgspec.structs.replace(options, starts_in_reasoning=True)
        return family.make(options)

    return make


@lru_cache(maxsize=_MODELS)
def habits_of(template: str) -> Habits:
    """Return how a model with this chat template answers."""
    from clawd.providers.toolcalls.prompt_end import prompt_end  # a template engine, with a model

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
    from clawd.providers.toolcalls.prompt_end import prompt_end

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


def family_of(template: str) -> str:
    """Return the name of the first family whose template this is; `hermes` for none of them."""
    return family_for(template).name


def thoughts_of(template: str) -> tuple[tuple[str, str], ...]:
    """Return the markers around reasoning in answers under a chat template."""
    return family_for(template).thoughts


@lru_cache(maxsize=_MODELS)
def thinking_variables(template: str) -> frozenset[str]:
    """Return which of the variables about thinking a chat template reads."""
    from clawd.providers.toolcalls.prompt_end import variables_of  # a template engine

    return variables_of(template) & (SWITCHES | {EFFORT})


def end_of_thought(template: str, prompt_end: str, written: str) -> str:
    """Return the marker that ends the reasoning an answer is in, "" for none.

    Of families that begin another message behind it there is none: what follows is the model's.
    """
    text = prompt_end.rstrip() + written
    for opening, closing in thoughts_of(template):
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
