"""Whether a call that gets ready may act: its intent is on disk and the gate says yes once more.

A tool that starts a process has its sandbox set up while the disk writes the intent; the sandbox
is held at its gate until this has been given. Other tools begin when it has been given.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from clawd.errors import ForbiddenError
from clawd.security.policy import Allow, Deny


class Clearance:
    """The clearance of one call; the intent is being written from the start.

    Args:
        intent: puts the intent on disk.
        may_start: the gate's last word.
        on_given: called once, before the call acts.
    """

    def __init__(
        self,
        intent: Coroutine[Any, Any, None],
        *,
        may_start: Callable[[], Allow | Deny],
        on_given: Callable[[], None],
    ) -> None:
        self._intent = asyncio.create_task(intent)
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

    async def written(self) -> None:
        """Return when the intent is on disk; cancelling the wait leaves the writing alone.

        Raises:
            StorageError: it is not.
        """
        await asyncio.shield(self._intent)
