"""Taking pictures in: bytes of any source become a `Picture`, in the sandbox and within limits."""

import asyncio
import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from clawd.errors import InvalidRequestError
from clawd.security.sandbox.run import Sandbox
from clawd.tools.reader import Reader
from clawd.wire.pictures import MAX_PICTURE_BYTES, MAX_PICTURES, Picture, PixelGrid

MAX_PIXELS = 20_000_000
LONGEST_SIDE = 1_568
MAX_RECENT_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 60.0
MEMORY_BYTES = 512 * 1024 * 1024
_BEGINNINGS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
_HINT = "Send a PNG, JPEG, WebP or GIF of at most 20 MB and 20 million pixels."


class Pictures:
    """Reads pictures, one at a time; those of late are remembered, as clients send them anew.

    Args:
        sandbox: where they are decoded.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._reader = Reader(sandbox, timeout_s=TIMEOUT_S, memory_bytes=MEMORY_BYTES)
        self._one_at_a_time = asyncio.Lock()
        self._recent: OrderedDict[bytes, Picture] = OrderedDict()

    async def read_all(self, files: Sequence[bytes]) -> tuple[Picture, ...]:
        """Return the pictures of a message, as `read` does each.

        Raises:
            InvalidRequestError: there are too many, or one is not taken.
            SandboxUnavailableError: there is no sandbox of the required level here.
        """
        if len(files) > MAX_PICTURES:
            raise InvalidRequestError(f"{len(files)} pictures; a message takes {MAX_PICTURES}")
        named = enumerate(files, start=1)
        return tuple([await self.read(data, f"picture {number}") for number, data in named])

    async def read(self, data: bytes, what: str) -> Picture:
        """Return a picture, its longest side at most 1,568 pixels, without metadata.

        Args:
            data: the file; its content says what it is, never a name.
            what: names it in errors.

        Raises:
            InvalidRequestError: it is none that is taken, too large, or broken.
            SandboxUnavailableError: there is no sandbox of the required level here.
        """
        _check_size(data, what)
        key = hashlib.sha256(data).digest()
        async with self._one_at_a_time:
            found = self._recent.pop(key, None) or await self._decoded(data, what)
            self._recent[key] = found
            while sum(len(each.data) for each in self._recent.values()) > MAX_RECENT_BYTES:
                self._recent.popitem(last=False)
        return found

    async def preview(self, data: bytes, longest: int) -> PixelGrid:
        """Return the colours of a picture, its longest side at most so many pixels.

        Raises:
            InvalidRequestError: it is none that is taken, too large, or broken.
            SandboxUnavailableError: there is no sandbox of the required level here.
        """
        _check_size(data, what := "the picture")
        async with self._one_at_a_time:
            answer = await self._answer(data, what, longest_side=longest, raw=True)
        try:
            return _grid(answer, longest)
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise _refused(what, "it cannot be decoded") from None

    async def _decoded(self, data: bytes, what: str) -> Picture:
        answer = await self._answer(data, what, longest_side=LONGEST_SIDE)
        try:
            return _picture(answer)
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise _refused(what, "it cannot be decoded") from None

    async def _answer(self, data: bytes, what: str, **how: object) -> Mapping[str, Any]:
        job = {"kind": "picture", "max_pixels": MAX_PIXELS, **how}
        reading = await self._reader.read(job, data)
        answer = next(iter(reading.answers), {})
        if reading.problem or "error" in answer:
            raise _refused(what, str(answer.get("error") or reading.problem)[:300])
        return answer


def _picture(answer: Mapping[str, Any]) -> Picture:
    """Return what the child made; a broken-in one may have said anything.

    Raises:
        KeyError, TypeError, ValueError: it is no picture within the limits.
    """
    kind, width, height = str(answer["media_type"]), int(answer["width"]), int(answer["height"])
    data = base64.b64decode(answer["data"], validate=True)
    if not data.startswith(_BEGINNINGS[kind]) or not min(width, height) >= 1:
        raise ValueError(kind)
    if max(width, height) > LONGEST_SIDE:
        raise ValueError("size")
    digest = hashlib.sha256(data).hexdigest()
    return Picture(media_type=kind, data=data, sha256=digest, width=width, height=height)


def _grid(answer: Mapping[str, Any], longest: int) -> PixelGrid:
    """Return the colours that the child read, as `_picture` does.

    Raises:
        KeyError, TypeError, ValueError: they are no picture within the limits.
    """
    width, height = int(answer["width"]), int(answer["height"])
    pixels = base64.b64decode(answer["data"], validate=True)
    if not 1 <= min(width, height) <= max(width, height) <= longest:
        raise ValueError("size")
    if len(pixels) != 3 * width * height:
        raise ValueError("length")
    return PixelGrid(width=width, height=height, pixels=pixels)


def _check_size(data: bytes, what: str) -> None:
    if len(data) > MAX_PICTURE_BYTES:
        raise _refused(what, f"it has {len(data)} bytes, over {MAX_PICTURE_BYTES}")
    if not data:
        raise _refused(what, "it is empty")


def _refused(what: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{what} is not taken: {why}", hint=_HINT, data={"param": what})
