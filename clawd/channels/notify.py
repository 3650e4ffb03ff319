"""Tells a person who looks elsewhere: an approval waits, a detached turn has ended.

It is told by channels: the desktop (`notify-send`), a command, a webhook. A further one implements
`Channel` and is made in `channels_of`. What they are given names tool and conversation, never
arguments, paths or text of a model. The doors (`rpc`, `http`) are no channels: who follows them is
told every event as it happens.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, Literal, Protocol

import aiohttp
import msgspec
import yarl
from typing_extensions import override

from clawd.config.schema import NotifySection
from clawd.errors import ClawError, ConfigError
from clawd.runtime.hub import DaemonEvent
from clawd.schedules.delivery import run_program
from clawd.security.network import NetworkRules, Resolve, resolve_and_judge
from clawd.security.pinned_http import pinned_session
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    Notice,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from clawd.wire.safe_text import single_line

SEND_LIMIT_S = 10.0
QUEUED = 64
MAX_OPEN = 1_000
PROGRAM = "notify-send"
_NAME = 64
MAX_NOTICE = 400
_FIRST_ERROR = 400
_PASSED = ("PATH", "HOME", "LANG", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
_BUS = "DBUS_SESSION_BUS_ADDRESS"

_log = logging.getLogger(__name__)


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """Something for a person.

    Attributes:
        kind: an approval that waits, a turn that ended, or a notice.
        title: a few words.
        text: a sentence or two, without secrets and without text of a model or a tool.
        conversation_id: what it is about, "" for none.
        owner: uid of whom it is for; None is the daemon's owner.
        draft_id: what is sent under the same id later takes its place, where a channel can do
            that; "" is never replaced.
    """

    kind: Literal["approval", "turn", "notice"]
    title: str
    text: str
    conversation_id: str = ""
    owner: int | None = None
    draft_id: str = ""


class Channel(Protocol):
    """A way to people.

    Attributes:
        name: what the log and the config call it.
        supports_draft_updates: an `Outgoing` takes the place of an earlier one of its draft id.
    """

    name: ClassVar[str]
    supports_draft_updates: ClassVar[bool]

    async def start(self) -> None:
        """Begin.

        Raises:
            ClawError: it cannot begin; the message says what is missing.
        """
        ...

    async def send(self, outgoing: Outgoing) -> bool:
        """Bring it to its person; return whether it was taken.

        It is cancelled after `SEND_LIMIT_S`. What it raises is logged, and the message is lost.
        """
        ...

    async def close(self) -> None:
        """End; idempotent."""
        ...


class CommandChannel:
    """Runs a program of the owner for each message, which stands as JSON on standard input.

    Args:
        argv: the program and its arguments.
        environ: of the daemon; few of its variables are passed on.
    """

    name: ClassVar[str] = "command"
    supports_draft_updates: ClassVar[bool] = True

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._environ = {name: environ[name] for name in (*_PASSED, _BUS) if name in environ}

    async def start(self) -> None:
        """Find the program.

        Raises:
            ConfigError: there is none of this name.
        """
        if shutil.which(self._argv[0], path=self._environ.get("PATH", os.defpath)) is None:
            raise ConfigError(
                f"notifications need the program {self._argv[0]}, which is not there",
                hint="Install it, or change [notify] of the config.",
            )

    async def send(self, outgoing: Outgoing) -> bool:
        """Run the program; return whether it succeeded."""
        told = msgspec.json.encode(outgoing) + b"\n"
        return await run_program(self._argv, told, self._environ) == 0

    async def close(self) -> None:
        """Hold nothing: every program has ended by then."""


class DesktopChannel(CommandChannel):
    """Shows messages on the desktop of the daemon's user."""

    name: ClassVar[str] = "desktop"
    supports_draft_updates: ClassVar[bool] = False

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__((PROGRAM,), environ)

    @override
    async def send(self, outgoing: Outgoing) -> bool:
        """Show it; a waiting approval stays until it is seen."""
        urgency = "critical" if outgoing.kind == "approval" else "normal"
        argv = (PROGRAM, "--app-name=clawd", f"--urgency={urgency}", "--")
        return await run_program((*argv, outgoing.title, outgoing.text), b"", self._environ) == 0


class WebhookChannel:
    """Posts messages as JSON to an address, through the checks of the web tools.

    Args:
        url: the address; it may hold a secret, so it is never logged.
        rules: where it may lead.
        resolve: gives the addresses of a host; the system's resolver if None.
    """

    name: ClassVar[str] = "webhook"
    supports_draft_updates: ClassVar[bool] = True

    def __init__(self, url: str, rules: NetworkRules, resolve: Resolve | None = None) -> None:
        self._url = url
        self._rules = rules
        self._resolve = resolve

    async def start(self) -> None:
        """Hold nothing: every message is a connection of its own."""

    async def send(self, outgoing: Outgoing) -> bool:
        """Post it; return whether it was taken. Redirects are not followed."""
        pinned = await resolve_and_judge(self._url, self._rules, resolve=self._resolve)
        async with (
            pinned_session(pinned, timeout_s=SEND_LIMIT_S) as session,
            session.post(
                pinned.target.url,
                data=msgspec.json.encode(outgoing),
                headers={"Content-Type": "application/json", "User-Agent": "clawd"},
                allow_redirects=False,
            ) as answer,
        ):
            return answer.status < _FIRST_ERROR and not answer.headers.get("Location")

    async def close(self) -> None:
        """Hold nothing."""


def channels_of(
    section: NotifySection,
    webhook: str,
    allowed_addresses: Sequence[str],
    environ: Mapping[str, str],
) -> list[Channel]:
    """Return the channels that a configuration asks for.

    Args:
        section: what it says.
        webhook: the address to post to, "" for none.
        allowed_addresses: `host:port` pairs that may be private, of [security].
        environ: of the daemon.
    """
    found: list[Channel] = []
    if section.desktop:
        found.append(DesktopChannel(environ))
    if section.command:
        found.append(CommandChannel(section.command, environ))
    if webhook:
        allowed = tuple(allowed_addresses)
        if section.webhook_private:
            url = yarl.URL(webhook)
            allowed += (f"{url.raw_host}:{url.port}",)
        found.append(WebhookChannel(webhook, NetworkRules(allowed_addresses=allowed)))
    return found


class Notifier:
    """Sends what a person should know through every channel. One of a daemon.

    Args:
        channels: where to; those that cannot begin are left out, and the log says so.
        redact: replaces secrets.
        after_s: how long an approval may wait before it is told.
    """

    def __init__(
        self, channels: Sequence[Channel], *, redact: Callable[[str], str], after_s: float
    ) -> None:
        self._channels = tuple(channels)
        self._redact = redact
        self._after_s = after_s
        self._queue: asyncio.Queue[Outgoing] = asyncio.Queue(QUEUED)
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._told: dict[str, Outgoing] = {}
        self._detached: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self, watch: Callable[[asyncio.Task[None], str], None]) -> None:
        """Begin; `watch` is told of the task and its name."""
        begun: list[Channel] = []
        for channel in self._channels:
            try:
                await channel.start()
            except ClawError as error:
                _log.warning("no notifications by %s: %s", channel.name, error.message)
                continue
            begun.append(channel)
            _log.info("channel started", extra={"channel": channel.name})
        self._channels = tuple(begun)
        self._task = asyncio.create_task(self._send_all())
        watch(self._task, "the notifier")

    async def close(self) -> None:
        """End; what waits to be told is not told any more. Idempotent."""
        for handle in self._waiting.values():
            handle.cancel()
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for channel in self._channels:
            await channel.close()

    def note(self, told: DaemonEvent) -> None:
        """Take what happened in the daemon; never blocks, never raises."""
        event = told.event
        match event:
            case ApprovalRequested() if len(self._waiting) < MAX_OPEN:
                waiting = Outgoing(
                    kind="approval",
                    title="clawd waits for you",
                    text=f"{single_line(event.tool, _NAME)} ({event.risk} risk) needs a yes or a "
                    "no: clawctl approval list",
                    conversation_id=told.conversation_id,
                    owner=told.owner,
                    draft_id=event.approval_id,
                )
                loop = asyncio.get_running_loop()
                self._waiting[event.approval_id] = loop.call_later(
                    self._after_s, self._still_waits, waiting
                )
            case ApprovalResolved():
                self._resolved(event)
            case TurnStarted() if event.detached and len(self._detached) < MAX_OPEN:
                self._detached[event.turn_id] = None
            case TurnFinished() | TurnFailed() if event.turn_id in self._detached:
                del self._detached[event.turn_id]
                how = event.stop_reason if isinstance(event, TurnFinished) else event.code
                if isinstance(event, TurnFinished) and event.waits_for:
                    how = f"it waits for an approval, {event.waits_for}"
                self._put(
                    Outgoing(
                        kind="turn",
                        title="clawd: a turn has ended",
                        text=f"{single_line(how, _NAME)}: clawctl conversation show "
                        f"{event.conversation_id}",
                        conversation_id=event.conversation_id,
                        owner=told.owner,
                    )
                )
            case Notice() if told.is_news:
                self._put(
                    Outgoing(
                        kind="notice",
                        title="clawd went on with less",
                        text=single_line(event.text, MAX_NOTICE),
                        conversation_id=told.conversation_id,
                        owner=told.owner,
                    )
                )
            case _:
                pass

    def _still_waits(self, outgoing: Outgoing) -> None:
        self._waiting.pop(outgoing.draft_id, None)
        self._told[outgoing.draft_id] = outgoing
        if len(self._told) > MAX_OPEN:
            del self._told[next(iter(self._told))]
        self._put(outgoing)

    def _resolved(self, event: ApprovalResolved) -> None:
        if handle := self._waiting.pop(event.approval_id, None):
            handle.cancel()
        if told := self._told.pop(event.approval_id, None):
            answered = f"not waiting any more: {single_line(event.answer, _NAME)}"
            self._put(msgspec.structs.replace(told, title="clawd goes on", text=answered))

    def _put(self, outgoing: Outgoing) -> None:
        clean = msgspec.structs.replace(outgoing, text=self._redact(outgoing.text))
        try:
            self._queue.put_nowait(clean)
        except asyncio.QueueFull:
            _log.warning("%d notifications wait; one is left out", QUEUED)

    async def _send_all(self) -> None:
        while True:
            outgoing = await self._queue.get()
            is_update = outgoing.draft_id and outgoing.draft_id not in self._told
            for channel in self._channels:
                if is_update and not channel.supports_draft_updates:
                    continue
                await self._sent(channel.name, channel.send(outgoing))

    async def _sent(self, name: str, sending: Awaitable[bool]) -> None:
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                why = "" if await sending else "it was not taken"
        except TimeoutError:
            why = f"it took over {SEND_LIMIT_S:g} s"
        except (ClawError, OSError, aiohttp.ClientError) as error:
            # Only what kind it is: addresses and programs may hold secrets.
            why = type(error).__name__
        except Exception as error:  # noqa: BLE001 - the next notification may get through
            why = type(error).__name__
        if why:
            _log.warning("a notification by %s was lost: %s", name, why)
