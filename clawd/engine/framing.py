"""Cuts a byte stream into frames: a 4-byte big-endian length in front of each."""

import struct

from clawd.errors import ProtocolError

MAX_FRAME_BYTES = 64 * 1024 * 1024
HEADER = struct.Struct(">I")


class FrameBuffer:
    """Cuts a byte stream into frame bodies; bounded by MAX_FRAME_BYTES."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes and return the bodies that are whole now.

        Raises:
            ProtocolError: a length over MAX_FRAME_BYTES.
        """
        self._data += data
        bodies: list[bytes] = []
        start = 0
        while len(self._data) - start >= HEADER.size:
            (size,) = HEADER.unpack_from(self._data, start)
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"engine frame of {size} bytes is over {MAX_FRAME_BYTES}")
            end = start + HEADER.size + size
            if len(self._data) < end:
                break
            bodies.append(bytes(self._data[start + HEADER.size : end]))
            start = end
        del self._data[:start]
        return bodies
