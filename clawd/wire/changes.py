"""What the control socket tells of changes of files: reports of their own, beside `reports`."""

from typing import Literal

import msgspec


class ChangeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one file that can be taken back.

    Attributes:
        receipt_id: of the call; what one call changed is undone as a whole.
        path: relative to the workspace, or absolute when it lies outside.
        action: what the call did.
        size_before: bytes that the file had; 0 when there was none. `size_after` likewise.
    """

    receipt_id: str
    at: str
    tool: str
    path: str
    action: Literal["created", "changed", "removed"]
    size_before: int
    size_after: int
    conversation_id: str
    workspace: str


class ChangeList(msgspec.Struct, frozen=True, kw_only=True):
    """Changes, newest first."""

    items: tuple[ChangeLine, ...]
