"""What happens during a turn, as one tagged union that every channel consumes.

Text in events comes from models and tools: a client neutralises it before display
(`wire.safe_text`).
"""

from typing import Literal, assert_never

import msgspec

Mark = Literal["+", "-", " ", "@"]


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    r"""One line of a diff.

    Attributes:
        mark: `+` comes, `-` goes, a blank stays; `@` stands where lines that stay were left out.
        text: without its `\n`; bytes that are no UTF-8 are written out, `\xff`.
        number: from 1: in the old file for a line that goes, else in the new one; 0 is unknown.
        has_end: whether a `\n` ends it.
        raw: its bytes, where they are no UTF-8.
    """

    mark: Mark
    text: str = ""
    number: int = 0
    has_end: bool = True
    raw: bytes = b""


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What a call makes of one file.

    Unless it is cut, the old content and the lines give the new content, to the byte.

    Attributes:
        path: relative to the workspace, or absolute when it lies outside.
        is_new: there is no file before.
        is_removed: there is none afterwards.
        is_binary: the old or the new content is no text.
        is_cut: lines were left out that come or go; `added` and `removed` count them all.
        old_size: bytes; `new_size` likewise.
        note: what becomes of it beside its lines: that it is a link or folder, its permissions.
        old_sha256: of the content that the call was shown for, in hex; "" for none. The call is
            refused when the file holds another. `new_sha256` likewise: nothing else is written.
    """

    path: str
    lines: tuple[DiffLine, ...] = ()
    is_new: bool = False
    is_removed: bool = False
    is_binary: bool = False
    is_cut: bool = False
    added: int = 0
    removed: int = 0
    old_size: int = 0
    new_size: int = 0
    old_sha256: str = ""
    new_sha256: str = ""
    note: str = ""


PAGE_OPENED = "opened"


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True, tag="turn_started"):
    """A turn began; `detached` is one that goes on when its client leaves the socket.

    `mode` is how far the model may go in this conversation, empty for as configured. With
    `shows_results` a person is to see beside the answer what the tools gave. `client` is what the
    program calls itself that sent the message: clawctl, page, http; empty for unknown.
    """

    conversation_id: str
    turn_id: str
    provider: str
    model: str = ""
    workspace: str = ""
    detached: bool = False
    mode: str = ""
    shows_results: bool = False
    client: str = ""


class ModelLoading(msgspec.Struct, frozen=True, kw_only=True, tag="model_loading"):
    """The local model is being loaded first: bytes of it that are in memory, in all."""

    model: str
    loaded_bytes: int
    total_bytes: int


class PromptProgress(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_progress"):
    """Prompt evaluation goes on: tokens processed (cached ones included), cached, in all."""

    processed: int
    cached: int
    total: int


class PromptEvaluated(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_evaluated"):
    """The prompt of one hop is evaluated; `tokens` are `cached`, `new` and `reevaluated` ones."""

    tokens: int
    cached: int
    elapsed_ms: float
    context_used: int
    context_size: int
    new: int = 0
    reevaluated: int = 0


class ReasoningDelta(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning text to append."""

    text: str


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """Answer text to append."""

    text: str


class ToolDraft(msgspec.Struct, frozen=True, kw_only=True, tag="tool_draft"):
    """The model writes a call: more of the JSON text of its arguments, to be shown only.

    ToolRequested says what was asked for when it is whole; none comes of what was no call. `index`
    tells the calls of one answer apart.
    """

    tool: str
    text: str
    index: int = 0


class ToolRequested(msgspec.Struct, frozen=True, kw_only=True, tag="tool_requested"):
    """The model asked for a call; `arguments` is JSON text."""

    call_id: str
    tool: str
    arguments: str


class ApprovalRequested(msgspec.Struct, frozen=True, kw_only=True, tag="approval_requested"):
    """Somebody must say yes before a call runs.

    Attributes:
        approval_id: what an Answer names as its question.
        digest: binds the answer to these exact bytes.
        arguments: canonical JSON, whole.
        environment: variables that differ from those every child gets.
        rule: the rule that `project` would add, for a person; empty where there can be none.
        patterns: what such a rule covers where it is one by patterns: `git commit *`.
        unlisted: what of it is on no list, as `terraform`; without a person it is refused.
        expires_in_s: silence that long is a no; 0 while somebody is there who can answer, as it
            waits without end then.
        changes: what becomes of files, computed by the daemon; the call writes just that or is
            refused.
    """

    approval_id: str
    digest: str
    call_id: str
    tool: str
    arguments: str
    risk: str
    reason: str
    workspace: str
    environment: dict[str, str] = {}
    rule: str = ""
    patterns: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    expires_in_s: float = 120.0
    changes: tuple[FileDiff, ...] = ()


class ApprovalResolved(msgspec.Struct, frozen=True, kw_only=True, tag="approval_resolved"):
    """An approval was answered, or ran out.

    `answer` is deny, once, conversation, project or always; `edit` when a person changed the call,
    which is asked about anew.
    """

    approval_id: str
    answer: str
    by: str
    reason: str = ""


class QuestionAsked(msgspec.Struct, frozen=True, kw_only=True, tag="question_asked"):
    """The model or clawd asks the person something; an Answer with this id replies.

    With `url` it asks whether that page shall be opened where the person is: a client that opened
    it answers PAGE_OPENED, else why it did not, or "" for a no. `default` is the answer that Enter
    alone gives; a client without a person still answers "".
    """

    question_id: str
    text: str
    options: tuple[str, ...] = ()
    expires_in_s: float = 120.0
    url: str = ""
    default: str = ""


class ToolStarted(msgspec.Struct, frozen=True, kw_only=True, tag="tool_started"):
    """A call passed the gate and runs.

    Attributes:
        sandbox: the level, empty when it starts no process.
        changes: what it makes of files, where nobody was asked.
    """

    call_id: str
    tool: str
    sandbox: str = ""
    changes: tuple[FileDiff, ...] = ()


class ToolProgress(msgspec.Struct, frozen=True, kw_only=True, tag="tool_progress"):
    """Output of a running call, to append."""

    call_id: str
    text: str


class ToolFinished(msgspec.Struct, frozen=True, kw_only=True, tag="tool_finished"):
    """A call has its receipt. `output` is what the model is told.

    Attributes:
        asked: the name that was called, where a tool of another name was understood.
        exit_code: of the program that it ran; None where it ran none, or none that ended.
        job: as what the program goes on; empty where none does.
    """

    call_id: str
    tool: str
    status: Literal["allowed", "denied", "failed"]
    output: str
    receipt_id: str
    duration_ms: int = 0
    asked: str = ""
    exit_code: int | None = None
    job: str = ""


class PlanChanged(msgspec.Struct, frozen=True, kw_only=True, tag="plan_changed"):
    """The plan is now this Markdown list."""

    markdown: str


class HopReset(msgspec.Struct, frozen=True, kw_only=True, tag="hop_reset"):
    """What was shown of the current hop is void; it is asked again."""

    reason: str


class ContextCompressed(msgspec.Struct, frozen=True, kw_only=True, tag="context_compressed"):
    """Older messages were replaced by a summary."""

    messages_replaced: int
    tokens_before: int
    tokens_after: int


class HopUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and speed of one hop: one request to the model and its answer.

    Attributes:
        prompt_tokens: the prompt's; the three below add up to them.
        cached_tokens: taken from the prefix cache.
        new_tokens: seen for the first time, so they had to be evaluated.
        reevaluated_tokens: known from the hop before and evaluated again. More than one says that
            a prefix was lost.
        completion_tokens: generated.
        drafted_tokens: guessed ahead by the local engine from what was said before.
        accepted_tokens: of these, what the model says too: they are among the generated.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    reevaluated_tokens: int = 0
    completion_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    tokens_per_s: float = 0.0


class HopFinished(msgspec.Struct, frozen=True, kw_only=True, tag="hop_finished"):
    """The model has answered one request; its calls, if any, run next."""

    usage: HopUsage


class SessionFileChanged(msgspec.Struct, frozen=True, kw_only=True, tag="session_file_changed"):
    """A file of the conversation was created, has other content, or has another summary.

    Attributes:
        size: bytes.
        is_by_model: a model wrote the summary; else it is made of the first words.
    """

    name: str
    mime: str
    summary: str
    size: int
    is_by_model: bool = False


class SessionFileDeleted(msgspec.Struct, frozen=True, kw_only=True, tag="session_file_deleted"):
    """A file of the conversation is gone: deleted, or dropped to make room."""

    name: str


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag="notice"):
    """Something a person should know; the turn goes on."""

    level: Literal["info", "warning"]
    text: str


class MessageJoined(msgspec.Struct, frozen=True, kw_only=True, tag="message_joined"):
    """A message that was sent during the turn is in the conversation; the next answer reads it.

    `steer_id` is what `steer_turn` named it.
    """

    turn_id: str
    text: str
    steer_id: str = ""


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and speed of a whole turn."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    tokens_per_s: float = 0.0
    context_used: int = 0
    context_size: int = 0
    rounds: int = 0
    tool_calls: int = 0


class TokenPart(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one part of the context: system, tools, memory, history, template."""

    name: str
    tokens: int


class TokenLedger(msgspec.Struct, frozen=True, kw_only=True):
    """What fills the context at the end of a turn, by part.

    Attributes:
        parts: counted by the model's own tokenizer, in the order of the prompt. `memory` is the
            block of changing facts on user messages, `template` what the chat template adds. A
            template may leave things out (earlier reasoning, earlier turns): then the parts add
            up to more than what is used.
        free: what is left of the context, 0 where its size is unknown.
        is_estimate: the tokenizer could not be asked, as with a remote model.
    """

    parts: tuple[TokenPart, ...] = ()
    free: int = 0
    context_size: int = 0
    is_estimate: bool = False


ClaimKind = Literal["written", "deleted", "run", "sent", "committed"]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer plainly says was done, and what the receipts say of it.

    Attributes:
        text: the sentence.
        kind: what is said to have been done; `written` stands for every change of a file.
        object: to what: a path, a command, an address.
        verdict: `contradicted` where no call did it, `failed` where one was to and did not.
        receipt_id: of the call that did it or failed; "" for none, or one of an earlier turn.
    """

    text: str
    kind: ClaimKind
    object: str
    verdict: Literal["supported", "contradicted", "failed"]
    receipt_id: str = ""

    @property
    def problem(self) -> str:
        """What a person is told of it; "" where the receipts support it."""
        match self.verdict:
            case "supported":
                return ""
            case "contradicted":
                return f"not done: no receipt says that {self.object} was {self.kind}"
            case "failed":
                receipt = f" ({self.receipt_id})" if self.receipt_id else ""
                why = f"its call was denied or failed{receipt}"
                return f"not done: {self.object} was not {self.kind}, {why}"
            case _:
                assert_never(self.verdict)


class TurnFinished(msgspec.Struct, frozen=True, kw_only=True, tag="turn_finished"):
    """The turn is complete and stored.

    Attributes:
        stop_reason: stop, length, cap (of rounds or of time), loop (no progress).
        unanswered_approvals: calls denied because nobody could be asked.
        denied: calls denied in all.
        waits_for: the approval that nobody answered and that the turn ended at; a late answer lets
            it go on. Empty for none.
        unreadable: what the model wrote that was to be a tool call and could not be read as one,
            cut at 8 KiB each; none of it was run.
        claims: what the answer plainly says was done, checked against the receipts.
    """

    conversation_id: str
    turn_id: str
    text: str
    stop_reason: Literal["stop", "length", "cap", "loop"] = "stop"
    provider: str = ""
    model: str = ""
    usage: TurnUsage = TurnUsage()
    ledger: TokenLedger = TokenLedger()
    denied: int = 0
    unanswered_approvals: int = 0
    waits_for: str = ""
    unreadable: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()


class TurnFailed(msgspec.Struct, frozen=True, kw_only=True, tag="turn_failed"):
    """The turn ended without an answer; what was complete is stored.

    `conversation_id` is empty where the message had opened one that nothing came into: it is gone.
    """

    conversation_id: str
    turn_id: str
    code: str
    message: str
    hint: str = ""


class McpLine(msgspec.Struct, frozen=True, kw_only=True, tag="mcp_line"):
    """A message for an MCP client that the reader of these events serves: JSON on one line."""

    text: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True, tag="unknown"):
    """An event that this side does not know (a newer daemon's); skip it."""

    name: str


Event = (
    TurnStarted
    | ModelLoading
    | PromptProgress
    | PromptEvaluated
    | ReasoningDelta
    | TextDelta
    | ToolDraft
    | ToolRequested
    | ApprovalRequested
    | ApprovalResolved
    | QuestionAsked
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | PlanChanged
    | HopReset
    | HopFinished
    | ContextCompressed
    | SessionFileChanged
    | SessionFileDeleted
    | Notice
    | MessageJoined
    | TurnFinished
    | TurnFailed
    | McpLine
    | Unknown
)


class EstopChanged(msgspec.Struct, frozen=True, kw_only=True, tag="estop_changed"):
    """The emergency stop was set or cleared; `estop_state` says why."""

    is_set: bool
