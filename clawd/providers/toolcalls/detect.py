"""Chooses the parser for a model by its chat template; Hermes is for those that no family knows."""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from clawd.engine.call_frame import HERMES
from clawd.providers.base import CallDelta, Text
from clawd.providers.toolcalls import hermes
from clawd.providers.toolcalls.base import (
    ParsedDelta,
    ParserFactory,
    ParserOptions,
    ToolCallParser,
)
from clawd.providers.toolcalls.families_a import FAMILIES_A, OPENINGS_A
from clawd.providers.toolcalls.families_b import CALL_MARKERS_B, FAMILIES_B
from clawd.providers.toolcalls.family import Family, Frames, always
from clawd.providers.toolcalls.whole_answer import WholeAnswer

FAMILIES = (
    *FAMILIES_A,
    *FAMILIES_B,
    Family("hermes", lambda _template: True, hermes.make, always(HERMES)),
)
CALL_MARKERS = (hermes.OPEN, *OPENINGS_A, *CALL_MARKERS_B)

_MODELS = 16


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
    """Return what makes the parser for the answers of a model with this chat template.

    A model without a template of its own is parsed as Hermes: that is what the built-in fallback
    template asks for.
    """
    family = _family(template)
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

    family = _family(template)
    is_open = prompt_end(template).endswith(tuple(opening for opening, _ in family.thoughts))
    thoughts = family.thoughts if family.hides_calls else ()
    return Habits(family.frames(template), thoughts, is_open)


def habits_after(template: str, begun: str) -> Habits:
    """Return how a model goes on with an answer that began with this text."""
    habits = habits_of(template)
    if not begun:
        return habits
    thoughts = _family(template).thoughts
    opened = max((begun.rfind(opening) for opening, _ in thoughts), default=-1)
    closed = max((begun.rfind(closing) for _, closing in thoughts), default=-1)
    return habits._replace(starts_in_reasoning=opened > closed)


def out_of_reasoning(template: str, begun: str) -> str:
    """Return the beginning of an answer so that it stands behind the reasoning that prompts open.

    A beginning that ends reasoning by itself is left alone, and so is an empty one.
    """
    from clawd.providers.toolcalls.prompt_end import prompt_end

    family = _family(template)
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
    parser = _family(template).make(msgspec.structs.replace(options, starts_in_reasoning=starts))
    return WholeAnswer(parser, options) if options.calls and options.schemas else parser


def also_in_tags(parser: ToolCallParser, options: ParserOptions) -> ToolCallParser:
    """Return a parser that reads calls in `<tool_call>` tags, too, in what another takes for text.

    For prompts that ask for them because the chat template could not be used.
    """
    return _Chained(parser, hermes.make(options))


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
            passed += self._second.feed(delta.text) if isinstance(delta, Text) else [delta]
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
    return _family(template).name


def looks_like_call(text: str) -> bool:
    """Say whether an answer's text holds a call that could not be parsed."""
    return any(marker in text for marker in CALL_MARKERS)


def _family(template: str) -> Family:
    return next(family for family in FAMILIES if family.matches(template))
