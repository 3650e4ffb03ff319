"""The methods about memory as a whole; how methods are made: `wire.methods`."""

from typing import ClassVar

import msgspec

from clawd.wire.method import Method
from clawd.wire.reports import Done


class MemoryCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of memory found; no problems is a good memory."""

    path: str
    used_bytes: int
    problems: tuple[str, ...] = ()
    is_repaired: bool = False


class BackUpMemory(Method[Done], frozen=True, kw_only=True):
    """Write a copy of memory to a new file; `path` is absolute, as the daemon sees it."""

    admin: ClassVar[bool] = True
    path: str


class CheckMemory(Method[MemoryCheck], frozen=True, kw_only=True):
    """Check memory's file and its search indexes; `repair` makes bad indexes anew."""

    admin: ClassVar[bool] = True
    repair: bool = False
