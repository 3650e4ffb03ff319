"""What a session is told before and while it runs; the same for its two faces."""

from collections.abc import Awaitable, Callable
from typing import Self

from typing_extensions import Unpack

from clawd.errors import InvalidRequestError
from clawd.sdk.backends import (
    AnyPath,
    DaemonPlan,
    LocalPlan,
    Where,
    daemon_plan,
    local_plan,
    remote_plan,
)
from clawd.sdk.functions import TIMEOUT_S, Function, ToolOptions, function_tool
from clawd.sdk.results import ApprovalWord
from clawd.sdk.session_config import PreambleFlags, Text, TurnOptions, message_fields
from clawd.sdk.session_core import Core
from clawd.security.risk import Risk
from clawd.tools.base import Tool
from clawd.wire.events import ApprovalRequested, Event, QuestionAsked

ApprovalAnswer = bool | ApprovalWord
EventCallback = Callable[[Event], object]
TokenCallback = Callable[[str], object]
ApprovalCallback = Callable[[ApprovalRequested], ApprovalAnswer | Awaitable[ApprovalAnswer]]
QuestionCallback = Callable[[QuestionAsked], str | Awaitable[str]]

OWNED = "its prompt and its tools"
NOBODY = "Nobody is here who could answer."


class Face:
    """The part of a session that only remembers. Every method returns the session, to chain.

    Make one with `local`, `remote` or `daemon`. Nothing is loaded before the first use.
    """

    def __init__(self, plan: LocalPlan | DaemonPlan) -> None:
        self._core = Core(plan)
        self._on_event: list[EventCallback] = []
        self._on_token: list[TokenCallback] = []
        self._on_approval: ApprovalCallback | None = None
        self._on_question: QuestionCallback | None = None

    @classmethod
    def local(cls, model: AnyPath | None = None, **where: Unpack[Where]) -> Self:
        """Return a session with a daemon of its own, inside of this program.

        Args:
            model: a GGUF file, the name of a model, or `embedded`; None is what the configuration
                says, and that is `embedded` where it says nothing.
            where: `config`, a file; `home`, a folder for memory and receipts, else a temporary one
                that goes with the session; `workspace`, the folder that tools work in, else one in
                the home; `settings`, further keys of the configuration, dotted, as in
                `{"security.autonomy": "full"}`.

        Raises:
            InvalidRequestError: `where` names something else.
        """
        return cls(local_plan(model, where))

    @classmethod
    def remote(
        cls,
        url: str,
        model: str,
        *,
        api_key: str = "",
        api_key_env: str = "",
        **where: Unpack[Where],
    ) -> Self:
        """Return a session as `local` does, whose model answers on another machine.

        Args:
            url: of an API as OpenAI's, as `http://localhost:8080/v1`, without a name or a password.
            model: its name there.
            api_key: the key; better its name in the environment, `api_key_env`.
            api_key_env: the variable that holds the key.
            where: as for `local`.

        Raises:
            InvalidRequestError: `where` names something else.
        """
        return cls(remote_plan(url, model, key=api_key, key_env=api_key_env, where=where))

    @classmethod
    def daemon(
        cls,
        home: AnyPath | None = None,
        *,
        socket: AnyPath | None = None,
        agent: str = "",
        workspace: AnyPath | None = None,
    ) -> Self:
        """Return a session with a daemon that runs already, found as clawctl finds it.

        Args:
            home: of the daemon.
            socket: of the daemon.
            agent: one of its configured agents.
            workspace: the folder that tools work in; None is the configured one.
        """
        return cls(daemon_plan(home, socket, agent=agent, workspace=workspace))

    def system(self, text: str) -> Self:
        """Say who the model is, in place of clawd's own words for that."""
        self._core.check_wish(OWNED)
        self._core.wishes.set_base(text)
        return self

    def no_builtin_system(self) -> Self:
        """Leave all of clawd's own text out of the system prompt."""
        self._core.check_wish(OWNED)
        self._core.wishes.own_text_only = True
        return self

    def set_sampling(self, **options: Unpack[TurnOptions]) -> Self:
        """Say how every message from now on is answered, as in `temperature=0.2`; live.

        What `chat` is given goes before it; what is set to None is as configured again.

        Raises:
            InvalidRequestError: there is no such option, or it cannot have this value.
        """
        merged: TurnOptions = {**self._core.wishes.sampling, **options}
        message_fields(merged)
        self._core.wishes.sampling = merged
        return self

    def system_append(self, text: Text) -> Self:
        """Add a text to the system prompt, or a function that returns one, async or not.

        A function is asked when the session begins and at every `refresh_system`.
        """
        self._core.check_wish(OWNED)
        self._core.wishes.append(text)
        return self

    def preamble_options(self, **flags: Unpack[PreambleFlags]) -> Self:
        """Switch fragments of the system prompt on or off, as in `environment=False`.

        Raises:
            InvalidRequestError: there is no such fragment.
        """
        self._core.check_wish(OWNED)
        self._core.wishes.set_flags(flags)
        return self

    def with_default_tools(self, wanted: bool) -> Self:  # noqa: FBT001 - reads as a sentence
        """Return whether clawd's own tools are offered beside those that are added."""
        self._core.check_wish(OWNED)
        self._core.wishes.default_tools = wanted
        self._core.wishes.generation += 1
        return self

    def add_tool(
        self,
        tool: Function | Tool,
        *,
        name: str = "",
        risk: Risk = "low",
        outward: bool | None = None,
        untrusted: str = "",
        timeout_s: float = TIMEOUT_S,
    ) -> Self:
        """Offer a function, or a Tool, to the model of this session from the next message on.

        It runs in this program with all of its rights, outside of the sandbox. All but `tool` is
        for functions; a Tool says these things itself.

        Args:
            tool: a function with a docstring and type hints, async or not.
            name: what the model calls it; empty is the function's own name.
            risk: low runs by itself, medium asks `on_approval`, high is refused; with autonomy
                supervised, which is the default.
            outward: whether it can send data out or change things outside of the workspace. None
                is not known, and counts as yes for all but low risk when untrusted text is about.
            untrusted: where what it returns comes from when nobody vouches for that ("the web").
            timeout_s: a call that takes longer has failed. A function that is not async cannot be
                stopped: its thread runs on.

        Raises:
            InvalidRequestError: it cannot be told to a model; says what is missing.
        """
        self._core.check_wish(OWNED)
        options = ToolOptions(
            name=name, risk=risk, outward=outward, untrusted=untrusted, timeout_s=timeout_s
        )
        if not isinstance(tool, Tool):
            tool = function_tool(tool, options)
        elif options != ToolOptions():
            raise InvalidRequestError(f"the tool {tool.name} says itself what it is; only it")
        self._core.wishes.add_tool(tool)
        return self

    def on_event(self, callback: EventCallback) -> Self:
        """Have every event of a turn told (`clawd.wire.events`)."""
        self._on_event.append(callback)
        return self

    def on_token(self, callback: TokenCallback) -> Self:
        """Have every piece of an answer told as it comes."""
        self._on_token.append(callback)
        return self

    def on_approval(self, callback: ApprovalCallback) -> Self:
        """Ask this callback for what needs an approval; without one all of that is denied.

        It returns True or "once", "conversation", "always"; anything else is a no.
        """
        self._on_approval = callback
        return self

    def on_question(self, callback: QuestionCallback) -> Self:
        """Ask this callback what the model asks its user."""
        self._on_question = callback
        return self

    @property
    def conversation_id(self) -> str:
        """The conversation in memory and in receipts; empty before its first message."""
        return self._core.conversation_id

    def reset(self) -> Self:
        """Begin a new conversation with the next message; memory keeps the one before."""
        self._core.conversation_id = ""
        return self

    @property
    def _is_interactive(self) -> bool:
        return self._on_approval is not None or self._on_question is not None
