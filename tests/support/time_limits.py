"""Time limits of commands that are over when a test says so, however slow the machine is."""

import asyncio

import pytest


class TimeLimit:
    """A command's limit. Give the command `seconds`; nothing else waits for exactly as long."""

    seconds = 271.25

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._held: asyncio.Timeout | None = None
        real = asyncio.timeout

        def timeout(delay: float | None) -> asyncio.Timeout:
            made = real(delay)
            if delay == self.seconds:
                self._held = made
            return made

        monkeypatch.setattr(asyncio, "timeout", timeout)

    def is_over(self) -> None:
        """Let it be over now."""
        assert self._held is not None, "no command has this limit"
        if self._held.when() is not None:
            self._held.reschedule(asyncio.get_running_loop().time())

    def is_over_at(self, word: str) -> "Heard":
        """Return what takes a command's output, and lets it be over when it holds a word."""
        return Heard(word, self)


class Heard:
    """Takes output."""

    def __init__(self, word: str, limit: TimeLimit) -> None:
        self._word = word
        self._limit = limit
        self._text = ""

    def __call__(self, text: str) -> None:
        was_there = self._word in self._text
        self._text += text
        if self._word in self._text and not was_there:
            self._limit.is_over()
