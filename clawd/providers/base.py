"""What every model provider takes and gives: request, messages, deltas. No I/O here.

A provider streams deltas. A call's deltas are keyed by `index`: name and id come with the first,
argument text in any number of pieces after it.

For models that know no role for tools, their turns are text of the next user turn:

    assistant: Let me look.                 assistant: Let me look.
                                                       [call: file_list]
      + call file_list {"path": "."}   ──▶             {"path": "."}
    tool: notes.md                          user:      [tool: file_list]
    user: and now?                                     notes.md

                                                       and now?
"""

from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from clawd.engine.protocol import ChatCall, TokenLogprob
from clawd.engine.protocol import Infill as Infill
from clawd.engine.protocol import InfillFile as InfillFile
from clawd.engine.protocol import Sampling as Sampling
from clawd.wire.events import (
    HopUsage,
    ModelLoading,
    Notice,
    PromptEvaluated,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolDraft,
)
from clawd.wire.pictures import Picture

Role = Literal["system", "user", "assistant", "tool"]
StopReason = Literal["stop", "length", "tool_calls", "cancelled", "error"]
RawPrompt = str | tuple[int, ...]
ToolCall = ChatCall
CONTEXT_OPEN = "<context>\n"
CONTEXT_CLOSE = "\n</context>\n\n"
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
LEVELS = ("on", "off", "low", "medium", "high")
AUTO = "auto"
SWITCHES = frozenset({"enable_thinking", "thinking"})
EFFORT = "reasoning_effort"
"""A text, or token ids of the model, that no chat template touches."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation.

    `content` of an assistant turn that only calls tools is empty; None, "" and missing are one.
    `tool_call_id` and `name` belong to role `tool`: which call it answers, and of which tool.
    `reasoning` is what the assistant thought before it, for chat templates that read it.
    `note` is what a person is told below the text; no model is shown it.
    `pictures` stand before the text, in their order; messages of users and of tools have some.
    """

    role: Role
    content: str | None = None
    pictures: tuple[Picture, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    reasoning: str = ""
    note: str = ""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as it is offered to a model.

    Attributes:
        parameters: a JSON Schema of type object.
        group: what its tokens count as, `mcp:<alias>`; empty counts with all other tools.
        rules: the whole schema, where `parameters` is a short form of it for the prompt.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    group: str = ""
    rules: dict[str, Any] | None = None

    @property
    def held_to(self) -> dict[str, Any]:
        """What the arguments of a call are held to."""
        return self.parameters if self.rules is None else self.rules


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model.

    Attributes:
        system: the system prompt; empty for none.
        messages: the conversation, oldest first, without the system message. A text of the
            assistant at its end is gone on with, and the answer is what follows it.
        tools: what the model may call; empty for none.
        found: what it may call as well, as the messages say how; a provider whose prompts must
            not change in front of them tells it nowhere else.
        unlisted: what it may call as well, though nothing says how.
        model: the provider's name of the model; empty for its default.
        metadata: hints for routers (`cost`, `privacy`, `size`, …) and `conversation_id`.
        tool_choice: auto, none, required, or the name of one tool.
        keeps_tools: where none may be called, a local model is told the tools all the same, so
            that its prompt goes on where the conversation's last one ended.
        response_format: an OpenAI-style response format, or None for text.
        prompt: a raw prompt to go on with, instead of system prompt, messages and tools; the
            answer is plain text, whatever markers are in it.
        parallel_calls: whether an answer may hold several calls; None is the provider's default.
        streams_calls: tell a call while it is written, its name and pieces of its arguments, even
            though it may break off; else each comes when it is whole.
    """

    messages: tuple[Message, ...] = ()
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    found: tuple[ToolSpec, ...] = ()
    unlisted: tuple[ToolSpec, ...] = ()
    model: str = ""
    temperature: float | None = None
    metadata: dict[str, str] = {}
    sampling: Sampling | None = None
    tool_choice: str = "auto"
    keeps_tools: bool = False
    response_format: dict[str, Any] | None = None
    prompt: RawPrompt | Infill | None = None
    parallel_calls: bool | None = None
    streams_calls: bool = False


class ScoredText(TextDelta, frozen=True, kw_only=True, tag="text"):
    """Text with the tokens that it is made of, where they were asked for and can be reported.

    Those of all texts of an answer are its content, without markers and reasoning.
    """

    logprobs: tuple[TokenLogprob, ...]


class CallDelta(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """A piece of a tool call: `id` and `name` with the first of an index, arguments appended."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The answer is complete. `raw` is the provider's own last payload, where it has one.

    `logprobs` has every token of the answer, markers and reasoning included, when asked for.
    `stopped_by` is the stop string that ended it, where a provider can tell.
    """

    reason: StopReason
    usage: HopUsage = HopUsage()
    provider: str = ""
    model: str = ""
    raw: dict[str, Any] | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    stopped_by: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The request failed; nothing follows. `partial` says whether text came before."""

    error: Exception
    partial: bool = False


Delta = (
    TextDelta
    | ReasoningDelta
    | CallDelta
    | ToolDraft
    | ModelLoading
    | PromptProgress
    | PromptEvaluated
    | Notice
    | Finished
    | Failed
)
"""What comes of a request; the events among it go to clients as they are.

A `Notice` says what of the request was not heeded, or what else a person should know of the answer.
After a `ToolDraft` the call comes as a `CallDelta` when it is whole, or turns out to be text.
"""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider can do for its default model; `heeds_hints` as a router does.

    `parallel` is how many requests it serves side by side, 0 for as many as come.
    """

    streaming: bool = True
    tools: bool = True
    local: bool = False
    context_size: int = 0
    heeds_hints: bool = False
    parallel: int = 0


class Provider(Protocol):
    """A source of answers.

    `chat` yields deltas and ends with exactly one `Finished` or `Failed`; it never raises for a
    failure of the other side. Closing the iterator (or cancelling the task) stops the work at once
    and frees what was held.
    """

    def name(self) -> str:
        """Return the name under which the config knows it."""
        ...

    def capabilities(self) -> Capabilities:
        """Return what it can do, without any I/O."""
        ...

    def chat(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Answer one request."""
        ...

    async def check(self) -> str:
        """Reach the model with the smallest possible request; return a sentence on what answered.

        Raises:
            ClawError: it cannot be reached or refuses.
        """
        ...

    async def close(self) -> None:
        """Release connections and processes; idempotent."""
        ...


@dataclass(eq=False, slots=True)
class CallAssembler:
    """Folds call deltas into whole calls, in the order of their index: the order to make them."""

    _ids: dict[int, str] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _arguments: dict[int, list[str]] = field(default_factory=dict)

    def add(self, delta: CallDelta) -> None:
        """Take one delta; a repeated id or name of the same index is ignored."""
        pieces = self._arguments.setdefault(delta.index, [])
        if delta.id:
            self._ids.setdefault(delta.index, delta.id)
        if delta.name:
            self._names.setdefault(delta.index, delta.name)
        if delta.arguments:
            pieces.append(delta.arguments)

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls so far; one without an id gets `call_<index>`."""
        return tuple(
            ToolCall(
                id=self._ids.get(index) or f"call_{index}",
                name=self._names.get(index, ""),
                arguments="".join(pieces) or "{}",
            )
            for index, pieces in sorted(self._arguments.items())
        )


def strip_context_block(text: str) -> str:
    """Return what the user wrote, without the block of changing facts that may stand before it."""
    if not text.startswith(CONTEXT_OPEN):
        return text
    _, marker, rest = text.partition(CONTEXT_CLOSE)
    return rest if marker else text


def thinking(wish: str) -> dict[str, Any]:
    """Return the variables of a chat template for one of `EFFORTS` or `LEVELS`."""
    if wish in {"none", "off"}:
        return dict.fromkeys(sorted(SWITCHES), False)
    wanted: dict[str, Any] = dict.fromkeys(sorted(SWITCHES), True)
    if wish == "on":
        return wanted
    level = {"minimal": "low", "xhigh": "high", "max": "high"}.get(wish, wish)
    return wanted | {EFFORT: level}


def unheeded(wish: str, variables: AbstractSet[str]) -> str:
    """Return what becomes of one of `LEVELS`, and why, where a template cannot do as it says.

    "" where it can, by the variables that it reads.
    """
    if wish in {"on", "off"} and not variables & SWITCHES:
        way = f"; it reads a level, {', '.join(LEVELS[2:])}" if EFFORT in variables else ""
        return f"changes nothing: the chat template has no switch for thinking{way}"
    if wish in LEVELS[2:] and EFFORT not in variables:
        what = "is on and no more" if variables & SWITCHES else "changes nothing"
        return f"{what}: the chat template reads no {EFFORT}"
    return ""


def without_pictures(message: Message) -> Message:
    """Return a message with a line of text for each of its pictures, for models that see none."""
    if not message.pictures:
        return message
    told = [f"[{each.label}: this model sees no pictures]" for each in message.pictures]
    text = "\n".join(filter(None, [message.content, *told]))
    return msgspec.structs.replace(message, content=text, pictures=())


def calls_as_text(message: Message) -> Message:
    """Return an assistant's message with its calls written out as text."""
    if not message.tool_calls:
        return message
    calls = [f"[call: {call.name}]\n{call.arguments}" for call in message.tool_calls]
    texts = [message.content, *calls] if message.content else calls
    return msgspec.structs.replace(message, content="\n\n".join(texts), tool_calls=())


def calls_kept(message: Message) -> Message:
    """Return an assistant's message as it is, for templates that refuse the tool role alone."""
    return message


def without_tool_role(
    messages: Sequence[Message], *, calls: Callable[[Message], Message] = calls_as_text
) -> tuple[Message, ...]:
    """Turn tool turns into `[tool: name]` blocks on the next user turn; make one where none is.

    `calls` says how an assistant's message with calls is shown.
    """
    out: list[Message] = []
    results: list[Message] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        if message.role == "tool":
            name = message.name or names.get(message.tool_call_id, "")
            text = f"[tool: {name}]\n{message.content or ''}"
            results.append(msgspec.structs.replace(message, content=text))
        elif message.role == "user" and results:
            out.append(_joined([*results, message]))
            results.clear()
        else:
            if results:
                out.append(_joined(results))
                results.clear()
            out.append(calls(message))
    if results:
        out.append(_joined(results))
    return tuple(out)


def _joined(messages: Sequence[Message]) -> Message:
    """Return one message of the user with the texts and pictures of several."""
    return Message(
        role="user",
        content="\n\n".join(each.content or "" for each in messages),
        pictures=tuple(picture for each in messages for picture in each.pictures),
    )
