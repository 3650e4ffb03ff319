"""Renders a model's own chat template, and what to do when it throws.

Templates are Jinja and come with the model's file, so they are not trusted: the environment is
sandboxed, output and repetition are limited. A template that never ends cannot be stopped from
inside; the supervisor's watchdog ends the worker for it.

A template that throws is tried again with a conversation it may like better (ids of nine letters
and digits, one call a message, the system message in the first user message; tools, calls and
results as plain text), and at last ChatML is used.
"""

import datetime
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import msgspec
from jinja2.exceptions import SecurityError
from typing_extensions import override

from clawd.engine.protocol import ChatMessage
from clawd.engine.worker.plainchat import (
    CHATML,
    merge_neighbours,
    merge_system,
    part_calls,
    shorten_ids,
    tools_as_text,
)
from clawd.engine.worker.process import memory_bound

MAX_OUTPUT_CHARACTERS = 8 * 1024 * 1024
MAX_REPEATED = 1024 * 1024
MAX_EXPONENT = 64
_REASON_CHARACTERS = 200
# Text doubled by `~` in a loop, or padded by a filter, is as large as it likes until it is joined.
MAX_EXTRA_BYTES = 256 * 1024 * 1024
_LARGE_WIDTH = re.compile(r"%[^a-zA-Z]*(\d{4}|\*)")

_RAISED_BY_TEMPLATES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    # Jinja writes Python, whose compiler has limits of its own (20 blocks in each other).
    SyntaxError,
    AssertionError,
    MemoryError,
    re.error,
)

logger = logging.getLogger(__name__)


class RenderInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a template gets to see."""

    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = []
    variables: dict[str, Any] = {}


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How tool calls are handed to a template; templates disagree."""

    empty_content: str | None
    arguments_as_object: bool


_SHAPES = (
    _Shape(empty_content="", arguments_as_object=True),
    _Shape(empty_content=None, arguments_as_object=True),
    _Shape(empty_content="", arguments_as_object=False),
    _Shape(empty_content=None, arguments_as_object=False),
)
_PROBE: list[dict[str, Any]] = [
    {"role": "user", "content": "probe-question"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "probe0001",
                "type": "function",
                "function": {"name": "probe-name", "arguments": '{"probe-key": "probe-value"}'},
            }
        ],
    },
    {
        "role": "tool",
        "content": "probe-result",
        "name": "probe-name",
        "tool_call_id": "probe0001",
    },
]


class ChatTemplate:
    """A compiled chat template with its fallbacks."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        self.source = source or CHATML
        self._special = {"bos_token": bos, "eos_token": eos}
        self._environment = _environment()
        self._chatml = self._environment.from_string(CHATML)
        self._template = self._chatml
        self._shape: _Shape | None = None
        self._knows_tools = False
        # Why the last prompt asks for calls as text, in tags, instead of the template's own form.
        self.fallback = ""
        if not source:
            return
        try:
            # Jinja works out what is constant here already.
            with memory_bound(MAX_EXTRA_BYTES):
                self._template = self._environment.from_string(source)
                tree = self._environment.parse(source)
                self._knows_tools = "tools" in jinja2.meta.find_undeclared_variables(tree)
        except _RAISED_BY_TEMPLATES as error:
            logger.warning("the chat template does not compile, using ChatML: %s", error)

    def render(self, asked: RenderInput) -> str:
        """Return the conversation as text, with the beginning of the answer at its end."""
        self.fallback, has_tools = "", bool(asked.tools)
        if has_tools and not self._knows_tools:
            self.fallback = "it knows no tools"
            asked = tools_as_plain_text(asked)
        tried, why = list[RenderInput](), ""
        for rewrite in _REWRITES:
            given = rewrite(asked)
            if given in tried:
                continue
            tried.append(given)
            try:
                text = self._run(self._template, given)
            except _RAISED_BY_TEMPLATES as error:
                logger.warning("the chat template failed, trying a fallback: %s", error)
                why = " ".join(str(error).split())[:_REASON_CHARACTERS] or type(error).__name__
            else:
                if has_tools and not given.tools:
                    self.fallback = self.fallback or why
                return text
        self.fallback = self.fallback or (why if has_tools else "")
        return self._run(self._chatml, tools_as_plain_text(asked))

    def _run(self, template: jinja2.Template, asked: RenderInput) -> str:
        shape = _SHAPES[0]
        if any(message.tool_calls for message in asked.messages):
            shape = self._shape or self._find_shape()
        return self._generate(
            template,
            [_as_dict(message, shape) for message in asked.messages],
            asked.tools,
            asked.variables,
        )

    def _generate(
        self,
        template: jinja2.Template,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        variables: dict[str, Any],
    ) -> str:
        pieces: list[str] = []
        size = 0
        given = {"messages": messages, "tools": tools or None, "add_generation_prompt": True}
        with memory_bound(MAX_EXTRA_BYTES):
            for piece in template.generate(variables | self._special | given):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_OUTPUT_CHARACTERS:
                    raise jinja2.TemplateRuntimeError(
                        f"the output is longer than {MAX_OUTPUT_CHARACTERS} characters"
                    )
            return "".join(pieces)

    def _find_shape(self) -> _Shape:
        """Return the first form of a tool call that the template renders whole."""
        self._shape = _SHAPES[0]
        for shape in _SHAPES:
            messages = [_shaped(message, shape) for message in _PROBE]
            try:
                text = self._generate(self._template, messages, [], {})
            except _RAISED_BY_TEMPLATES:
                continue
            is_whole = all(word in text for word in ("probe-name", "probe-key", "probe-value"))
            if is_whole and "None" not in text and "{'probe-key'" not in text:
                self._shape = shape
                break
        return self._shape


def tools_as_plain_text(asked: RenderInput) -> RenderInput:
    """Return the input with tools, calls and results written out as text."""
    return RenderInput(
        messages=tools_as_text(asked.messages, asked.tools), variables=asked.variables
    )


def _unchanged(asked: RenderInput) -> RenderInput:
    return asked


def _with_short_ids(asked: RenderInput) -> RenderInput:
    """Give calls the ids that Mistral's templates insist on."""
    return msgspec.structs.replace(asked, messages=shorten_ids(asked.messages))


def _with_single_calls(asked: RenderInput) -> RenderInput:
    """Give each message one call at most, as Llama's templates want it."""
    return msgspec.structs.replace(asked, messages=part_calls(shorten_ids(asked.messages)))


def _without_system(asked: RenderInput) -> RenderInput:
    return msgspec.structs.replace(asked, messages=merge_system(asked.messages))


def _without_system_with_single_calls(asked: RenderInput) -> RenderInput:
    return _without_system(_with_single_calls(asked))


def _without_system_and_tools(asked: RenderInput) -> RenderInput:
    plain = _without_system(tools_as_plain_text(asked))
    return msgspec.structs.replace(plain, messages=merge_neighbours(plain.messages))


_REWRITES: tuple[Callable[[RenderInput], RenderInput], ...] = (
    _unchanged,
    _with_short_ids,
    _with_single_calls,
    _without_system,
    _without_system_with_single_calls,
    _without_system_and_tools,
)


def _as_dict(message: ChatMessage, shape: _Shape) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name:
        entry["name"] = message.name
    if message.tool_call_id:
        entry["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        entry["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return _shaped(entry, shape)


def _shaped(entry: dict[str, Any], shape: _Shape) -> dict[str, Any]:
    if "tool_calls" not in entry:
        return entry
    calls = []
    for call in entry["tool_calls"]:
        function = dict(call["function"])
        if shape.arguments_as_object:
            function["arguments"] = _object_or_text(function["arguments"])
        calls.append(call | {"function": function})
    return entry | {"content": entry["content"] or shape.empty_content, "tool_calls": calls}


def _object_or_text(arguments: str) -> dict[str, Any] | str:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which also refuses operators that make huge values out of small ones."""

    intercepted_binops = frozenset({"*", "**", "%"})

    @override
    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        if operator == "*":
            _refuse_long_repetition(left, right)
        elif operator == "**" and abs(right) > MAX_EXPONENT:
            raise SecurityError(f"an exponent over {MAX_EXPONENT}")
        elif operator == "%" and isinstance(left, str) and _LARGE_WIDTH.search(left):
            raise SecurityError("a width over 999 in a format")
        return super().call_binop(context, operator, left, right)


def _refuse_long_repetition(left: Any, right: Any) -> None:
    for text, count in ((left, right), (right, left)):
        if (
            isinstance(text, str | bytes | list | tuple)
            and isinstance(count, int)
            and len(text) * count > MAX_REPEATED
        ):
            raise SecurityError(f"a repetition longer than {MAX_REPEATED}")


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}`: marks what is trained on; here it only wraps."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own declaration)

    @override
    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        autoescape=False,
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002  (templates pass it by position too)
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateRuntimeError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().astimezone().strftime(pattern)
