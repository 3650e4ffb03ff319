"""What servers tell unasked: subscribed to, heard where it is wanted, and bounded."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import InvalidRequestError
from clawd.mcp.connection_end import StderrLog
from clawd.mcp.events import MAX_WORDS, Ear, EventPattern, ServerEvent, read_pattern
from tests.mcp.world import LIMIT_S, World, told
from tests.support.rows import each_row

pytestmark = [pytest.mark.sandbox]
TODAY = "note://today"


class Heard:
    """Keeps what was heard."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ServerEvent]] = []
        self.came = asyncio.Event()

    def heard(self, alias: str, event: ServerEvent) -> None:
        self.events.append((alias, event))
        self.came.set()

    @property
    def lines(self) -> list[str]:
        return [event.line() for _, event in self.events]


def note(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})


def wanted(*words: str) -> tuple[EventPattern, ...]:
    return tuple(map(read_pattern, words))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.close()


async def test_what_is_wanted_is_subscribed_to_and_heard_and_nothing_else(world: World) -> None:
    heard = Heard()
    servers = world.start(world.program("tells", auto_approve=("*",)))
    servers.listen({"tells": wanted(f"resource {TODAY}", "log warning disk", "resources")}, heard)
    await world.ready("tells")
    await world.printed("tells", f"resources/subscribe {TODAY}")
    await world.printed("tells", "logging/setLevel warning")
    lines = (
        note("resources/updated", uri=TODAY),
        note("resources/updated", uri=f"{TODAY}/part"),
        note("resources/updated", uri=f"{TODAY}s"),
        note("resources/updated", uri=["a"]),
        note("resources/updated"),
        note("resources/list_changed"),
        note("tools/list_changed"),
        note("message", level="error", logger="disk", data={"left": 0}),
        note("message", level="info", logger="disk", data="noise"),
        note("message", level="error", logger="net", data="noise"),
        note("message", level="loud", logger="disk", data="noise"),
        note("message", level={}, logger=[], data="noise"),
        note("prompts/list_changed"),
    )
    assert told(await world.call("tells", "\n".join(lines))) == "told"
    assert heard.lines == [
        f"the resource {TODAY} was updated",
        f"the resource {TODAY}/part was updated",
        "its resources are others now",
        'log error disk: {"left": 0}',
    ]
    assert {alias for alias, _ in heard.events} == {"tells"}

    servers.listen({"tells": wanted("tools")}, heard)
    await world.printed("tells", f"resources/unsubscribe {TODAY}")
    heard.events.clear()
    await world.call("tells", "\n".join(lines))
    assert heard.lines == ["its tools are others now"]
    servers.listen({}, heard)
    heard.events.clear()
    await world.call("tells", "\n".join(lines))
    assert heard.lines == []


async def test_a_server_that_comes_again_is_subscribed_to_again(world: World) -> None:
    heard = Heard()
    servers = world.start(world.program("tells"))
    servers.listen({"tells": wanted(f"resource {TODAY}")}, heard)
    await world.ready("tells")
    await world.printed("tells", "resources/subscribe")
    await world.call("tells", tool="die")
    await world.ready("tells", connects=2)
    async with asyncio.timeout(LIMIT_S):
        while world.servers._by_alias["tells"]._around.log._text().count(f"subscribe {TODAY}") < 2:
            await asyncio.sleep(0.01)
    await world.call("tells", note("resources/updated", uri=TODAY))
    assert heard.lines == [f"the resource {TODAY} was updated"]


async def test_a_subscription_that_is_refused_is_told_and_one_that_is_not_offered_is_not_asked_for(
    world: World,
) -> None:
    heard = Heard()
    servers = world.start(world.program("tells"), world.program("tells-nothing"))
    servers.listen(
        {
            "tells": wanted("resource note://none"),
            "tells-nothing": wanted(f"resource {TODAY}", "log error"),
        },
        heard,
    )
    await world.ready("tells")
    await world.ready("tells-nothing")
    async with asyncio.timeout(LIMIT_S):
        while not (problem := world.state("tells").deaf_problem):
            await asyncio.sleep(0.01)
    assert problem == "it does not take resources/subscribe: no such resource"
    # What it tells without a subscription is heard all the same.
    await world.call("tells-nothing", note("resources/updated", uri=TODAY))
    assert heard.lines == [f"the resource {TODAY} was updated"]
    assert world.state("tells-nothing").deaf_problem == ""
    assert "subscribe" not in world.servers._by_alias["tells-nothing"]._around.log._text()
    servers.listen({}, heard)
    assert world.state("tells").deaf_problem == ""


@each_row(
    "words, pattern",
    [
        ("resource note://a", EventPattern(kind="resource", uri="note://a")),
        (" resources ", EventPattern(kind="resources")),
        ("tools", EventPattern(kind="tools")),
        ("log error", EventPattern(kind="log", level="error")),
        ("log debug net", EventPattern(kind="log", level="debug", logger="net")),
        ("", None),
        ("resource", None),
        ("resource here", None),
        ("resource a:" + "x" * 2_000, None),
        ("prompts", None),
        ("log", None),
        ("log loud", None),
        ("log error a b", None),
        ("tools \x1b[2J", None),
    ],
)
def test_patterns_are_read(words: str, pattern: EventPattern | None) -> None:
    if pattern is not None:
        assert read_pattern(words) == pattern
        return
    with pytest.raises(InvalidRequestError) as error:
        read_pattern(words)
    assert "\x1b" not in error.value.message


def test_what_a_server_tells_is_bounded_visible_and_without_its_secrets(tmp_path: Path) -> None:
    heard, ear = Heard(), Ear(StderrLog(tmp_path / "log", lambda text: text.replace("s3cret", "…")))
    ear.want("loud", wanted("log debug", "resource note://a"), heard)
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    for data in ("key s3cret\x1b[2J\nnext\u202e", "y" * 1_000_000, deep, None, "\ud800"):
        ear.hear("notifications/message", {"level": "error", "logger": "a\nb", "data": data})
    ear.hear("notifications/resources/updated", {"uri": "note://a/\n\x1b" + "z" * 1_000})
    assert len(heard.lines) == 6
    assert heard.lines[0].startswith("log error a‹U+000A›b: key …")
    for line in heard.lines:
        assert not {"\x1b", "\n", "\u202e", "\ud800"} & set(line)
        assert len(line) < 2 * MAX_WORDS
        assert "s3cret" not in line
    assert ear.level == "debug"
    assert ear.resources == ("note://a",)
