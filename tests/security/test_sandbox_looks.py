"""When an overseer is asked, and what follows from its answers."""

import asyncio

import pytest

from clawd.security.sandbox import child as sandbox_child
from clawd.security.sandbox.child import Looks
from tests.support.rows import each_row


class Overseer:
    """Answers what it is given, then nothing."""

    def __init__(self, *answers: str | Exception, first: OSError | None = None) -> None:
        self.answers = list(answers)
        self.first = first
        self.ended = 0

    def begin(self, init: int) -> None:
        if self.first is not None:
            raise self.first

    def may_begin(self) -> bool:
        return True

    def overuse(self) -> str:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> str:
        self.ended += 1
        return ""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_child, "_FIRST_LOOK_S", 0.0)
    monkeypatch.setattr(sandbox_child, "_LOOK_EVERY_S", 0.0)


async def asked(overseer: Overseer) -> str:
    killed = asyncio.Event()
    looks = Looks(overseer, on_overuse=killed.set)
    looks.begin(1)
    async with asyncio.timeout(60):
        await killed.wait()
    looks.end()
    looks.end()
    assert overseer.ended == 1
    return looks.overuse


async def test_it_is_asked_until_it_says_no() -> None:
    assert await asked(Overseer("", "", "too much")) == "too much"


@each_row("error", [OSError("gone"), LookupError("odd")])
async def test_who_cannot_be_watched_is_ended(error: Exception) -> None:
    assert await asked(Overseer("", error)) == (
        f"what it uses cannot be told: {type(error).__name__}"
    )


async def test_without_its_limits_a_command_does_not_begin() -> None:
    said = await asked(Overseer(first=OSError("no cgroup")))
    assert said == "its limits cannot be set: no cgroup"


async def test_a_command_that_is_ending_is_left_to_say_why_and_does_not_begin() -> None:
    overseer = Overseer("never asked", first=ProcessLookupError("process 1 ends"))
    looks = Looks(overseer, on_overuse=pytest.fail)
    looks.begin(1)
    assert not looks.may_begin()
    await asyncio.sleep(0.05)
    looks.end()
    assert (looks.overuse, overseer.ended) == ("", 1)


async def test_nobody_is_asked_where_there_is_no_overseer() -> None:
    looks = Looks(None, on_overuse=pytest.fail)
    looks.begin(1)
    looks.end()
    assert looks.overuse == ""
