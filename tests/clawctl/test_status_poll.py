"""What asks the daemon beside the prompt keeps one connection, and leaves none open."""

from typing import Any, cast

from clawctl.client import Client
from clawctl.repl.bar_state import Pulse
from clawd.wire.daemon import Ping


class Line:
    """A connection that can be dead."""

    def __init__(self, answer: str) -> None:
        self.answer, self.is_dead, self.is_closed = answer, False, False

    def is_alive(self) -> bool:
        return not self.is_dead

    def call(self, _params: Any, **_limits: Any) -> str:
        return self.answer

    def close(self) -> None:
        self.is_closed = True


def test_a_connection_that_died_is_closed_before_another_takes_its_place() -> None:
    lines = [Line("first"), Line("second")]
    waiting = iter(lines)
    pulse = Pulse(lambda: cast(Client, next(waiting)), str)
    said: list[Any] = [pulse.ask(Ping()), pulse.ask(Ping())]
    assert said == ["first", "first"]
    lines[0].is_dead = True
    assert pulse.ask(Ping()) == cast(Any, "second")
    assert [line.is_closed for line in lines] == [True, False]
