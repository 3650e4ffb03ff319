"""The sections of tools that others wrote: [external_tools] and [plugins]."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from clawd.config.section import Section


class ExternalToolsSection(Section):
    """Programs of this machine as tools, each named by a manifest CLAWD-<name>.tools."""

    enabled: bool = Field(default=True, description="Whether the folder is read.")
    dir: Annotated[Path, Field(strict=False)] = Field(
        description="The folder of the manifests; in clawd's home, or outside of workspace_roots, "
        "so that no tool can write there."
    )


class PluginsSection(Section):
    """Plugins, which clawctl plugin install puts into plugins/ in clawd's home."""

    enabled: bool = Field(default=True, description="Whether installed plugins are loaded.")
