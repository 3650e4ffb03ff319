"""What both faces of a session stand on: its options, how it begins with the first use, its end."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import msgspec
from typing_extensions import Unpack, override

from clawd.errors import InvalidRequestError
from clawd.paths import candidate_sockets
from clawd.sdk import session_config
from clawd.sdk.client import Client, Exchange, connect_any
from clawd.sdk.functions import TIMEOUT_S, Function, ToolOptions, function_tool
from clawd.sdk.session_config import ApprovalWord, Said
from clawd.security.risk import Risk
from clawd.tools.base import Tool
from clawd.wire.conversations import OpenConversation, ShowConversation, ShowPrompt
from clawd.wire.daemon import Ping
from clawd.wire.events import ApprovalRequested, Event, QuestionAsked, TurnFinished
from clawd.wire.method import Method
from clawd.wire.turns import SendMessage


class JoinedBackend(session_config.SessionBackend):
    """A daemon that others started, and that stays when the session ends."""

    def __init__(self, plan: session_config.DaemonPlan) -> None:
        self._plan = plan

    @override
    async def open(self) -> Client:
        paths = _sockets(self._plan)
        client = Client(lambda: connect_any(paths))
        await client.call(Ping())
        return client

    @override
    async def adopt(
        self, prompt: session_config.Prompt, tools: tuple[Tool, ...], *, alone: bool
    ) -> None:
        if tools or alone or prompt != session_config.Prompt():
            refuse_wish("its prompt and its tools")

    @override
    async def close(self) -> None:
        return

    @property
    @override
    def engine(self) -> Any:
        return refuse_wish("its engine")

    @property
    @override
    def provider(self) -> Any:
        return refuse_wish("its provider")


def refuse_wish(what: str) -> NoReturn:
    """Say that something of a daemon is not to be had from here.

    Raises:
        InvalidRequestError: always.
    """
    raise InvalidRequestError(
        f"this session joins a daemon, and {what} are that daemon's own",
        hint="Set them in the daemon's config, or use Session.local(): it holds a daemon of its "
        "own.",
    )


def _sockets(plan: session_config.DaemonPlan) -> list[Path]:
    environ = dict(os.environ)
    if plan.home is not None:
        environ["CLAWD_HOME"] = str(plan.home)
        environ.pop("CLAWD_SOCKET", None)
    return candidate_sockets(str(plan.socket) if plan.socket else None, environ)


R = TypeVar("R")


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Which wishes about tools are in force."""

    generation: int = 0
    tools: int = 0
    default_tools: bool = True


class Core:
    """A session without a face. All but `wishes` belongs to one event loop.

    Attributes:
        wishes: about the prompt and the tools.
        conversation_id: empty before the first message, and after `reset`.
    """

    def __init__(self, plan: session_config.LocalPlan | session_config.DaemonPlan) -> None:
        self.wishes = session_config.Wishes()
        self.conversation_id = ""
        self._plan = plan
        self._lock = asyncio.Lock()
        self._backend: session_config.SessionBackend | None = None
        self._client: Client | None = None
        self._prompt = session_config.Prompt()
        self._taken = Taken()
        self._is_closed = False

    def check_wish(self, what: str) -> None:
        """Refuse a wish that cannot come true here.

        Raises:
            InvalidRequestError: the session joins a daemon.
        """
        if isinstance(self._plan, session_config.DaemonPlan):
            refuse_wish(what)

    @property
    def backend(self) -> session_config.SessionBackend:
        """What answers.

        Raises:
            InvalidRequestError: the session has not begun, or has ended.
        """
        if self._backend is None:
            raise InvalidRequestError("the session has not begun", hint="Call init() first.")
        return self._backend

    async def init(self) -> Client:
        """Begin, if that was not done yet; tools that came since are offered from now on.

        Raises:
            ClawError: it cannot be begun; a later call tries again.
        """
        async with self._lock:
            if self._is_closed:
                raise InvalidRequestError("the session is closed", hint="Make a new one.")
            if self._backend is None or self._client is None:
                await self._begin()
            elif self._taken.generation != self.wishes.generation:
                await self._adopt(self._backend, self._prompt)
            assert self._client is not None
            return self._client

    async def refresh(self) -> None:
        """Compute the system prompt anew; the history stays."""
        await self.init()
        async with self._lock:
            await self._adopt(self.backend, await self.wishes.prompt())

    async def restart(self, base: str) -> None:
        """Put another system prompt in force, and forget the history."""
        before = self.wishes.base
        self.wishes.set_base(base)
        try:
            await self.refresh()
        except BaseException:
            self.wishes.base = before
            raise
        self.conversation_id = ""

    async def begin_turn(
        self, text: str, options: session_config.TurnOptions, *, interactive: bool
    ) -> Exchange[TurnFinished]:
        """Return the exchange that a message begins; it begins when it is entered.

        Raises:
            InvalidRequestError: an option is none.
        """
        fields = session_config.message_fields({**self.wishes.sampling, **options})
        client = await self.init()
        await self._open_conversation(client)
        message = SendMessage(
            text=text,
            conversation_id=self.conversation_id,
            agent=self._agent,
            interactive=interactive,
            **fields,
        )
        return client.exchange(message)

    async def render(self) -> str:
        """Return the system prompt as a message sent now would come with."""
        client = await self.init()
        shown = ShowPrompt(
            conversation_id=self.conversation_id, agent=self._agent, workspace=self._workspace
        )
        return (await client.call(shown)).system

    async def history(self) -> tuple[Said, ...]:
        """Return the messages of the conversation, oldest first."""
        client = await self.init()
        if not self.conversation_id:
            return ()
        said: list[Said] = []
        cursor = ""
        while True:
            asked = ShowConversation(conversation_id=self.conversation_id, cursor=cursor)
            page = await client.call(asked)
            said += [Said(role=m.role, content=m.content, name=m.name) for m in page.messages]
            cursor = page.cursor
            if not cursor:
                return tuple(said)

    async def call(self, params: Method[R]) -> R:
        """Call a method of the daemon."""
        return await (await self.init()).call(params)

    async def close(self) -> None:
        """End; idempotent."""
        async with self._lock:
            self._is_closed = True
            backend, client = self._backend, self._client
            self._backend = self._client = None
            try:
                if backend is not None:
                    await backend.close()
            finally:
                if client is not None:
                    await client.close()

    async def _begin(self) -> None:
        prompt = await self.wishes.prompt()
        plan = self._plan
        if isinstance(plan, session_config.DaemonPlan):
            chosen: session_config.SessionBackend = JoinedBackend(plan)
        else:  # off the loop: the libraries of a daemon take a second to load
            chosen = await asyncio.to_thread(_local, plan)
        client = await chosen.open()
        try:
            await self._adopt(chosen, prompt)
        except BaseException:
            await chosen.close()
            raise
        self._backend, self._client = chosen, client

    async def _adopt(
        self, backend: session_config.SessionBackend, prompt: session_config.Prompt
    ) -> None:
        wishes = self.wishes
        taken = Taken(
            generation=wishes.generation,
            tools=len(wishes.tools),
            default_tools=wishes.default_tools,
        )
        try:
            await backend.adopt(prompt, tuple(wishes.tools), alone=not wishes.default_tools)
        except InvalidRequestError:
            if self._backend is not None:  # what has begun goes on with the tools that it has
                wishes.take_back(self._taken.tools, default_tools=self._taken.default_tools)
            raise
        self._prompt, self._taken = prompt, taken

    async def _open_conversation(self, client: Client) -> None:
        async with self._lock:
            if self.conversation_id:
                return
            opened = OpenConversation(agent=self._agent, workspace=self._workspace)
            self.conversation_id = (await client.call(opened)).id

    @property
    def _agent(self) -> str:
        return self._plan.agent if isinstance(self._plan, session_config.DaemonPlan) else ""

    @property
    def _workspace(self) -> str:
        return self._plan.workspace if isinstance(self._plan, session_config.DaemonPlan) else ""


def _local(plan: session_config.LocalPlan) -> session_config.SessionBackend:
    from clawd.sdk.local import LocalBackend

    return LocalBackend(plan)


ApprovalAnswer = bool | ApprovalWord
EventCallback = Callable[[Event], object]
TokenCallback = Callable[[str], object]
ApprovalCallback = Callable[[ApprovalRequested], ApprovalAnswer | Awaitable[ApprovalAnswer]]
QuestionCallback = Callable[[QuestionAsked], str | Awaitable[str]]

OWNED = "its prompt and its tools"
NOBODY = "Nobody is here who could answer."


class StreamedReply:
    """A message and what came of it; each face says how its pieces come."""

    def __init__(self, text: str, options: session_config.TurnOptions) -> None:
        self._text = text
        self._options = options
        self._result: session_config.ChatResult | None = None
        self._is_sent = False

    @property
    def result(self) -> session_config.ChatResult:
        """What the turn brought.

        Raises:
            InvalidRequestError: it has not ended yet.
        """
        if self._result is None:
            raise InvalidRequestError("the answer has not ended", hint="Iterate to its end first.")
        return self._result

    def _send_once(self) -> None:
        """Refuse to send a message twice."""
        if self._is_sent:
            raise InvalidRequestError("this message was sent already", hint="Stream another one.")
        self._is_sent = True


class Face:
    """The part of a session that only remembers. Every method returns the session, to chain.

    Make one with `local`, `remote` or `daemon`. Nothing is loaded before the first use.
    """

    def __init__(self, plan: session_config.LocalPlan | session_config.DaemonPlan) -> None:
        self._core = Core(plan)
        self._on_event: list[EventCallback] = []
        self._on_token: list[TokenCallback] = []
        self._on_approval: ApprovalCallback | None = None
        self._on_question: QuestionCallback | None = None

    @classmethod
    def local(
        cls, model: session_config.AnyPath | None = None, **where: Unpack[session_config.Where]
    ) -> Self:
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
        return cls(session_config.local_plan(model, where))

    @classmethod
    def remote(
        cls,
        url: str,
        model: str,
        *,
        api_key: str = "",
        api_key_env: str = "",
        **where: Unpack[session_config.Where],
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
        return cls(
            session_config.remote_plan(url, model, key=api_key, key_env=api_key_env, where=where)
        )

    @classmethod
    def daemon(
        cls,
        home: session_config.AnyPath | None = None,
        *,
        socket: session_config.AnyPath | None = None,
        agent: str = "",
        workspace: session_config.AnyPath | None = None,
    ) -> Self:
        """Return a session with a daemon that runs already, found as clawctl finds it.

        Args:
            home: of the daemon.
            socket: of the daemon.
            agent: one of its configured agents.
            workspace: the folder that tools work in; None is the configured one.
        """
        return cls(session_config.daemon_plan(home, socket, agent=agent, workspace=workspace))

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

    def set_sampling(self, **options: Unpack[session_config.TurnOptions]) -> Self:
        """Say how every message from now on is answered, as in `temperature=0.2`; live.

        What `chat` is given goes before it; what is set to None is as configured again.

        Raises:
            InvalidRequestError: there is no such option, or it cannot have this value.
        """
        merged: session_config.TurnOptions = {**self._core.wishes.sampling, **options}
        session_config.message_fields(merged)
        self._core.wishes.sampling = merged
        return self

    def system_append(self, text: session_config.Text) -> Self:
        """Add a text to the system prompt, or a function that returns one, async or not.

        A function is asked when the session begins and at every `refresh_system`.
        """
        self._core.check_wish(OWNED)
        self._core.wishes.append(text)
        return self

    def preamble_options(self, **flags: Unpack[session_config.PreambleFlags]) -> Self:
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
