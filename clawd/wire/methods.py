"""The methods of the control socket: for each one struct of parameters, named like the method.

`SendMessage` is method `send_message`, its handler is `handlers.send_message`, and a client calls
it with `client.call(SendMessage(…))` or, where `streams` is true, `client.stream(SendMessage(…))`.
The type argument of the base is the result's type (`wire.reports`). Lists are paged: pass the
`cursor` of the page before.
"""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from clawd.wire import (
    caches,
    conversations,
    jobs,
    keys,
    knowledge,
    logs,
    mcp,
    memory,
    metrics,
    plans,
    plugins,
    policy,
    prompts,
    receipts,
    session_files,
    status,
    turns,
)
from clawd.wire.changes import ChangeList
from clawd.wire.conversations import ConversationDetail, ConversationLine, ConversationPage
from clawd.wire.events import TurnFinished
from clawd.wire.method import Method, method_name
from clawd.wire.reports import (
    ApprovalList,
    ConfigText,
    Done,
    EnvironmentReport,
    EstopReport,
    LoadedModel,
    LoadedModelList,
    MemoryHits,
    ModelDetail,
    ModelList,
    ProviderList,
    RuleList,
    SamplingReport,
    SteerReport,
    ToolList,
    ToolOutcome,
)
from clawd.wire.status import Status as Status

MAX_ROUNDS = 100
"""So many rounds of calls a message may ask for by itself."""

# --- service


class Ping(Method[Done], frozen=True, kw_only=True):
    """Answer at once."""


class Reload(Method[Done], frozen=True, kw_only=True):
    """Read the config again; an invalid one is refused and the old stays."""

    admin: ClassVar[bool] = True


class Shutdown(Method[Done], frozen=True, kw_only=True):
    """Drain and end the daemon."""

    admin: ClassVar[bool] = True


# --- conversations and messages


class ListConversations(Method[ConversationPage], frozen=True, kw_only=True):
    """List conversations, newest first; with `workspace`, an absolute folder, those of it alone.

    With `last_words` each line has the beginning of what was said in it last.
    """

    cursor: str = ""
    limit: int = 100
    workspace: str = ""
    last_words: bool = False


class ShowConversation(Method[ConversationDetail], frozen=True, kw_only=True):
    """Show one conversation, by id or a unique beginning of it."""

    conversation_id: str
    cursor: str = ""
    limit: int = 200


class OpenConversation(Method[ConversationLine], frozen=True, kw_only=True):
    """Open a new conversation, or (`resume`) find the newest one of this workspace.

    `workspace` is absolute, or empty for the configured one.
    """

    workspace: str = ""
    agent: str = ""
    resume: bool = False
    conversation_id: str = ""


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
    whoever is there; 0 is as configured, where a person who can be asked is asked to go on.
    """

    streams: ClassVar[bool] = True
    text: str
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
    tool_choice: str = "auto"
    max_rounds: Annotated[int, msgspec.Meta(ge=0, le=MAX_ROUNDS)] = 0


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


# --- approvals


class ListApprovals(Method[ApprovalList], frozen=True, kw_only=True):
    """List pending approvals."""


class AnswerApproval(Method[Done], frozen=True, kw_only=True):
    """Answer a pending approval; `digest` is the one that was listed or shown with it.

    `days` is how long the rule of `always` is in force, 0 the configured time. `edit` wants the
    call with other `arguments`, JSON text: it is judged and asked about anew.
    """

    approval_id: str
    digest: str
    answer: Literal["deny", "once", "conversation", "project", "always", "edit"]
    days: int = 0
    arguments: str = ""


class AddRule(Method[Done], frozen=True, kw_only=True):
    """Allow or refuse from now on what shell commands of a pattern run: `git commit *`.

    Attributes:
        pattern: words, the command's name first; `*` last stands for whatever follows. After
            `file_write` it is a path below the workspace that file tools change, `docs/**`.
        workspace: the project it holds in; "" for every one.
        conversation_id: the conversation it is limited to; "" for all.
        days: how long it is in force, 0 the configured time.
    """

    pattern: str
    verdict: Literal["allow", "deny"] = "allow"
    workspace: str = ""
    conversation_id: str = ""
    days: int = 0


class ListRules(Method[RuleList], frozen=True, kw_only=True):
    """List the standing approval rules."""


class RevokeRule(Method[Done], frozen=True, kw_only=True):
    """Remove a standing rule."""

    rule_id: str


# --- tools


class ListTools(Method[ToolList], frozen=True, kw_only=True):
    """List the tools."""


class RunTool(Method[ToolOutcome], frozen=True, kw_only=True):
    """Run one tool through the gate; `arguments` is JSON text. Streams approvals and progress.

    With `conversation_id` (or a unique beginning of it) it is a call of that conversation, in its
    workspace.
    """

    streams: ClassVar[bool] = True
    name: str
    arguments: str = "{}"
    workspace: str = ""
    conversation_id: str = ""
    interactive: bool = False


# --- files


class ListChanges(Method[ChangeList], frozen=True, kw_only=True):
    """List what the caller's calls changed in files and undo can take back, newest first.

    Of one workspace (empty: the configured one), or of one conversation in its workspace. With
    `redo` what undo took away and redo can bring back. `limit` counts calls.
    """

    workspace: str = ""
    conversation_id: str = ""
    redo: bool = False
    limit: int = 20


# --- providers


class ListProviders(Method[ProviderList], frozen=True, kw_only=True):
    """List the configured providers."""


class CheckProvider(Method[Done], frozen=True, kw_only=True):
    """Reach a provider with the smallest request; an empty name means the default one."""

    name: str = ""


# --- models


class ListModels(Method[ModelList], frozen=True, kw_only=True):
    """List the models of this machine, loaded or not."""


class ShowModel(Method[ModelDetail], frozen=True, kw_only=True):
    """Say what a model's file tells of it, and whether it is the one that was pinned."""

    name: str


class LoadModel(Method[LoadedModel], frozen=True, kw_only=True):
    """Load a model if it is not loaded, and say what it is; `name` as in a config."""

    name: str


class UnloadModel(Method[Done], frozen=True, kw_only=True):
    """Unload a model and forget its failures; what runs on it is cancelled."""

    admin: ClassVar[bool] = True
    name: str


class ListLoadedModels(Method[LoadedModelList], frozen=True, kw_only=True):
    """List the models that are loaded, are being loaded, or whose worker died."""


# --- memory


class SearchMemory(Method[MemoryHits], frozen=True, kw_only=True):
    """Search the stored messages."""

    query: str
    limit: int = 20


class ClearMemory(Method[Done], frozen=True, kw_only=True):
    """Delete the caller's conversations: all, or the one named."""

    conversation_id: str = ""


# --- emergency stop


class EstopState(Method[EstopReport], frozen=True, kw_only=True):
    """Report the emergency stop."""


class SetEstop(Method[EstopReport], frozen=True, kw_only=True):
    """Set the emergency stop."""

    reason: str = ""


class ClearEstop(Method[EstopReport], frozen=True, kw_only=True):
    """Clear the emergency stop."""

    admin: ClassVar[bool] = True


# --- config


class ShowConfig(Method[ConfigText], frozen=True, kw_only=True):
    """Show the effective configuration."""

    admin: ClassVar[bool] = True


class CompareEnvironment(Method[EnvironmentReport], frozen=True, kw_only=True):
    """Say which of the client's variables `CLAWD_SECTION__KEY` ask for what is not in force.

    A daemon keeps the environment that it was started with.
    """

    variables: dict[str, str]


_HOMES = {
    __name__,
    caches.__name__,
    conversations.__name__,
    jobs.__name__,
    keys.__name__,
    knowledge.__name__,
    logs.__name__,
    mcp.__name__,
    memory.__name__,
    metrics.__name__,
    plans.__name__,
    plugins.__name__,
    policy.__name__,
    prompts.__name__,
    receipts.__name__,
    session_files.__name__,
    status.__name__,
    turns.__name__,
}

METHODS: dict[str, type[Method[Any]]] = {
    method_name(kind): kind for kind in Method.__subclasses__() if kind.__module__ in _HOMES
}
