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

What some providers can do beside chatting: tokens, prompts, embeddings, slots. Protocols only.

Ask with `able`: a provider that lacks an ability simply does not have it.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from clawd.engine.protocol import ChatCall, TokenLogprob
from clawd.engine.protocol import Infill as Infill
from clawd.engine.protocol import InfillFile as InfillFile
from clawd.engine.protocol import Sampling as Sampling
from clawd.errors import InvalidRequestError
from clawd.wire import events
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


class ScoredText(events.TextDelta, frozen=True, kw_only=True, tag="text"):
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
    `stopped_by` is the stop string that ended it, where a provider can tell. `is_unsure` says that
    the model finds its own calls so unlikely that none should change anything.
    """

    reason: StopReason
    usage: events.HopUsage = events.HopUsage()
    provider: str = ""
    model: str = ""
    raw: dict[str, Any] | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    stopped_by: str = ""
    is_unsure: bool = False


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The request failed; nothing follows. `partial` says whether text came before."""

    error: Exception
    partial: bool = False


Delta = (
    events.TextDelta
    | events.ReasoningDelta
    | CallDelta
    | events.ToolDraft
    | events.ModelLoading
    | events.PromptProgress
    | events.PromptEvaluated
    | events.Notice
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


_T = TypeVar("_T")
Vision = Literal["auto", "yes", "no"]
# Families of models that see, as their servers name them; in these some do not.
_SEEING = re.compile(
    r"gpt-4o|gpt-4-turbo|gpt-4\.1|gpt-4\.5|gpt-5|\bo[134]\b|claude-(3|opus|sonnet|haiku)|gemini"
    r"|vision|multimodal|[-_.\d](vl|vlm|omni)\b|llava|pixtral|gemma-?3|llama-?4|minicpm-?[vo]"
    r"|moondream|internvl|glm-4[.\d]*v|molmo|idefics|smolvlm|grok-4|nova-(lite|pro|premier)"
    r"|mistral-(small-3\.[1-9]|medium-3)",
    re.IGNORECASE,
)
_BLIND = re.compile(r"o[13]-(mini|preview)|gemma-?3[n:_-]*(1b|270m)|audio|embed", re.IGNORECASE)


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    """A text as tokens; a piece may end inside a UTF-8 character."""

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]


class WrittenPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its model reads it, and how many tokens that is."""

    text: str
    tokens: int


class Vectors(msgspec.Struct, frozen=True, kw_only=True):
    """Embeddings in the order of the inputs: little-endian float32 each, of length 1 (L2).

    `tokens` is how many the inputs had, all together.
    """

    vectors: tuple[bytes, ...]
    tokens: int
    model: str


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """How well documents answer a query, in their order: the model's own numbers, more is better.

    `tokens` is how many were read, the query anew with each document.
    """

    scores: tuple[float, ...]
    tokens: int
    model: str


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """One of the places in which a model generates."""

    id: int
    n_ctx: int
    is_processing: bool


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What a loaded model is to its clients.

    Attributes:
        sampling: how it answers where a request is silent, by llama.cpp's names.
        embedding_size: numbers in a vector of its embeddings; 0 when it makes none.
        generates: False for a model that makes embeddings only.
    """

    name: str
    path: str
    n_ctx: int
    n_parallel: int
    chat_template: str
    bos_token: str
    eos_token: str
    sampling: dict[str, Any]
    embedding_size: int
    generates: bool


@runtime_checkable
class Tokenizing(Protocol):
    """A provider with the tokenizers and templates of its models; "" is the default model.

    Each loads the model if need be, and raises ClawError for a model that is not there.
    """

    async def tokenize(
        self, model: str, text: str, *, add_special: bool, parse_special: bool
    ) -> TokenList:
        """Cut a text into tokens.

        Args:
            model: its name.
            text: what to cut.
            add_special: with what the model wants at a text's beginning and end.
            parse_special: control tokens that are written out become control tokens.
        """
        ...

    async def detokenize(self, model: str, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens; it need be no whole UTF-8.

        Raises:
            InvalidRequestError: a number that is no token of the model.
        """
        ...

    async def render(self, request: ChatRequest) -> WrittenPrompt:
        """Return the prompt of a request, and the `prompt_tokens` that an answer would tell."""
        ...


@runtime_checkable
class Holding(Protocol):
    """A provider that holds arguments of calls to their schemas while they are written."""

    def loose_schemas(self) -> Mapping[str, str]:
        """Return by tool why a schema could not be held; only what a request has met so far."""
        ...


@runtime_checkable
class Thinking(Protocol):
    """A provider that knows how its models are told to think."""

    def thinking_variables(self, model: str) -> frozenset[str] | None:
        """Return which variables about thinking a chat template reads; None for not known yet."""
        ...


@runtime_checkable
class Embedding(Protocol):
    """A provider that makes embeddings."""

    async def embed(self, model: str, inputs: Sequence[RawPrompt]) -> Vectors:
        """Return a vector of each input, in their order; nothing of an empty list.

        Raises:
            InvalidRequestError: the model makes none, or an input has no tokens.
            ContextFullError: an input is too long; tells how long.
            ClawError: the model is not there, or failed.
        """
        ...


@runtime_checkable
class Ranking(Protocol):
    """A provider that tells how well documents answer a query."""

    async def rank(self, model: str, query: str, documents: Sequence[str]) -> Ranks:
        """Return the score of each document.

        Raises:
            InvalidRequestError: the model is no reranker.
            ContextFullError: a document with the query is too long; tells how long.
            ClawError: the model is not there, or failed.
        """
        ...


@runtime_checkable
class Sampled(Protocol):
    """A provider that samples itself."""

    def sampled(self, request: ChatRequest) -> dict[str, Any]:
        """Return the values in force for a request, by the names of `Sampling`; loads nothing.

        Raises:
            ClawError: the model or the preset is not there.
        """
        ...


@runtime_checkable
class Hosting(Protocol):
    """A provider whose models take the memory of this machine."""

    def has_room(self, model: str) -> bool:
        """Return whether a model is loaded, or could be without another one having to go.

        Raises:
            ModelNotFoundError: it is not there.
        """
        ...

    async def digest(self, model: str) -> str:
        """Return by what a model's file is told from any other.

        Raises:
            ModelNotFoundError: it is not there.
        """
        ...


@runtime_checkable
class Serving(Protocol):
    """A provider that runs models itself, and can say how."""

    async def describe(self, model: str) -> Described:
        """Return what a model is; loads it if need be."""
        ...

    async def slots(self, model: str) -> tuple[SlotState, ...]:
        """Return the places of a model and which are busy; never loads it."""
        ...


@runtime_checkable
class ToolReading(Protocol):
    """A provider that knows whether the prompts of its models hold the tools of a request."""

    def reads_tools(self, model: str) -> bool:
        """Return whether they do; True where it is not known. Never loads a model."""
        ...

    def reads_schemas(self, model: str) -> bool:
        """Return whether they hold more than what tools and arguments are called; as above."""
        ...


@runtime_checkable
class Warming(Protocol):
    """A provider that can have a model read ahead what prompts begin with."""

    def file_of(self, model: str) -> str:
        """Return the file of a model.

        Raises:
            ClawError: it is not there.
        """
        ...

    def is_loaded(self, model: str) -> bool:
        """Return whether a model is in memory; False for one that is not there."""
        ...

    async def warm(self, request: ChatRequest) -> None:
        """Load the model of a request, and have it read that when it has time.

        Its one message, if there is one, is what that of a user begins with.

        Raises:
            ClawError: it is not there, or cannot be loaded.
        """
        ...


@runtime_checkable
class Seeing(Protocol):
    """A provider that knows which of its models see pictures."""

    def sees(self, model: str) -> bool:
        """Return whether a model does; False for one that is not there. Never loads it."""
        ...


@runtime_checkable
class Fronting(Protocol):
    """A provider that answers with others, and does what else they can do with them."""

    def fronted(self, model: str) -> Sequence[tuple[Provider, str]]:
        """Return who may be asked in its place, the first one first, and their name of a model."""
        ...


def able(provider: Provider, ability: type[_T], model: str) -> tuple[_T, str] | None:
    """Return who has an ability where a provider is asked, and its name of a model; None: nobody.

    Behind one that answers with others it is always the same one: vectors and tokens of two models
    do not go together.

    Args:
        provider: who is asked.
        ability: one of the protocols here.
        model: its name of the model.
    """
    if isinstance(provider, ability):
        return provider, model
    if not isinstance(provider, Fronting):
        return None
    found = (able(each, ability, name) for each, name in provider.fronted(model))
    return next((each for each in found if each is not None), None)


def sees(provider: Provider, model: str) -> bool:
    """Return whether a model sees pictures; behind one that answers with others all of them must.

    Args:
        provider: who is asked.
        model: its name of the model.
    """
    if isinstance(provider, Seeing):
        return provider.sees(model)
    fronted = provider.fronted(model) if isinstance(provider, Fronting) else ()
    return bool(fronted) and all(sees(each, name) for each, name in fronted)


def check_seen(provider: Provider, model: str) -> None:
    """Refuse pictures for a model that sees none.

    Raises:
        InvalidRequestError: it does not; names the model.
    """
    if not sees(provider, model):
        name = f"{provider.name()}/{model}" if model else provider.name()
        raise InvalidRequestError(
            f"model {name} sees no pictures, only text",
            hint="Leave the pictures out, or ask a model with `vision` among its capabilities. Of "
            'a model of another server that sees, say so: vision = "yes" in its section.',
        )


def sees_by_name(vision: Vision, model: str) -> bool:
    """Return whether a model of another server sees: as the operator says, else by its name."""
    if vision != "auto":
        return vision == "yes"
    return _SEEING.search(model) is not None and _BLIND.search(model) is None
