"""What commands keep between them, by project: methods of the control socket and their reports."""

from typing import ClassVar

import msgspec

from clawd.wire.method import Method


class CacheLine(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept for one project; `used_at` is when a command used it last, UTC."""

    workspace: str
    size_bytes: int
    used_at: str


class CacheList(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept, the most recently used first; all together may have `limit_bytes`."""

    items: tuple[CacheLine, ...]
    limit_bytes: int


class CachesCleared(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, and what stays because a command uses it now."""

    removed: tuple[CacheLine, ...]
    in_use: tuple[CacheLine, ...] = ()


class ListCaches(Method[CacheList], frozen=True, kw_only=True):
    """List the caches of all projects: they name folders of everybody, so it is for admins."""

    admin: ClassVar[bool] = True


class ClearCaches(Method[CachesCleared], frozen=True, kw_only=True):
    """Remove the caches of the project in an absolute folder, or of all; commands fetch anew."""

    admin: ClassVar[bool] = True
    workspace: str = ""
