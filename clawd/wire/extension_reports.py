"""Reports about tools that others wrote: what could not be loaded, and plugins."""

from typing import Literal

import msgspec


class ToolProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, or doubtful, about a manifest of external tools or a plugin.

    `line` is 0 where none is meant; `severity` refused means that it was left out.
    """

    file: str
    line: int
    severity: Literal["refused", "warning"]
    reason: str
    tool: str = ""
