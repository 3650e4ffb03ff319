"""The methods of the control socket that are about what commands keep between them."""

from typing import ClassVar

from clawd.wire.cache_reports import CacheList, CachesCleared
from clawd.wire.method import Method


class ListCaches(Method[CacheList], frozen=True, kw_only=True):
    """List the caches of all projects: they name folders of everybody, so it is for admins."""

    admin: ClassVar[bool] = True


class ClearCaches(Method[CachesCleared], frozen=True, kw_only=True):
    """Remove the caches of the project in an absolute folder, or of all; commands fetch anew."""

    admin: ClassVar[bool] = True
    workspace: str = ""
