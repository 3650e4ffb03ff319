"""The section of the configuration about files that belong to a conversation."""

from typing import Literal

from pydantic import Field

from clawd.config.section import Section


class SessionFilesSection(Section):
    """Files that belong to a conversation: long output, and what is kept beside the messages."""

    max_file_bytes: int = Field(
        default=8_388_608, ge=65_536, le=8_388_608, description="The largest of them."
    )
    max_conversation_bytes: int = Field(
        default=67_108_864,
        ge=65_536,
        description="All of one conversation. When there is no room, the oldest long output goes; "
        "what was written by name stays.",
    )
    max_files: int = Field(
        default=200, ge=1, le=10_000, description="How many one conversation may have."
    )
    summaries: Literal["first-words", "model"] = Field(
        default="model",
        description="The line about each file that the model is told. `model`: written by the "
        "conversation's model while nothing else is asked of it, of its beginning and end; the "
        "first words until then.",
    )
