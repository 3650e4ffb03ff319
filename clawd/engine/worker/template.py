"""Renders a model's own chat template, and what to do when it throws.

Templates are Jinja and come with the model's file, so they are not trusted: the environment is
sandboxed, output and repetition are limited. A template that never ends cannot be stopped from
inside; the supervisor's watchdog ends the worker for it.

Templates disagree about calls: some want ids of nine letters and digits or one call a message, some
write `tool_calls` of earlier messages nowhere. So before the first conversation with tools is
rendered, a short one with two calls is, in one way after the other, until a template shows all of
it; that way is kept, so that all prompts of a conversation have one form. A template that throws
all the same is tried in the other ways, and at last ChatML is used.

They disagree about earlier reasoning as well: in which field of a message they look for it, and
of which messages they show it. The field is found in the same way, the rest is theirs to decide.
"""

import copy
import datetime
import json
import logging
import re
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, NamedTuple

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import msgspec
from jinja2.exceptions import SecurityError
from typing_extensions import override

from clawd.engine.protocol import CallFrame, ChatCall, ChatMessage
from clawd.engine.worker import chat_fallback
from clawd.engine.worker.lockdown import memory_bound, processor_bound

MAX_OUTPUT_CHARACTERS = 8 * 1024 * 1024
MAX_REPEATED = 1024 * 1024
MAX_EXPONENT = 64
MAX_PROBE_S = 2.0
_REASON_CHARACTERS = 200
MAX_NOTES = 8
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

# SmolLM3's and others of Hugging Face's name what they write as XML.
_TOOL_VARIABLES = ("tools", "xml_tools")
# Where templates look for what was thought before a message; blocks are of its content.
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking", "thought", "blocks")
# Some show it only where a variable says that the model thinks.
_THINKING: dict[str, Any] = {"enable_thinking": True, "thinking": True}
# Blocks that a template does not know may come out as the list that they are.
_SPELLED_OUT = re.compile(r"""["']thinking["']:\s*["']probe-thought""")
# How much of a conversation with two calls a template shows.
_ONE_CALL, _CALLS, _WHOLE = 1, 2, 3

logger = logging.getLogger(__name__)


class RenderInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a template gets to see; `frames` are how the model writes calls, the usual way first."""

    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = []
    variables: dict[str, Any] = {}
    frames: tuple[CallFrame, ...] = ()


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How tool calls are handed to a template; templates disagree."""

    empty_content: str | None
    arguments_as_object: bool


class _Thoughts(NamedTuple):
    """How reasoning is handed to a template: the field, "" for none.

    With `joins_text` it takes the text beside calls in, for a template that takes one of the two.
    """

    field: str = ""
    joins_text: bool = False


_SHAPES = (
    _Shape(empty_content="", arguments_as_object=True),
    _Shape(empty_content=None, arguments_as_object=True),
    _Shape(empty_content="", arguments_as_object=False),
    _Shape(empty_content=None, arguments_as_object=False),
)
_PROBE_TYPE = "string"
_PROBE_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "probe-tool",
        "description": "probe",
        "parameters": {
            "type": "object",
            "properties": {"probe-key": {"type": _PROBE_TYPE, "description": "probe"}},
            "required": ["probe-key"],
        },
    },
}
_QUESTION = "probe-question"
_PROBE_BEFORE = [
    ChatMessage(role="system", content="probe-system"),
    ChatMessage(role="user", content=_QUESTION),
]
_PROBED = ("probe-value-1", "probe-value-2", "probe-result-1", "probe-result-2")
_PROBE_CALLS = tuple(
    ChatCall(id=f"call_number{n}", name=f"probe-name-{n}", arguments=f'{{"probe-key": "{value}"}}')
    for n, value in enumerate(_PROBED[:2], start=1)
)
_FIRST_CALL = ("probe-name-1", "probe-key", "probe-value-1")
_PROBE_AFTER = [
    *_PROBE_BEFORE,
    ChatMessage(role="assistant", content="probe-remark", tool_calls=_PROBE_CALLS),
    *(
        ChatMessage(role="tool", content=result, name=call.name, tool_call_id=call.id)
        for call, result in zip(_PROBE_CALLS, _PROBED[2:], strict=True)
    ),
]


# A turn in which the model thinks before it calls, with a word to the user and without, and two.
_PROBE_THOUGHT = (
    *(
        [
            *_PROBE_BEFORE,
            ChatMessage(
                role="assistant",
                content=remark,
                reasoning="probe-thought",
                tool_calls=_PROBE_CALLS[:1],
            ),
            _PROBE_AFTER[3],
        ]
        for remark in ("probe-remark", "")
    ),
    [
        *_PROBE_BEFORE,
        ChatMessage(role="assistant", content="probe-remark", reasoning="probe-thought"),
        ChatMessage(role="user", content="probe-more"),
    ],
)


class ChatTemplate:
    """A compiled chat template with its fallbacks."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        self.source = source or chat_fallback.CHATML
        self._special = {"bos_token": bos, "eos_token": eos}
        self._environment = _environment()
        self._chatml = self._environment.from_string(chat_fallback.CHATML)
        self._template = self._chatml
        self._ways: dict[tuple[CallFrame, ...], _Way] = {}
        self._shape = _SHAPES[0]
        self._thoughts = _Thoughts()
        self._known_thoughts: dict[_Way, _Thoughts] = {}
        self._knows_tools = False
        self._changes_lists = ".append(" in source or ".pop(" in source
        # Why the last prompt asks for calls as text, in tags, instead of the template's own form.
        self.fallback = ""
        # What had to be done otherwise than the template has it, a sentence each.
        self.notes: dict[str, None] = {}
        if not source:
            return
        try:
            # Jinja works out what is constant here already.
            with memory_bound(MAX_EXTRA_BYTES):
                self._template = self._environment.from_string(source)
                tree = self._environment.parse(source)
                asked = jinja2.meta.find_undeclared_variables(tree)
                self._knows_tools = not asked.isdisjoint(_TOOL_VARIABLES)
        except _RAISED_BY_TEMPLATES as error:
            self._note(f"it cannot be compiled, and ChatML is used: {_reason(error)}")

    def _note(self, note: str) -> None:
        """Tell the daemon and the log, once each."""
        if note not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes[note] = None
            logger.warning("the chat template: %s", note)

    def render(self, asked: RenderInput) -> str:
        """Return the conversation as text, with the beginning of the answer at its end."""
        text = self._render(asked)
        if self.fallback:
            self._note(
                "it is not used for tool calls, which are asked for, and read, as JSON in "
                f"<tool_call> tags: {self.fallback}"
            )
        return text

    def _render(self, asked: RenderInput) -> str:
        self.fallback, has_tools = "", bool(asked.tools)
        if has_tools and not self._knows_tools:
            self.fallback = "it knows no tools"
            asked = tools_as_plain_text(asked)
        tried, why = list[RenderInput](), ""
        for rewrites in self._rewrites_for(asked):
            given = _rewritten(asked, rewrites)
            if given in tried:
                continue
            tried.append(given)
            try:
                text = self._run_with_fewer(given)
            except _RAISED_BY_TEMPLATES as error:
                why = _reason(error)
                self._note(f"it failed on a conversation, which was handed to it otherwise: {why}")
            else:
                if has_tools and not given.tools:
                    self.fallback = self.fallback or why or "it loses calls"
                return text
        self.fallback = self.fallback or (why if has_tools else "")
        self._note(f"it cannot render a conversation, and ChatML is used: {why}")
        return self._run(self._chatml, tools_as_plain_text(asked), self._shape)

    def reads_tools(self) -> bool:
        """Return whether tools that are offered stand in the prompt at all.

        It is asked while a model is loaded, which has more time than a template may take. One that
        takes too long here counts as one that writes them: its first prompt is what ends it.
        """
        text = self._with_a_tool()
        return text is None or str(_PROBE_TOOL["function"]["name"]) in text

    def reads_schemas(self) -> bool:
        """Return whether more of a tool stands in the prompt than it and its arguments are called.

        The type of an argument tells it; asked when and as `reads_tools` is.
        """
        text = self._with_a_tool()
        return text is None or _PROBE_TYPE in text

    def _with_a_tool(self) -> str | None:
        """Return a prompt with a tool, None where that takes too long."""
        messages = [ChatMessage(role="user", content="probe")]
        try:
            with processor_bound(MAX_PROBE_S):
                return self.render(RenderInput(messages=messages, tools=[_PROBE_TOOL]))
        except TimeoutError:
            return None

    def _run_with_fewer(self, given: RenderInput) -> str:
        """Render with the variables that are asked for, or without where a template refuses one.

        So it is with reasoning.
        """
        try:
            return self._run(self._template, given, self._shape)
        except _RAISED_BY_TEMPLATES as error:
            if given.variables:
                plain, what = msgspec.structs.replace(given, variables={}), "variables"
            elif self._thoughts.field and any(each.reasoning for each in given.messages):
                plain, what = _without_reasoning(given), "reasoning"
            else:
                raise
            text = self._run_with_fewer(plain)
            self._note(f"it refuses {what}, which it is not given: {_reason(error)}")
            return text

    def _rewrites_for(self, asked: RenderInput) -> "Iterator[tuple[Rewrite, ...]]":
        """Return the ways to hand a conversation over, the one that shows all of its calls first.

        It counts with tools that are offered only as well: their calls come with later prompts.
        """
        way = _PLAIN_WAY
        if asked.tools or any(message.tool_calls for message in asked.messages):
            if asked.frames not in self._ways:
                self._ways[asked.frames] = self._find_way(asked)
            way = self._ways[asked.frames]
            self._shape = way.shape
            self.fallback = self.fallback or (way.why if asked.tools else "")
            if _with_calls_as_text in way.rewrites:
                self._note(
                    "it drops tool calls of earlier messages, which are written out as text in the "
                    "model's own form"
                )
        if any(message.reasoning for message in asked.messages):
            if way not in self._known_thoughts:
                self._known_thoughts[way] = self._find_thoughts(asked, way)
            self._thoughts = self._known_thoughts[way]
        yield way.rewrites
        yield from _WAYS

    def _find_thoughts(self, asked: RenderInput, way: "_Way") -> _Thoughts:
        """Return how the template is given reasoning so that it shows it, with all the rest."""
        mentioned = [
            field
            for field in _THOUGHT_FIELDS
            if ("thinking" if field == "blocks" else field) in self.source
        ]
        forms = [_Thoughts(field, joins) for field in mentioned for joins in (False, True)]
        found = (
            form
            for said in _PROBE_THOUGHT
            for form in forms
            if self._gives_back(asked, way, form, said)
        )
        return next(found, _Thoughts())

    def _gives_back(
        self, asked: RenderInput, way: "_Way", thoughts: _Thoughts, said: list[ChatMessage]
    ) -> bool:
        """Return whether the template shows the reasoning in a conversation, before the answer."""
        self._thoughts = thoughts
        tools = [_PROBE_TOOL] if asked.tools else []
        for variables in (_THINKING, {}):
            given = msgspec.structs.replace(asked, messages=said, tools=tools, variables=variables)
            try:
                text = self._run(self._template, _rewritten(given, way.rewrites), way.shape)
            except _RAISED_BY_TEMPLATES:
                continue
            places = list(map(text.find, _words_of(said)))
            if -1 not in places and places == sorted(places) and not _SPELLED_OUT.search(text):
                return True
        return False

    def _find_way(self, asked: RenderInput) -> "_Way":
        """Return the first way in which the template shows two calls and their results best."""
        why, best, most = "", _Way((), _SHAPES[0], ""), 0
        for rewrites in _WAYS:
            for shape in _SHAPES:
                try:
                    shown = self._shown(asked, rewrites, shape)
                except _RAISED_BY_TEMPLATES as error:
                    why = why or _reason(error)
                    continue
                has_tools = _rewritten(asked, rewrites).tools or not asked.tools
                if shown > most:
                    reason = "" if has_tools else why or "it loses calls"
                    best, most = _Way(rewrites, shape, reason), shown
            if most == _WHOLE:
                break
        return best

    def _shown(self, asked: RenderInput, rewrites: "tuple[Rewrite, ...]", shape: _Shape) -> int:
        """Return how much of a conversation with two calls the template shows."""
        tools = [_PROBE_TOOL] if asked.tools else []
        before, after = (
            self._run(
                self._template,
                _rewritten(
                    msgspec.structs.replace(asked, messages=messages, tools=tools, variables={}),
                    rewrites,
                ),
                shape,
            )
            for messages in (_PROBE_BEFORE, _PROBE_AFTER)
        )
        ends = before.find(_QUESTION) + len(_QUESTION)
        is_kept = _QUESTION in before and after[:ends] == before[:ends]
        after = after[after.rfind(_QUESTION) + 1 :]
        first, second, result, last = map(after.find, _PROBED)
        is_mangled = "None" in after or "{'probe-key'" in after
        if is_mangled or any(word not in after for word in _FIRST_CALL):
            return 0
        if _PROBE_CALLS[1].name not in after or -1 in {second, result, last}:
            return _ONE_CALL
        is_ordered = first < second < last and first < result < last
        # A remark behind its calls would be an answer already, and so the end of the turn.
        is_whole = is_kept and is_ordered and after.find("probe-remark") < first
        return _WHOLE if is_whole else _CALLS

    def _run(self, template: jinja2.Template, asked: RenderInput, shape: _Shape) -> str:
        if not any(message.tool_calls for message in asked.messages):
            shape = _SHAPES[0]
        tools = copy.deepcopy(asked.tools) if self._changes_lists else asked.tools
        return self._generate(
            template,
            _Given(_as_dict(message, shape, self._thoughts) for message in asked.messages),
            tools,
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
        given: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        given |= dict.fromkeys(_TOOL_VARIABLES, tools or None)
        with memory_bound(MAX_EXTRA_BYTES):
            for piece in template.generate(variables | self._special | given):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_OUTPUT_CHARACTERS:
                    raise jinja2.TemplateRuntimeError(
                        f"the output is longer than {MAX_OUTPUT_CHARACTERS} characters"
                    )
            return "".join(pieces)


def tools_as_plain_text(asked: RenderInput) -> RenderInput:
    """Return the input with tools, calls and results written out as text."""
    return RenderInput(
        messages=chat_fallback.tools_as_text(asked.messages, asked.tools), variables=asked.variables
    )


def _without_reasoning(asked: RenderInput) -> RenderInput:
    plain = [msgspec.structs.replace(message, reasoning="") for message in asked.messages]
    return msgspec.structs.replace(asked, messages=plain)


def _words_of(messages: list[ChatMessage]) -> list[str]:
    """Return what a template shows of a conversation, in order, if it shows reasoning rightly."""
    words: list[str] = []
    for message in messages[1:]:
        calls = [call.name for call in message.tool_calls]
        words += filter(None, (message.reasoning, message.content, *calls))
    return words


def _rewritten(asked: RenderInput, rewrites: "tuple[Rewrite, ...]") -> RenderInput:
    for rewrite in rewrites:
        asked = rewrite(asked)
    return asked


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:_REASON_CHARACTERS] or type(error).__name__


def _with_short_ids(asked: RenderInput) -> RenderInput:
    """Give calls the ids that Mistral's templates insist on."""
    return msgspec.structs.replace(asked, messages=chat_fallback.shorten_ids(asked.messages))


def _with_named_ids(asked: RenderInput) -> RenderInput:
    """Give calls the ids by which Kimi's templates name the tool."""
    return msgspec.structs.replace(asked, messages=chat_fallback.name_ids(asked.messages))


def _with_single_calls(asked: RenderInput) -> RenderInput:
    """Give each message one call at most, as Llama's templates want it."""
    return msgspec.structs.replace(asked, messages=chat_fallback.part_calls(asked.messages))


def _with_remarks_apart(asked: RenderInput) -> RenderInput:
    """Give the text beside calls a message of its own, for Gemma 4 writes it behind the results."""
    return msgspec.structs.replace(asked, messages=chat_fallback.part_remarks(asked.messages))


def _without_system(asked: RenderInput) -> RenderInput:
    return msgspec.structs.replace(asked, messages=chat_fallback.merge_system(asked.messages))


def _with_calls_as_text(asked: RenderInput) -> RenderInput:
    """Write calls out as the model does, for templates that show no `tool_calls`."""
    return msgspec.structs.replace(
        asked, messages=chat_fallback.calls_as_text(asked.messages, asked.frames)
    )


def _with_neighbours_joined(asked: RenderInput) -> RenderInput:
    return msgspec.structs.replace(asked, messages=chat_fallback.merge_neighbours(asked.messages))


Rewrite = Callable[[RenderInput], RenderInput]

_WAYS: tuple[tuple[Rewrite, ...], ...] = (
    (),
    (_with_short_ids,),
    (_with_named_ids,),
    (_with_short_ids, _with_single_calls),
    (_with_remarks_apart,),
    (_without_system,),
    (_with_short_ids, _without_system),
    (_with_short_ids, _with_single_calls, _without_system),
    (_with_calls_as_text,),
    (_with_calls_as_text, _without_system),
    (tools_as_plain_text,),
    (tools_as_plain_text, _without_system, _with_neighbours_joined),
)


class _Way(NamedTuple):
    """How conversations are handed to a template; `why` it has to be as plain text, if so."""

    rewrites: tuple[Rewrite, ...]
    shape: _Shape
    why: str


_PLAIN_WAY = _Way((), _SHAPES[0], "")


def _as_dict(message: ChatMessage, shape: _Shape, thoughts: _Thoughts) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning and thoughts.field:
        entry |= _thought(message, thoughts)
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


def _thought(message: ChatMessage, thoughts: _Thoughts) -> dict[str, Any]:
    """Return the fields of a message that hold its reasoning."""
    text = message.reasoning
    if thoughts.field == "blocks":
        said = [{"type": "text", "text": message.content}] if message.content else []
        return {"content": [{"type": "thinking", "thinking": text}, *said]}
    if thoughts.joins_text and message.tool_calls and message.content:
        return {"content": "", thoughts.field: f"{text}\n\n{message.content}"}
    return {thoughts.field: text}


class _Given(list[dict[str, Any]]):
    """Messages, which no template may change."""


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which also refuses operators that make huge values out of small ones."""

    intercepted_binops = frozenset({"*", "**", "%"})

    @override
    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Let templates keep lists of their own."""
        is_own = isinstance(obj, list) and not isinstance(obj, _Given)
        return (is_own and attr in {"append", "pop"}) or super().is_safe_attribute(obj, attr, value)

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
        list(value) if isinstance(value, GeneratorType) else value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateRuntimeError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().astimezone().strftime(pattern)
