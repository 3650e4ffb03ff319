"""Notifications: what is told, when, to whom, and what is never in it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from clawd.channels.notify import (
    QUEUED,
    Channel,
    CommandChannel,
    DesktopChannel,
    Notifier,
    Outgoing,
    WebhookChannel,
    channels_of,
)
from clawd.config.schema import NotifySection
from clawd.errors import ConfigError, ForbiddenError
from clawd.runtime.hub import DaemonEvent
from clawd.security.network import NetworkRules
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    Event,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from clawd.wire.turns import SendMessage
from tests.support.inprocess import daemon_in

LIMIT_S = 60.0
SECRET = "hunter2-the-secret"
ENVIRON = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": SECRET}
OUTGOING = Outgoing(kind="turn", title="hello", text="there", conversation_id="conv-1")
ASKED = ApprovalRequested(
    approval_id="approval-1",
    digest="d",
    call_id="c",
    tool="shell",
    arguments=json.dumps({"command": f"curl -H {SECRET}"}),
    risk="medium",
    reason=f"runs {SECRET}",
    workspace=f"/home/{SECRET}",
)


class Noting:
    """Keeps what it is sent; may fail."""

    name: ClassVar[str] = "noting"
    supports_draft_updates: ClassVar[bool] = True

    def __init__(self, *failures: Exception, needs: str = "") -> None:
        self.sent: asyncio.Queue[Outgoing] = asyncio.Queue()
        self.failures = list(failures)
        self.needs = needs

    async def start(self) -> None:
        if self.needs:
            raise ConfigError(f"it needs {self.needs}")

    async def send(self, outgoing: Outgoing) -> bool:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.put_nowait(outgoing)
        return True

    async def close(self) -> None:
        return

    async def next(self) -> Outgoing:
        async with asyncio.timeout(LIMIT_S):
            return await self.sent.get()


class Fixed(Noting):
    name: ClassVar[str] = "fixed"
    supports_draft_updates: ClassVar[bool] = False


@asynccontextmanager
async def notifying(*channels: Channel, after_s: float = 0.0) -> AsyncIterator[Callable[..., None]]:
    notifier = Notifier(channels, redact=lambda text: text.replace("conv-", "c-"), after_s=after_s)
    await notifier.start(lambda _task, _name: None)

    def tell(*events: Event) -> None:
        for event in events:
            notifier.note(DaemonEvent(event=event, owner=1000, conversation_id="conv-1"))

    try:
        yield tell
    finally:
        await notifier.close()


def ended(turn_id: str) -> TurnFinished:
    return TurnFinished(conversation_id="conv-1", turn_id=turn_id, text=f"it is {SECRET}")


def started(turn_id: str, *, detached: bool) -> TurnStarted:
    fields: dict[str, Any] = {"conversation_id": "conv-1", "turn_id": turn_id, "provider": "p"}
    return TurnStarted(**fields, detached=detached)


async def test_m8_an_approval_that_waits_is_told_and_replaced_when_it_is_answered() -> None:
    channel, fixed = Noting(), Fixed()
    async with notifying(channel, fixed) as tell:
        tell(ASKED)
        told = await channel.next()
        assert (told.kind, told.owner, told.draft_id) == ("approval", 1000, "approval-1")
        assert told.text == "shell (medium risk) needs a yes or a no: clawctl approval list"
        assert SECRET not in str(told)
        tell(ApprovalResolved(approval_id="approval-1", answer="once", by="uid 1000"))
        update = await channel.next()
        assert (update.draft_id, update.text) == ("approval-1", "not waiting any more: once")
        tell(started("t", detached=True), ended("t"))
        assert [(await fixed.next()).kind, (await fixed.next()).kind] == ["approval", "turn"]


async def test_m8_what_is_answered_at_once_is_not_told() -> None:
    channel = Noting()
    async with notifying(channel, after_s=3_600.0) as tell:
        tell(ASKED, ApprovalResolved(approval_id="approval-1", answer="deny", by="uid 1000"))
        tell(started("t", detached=True), ended("t"))
        assert (await channel.next()).kind == "turn"
        assert channel.sent.empty()


async def test_m8_the_end_of_a_detached_turn_is_told_and_of_no_other() -> None:
    channel = Noting()
    failed = TurnFailed(conversation_id="conv-1", turn_id="b", code="provider", message=SECRET)
    async with notifying(channel) as tell:
        tell(started("here", detached=False), ended("here"))
        tell(started("a", detached=True), ended("a"), started("b", detached=True), failed)
        told = [await channel.next(), await channel.next()]
        assert [each.text for each in told] == [
            "stop: clawctl conversation show c-1",
            "provider: clawctl conversation show c-1",
        ]
        assert SECRET not in str(told)
        assert channel.sent.empty()


async def test_m8_a_channel_that_fails_or_is_not_there_keeps_none_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Noting(OSError(SECRET), ValueError(SECRET))
    absent, good = Noting(needs="a program"), Noting()
    with caplog.at_level(logging.WARNING):
        async with notifying(broken, absent, good) as tell:
            for name in "abc":
                tell(started(name, detached=True), ended(name))
            for _ in "abc":
                await good.next()
            assert (await broken.next()).kind == "turn"
    assert absent.sent.empty()
    assert "no notifications by noting: it needs a program" in caplog.text
    assert "a notification by noting was lost: OSError" in caplog.text
    assert SECRET not in caplog.text


async def test_m8_more_than_fit_are_left_out_and_the_daemon_is_not_held_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel = Noting()
    async with notifying(channel) as tell:
        for number in range(2 * QUEUED):  # at one go: nothing is sent meanwhile
            tell(started(str(number), detached=True), ended(str(number)))
        for _ in range(QUEUED):
            await channel.next()
        assert channel.sent.empty()
    assert f"{QUEUED} notifications wait" in caplog.text


async def test_m8_a_command_is_given_the_message_and_no_secret_of_the_environment(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    program = tmp_path / "tell"
    program.write_text(f'#!/bin/sh\ncat > {out}\nenv >> {out}\necho "$1" >> {out}\n')
    program.chmod(0o755)
    channel = CommandChannel([str(program), "; rm -rf /"], ENVIRON)
    await channel.start()
    assert await channel.send(OUTGOING)
    message, *rest = out.read_text().splitlines()
    assert json.loads(message)["text"] == "there"
    assert rest[-1] == "; rm -rf /"
    assert SECRET not in out.read_text()
    assert not await CommandChannel(["/bin/false"], ENVIRON).send(OUTGOING)
    with pytest.raises(ConfigError, match="no-such-program"):
        await CommandChannel(["no-such-program"], ENVIRON).start()


async def test_m8_a_command_that_hangs_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    channel = CommandChannel(["/bin/sh", "-c", f"echo $$ > {pid}; exec sleep 600"], ENVIRON)
    sending = asyncio.create_task(channel.send(OUTGOING))
    async with asyncio.timeout(LIMIT_S):
        while not pid.exists() or not pid.read_text().strip():
            await asyncio.sleep(0.01)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


async def test_m8_the_desktop_is_told_by_notify_send(tmp_path: Path) -> None:
    out, program = tmp_path / "out", tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {out}\n')
    program.chmod(0o755)
    channel = DesktopChannel({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    await channel.start()
    dashed = Outgoing(kind="approval", title="--help", text="-x")
    assert await channel.send(dashed)
    assert out.read_text() == "--app-name=clawd|--urgency=critical|--|--help|-x|"


@pytest.mark.parametrize("is_private", [False, True])
async def test_m8_a_webhook_reaches_this_machine_only_where_that_is_configured(
    is_private: bool,
) -> None:
    taken: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        taken.append(await request.json())
        return (
            web.Response(status=302, headers={"Location": "/"})
            if len(taken) > 1
            else web.Response()
        )

    app = web.Application()
    app.router.add_post("/hook", take)
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}/hook"
        section = NotifySection(webhook=url, webhook_private=is_private)
        (channel,) = channels_of(section, url, (), ENVIRON)
        if not is_private:
            with pytest.raises(ForbiddenError):
                await channel.send(OUTGOING)
            assert taken == []
            return
        assert await channel.send(OUTGOING)
        assert not await channel.send(OUTGOING)  # a redirect is not followed
    assert taken[0]["title"] == "hello"


async def test_m8_a_name_that_leads_inside_is_refused_by_what_it_resolves_to() -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["10.0.0.1"]

    channel = WebhookChannel("https://hooks.example.org/x", NetworkRules(), resolve)
    with pytest.raises(ForbiddenError):
        await channel.send(OUTGOING)


async def test_m8_a_daemon_tells_of_a_detached_turn_by_the_channels_of_its_config(
    tmp_path: Path,
) -> None:
    out, program = tmp_path / "out", tmp_path / "tell"
    program.write_text(f"#!/bin/sh\ncat >> {out}.new && mv {out}.new {out}\n")
    program.chmod(0o755)
    notify = f'[notify]\ncommand = ["{program}"]'
    async with daemon_in(tmp_path, notify) as inside, asyncio.timeout(LIMIT_S):
        done = await inside.ask(SendMessage(text=SECRET, detach=True))
        while not out.exists():
            await asyncio.sleep(0.01)
        told = json.loads(out.read_text())
        assert (told["kind"], told["conversation_id"]) == ("turn", done.conversation_id)
        assert SECRET not in out.read_text()
