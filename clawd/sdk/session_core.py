"""What both faces of a session stand on: it begins at the first use, holds a conversation, ends."""

import asyncio
import os
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
from typing_extensions import override

from clawd.errors import InvalidRequestError
from clawd.paths import candidate_sockets
from clawd.sdk.backends import DaemonPlan, LocalPlan, SessionBackend
from clawd.sdk.client import Client, Exchange, connect_any
from clawd.sdk.results import Said
from clawd.sdk.session_config import Prompt, TurnOptions, Wishes, message_fields
from clawd.tools.base import Tool
from clawd.wire.conversations import OpenConversation, ShowConversation, ShowPrompt
from clawd.wire.daemon import Ping
from clawd.wire.events import TurnFinished
from clawd.wire.method import Method
from clawd.wire.turns import SendMessage


class JoinedBackend(SessionBackend):
    """A daemon that others started, and that stays when the session ends."""

    def __init__(self, plan: DaemonPlan) -> None:
        self._plan = plan

    @override
    async def open(self) -> Client:
        paths = _sockets(self._plan)
        client = Client(lambda: connect_any(paths))
        await client.call(Ping())
        return client

    @override
    async def adopt(self, prompt: Prompt, tools: tuple[Tool, ...], *, alone: bool) -> None:
        if tools or alone or prompt != Prompt():
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


def _sockets(plan: DaemonPlan) -> list[Path]:
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

    def __init__(self, plan: LocalPlan | DaemonPlan) -> None:
        self.wishes = Wishes()
        self.conversation_id = ""
        self._plan = plan
        self._lock = asyncio.Lock()
        self._backend: SessionBackend | None = None
        self._client: Client | None = None
        self._prompt = Prompt()
        self._taken = Taken()
        self._is_closed = False

    def check_wish(self, what: str) -> None:
        """Refuse a wish that cannot come true here.

        Raises:
            InvalidRequestError: the session joins a daemon.
        """
        if isinstance(self._plan, DaemonPlan):
            refuse_wish(what)

    @property
    def backend(self) -> SessionBackend:
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
        self, text: str, options: TurnOptions, *, interactive: bool
    ) -> Exchange[TurnFinished]:
        """Return the exchange that a message begins; it begins when it is entered.

        Raises:
            InvalidRequestError: an option is none.
        """
        fields = message_fields({**self.wishes.sampling, **options})
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
        if isinstance(plan, DaemonPlan):
            chosen: SessionBackend = JoinedBackend(plan)
        else:  # off the loop: the libraries of a daemon take a second to load
            chosen = await asyncio.to_thread(_local, plan)
        client = await chosen.open()
        try:
            await self._adopt(chosen, prompt)
        except BaseException:
            await chosen.close()
            raise
        self._backend, self._client = chosen, client

    async def _adopt(self, backend: SessionBackend, prompt: Prompt) -> None:
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
        return self._plan.agent if isinstance(self._plan, DaemonPlan) else ""

    @property
    def _workspace(self) -> str:
        return self._plan.workspace if isinstance(self._plan, DaemonPlan) else ""


def _local(plan: LocalPlan) -> SessionBackend:
    from clawd.sdk.local import LocalBackend

    return LocalBackend(plan)
