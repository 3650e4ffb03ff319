"""The section of the system prompt and of what goes with messages: [prompt]."""

from pydantic import Field

from clawd.config.section import Section

MAX_WORKSPACE_MESSAGE = 16 * 1024
_NOT_FRAGMENTS = frozenset({"agents_md", "workspace_message"})


class PromptSection(Section):
    """Which parts of the system prompt the model is given, and what goes with messages."""

    base: bool = Field(default=True, description="Who it is; [agent] system_prompt replaces it.")
    addenda: bool = Field(default=True, description="What tools want to be known of them.")
    operator: bool = Field(default=True, description="[agent] system_append.")
    rules: bool = Field(
        default=True, description="Only these tools, when to write, what to cite, what it can know."
    )
    catalogue: bool = Field(
        default=True, description="The list of tools as text, beside the one of the protocol."
    )
    agent: bool = Field(default=True, description="The prompt of the chosen agent.")
    environment: bool = Field(default=True, description="The absolute path of the workspace.")
    guidance: bool = Field(default=True, description="How to go about a task.")
    agents_md: bool = Field(
        default=True,
        description="Show AGENTS.md of the workspace, and of its parents up to the root of its "
        "repository; at most 32 KiB and 8 folders.",
    )
    workspace_message: str = Field(
        default="",
        max_length=MAX_WORKSPACE_MESSAGE,
        description="Told with the next message of every conversation, and again when it changes.",
    )

    def fragments(self) -> dict[str, bool]:
        """Return which fragments are on, by their ids."""
        return {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name not in _NOT_FRAGMENTS
        }
