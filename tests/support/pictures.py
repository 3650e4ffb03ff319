"""Small pictures for tests, written by hand: no library decides what is in them."""

import hashlib
import struct
import zlib

from clawd.wire.pictures import Picture


def png(width: int, height: int, *, shade: int = 0) -> bytes:
    """Return a grey PNG."""
    rows = (b"\0" + bytes([shade]) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def picture(width: int = 3, height: int = 2, *, shade: int = 0) -> Picture:
    """Return a picture as messages hold it."""
    data = png(width, height, shade=shade)
    return Picture(
        media_type="image/png",
        data=data,
        sha256=hashlib.sha256(data).hexdigest(),
        width=width,
        height=height,
    )
