"""The section of the configuration about what is kept as knowledge."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from clawd.config.section import Section


class KnowledgeSection(Section):
    """Notes that the model keeps for later conversations, as Markdown files."""

    enabled: bool = Field(default=True, description="Whether there are knowledge tools.")
    path: Annotated[Path, Field(strict=False)] = Field(
        description="The folder of the notes. File tools and commands cannot reach it."
    )
    max_entry_bytes: int = Field(
        default=262_144, ge=1_024, le=262_144, description="The longest text of one note."
    )
    max_entries: int = Field(
        default=10_000, ge=1, le=100_000, description="How many notes each user may have."
    )
    trash_mb: int = Field(
        default=64,
        ge=0,
        le=1_048_576,
        description="Replaced and deleted notes that are kept, for each user; the oldest go "
        "first. 0 keeps none.",
    )
