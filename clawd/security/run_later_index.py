"""Reads from a repository's index which folders git takes for repositories of their own.

`git status` runs what the settings of these name, wherever they lie.
"""

import struct
from collections.abc import Iterator

_MAGIC = b"DIRC"
_GITLINK = 0o160000
_GITLINK_BYTES = _GITLINK.to_bytes(4, "big")
_HEADER = struct.Struct(">4sII")
_MODE_AT = 24
_NAME_LENGTH = 0xFFF
_EXTENDED = 0x4000
# SHA-1 and SHA-256. The index does not say which; what either finds counts.
_HASH_BYTES = (20, 32)


def gitlinks(index: bytes) -> frozenset[str]:
    """Return the paths, relative to the repository's top, of the repositories in an index.

    What follows a part that cannot be understood is left out: git does not read it either.
    """
    if not index.startswith(_MAGIC) or _GITLINK_BYTES not in index:
        return frozenset()
    found: set[str] = set()
    for hash_bytes in _HASH_BYTES:
        try:
            found.update(_gitlinks(index, hash_bytes))
        except (struct.error, ValueError, IndexError):
            continue
    return frozenset(found)


def _gitlinks(index: bytes, hash_bytes: int) -> Iterator[str]:
    _magic, version, count = _HEADER.unpack_from(index)
    at, name = _HEADER.size, b""
    for _ in range(count):
        (mode,) = struct.unpack_from(">I", index, at + _MODE_AT)
        flags_at = at + 40 + hash_bytes
        (flags,) = struct.unpack_from(">H", index, flags_at)
        start = flags_at + (4 if flags & _EXTENDED and version > 2 else 2)
        kept = b""
        if version == 4:
            dropped, start = _number(index, start)
            kept = name[: len(name) - dropped] if dropped else name
        end = index.index(b"\0", start)
        length = flags & _NAME_LENGTH
        size = end - start if length == _NAME_LENGTH else length - len(kept)
        name = kept + index[start : start + size]
        if mode == _GITLINK:
            yield name.partition(b"\0")[0].decode(errors="surrogateescape")
        # Names of the older versions are filled up to eight bytes.
        at = start + size + 1 if version == 4 else at + ((start - at + size + 8) & ~7)


def _number(index: bytes, at: int) -> tuple[int, int]:
    """Return a number as git packs it, and where it ends."""
    value = index[at] & 0x7F
    while index[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (index[at] & 0x7F)
    return value, at + 1
