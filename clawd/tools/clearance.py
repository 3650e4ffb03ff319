"""Whether a call that gets ready may act: its intent is on disk and the gate says yes once more.

A tool that starts a process first starts its sandbox, which is held at its gate, and asks then: the
disk writes the intent while the sandbox is set up. Other tools begin when this has been given.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from clawd.errors import ForbiddenError
from clawd.security.policy import Allow, Deny

_T = TypeVar("_T")


class Clearance(Generic[_T]):
    """The clearance of one call.

    Args:
        write_intent: puts the intent on disk, and what else must be there before the act; called
            when somebody first asks.
        may_start: the gate's last word.
        on_given: called once, before the call acts.
    """

    def __init__(
        self,
        write_intent: Callable[[], Coroutine[Any, Any, _T]],
        *,
        may_start: Callable[[], Allow | Deny],
        on_given: Callable[[], None],
    ) -> None:
        self._write_intent = write_intent
        self._intent: asyncio.Task[_T] | None = None
        self._may_start = may_start
        self._on_given = on_given
        self.is_given = False
        self.refusal: Deny | None = None

    async def __call__(self) -> None:
        """Return when the call may act.

        Raises:
            StorageError: its intent is not on disk.
            ForbiddenError: the gate refuses it now.
        """
        await self.written()
        if self.is_given:
            return
        verdict = self._may_start()
        if isinstance(verdict, Deny):
            self.refusal = verdict
            raise ForbiddenError(verdict.reason)
        self.is_given = True
        self._on_given()

    async def written(self) -> _T:
        """Have the intent written and return what that gave; cancelling the wait undoes nothing.

        Raises:
            StorageError: it is not.
        """
        if self._intent is None:
            self._intent = asyncio.create_task(self._write_intent())
        return await asyncio.shield(self._intent)
