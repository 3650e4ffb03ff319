"""What an MCP server of clawd's own serves: tools for one client, behind the gate."""

from collections.abc import Callable
from typing import Protocol

from clawd.tools.offer import McpTool
from clawd.tools.outcome import CallOutcome

Report = Callable[[str], None]
"""Takes what a running call says; never blocks."""


class ToolDoor(Protocol):
    """The tools as one client is offered them."""

    def listed(self) -> tuple[McpTool, ...]:
        """Return what may be called, by name."""
        ...

    async def call(self, name: str, arguments: str, report: Report) -> CallOutcome:
        """Make one call; `arguments` is JSON text.

        Raises:
            ReceiptError, StorageError: the trail cannot be written; nothing may be told.
        """
        ...
