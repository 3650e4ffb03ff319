"""The section [compression]: when the beginning of a conversation gives way to a summary."""

from pydantic import Field

from clawd.config.section import Section


class CompressionSection(Section):
    """When the beginning of a conversation gives way to a summary."""

    at_messages: int = Field(
        default=80,
        ge=8,
        description="A conversation that would be sent with so many messages is compressed.",
    )
    at_context_percent: int = Field(
        default=75,
        ge=10,
        le=95,
        description="So much of the context may be filled before a request is sent.",
    )
    keep_least: int = Field(
        default=20,
        ge=1,
        description="The newest messages that stay, at least, where they fit.",
    )
    keep_most: int = Field(
        default=30,
        ge=2,
        description="The newest messages that stay, at most; never over half of at_messages.",
    )
    summary_tokens: int = Field(
        default=600, ge=64, le=8_192, description="Length of a summary, at most."
    )
    summary_timeout_s: float = Field(
        default=180.0,
        gt=0,
        le=3_600,
        description="A model that takes longer gives no summary; first words stand in for it.",
    )
    context_tokens: int = Field(
        default=0,
        ge=0,
        description="The size of the context where a provider does not say it; 0 is unknown, then "
        "only the number of messages counts.",
    )
