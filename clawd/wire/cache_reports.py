"""What commands in the sandbox keep between them, by project, as `list_caches` gives it."""

import msgspec


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
