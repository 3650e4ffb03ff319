"""What a program wishes of its session's system prompt and tools, as it said so far.

Also what a session is to be made of, before anything is loaded, what every kind of it can do, and
what a message brings back: the answer, the calls that were made, what it took.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, InvalidRequestError
from clawd.sdk.client import Client
from clawd.tools.base import Tool
from clawd.wire.codec import mirror
from clawd.wire.events import Event, TextDelta, ToolFinished, ToolRequested, TurnFinished, TurnUsage
from clawd.wire.turns import SendMessage

ApprovalWord = Literal["deny", "once", "conversation", "project", "always"]


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model made.

    Attributes:
        name: the tool that was meant, as on its receipt.
        arguments: as the model gave them; under `raw` where they are no JSON object.
        status: allowed, denied or failed, as on its receipt.
        output: what the model was told.
        receipt_id: the receipt that proves it.
    """

    name: str
    arguments: dict[str, Any]
    status: Literal["allowed", "denied", "failed"]
    output: str
    receipt_id: str


class ChatResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn.

    Attributes:
        text: the answer.
        calls: what the model did on the way, in order.
        usage: tokens and speed.
        stop_reason: stop, length, cap (of rounds or of time), loop (no progress).
        denied: how many calls were denied.
        model: who answered; with `provider`.
    """

    text: str
    calls: tuple[ToolUse, ...]
    usage: TurnUsage
    stop_reason: Literal["stop", "length", "cap", "loop"]
    denied: int
    conversation_id: str
    turn_id: str
    provider: str
    model: str

    @override
    def __str__(self) -> str:
        return self.text


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation; `name` is the tool that a tool message comes from."""

    role: str
    content: str
    name: str = ""


class TurnRecord:
    """Takes the events of a turn and makes its result of them."""

    def __init__(self) -> None:
        self._requested: dict[str, ToolRequested] = {}
        self._calls: list[ToolUse] = []

    def take(self, event: Event) -> str:
        """Take an event; return the piece of the answer that it brings, or ""."""
        match event:
            case TextDelta():
                return event.text
            case ToolRequested():
                self._requested[event.call_id] = event
            case ToolFinished():
                self._calls.append(self._use(event))
            case _:
                pass
        return ""

    def result(self, finished: TurnFinished) -> ChatResult:
        """Return the result of a turn that has ended."""
        return mirror(ChatResult, finished, calls=tuple(self._calls))

    def _use(self, event: ToolFinished) -> ToolUse:
        requested = self._requested.get(event.call_id)
        return ToolUse(
            name=event.tool,
            arguments=_arguments(requested.arguments) if requested else {},
            status=event.status,
            output=event.output,
            receipt_id=event.receipt_id,
        )


def approval_word(answer: object) -> ApprovalWord:
    """Return the word for what an approval callback answered; only a clear yes is one."""
    words: tuple[ApprovalWord, ...] = ("once", "conversation", "project", "always")
    if answer is True:
        return "once"
    return next((word for word in words if word == answer), "deny")


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"raw": text}
    return value if isinstance(value, dict) else {"raw": text}


APPEND_LIMIT_BYTES = 16 * 1024

Text = str | Callable[[], str | Awaitable[str]]
"""A text, or a function that returns it: it is asked at `init` and at `refresh_system`."""


class PreambleFlags(TypedDict, total=False):
    """Which fragments stand in the system prompt, by their ids."""

    base: bool
    addenda: bool
    operator: bool
    rules: bool
    catalogue: bool
    agent: bool
    environment: bool
    guidance: bool


class TurnOptions(TypedDict, total=False):
    """How turns are answered: `model` and `preset` by name, the rest as `SamplingWishes`.

    `tools_allow` are patterns of the tools that may be used; `"-evaluate"` takes one out. After
    `max_rounds` rounds of calls a turn ends. None leaves it as it is configured.
    """

    model: str | None
    preset: str | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repeat_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    seed: int | None
    max_tokens: int | None
    stop: Sequence[str] | None
    tools_allow: Sequence[str] | None
    max_rounds: int | None


def message_fields(options: TurnOptions) -> dict[str, Any]:
    """Return what a message says for these options.

    Raises:
        InvalidRequestError: there is no such option, or it cannot have this value.
    """
    if unknown := set(options) - set(TurnOptions.__annotations__):
        raise InvalidRequestError(
            f"a message takes no {', '.join(sorted(unknown))}",
            hint=f"It takes {', '.join(TurnOptions.__annotations__)}.",
        )
    given: dict[str, Any] = {name: each for name, each in options.items() if each is not None}
    by_name = ("model", "preset", "tools_allow", "max_rounds")
    fields: dict[str, Any] = {name: given.pop(name) for name in by_name if name in given}
    fields["sampling"] = given or None
    try:
        checked = msgspec.convert(fields | {"text": ""}, SendMessage)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"the options of a message: {error}") from error
    return {name: getattr(checked, name) for name in fields}


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A wish about the prompt, its functions asked.

    Attributes:
        base: replaces the base; empty keeps it.
        appended: stands after what the configuration appends.
        own_text_only: drops clawd's own text.
        flags: fragments that were switched on or off one by one.
    """

    base: str = ""
    appended: str = ""
    own_text_only: bool = False
    flags: dict[str, bool] = {}


class Wishes:
    """What was wished so far.

    Attributes:
        tools: the program's own, in the order in which they came.
        default_tools: whether clawd's tools are offered beside them.
        generation: grows with every change of the tools.
        sampling: of every message from now on.
    """

    def __init__(self) -> None:
        self.base = ""
        self.own_text_only = False
        self.flags: dict[str, bool] = {}
        self.texts: list[Text] = []
        self.tools: list[Tool] = []
        self.default_tools = True
        self.generation = 0
        self.sampling: TurnOptions = {}

    def set_base(self, text: str) -> None:
        """Replace the base.

        Raises:
            InvalidRequestError: it is no text.
        """
        given: object = text
        if not isinstance(given, str):
            raise InvalidRequestError(f"the system prompt is a text, not a {type(given).__name__}")
        self.base = given

    def append(self, text: Text) -> None:
        """Add a text, or a function that returns one.

        Raises:
            InvalidRequestError: it is neither.
        """
        given: object = text
        if not isinstance(given, str) and not callable(given):
            raise InvalidRequestError(
                f"system_append takes a text or a function, not a {type(given).__name__}"
            )
        self.texts.append(text)

    def set_flags(self, flags: PreambleFlags) -> None:
        """Switch fragments on or off.

        Raises:
            InvalidRequestError: there is no such fragment, or a value is not True or False.
        """
        known = PreambleFlags.__annotations__
        given: dict[str, object] = {**flags}
        for name, value in given.items():
            if name not in known or not isinstance(value, bool):
                raise InvalidRequestError(
                    f"preamble_options({name}={value!r}) is no fragment that is on or off",
                    hint=f"The fragments are {', '.join(known)}; each takes True or False.",
                )
            self.flags[name] = value

    def add_tool(self, tool: Tool) -> None:
        """Add a tool.

        Raises:
            InvalidRequestError: there is one of this name.
        """
        if any(tool.name == other.name for other in self.tools):
            raise InvalidRequestError(f"there is a tool {tool.name} in this session already")
        self.tools.append(tool)
        self.generation += 1

    def take_back(self, tools: int, *, default_tools: bool) -> None:
        """Keep the first so many tools, and that word on the others."""
        del self.tools[tools:]
        self.default_tools = default_tools
        self.generation += 1

    async def prompt(self) -> Prompt:
        """Ask the functions and return the wish about the prompt.

        Raises:
            ClawError: a function failed, or the texts are too long.
        """
        texts = [await _asked(text) for text in self.texts]
        appended = "\n\n".join(filter(None, texts))
        size = len(appended.encode(errors="replace"))
        if size > APPEND_LIMIT_BYTES:
            raise InvalidRequestError(
                f"the texts of system_append have {size} bytes; {APPEND_LIMIT_BYTES} can be told",
                hint="Put long texts into files of the workspace, which the model can read.",
            )
        return Prompt(
            base=self.base,
            appended=appended,
            own_text_only=self.own_text_only,
            flags=dict(self.flags),
        )


async def _asked(text: Text) -> str:
    if isinstance(text, str):
        return text
    name = getattr(text, "__name__", type(text).__name__)
    try:
        # In a thread, because it may read a file or ask a server.
        is_async = inspect.iscoroutinefunction(text)
        found = text() if is_async else await asyncio.to_thread(text)
        value: object = await found if inspect.isawaitable(found) else found
    except ClawError:
        raise
    except Exception as error:
        raise ClawError(
            f"{name}, given to system_append, failed: {type(error).__name__}: {error}",
            code="invalid_request",
        ) from error
    if not isinstance(value, str):
        raise InvalidRequestError(
            f"{name}, given to system_append, returned a {type(value).__name__}, expected text"
        )
    return value


AnyPath = str | Path


class LocalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon inside of this program.

    Attributes:
        model: `embedded`, a file or its name; empty is what the configuration says.
        config: its file; None is `config.toml` of the home, which need not be there.
        home: where memory and receipts lie; None is a temporary one that goes with the session.
        workspace: the folder that tools work in; None is the configured one.
        settings: further keys of the configuration, dotted.
    """

    model: str = ""
    config: Path | None = None
    home: Path | None = None
    workspace: Path | None = None
    settings: dict[str, Any] = {}


class DaemonPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that runs already; None and empty are those that clawctl would take."""

    home: Path | None = None
    socket: Path | None = None
    agent: str = ""
    workspace: str = ""


class Where(TypedDict, total=False):
    """Where a local session lives; see `LocalPlan`."""

    config: AnyPath | None
    home: AnyPath | None
    workspace: AnyPath | None
    settings: Mapping[str, Any] | None


class SessionBackend(Protocol):
    """What answers a session. Opened once; everything is called on one event loop."""

    async def open(self) -> Client:
        """Open it and return the client of it; on failure nothing stays open."""
        ...

    async def adopt(self, prompt: Prompt, tools: tuple[Tool, ...], *, alone: bool) -> None:
        """Put a prompt and the session's tools in force, beside clawd's own or `alone`.

        Raises:
            InvalidRequestError: a tool's name is taken; nothing was changed.
        """
        ...

    async def close(self) -> None:
        """Close everything; idempotent."""
        ...

    @property
    def engine(self) -> Any:
        """The engine of local models."""
        ...

    @property
    def provider(self) -> Any:
        """The provider that answers."""
        ...


def local_plan(model: AnyPath | None, where: Where) -> LocalPlan:
    """Return the plan of a local session.

    Raises:
        InvalidRequestError: a name that is no place to say.
    """
    if unknown := set(where) - set(Where.__annotations__):
        raise InvalidRequestError(
            f"a local session takes no {', '.join(sorted(unknown))}",
            hint=f"It takes {', '.join(Where.__annotations__)}.",
        )
    settings: dict[Any, Any] = dict(where.get("settings") or {})
    if wrong := [key for key in settings if not isinstance(key, str) or not all(key.split("."))]:
        raise InvalidRequestError(
            f"{wrong[0]!r} is no key of the configuration",
            hint='A dotted name, as in settings={"security.autonomy": "readonly"}.',
        )
    return LocalPlan(
        model=str(model or ""),
        config=_path(where.get("config")),
        home=_path(where.get("home")),
        workspace=_path(where.get("workspace")),
        settings=settings,
    )


def remote_plan(url: str, model: str, *, key: str, key_env: str, where: Where) -> LocalPlan:
    """Return the plan of a session whose model is on another machine.

    Raises:
        InvalidRequestError: a name that is no place to say.
    """
    plan, at = local_plan(None, where), "providers.models.remote"
    settings: dict[str, Any] = {
        f"{at}.kind": "openai-compatible",
        f"{at}.base_url": url,
        f"{at}.model": model,
        "default_provider": "remote",
        "default_model": model,
    }
    if key:
        settings[f"{at}.api_key"] = key
    elif key_env:
        settings[f"{at}.api_key_env"] = key_env
    return msgspec.structs.replace(plan, settings=plan.settings | settings)


def daemon_plan(
    home: AnyPath | None, socket: AnyPath | None, *, agent: str, workspace: AnyPath | None
) -> DaemonPlan:
    """Return the plan of a session with a daemon that runs already."""
    folder = _path(workspace)
    return DaemonPlan(
        home=_path(home), socket=_path(socket), agent=agent, workspace=str(folder or "")
    )


def _path(given: AnyPath | None) -> Path | None:
    return Path(given).expanduser().absolute() if given else None
