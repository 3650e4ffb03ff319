"""The looks at what a running command uses: first soon, then four times a second."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable

# The first look comes when a short command has ended long ago.
_FIRST_LOOK_S = 0.1
_LOOK_EVERY_S = 0.25

_log = logging.getLogger(__name__)


class Overseer(Protocol):
    """Watches what a command uses; called on the event loop, must not block."""

    def begin(self, init: int) -> None:
        """Take the process number of the namespace's init before the command runs.

        Raises OSError when the command must not run, ProcessLookupError when it cannot, as it ends.
        """

    def may_begin(self) -> bool:
        """Whether the command may begin now; asked again if not."""

    def overuse(self) -> str:
        """Return why the command must be killed now; empty when it need not. Asked repeatedly."""

    def end(self) -> str:
        """Clean up when all is dead; return which limit ended it, empty for none."""


@runtime_checkable
class KeepsTime(Protocol):
    """An overseer that may let the time limit of its command stand still."""

    def keep_time(self, limit: asyncio.Timeout) -> None:
        """Take the limit, which is in force; not to be moved once the command is dead."""


class Looks:
    """Asks an overseer from time to time. `end` must follow, come what may.

    Args:
        overseer: None asks nobody.
        on_overuse: kills the command; `overuse` says why by then.
    """

    def __init__(self, overseer: Overseer | None, *, on_overuse: Callable[[], None]) -> None:
        self.overuse = ""
        self._overseer = overseer
        self._on_overuse = on_overuse
        self._next: asyncio.TimerHandle | None = None
        self._is_gone = False

    def begin(self, init: int) -> None:
        """Begin before the command runs; kills it where its limits cannot be set.

        One that is ending by itself, because its sandbox cannot be set up, is left to say why.
        """
        if self._overseer is None:
            return
        try:
            self._overseer.begin(init)
        except ProcessLookupError:
            self._is_gone = True
            return
        except OSError as error:
            self.overuse = f"its limits cannot be set: {error}"
            self._on_overuse()
            return
        self._ask_in(_FIRST_LOOK_S, self._overseer)

    def may_begin(self) -> bool:
        """Whether the command may begin now; ask again if not."""
        if self._is_gone:
            return False
        return self._overseer is None or self._overseer.may_begin()

    def end(self) -> None:
        """Ask no more; `overuse` is final after this."""
        if self._next is not None:
            self._next.cancel()
        if self._overseer is not None:
            self.overuse = self._overseer.end() or self.overuse
            self._overseer = None

    def _ask_in(self, delay_s: float, overseer: Overseer) -> None:
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(delay_s, self._ask, overseer)

    def _ask(self, overseer: Overseer) -> None:
        try:
            self.overuse = overseer.overuse()
        except Exception as error:  # noqa: BLE001 - whoever cannot be watched must end
            _log.error("a command cannot be watched, it is ended", exc_info=error)
            self.overuse = f"what it uses cannot be told: {type(error).__name__}"
        if self.overuse:
            self._on_overuse()
        else:
            self._ask_in(_LOOK_EVERY_S, overseer)
