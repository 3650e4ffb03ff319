"""The base of tools whose whole act is done on an open workspace, by themselves or in a batch."""

import threading
import time
from abc import abstractmethod

from typing_extensions import override

from clawd.security.workspace import Workspace
from clawd.tools.base import Arguments, ToolContext, ToolResult, in_thread
from clawd.tools.builtin.deps import FileTool
from clawd.tools.session_files import SessionFolder
from clawd.wire.references import looks_like_reference, no_path

SEARCH_LIMIT_S = 10.0


class Watch:
    """Says when an act must end: its time is up, or nobody waits for it any more."""

    def __init__(
        self, limit_s: float = SEARCH_LIMIT_S, cancelled: threading.Event | None = None
    ) -> None:
        self.limit_s = limit_s
        self._deadline = time.monotonic() + limit_s
        self.cancelled = cancelled or threading.Event()

    @property
    def left_s(self) -> float:
        """How much of the time is left."""
        return max(self._deadline - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Whether it must end."""
        return self.cancelled.is_set() or time.monotonic() > self._deadline


class ActingTool(FileTool):
    """A tool that does all it does in one act on an open workspace."""

    @abstractmethod
    def act(self, arguments: Arguments, workspace: Workspace, watch: Watch) -> ToolResult:
        """Do it; called in a thread. What takes long asks the watch whether to go on.

        Raises:
            ClawError: it cannot be done.
        """

    async def act_on_session(
        self,
        arguments: Arguments,
        files: SessionFolder,  # noqa: ARG002 - for those that take them
    ) -> ToolResult:
        """Do it on session files; a tool that does not take them refuses.

        Raises:
            ClawError: it cannot be done.
        """
        raise no_path(str(arguments["path"]))

    async def _on_session(self, arguments: Arguments, context: ToolContext) -> ToolResult | None:
        """Return what came of a call on session files; None when it is on others."""
        if self.takes_session_files and looks_like_reference(arguments.get("path") or ""):
            return await self.act_on_session(arguments, SessionFolder(self._sessions, context))
        return None


class LookingTool(ActingTool):
    """A tool that looks at files and changes none."""

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        if (found := await self._on_session(arguments, context)) is not None:
            return found
        watch = Watch()

        def look() -> ToolResult:
            with self._opened(context) as workspace:
                return self.act(arguments, workspace, watch)

        try:
            return await in_thread(look)
        finally:
            watch.cancelled.set()
