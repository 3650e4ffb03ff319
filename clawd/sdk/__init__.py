"""clawd as a library: an agent in five lines, with the gate and the receipts of the daemon.

    from clawd.sdk import Session

    with Session.local() as session:
        print(session.chat("what files are here?"))

`AsyncSession` is the same for asyncio. Nothing heavy is loaded before the first use.
"""

from clawd.errors import ClawError
from clawd.sdk.aio import AsyncReply, AsyncSession
from clawd.sdk.blocking import Reply, Session
from clawd.sdk.functions import ToolOptions, function_tool
from clawd.sdk.session_config import ChatResult, Said, ToolUse
from clawd.tools.base import Tool, ToolContext, ToolResult
from clawd.wire.events import ApprovalRequested, Event, QuestionAsked

__all__ = [
    "ApprovalRequested",
    "AsyncReply",
    "AsyncSession",
    "ChatResult",
    "ClawError",
    "Event",
    "QuestionAsked",
    "Reply",
    "Said",
    "Session",
    "Tool",
    "ToolContext",
    "ToolOptions",
    "ToolResult",
    "ToolUse",
    "function_tool",
]
