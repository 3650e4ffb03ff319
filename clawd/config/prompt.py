"""The section of the system prompt and of what goes with messages: [prompt]."""

from pydantic import Field

from clawd.config.section import Section

MAX_WORKSPACE_MESSAGE = 16 * 1024
_RULES = "rule_"
_NOT_FRAGMENTS = frozenset({"agents_md", "workspace_message", "date"})


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
    rule_tools: bool = Field(default=True, description="Of the rules: no tools but these.")
    rule_writing: bool = Field(
        default=True, description="Of the rules: files are written when the user asked for it."
    )
    rule_cutoff: bool = Field(
        default=True, description="Of the rules: when its knowledge ends ([agent])."
    )
    rule_lookup: bool = Field(
        default=True, description="Of the rules: memory first, the web second, save what is new."
    )
    rule_sources: bool = Field(default=True, description="Of the rules: name your sources.")
    date: bool = Field(default=True, description="Tell date and hour with messages.")
    agents_md: bool = Field(
        default=True,
        description="Show AGENTS.md and CLAUDE.md of the workspace, and of its parents up to the "
        "root of its repository; at most 32 KiB and 8 folders.",
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
            if name not in _NOT_FRAGMENTS and not name.startswith(_RULES)
        }

    def rules_told(self) -> dict[str, bool]:
        """Return which rules are on, by what follows `rule_` in their keys."""
        return {
            name.removeprefix(_RULES): getattr(self, name)
            for name in type(self).model_fields
            if name.startswith(_RULES)
        }
