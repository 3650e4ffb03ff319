"""The methods of the control socket about plugins; see `wire.methods`."""

from typing import ClassVar

from clawd.wire.extension_reports import PluginList, PluginReview
from clawd.wire.method import Method
from clawd.wire.reports import Done


class ListPlugins(Method[PluginList], frozen=True, kw_only=True):
    """List the installed plugins, whether they run or not."""

    admin: ClassVar[bool] = True


class InspectPlugin(Method[PluginReview], frozen=True, kw_only=True):
    """Say what a plugin is and may do: one in a folder (`path`, absolute), or an installed one."""

    admin: ClassVar[bool] = True
    path: str = ""
    name: str = ""


class InstallPlugin(Method[Done], frozen=True, kw_only=True):
    """Install the plugin of a folder, if its hash is still the one that was inspected."""

    admin: ClassVar[bool] = True
    path: str
    digest: str


class ApprovePlugin(Method[Done], frozen=True, kw_only=True):
    """Approve an installed plugin as it is now, if its hash is the one that was inspected."""

    admin: ClassVar[bool] = True
    name: str
    digest: str


class RemovePlugin(Method[Done], frozen=True, kw_only=True):
    """Remove a plugin."""

    admin: ClassVar[bool] = True
    name: str


class ReloadPlugins(Method[Done], frozen=True, kw_only=True):
    """Read plugins and external tools again; the config stays as it is."""

    admin: ClassVar[bool] = True
