"""The tools that others wrote, external tools, as the daemon holds them between two reloads."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from clawd.config.load import Loaded
from clawd.security.sandbox import Sandbox
from clawd.tools.base import Tool
from clawd.tools.external import external_tool
from clawd.tools.external_folder import Found, Places, Problem, read_folder, without_collisions
from clawd.tools.external_manifest import ManifestRules

_log = logging.getLogger(__name__)


class Additions:
    """Reads manifests when told to, and makes tools of what it read last.

    Args:
        sandbox: runs the programs.
        environ: what variables are passed on from.
    """

    def __init__(self, sandbox: Sandbox, environ: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._environ = environ
        self._external = Found()

    async def refresh(self, loaded: Loaded) -> None:
        """Read everything again."""
        section = loaded.config.external_tools
        self._external = Found()
        if section.enabled:
            self._external = await asyncio.to_thread(read_folder, section.dir, _places(loaded))
        for problem in self._external.problems:
            _log.warning(
                "external tools: %s",
                problem.reason,
                extra={"file": problem.file, "line": problem.line, "severity": problem.severity},
            )

    def tools(self, taken: Collection[str]) -> list[Tool]:
        """Return the tools whose name is not taken."""
        return [
            external_tool(spec, sandbox=self._sandbox, environ=self._environ)
            for spec in without_collisions(self._external, taken).specs
        ]

    def problems(self, taken: Collection[str]) -> tuple[Problem, ...]:
        """Return what was left out and what is doubtful, where these names are taken."""
        return without_collisions(self._external, taken).problems


def _places(loaded: Loaded) -> Places:
    config = loaded.config
    hidden = [path.expanduser().resolve() for path in config.security.forbidden_paths]
    keys = (section.api_key_env for section in config.providers.models.values())
    return Places(
        home=loaded.layout.home,
        writable=(config.workspace_dir, *config.security.workspace_roots),
        rules=ManifestRules(
            hidden=(*hidden, Path(loaded.layout.home).resolve()),
            workspace=config.workspace_dir,
            kept_variables=frozenset(filter(None, keys)),
        ),
    )
