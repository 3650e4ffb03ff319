"""The base of tools that change files: the act in a thread, each change kept before it is made."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from typing_extensions import override

from clawd.security.workspace import Workspace
from clawd.tools.base import Arguments, ToolContext, ToolResult, in_thread
from clawd.tools.builtin.acting import ActingTool, Watch
from clawd.tools.builtin.deps import BuiltinDeps, FileTool
from clawd.tools.builtin.editing import EditError
from clawd.tools.changes import ChangeKeeper, call_facts
from clawd.tools.preview import Preview
from clawd.wire.references import looks_like_reference

# A thread that hangs in the file system must not hold a cancelled call for ever.
_END_S = 5.0

_T = TypeVar("_T")


class ChangingTool(FileTool):
    """A tool that changes files of the workspace."""

    def __init__(self, deps: BuiltinDeps) -> None:
        super().__init__(deps)
        self._changes = deps.changes

    async def _change(
        self, context: ToolContext, act: Callable[[Workspace, ChangeKeeper], _T]
    ) -> _T:
        """Run the act in a thread.

        On cancel nothing that has not begun is begun, and what has begun is waited for.
        """
        keeper = ChangeKeeper(self._changes, call_facts(context, self.name), context.preview)

        def run() -> _T:
            with self._opened(context, keeper) as workspace:
                return act(workspace, keeper)

        work = asyncio.get_running_loop().run_in_executor(None, run)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            keeper.is_cancelled.set()
            await asyncio.wait([work], timeout=_END_S)
            if work.done() and not work.cancelled():
                work.exception()  # seen; the cancellation is what is told
            raise


class WritingTool(ChangingTool, ActingTool):
    """A tool that changes files in one act."""

    @override
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        if looks_like_reference(arguments["path"]):
            return None  # what a conversation holds stays in it

        def rehearse() -> Preview:
            with self._rehearsal(context) as workspace:
                with contextlib.suppress(EditError):
                    self.act(arguments, workspace, Watch())
                return workspace.preview()

        return await in_thread(rehearse)

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        if (done := await self._on_session(arguments, context)) is not None:
            return done
        return await self._change(
            context, lambda workspace, _: self.act(arguments, workspace, Watch())
        )
