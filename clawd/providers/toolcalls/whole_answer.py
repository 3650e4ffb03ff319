"""A call that is a model's whole answer, whatever its family's form is: bare JSON, or in a fence.

    {"name": "file_list", "arguments": {"path": "src"}}

Small models and tuned ones write so under templates that ask for a tag. JSON may be the answer as
well, so it is a call only when nothing else stands beside it and it names an offered tool. Text
that may still become such an answer is held back, all other text passes at once.
"""

import json
import re

from clawd.providers.base import CallDelta, Text
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import Call, answer_calls

_LANGUAGES = ("json", "tool_call", "tool_code", "")
_FENCED = re.compile(r"```(?:json|tool_call|tool_code)?\s*(?P<body>.*?)\s*(?:```)?", re.DOTALL)
_BETWEEN = re.compile(r"[\s;,]*")
_NAMES = ('"name":"', '"tool_name":"', '"function":"')
# What a call may begin with besides its name; what follows says whether it is one.
_OTHERS = ('"id":"', '"type":"function"', '"function":{', '"arguments":{', '"parameters":{')
_SEEN_CHARACTERS = 300
_JSON = json.JSONDecoder()


class WholeAnswer:
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
            return deltas if _names_a_tool(text, self._options) else [*deltas, Text(text=text)]
        calls = _calls(text, self._options)
        if not calls:
            return [*deltas, Text(text=text)]
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
            if self._held is None or not isinstance(delta, Text | CallDelta):
                passed.append(delta)
            elif isinstance(delta, Text) and self._may_begin(delta.text):
                self._held.append(delta.text)
            else:
                held, self._held = "".join(self._held), None
                passed += [Text(text=held)] if held else []
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


def _calls(text: str, options: ParserOptions) -> list[Call]:
    """Return the calls that the text is, one after the other or in a list; none for all else."""
    fenced = _FENCED.fullmatch(text.strip())
    body = fenced["body"] if fenced else text.strip()
    found: list[Call] = []
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
