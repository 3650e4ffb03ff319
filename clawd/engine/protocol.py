"""What the daemon and an engine worker say to each other: typed frames over a socketpair.

A frame is a 4-byte big-endian length and one msgpack value, a tagged union: `ToWorker` one way,
`FromWorker` the other. One worker holds one model. Requests carry an id chosen by the daemon;
events of many generations interleave. Text never splits inside a UTF-8 character.

    daemon                              worker
    Load(config)                   →
                                   ←    Loaded(info) | LoadFailed(code, message)
    Generate(id, messages, …)      →
                                   ←    PromptStep(id, …)*  GenerationStarted(id, …)
                                   ←    Tokens(id, text)*  GenerationDone(id, …)
    CancelGeneration(id)           →
                                   ←    GenerationDone(id, reason="cancelled")
    Tokenize(id, text, …)          →
                                   ←    TokenPieces(id, …) | QuestionFailed(id, code, …)
Beside answers a worker is asked for tokens, prompts and vectors. Each question is answered once, by
the frame of the same id named beside it, or by QuestionFailed.
"""

import struct
from typing import Any, Literal

import msgspec

from clawd.errors import ProtocolError
from clawd.wire.events import PromptProgress
from clawd.wire.pictures import Picture

MAX_FRAME_BYTES = 64 * 1024 * 1024
HEADER = struct.Struct(">I")
RawPrompt = str | tuple[int, ...]
DoneReason = Literal["stop", "length", "cancelled"]
# Tokens of an answer for which no limit was asked.
MAX_ANSWER_TOKENS = 4096


class FrameBuffer:
    """Cuts a byte stream into frame bodies; bounded by MAX_FRAME_BYTES."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes and return the bodies that are whole now.

        Raises:
            ProtocolError: a length over MAX_FRAME_BYTES.
        """
        self._data += data
        bodies: list[bytes] = []
        start = 0
        while len(self._data) - start >= HEADER.size:
            (size,) = HEADER.unpack_from(self._data, start)
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"engine frame of {size} bytes is over {MAX_FRAME_BYTES}")
            end = start + HEADER.size + size
            if len(self._data) < end:
                break
            bodies.append(bytes(self._data[start + HEADER.size : end]))
            start = end
        del self._data[:start]
        return bodies


"""A text, or token ids, that no chat template touches."""


class InfillFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file beside the one that is filled in."""

    name: str
    text: str


class Infill(msgspec.Struct, frozen=True, kw_only=True):
    """A gap to be filled in. No text of it is ever read as control tokens.

    Attributes:
        prefix: what stands before the gap.
        suffix: what stands behind it.
        files: other files that help, the most telling last.
        begun: what is written in the gap already; it is gone on with.
    """

    prefix: str
    suffix: str
    files: tuple[InfillFile, ...] = ()
    begun: str = ""


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that a model asked for. `arguments` is the raw JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message as a chat template wants it.

    `reasoning` is what the assistant thought before it; the template decides whether it is shown.
    `pictures` stand before the text.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ChatCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    reasoning: str = ""
    pictures: tuple[Picture, ...] = ()


# How models write tool calls, as data: what the daemon's parsers read and a grammar is made of.
#
# A call is a text with holes between percent signs; the rest stands for itself:
#
#     <tool_call>%ws%{%ws%"name":%ws%%"name"%,%ws%"arguments":%ws%%arguments%%ws%}%ws%</tool_call>
#
#     %name%       the tool's name
#     %"name"%     the same as a JSON string
#     %arguments%  a JSON object by the tool's schema, or what a ParameterForm makes of it
#     %ws%         blanks, or none
#     %digits%     one to three digits
#     %id%         nine letters and digits
#     %?text%      the text, or nothing


class StringForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a string stands bare: any text but `stop` behind `key`, then `stop` and `end`.

    With `excludes`, none of these characters may be in it either.
    """

    key: str
    stop: str
    end: str = ""
    excludes: str = ""


class ParameterForm(msgspec.Struct, frozen=True, kw_only=True):
    """How arguments are written one by one rather than as a JSON object.

    Attributes:
        key: stands before a value; `%key%` is the argument's name.
        end: stands behind it.
        separator: stands between two.
        strings: the ways to write a value that may be a string; none where strings are JSON too.
        nests: lists and objects within hold strings, and objects keys, in the same way.
    """

    key: str
    end: str = ""
    separator: str = "%ws%"
    strings: tuple[StringForm, ...] = ()
    nests: bool = False


class CallFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a model writes its calls.

    Attributes:
        call: one call.
        opening: stands before the first one.
        separator: stands between two; None where an answer holds one call only.
        closing: stands behind the last one.
        marker: the beginning of `opening` and `call` by which a call that a model writes by itself
            is told, up to `%name%` or `%"name"%` at most; empty where none can be told.
        at_start: the marker counts as the first thing of an answer only.
        parameters: the form of the arguments; None for a JSON object.
    """

    call: str
    opening: str = ""
    separator: str | None = None
    closing: str = ""
    marker: str = ""
    at_start: bool = False
    parameters: ParameterForm | None = None


def json_call(name: str = "name", arguments: str = "arguments", *, before: str = "") -> str:
    """Return a call that is a JSON object with these keys, and with members `before` them."""
    return f'{{%ws%{before}"{name}":%ws%%"name"%,%ws%"{arguments}":%ws%%arguments%%ws%}}'


def json_list(
    opening: str, closing: str, call: str | None = None, *, marker: str = ""
) -> CallFrame:
    """Return the frame of a JSON list of calls; the opening marks it unless another text does."""
    return CallFrame(
        call=call or json_call(),
        opening=f"{opening}%ws%[%ws%",
        separator=",%ws%",
        closing=f"%ws%]%ws%{closing}" if closing else "%ws%]",
        marker=marker or opening,
    )


HERMES = CallFrame(
    call=f"<tool_call>%ws%{json_call()}%ws%</tool_call>", separator="%ws%", marker="<tool_call>"
)


class CountTokens(msgspec.Struct, frozen=True, kw_only=True, tag="count_tokens"):
    """Count the tokens of each text (no special tokens added); answered by TokenCounts."""

    id: int
    texts: tuple[str, ...]


class Tokenize(msgspec.Struct, frozen=True, kw_only=True, tag="tokenize"):
    """Cut a text into tokens; answered by TokenPieces.

    Attributes:
        add_special: with what the model wants at the beginning and the end of a text (BOS, EOS).
        parse_special: control tokens that are written out become control tokens.
    """

    id: int
    text: str
    add_special: bool = False
    parse_special: bool = True


class Detokenize(msgspec.Struct, frozen=True, kw_only=True, tag="detokenize"):
    """Join the texts of tokens; answered by TokenText."""

    id: int
    tokens: tuple[int, ...]


class RenderPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="render"):
    """Build the prompt that a Generate with the same fields would get; answered by Rendered."""

    id: int
    messages: tuple[ChatMessage, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    template_kwargs: dict[str, Any] = {}
    frames: tuple[CallFrame, ...] = ()
    prompt: RawPrompt | Infill | None = None


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag="embed"):
    """Make a vector of each input, one in a step; answered by Embedded; may be cancelled.

    Attributes:
        first: the number by which errors call the first input.
        query: of a model that ranks: each vector is one number, how well the input, which is a
            text then, answers this.
    """

    id: int
    inputs: tuple[RawPrompt, ...]
    first: int = 1
    query: str | None = None


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True, tag="token_counts"):
    """Answers CountTokens, in the same order."""

    id: int
    counts: tuple[int, ...]


class TokenPieces(msgspec.Struct, frozen=True, kw_only=True, tag="token_pieces"):
    """Answers Tokenize; a piece may end inside a UTF-8 character."""

    id: int
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]


class TokenText(msgspec.Struct, frozen=True, kw_only=True, tag="token_text"):
    """Answers Detokenize; the bytes need be no whole UTF-8."""

    id: int
    data: bytes


class Rendered(msgspec.Struct, frozen=True, kw_only=True, tag="rendered"):
    """Answers RenderPrompt: the text, and how many tokens the prompt has now.

    What is in the prefix cache keeps the tokens that were generated, so the count is the one
    that a Generate at this moment would tell.
    """

    id: int
    text: str
    tokens: int


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag="embedded"):
    """Answers Embed, in the same order.

    Attributes:
        vectors: little-endian float32 each, of length 1 (L2); the model's own number for a query.
        counts: tokens of each input, of a query with it.
    """

    id: int
    vectors: tuple[bytes, ...]
    counts: tuple[int, ...]


class QuestionFailed(msgspec.Struct, frozen=True, kw_only=True, tag="question_failed"):
    """A question cannot be answered; `code` is a ClawError code.

    `n_prompt_tokens` and `n_ctx` are what there is and what fits, where that is the reason.
    """

    id: int
    code: str
    message: str
    hint: str = ""
    n_prompt_tokens: int = 0
    n_ctx: int = 0


Question = CountTokens | Tokenize | Detokenize | RenderPrompt | Embed
Reply = TokenCounts | TokenPieces | TokenText | Rendered | Embedded | QuestionFailed


class LoraAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter over a model: its file, and how much of it counts (0 nothing, 1 all)."""

    path: str
    scale: float = 1.0


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is loaded; the names are llama.cpp's. Zero and "" mean the library's default.

    `n_ctx` is the context of one sequence; with `kv_unified` on, all sequences share so many cells,
    otherwise each has as many of its own (auto: where they fit into memory several times).
    `rpc_servers` are `host:port` pairs whose devices take a share of the layers. Where
    `template_file` names one, the chat template in it stands in for the model file's own. `mmproj`
    is the file of the projector with which it reads pictures, each of at most `image_max_tokens`
    where that is not 0 and the projector takes pictures of any size.

    The four about the prefix cache are no library's: sequences kept in RAM (0 keeps none, on
    disk neither), on disk (0 or no folder: none), where, and whether conversations are kept there
    or beginnings of prompts alone. Nor is `speculation`: whether tokens
    are guessed from what was said before, where that pays; nor `fence`: whether the worker gives
    up what it does not need before it opens a file of the model.
    """

    path: str
    alias: str = ""
    n_ctx: int = 0
    n_batch: int = 512
    n_ubatch: int = 512
    n_threads: int = 0
    n_parallel: int = 4
    n_gpu_layers: int = -1
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: Literal["auto", "on", "off"] = "auto"
    kv_unified: Literal["auto", "on", "off"] = "auto"
    mlock: bool = False
    mmap: bool = True
    split_mode: Literal["none", "layer", "row", "tensor"] = "layer"
    rope_scaling: Literal["", "none", "linear", "yarn"] = ""
    rope_freq_scale: float = 0.0
    yarn_orig_ctx: int = 0
    lora: tuple[LoraAdapter, ...] = ()
    template_file: str = ""
    mmproj: str = ""
    image_max_tokens: int = 0
    rpc_servers: tuple[str, ...] = ()
    max_queue: int = 64
    prefill_chunk: int = 128
    speculation: Literal["auto", "off"] = "auto"
    seed: int = 0
    prefix_cache_ram_mb: int = 1024
    prefix_cache_disk_mb: int = 0
    prefix_cache_folder: str = ""
    prefix_cache_conversations: bool = True
    fence: Literal["auto", "off"] = "auto"


LOOP_TOKENS = 512
"""An answer whose last tokens, so many, are nothing but repetition has no end of its own."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one generation is sampled, in a request and, with the settings below it, in a worker.

    None leaves a value of a request to the settings of the model, and one of a worker to
    worker/sampling.py. `temperature` 0 is greedy. `seed` below 0 draws one. `max_tokens` 0 means
    MAX_ANSWER_TOKENS, or as many as the context has room for. `dry_last_n` below 0 is the whole
    context. `logit_bias` is by token id of the model. `top_logprobs` counts only with `logprobs`.
    `stop_loops` ends an answer whose last `loop_tokens` do nothing but repeat themselves.
    An answer that may call begins with a call where that has at least the probability `call_from`,
    and how likely its calls are is reported (`GenerationDone.likely`).

    The last four are for the daemon alone: `preset` names a row of providers/presets.py, what is
    given beside it goes first; `by_operator` lets penalties count that others are not allowed;
    `template_kwargs` are variables of a local chat template; a local model's reasoning is ended
    after `reasoning_tokens`.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    penalty_last_n: int | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_last_n: int | None = None
    dry_breakers: tuple[str, ...] | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    logit_bias: dict[int, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stop_loops: bool | None = None
    loop_tokens: int | None = None
    call_from: float | None = None
    preset: str = ""
    by_operator: bool | None = None
    template_kwargs: dict[str, Any] | None = None
    reasoning_tokens: int | None = None


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer is held to.

    Attributes:
        kind: `json_schema` is an answer by `schema` (or, with `tools`, a call instead);
            `tool_call` is a call of one of `tools`, or with `parallel` several.
        schema: a JSON Schema.
        tools: a JSON Schema of the arguments by tool name.
        lazy: hold nothing until the model has begun a call by itself, then that call.
        loose: leave out of `schema` what cannot be held, and say so, instead of refusing it.
        single: the answer ends with its first call; what is not lazy has one unless `parallel`.
        frames: the ways the model writes calls; what is not lazy is written in the first.
        thoughts: the markers around reasoning, which is left alone at the start of an answer.
        in_reasoning: the prompt ends within reasoning.
    """

    kind: Literal["none", "json_schema", "tool_call"] = "none"
    schema: Any = True
    tools: dict[str, Any] = {}
    lazy: bool = False
    loose: bool = False
    single: bool = False
    parallel: bool = False
    frames: tuple[CallFrame, ...] = (HERMES,)
    thoughts: tuple[tuple[str, str], ...] = (("<think>", "</think>"),)
    in_reasoning: bool = False


class Load(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Load the worker's one model; the first frame."""

    config: ModelConfig


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Answer a conversation, or go on with a prompt. Only what is new is sent back.

    Attributes:
        messages: the conversation; a text of the assistant at its end is gone on with.
        tools: OpenAI-style function objects for the template.
        prompt: what no template touches, or a gap to be filled in; then there are neither
            messages nor tools.
        appended: what stands behind the beginning of the answer; control tokens in it are such.
    """

    id: int
    messages: tuple[ChatMessage, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    sampling: Sampling = Sampling()
    template_kwargs: dict[str, Any] = {}
    grammar: Grammar = Grammar()
    prompt: RawPrompt | Infill | None = None
    appended: str = ""


class Warm(msgspec.Struct, frozen=True, kw_only=True, tag="warm"):
    """Evaluate ahead, in quiet moments, what prompts with this system prompt and tools begin with.

    Attributes:
        request: a request whose message of the user, if it has one, is gone on with later; answers
            come as Warmth.
    """

    request: Generate


class CancelGeneration(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop a generation within a decode step, or an Embed; unknown ids are ignored."""

    id: int


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Ask for a Pong; the supervisor's watchdog.

    Frames are handled in order, between steps, by the thread that renders and decodes: the Pong
    to a Ping sent together with a Generate says that its prompt is rendered.
    """

    id: int


class Quit(msgspec.Struct, frozen=True, kw_only=True, tag="quit"):
    """End the worker once this frame is read; a closed socket means the same.

    Attributes:
        save_limit_s: for saving what is kept.
    """

    save_limit_s: float = 4.0


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the loaded model is.

    Attributes:
        bos: the token of a text's beginning as text, or "".
        eos: the token of its end.
        fence: what holds its worker, as `landlock+seccomp`.
        processor: the processors that llama.cpp's loaded code is for, as `zen4`; "" where it was
            built for one machine.
        embedding_size: numbers in a vector of its embeddings; 0 for a model that makes none.
        max_embedded: tokens of the longest input that it makes one of.
        generates: False for a model that makes embeddings only.
        infills: its vocabulary has the tokens that stand around a gap to be filled in.
        ranks: it tells how well a text answers a query.
        reads_tools: its chat template writes the tools of a request into the prompt.
        reads_schemas: it writes more of them than the names of tools and arguments.
        vision: it reads pictures.
    """

    alias: str
    architecture: str
    description: str
    n_params: int
    size_bytes: int
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_parallel: int
    chat_template: str
    load_ms: float
    bos: str = ""
    eos: str = ""
    fence: str = ""
    processor: str = ""
    embedding_size: int = 0
    max_embedded: int = 0
    generates: bool = True
    infills: bool = False
    ranks: bool = False
    reads_tools: bool = True
    reads_schemas: bool = True
    vision: bool = False


class ModelReady(msgspec.Struct, frozen=True, kw_only=True, tag="loaded"):
    """The model is ready."""

    info: ModelInfo


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    """The model cannot be loaded; the worker ends after it."""

    code: str
    message: str


class PromptStep(msgspec.Struct, frozen=True, kw_only=True, tag="prompt_step"):
    """How far the evaluation of a prompt is."""

    id: int
    progress: PromptProgress


class GenerationStarted(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """The whole prompt is evaluated and the answer begins; once per generation.

    `quarantined` names the tools whose arguments no grammar holds to their schema, and why.
    `fallback` says why the prompt asks for calls as text, in `<tool_call>` tags, where the chat
    template could not be used for them. `prompt_end` is the end of the prompt's text.
    """

    id: int
    tokens: int
    cached: int
    elapsed_ms: float
    n_ctx: int
    quarantined: dict[str, str] = {}
    fallback: str = ""
    prompt_end: str = ""


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token and its natural log probability; `piece` may end inside a UTF-8 character."""

    token: int
    piece: bytes
    logprob: float

    @property
    def text(self) -> str:
        """The piece, with U+FFFD where a character is not whole."""
        return self.piece.decode(errors="replace")


class TokenLogprob(TopLogprob, frozen=True, kw_only=True):
    """A generated token, its log probability before any sampler, and the likeliest there."""

    top: tuple[TopLogprob, ...] = ()


class Warmth(msgspec.Struct, frozen=True, kw_only=True, tag="warmth"):
    """How far the beginning of prompts is evaluated that was wanted last.

    Attributes:
        tokens: it has so many; 0 where prompts have too little in common.
        ready: of these evaluated.
        restored: of these from a kept state.
        elapsed_ms: what all that took, without the waiting.
    """

    tokens: int
    ready: int = 0
    restored: int = 0
    elapsed_ms: float = 0.0


class TemplateNotes(msgspec.Struct, frozen=True, kw_only=True, tag="template_notes"):
    """What had to be done otherwise with the chat template so far, a sentence each; unasked."""

    notes: tuple[str, ...]


class Tokens(msgspec.Struct, frozen=True, kw_only=True, tag="tokens"):
    """Generated text to append, from `count` tokens; empty when a character is not complete yet."""

    id: int
    text: str
    count: int
    logprobs: tuple[TokenLogprob, ...] = ()


class GenerationDone(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """A generation ended; `elapsed_ms` is the time since the prompt was evaluated.

    Of `drafted_tokens` guessed by speculation, `accepted_tokens` were what the model says.
    `stopped_by` is the stop string that ended it, if one did; `is_loop` that it did nothing but
    repeat itself. `lifted` says why the grammar that should have held did not to the end. `likely`
    is the probability of its calls, all their tokens together; 1 where that was not asked for.
    """

    id: int
    reason: DoneReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    elapsed_ms: float
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    stopped_by: str = ""
    lifted: str = ""
    is_loop: bool = False
    likely: float = 1.0


class GenerationFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A generation could not be done; `code` is a ClawError code (busy, context_full, …).

    With context_full, `n_prompt_tokens` is what the prompt has (an estimate of one that is far
    too long) and `n_ctx` what the context holds.
    """

    id: int
    code: str
    message: str
    hint: str = ""
    retry_after_s: float = 0.0
    n_prompt_tokens: int = 0
    n_ctx: int = 0


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """Answers Ping, with what the engine is doing."""

    id: int
    running: int
    queued: int
    cached_sequences: int


ToWorker = Load | Generate | Warm | CancelGeneration | Question | Ping | Quit
FromWorker = (
    ModelReady
    | LoadFailed
    | PromptStep
    | GenerationStarted
    | Warmth
    | TemplateNotes
    | Tokens
    | GenerationDone
    | GenerationFailed
    | Reply
    | Pong
)
_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def encode(frame: ToWorker | FromWorker) -> bytes:
    """Return the frame with its length in front.

    Raises:
        ProtocolError: it would be longer than MAX_FRAME_BYTES.
    """
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"engine frame of {len(body)} bytes is over {MAX_FRAME_BYTES}")
    return HEADER.pack(len(body)) + body


def decode_to_worker(body: bytes | memoryview) -> ToWorker:
    """Decode a frame's body in the worker.

    Raises:
        ProtocolError: it is no such frame.
    """
    try:
        return _to_worker.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a frame for a worker: {error}") from error


def decode_from_worker(body: bytes | memoryview) -> FromWorker:
    """Decode a frame's body in the daemon.

    Raises:
        ProtocolError: it is no such frame.
    """
    try:
        return _from_worker.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a frame of a worker: {error}") from error
