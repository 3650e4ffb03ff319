"""The section of the tools: how they are offered to models."""

from typing import Literal

from pydantic import Field

from clawd.config.section import Section

ToolMode = Literal["split", "unified", "both"]


class ToolsSection(Section):
    """How tools are offered to models."""

    mode: ToolMode = Field(
        default="split",
        description="split offers one tool for each act (file_read, file_write), unified offers "
        "fs(action=...) and web(action=...) instead, both offers all of them. Policy, receipts and "
        "tools_allow know file_read and its like in every mode.",
    )
