"""Methods about turns, and what they report."""

from typing import Annotated, ClassVar, Literal

import msgspec

from clawd.wire.events import QuestionAsked, TurnFinished
from clawd.wire.method import Done, Method
from clawd.wire.pictures import Document, PixelGrid

MAX_ROUNDS = 100
"""So many rounds of calls a message may ask for by itself."""


class SamplingWishes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one turn samples; None leaves a value as it is configured.

    Penalties count for local models where an admin sets them, or `allow_request_penalties` lets
    everybody.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0, le=5)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, msgspec.Meta(gt=0, le=10)] | None = None
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    stop: tuple[str, ...] = ()


class SendMessage(Method[TurnFinished], frozen=True, kw_only=True):
    """Send a message and stream the turn's events.

    Without `conversation_id` a new conversation is opened. The turn is cancelled when the
    connection closes, unless `detach`. `interactive` says that approvals and questions can be
    asked here. `preset` names how this turn samples; empty is the agent's or the model's way.
    `hints` are for a router (`model`, `cost`, `privacy`, `size`); the conversation
    keeps them until an empty one takes its name back. `system` goes in place of clawd's own system
    prompt, for this message. `untrusted` names where text in the message came from that nobody
    vouches for, as `terminal output`: the conversation counts as holding it. `files` are those of
    the workspace whose text is in the message: what is known of them counts as well. `sampling`
    goes before the preset. `tools_allow` are patterns of the tools that this message may use, of
    those that the channel and the agent offer; one with `-` in front takes out. `tool_mode` is how
    they are offered, `retry` whether empty and broken-off answers are asked for again; empty and
    None are as configured. `url` is the address of an API as OpenAI's to ask instead of a provider
    of the config: for admins. `think` is whether the model is to think, or how much; the
    conversation keeps it until `auto` leaves it to the model again. `mode` is how far the model may
    go without a person in this conversation from now on, as `set_mode` sets it; empty leaves it as
    it is. `tool_choice` is of the first answer: auto, required, or the name of the tool that it
    must call; what follows is free. `max_rounds` is after how many rounds of calls the turn ends,
    attended or not; 0 is as configured, where a person who can be asked is asked to go on.
    `pictures` are whole files, PNG, JPEG, WebP or GIF, which stand before the text; each is decoded
    in the sandbox, and the conversation counts as holding untrusted text. `documents` are whole
    PDFs, likewise: their text, read in the sandbox, stands behind the text of the message; of one
    without any the first pages are shown as pictures. A notice says what was left out. With
    `plan_first` the turn goes no further than mode readonly until the person, if one can be asked,
    says yes to its plan; else it ends with the plan. `client` is what the program calls itself that
    sends it; empty for what it said in its hello. `allowed_tools` are written as those of a skill:
    calls of other tools are asked about, and none is allowed by it.
    """

    streams: ClassVar[bool] = True
    text: str
    pictures: tuple[bytes, ...] = ()
    documents: tuple[Document, ...] = ()
    conversation_id: str = ""
    workspace: str = ""
    provider: str = ""
    model: str = ""
    agent: str = ""
    preset: str = ""
    interactive: bool = False
    detach: bool = False
    hints: dict[str, str] = msgspec.field(default_factory=dict)
    system: str | None = None
    untrusted: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    sampling: SamplingWishes | None = None
    tools_allow: tuple[str, ...] = ()
    tool_mode: Literal["", "split", "unified", "both"] = ""
    retry: bool | None = None
    url: str = ""
    think: Literal["", "auto", "on", "off", "low", "medium", "high"] = ""
    mode: Literal["", "readonly", "supervised", "edits", "full"] = ""
    client: str = ""
    tool_choice: str = "auto"
    max_rounds: Annotated[int, msgspec.Meta(ge=0, le=MAX_ROUNDS)] = 0
    plan_first: bool = False
    allowed_tools: tuple[str, ...] = ()


class PreviewPicture(Method[PixelGrid], frozen=True, kw_only=True):
    """Return the colours of a picture, small enough for a terminal; decoded in the sandbox.

    `longest` is the most pixels of its longest side.
    """

    data: bytes
    longest: Annotated[int, msgspec.Meta(ge=1, le=640)] = 320


class SamplingLine(msgspec.Struct, frozen=True, kw_only=True):
    """One value of sampling, as JSON, and who says so: the message, its preset, or the config."""

    name: str
    value: str
    origin: Literal["message", "preset", "config"]


class SamplingReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a message would be sampled.

    Attributes:
        items: the values in force; of a provider elsewhere those that it would be asked for.
        is_whole: nothing else counts; else the provider has its own way in what is not named.
    """

    provider: str
    model: str
    items: tuple[SamplingLine, ...]
    is_whole: bool


class ShowSampling(Method[SamplingReport], frozen=True, kw_only=True):
    """Show how a message with these wishes would be sampled; the names are `send_message`'s."""

    provider: str = ""
    model: str = ""
    agent: str = ""
    preset: str = ""
    sampling: SamplingWishes | None = None


class FollowConversation(Method[Done], frozen=True, kw_only=True):
    """Stream the events of a conversation's turns until cancelled."""

    streams: ClassVar[bool] = True
    conversation_id: str


class CancelTurn(Method[Done], frozen=True, kw_only=True):
    """Cancel the running turn of a conversation."""

    conversation_id: str


class SteerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a text for a running turn; one that did not join is the caller's to send."""

    joined: bool


class SteerTurn(Method[SteerReport], frozen=True, kw_only=True):
    """Say something to a turn that runs: its model reads it after the calls that it makes now.

    Answered when that is decided. A turn that ends without another round does not take it: then it
    is kept nowhere, and is the caller's to send as the next message. Cancelling takes it back while
    it waits. `turn_id` is the one of TurnStarted; `steer_id` comes back in MessageJoined.
    """

    conversation_id: str
    turn_id: str
    text: str
    steer_id: str = ""


Doing = Literal["thinking", "loading", "prompt", "answering", "tool", "approval", "question"]


class TurnLine(msgspec.Struct, frozen=True, kw_only=True):
    """One turn that runs.

    Attributes:
        owner: uid of whose conversation it is.
        client: what the program calls itself that began it; empty for unknown.
        doing: what it does now: thinking (nothing came yet, or reasoning), loading (the model),
            prompt (its prompt is evaluated), answering, tool (a call runs), approval or question
            (it waits for a person).
        detail: the tool, or how much of the model is loaded or of the prompt evaluated ("43%");
            else empty.
        elapsed_s: since the turn began; `doing_s` since it does what it does now.
        tokens: generated so far; of the answer under way its pieces are counted.
        tokens_per_s: of the answer under way, by its pieces, else of the last one.
        context_used: tokens of the last prompt, of `context_size`; 0 for unknown.
        question: what it asks the person while it waits for that.
    """

    conversation_id: str
    turn_id: str
    owner: int
    provider: str
    model: str = ""
    workspace: str = ""
    client: str = ""
    doing: Doing = "thinking"
    detail: str = ""
    elapsed_s: float = 0.0
    doing_s: float = 0.0
    rounds: int = 0
    tool_calls: int = 0
    tokens: int = 0
    tokens_per_s: float = 0.0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    context_used: int = 0
    context_size: int = 0
    question: QuestionAsked | None = None


class TurnList(msgspec.Struct, frozen=True, kw_only=True):
    """Turns that run, the oldest first; of other owners' an admin alone sees more than a number."""

    items: tuple[TurnLine, ...]
    others: int = 0


class ListTurns(Method[TurnList], frozen=True, kw_only=True):
    """List the turns that run, and what each does just now."""
