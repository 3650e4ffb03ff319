"""Pictures in requests: as clients send them, and the requests with what was made of them.

A dialect only notes where a picture is: in the body, as base64, or at an address. They are fetched
and decoded once it is known that the model sees, before anything begins.
"""

import base64
import binascii
import re
from collections.abc import Awaitable, Callable

import msgspec

from clawd.channels.http.body import invalid
from clawd.channels.http.catalogue import ModelCatalogue
from clawd.channels.http.model_api import Caller, Generation, Generations, ModelRequest
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, check_seen
from clawd.tools.pictures import Pictures
from clawd.wire.pictures import Picture

MAX_SENT = 64  # in one request, with all of its history
_DATA = re.compile(r"data:[^,;]{0,100}(?:;[^,;]{0,100})*;base64,", re.IGNORECASE)
_WEB = re.compile(r"https?://", re.IGNORECASE)

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns what is at an address, by the rules for tools of the web.

Raises:
    ClawError: the address is refused, nothing is to be had there, or the emergency stop is set.
"""


class SentPicture(Picture, frozen=True, kw_only=True):
    """A picture as a client sent it, which nobody has looked at.

    Attributes:
        where: it stands in the body.
        address: where it is to be had; "" where `data` has it.
    """

    where: str
    address: str = ""
    media_type: str = ""
    data: bytes = b""
    sha256: str = ""
    width: int = 0
    height: int = 0


def picture_of(text: object, where: str) -> SentPicture:
    """Return the picture of a text in base64.

    Raises:
        InvalidRequestError: it is none.
    """
    if not isinstance(text, str):
        raise invalid(where, "expected a picture in base64")
    plain = re.sub(r"\s+", "", text)
    alphabet = b"-_" if "-" in plain or "_" in plain else None
    try:
        padded = plain + "=" * (-len(plain) % 4)
        data = base64.b64decode(padded, alphabet, validate=True)
    except (ValueError, binascii.Error):
        raise invalid(where, "expected a picture in base64") from None
    return SentPicture(where=where, data=data)


def picture_at(url: object, where: str) -> SentPicture:
    """Return the picture of a `data:` URL, or the one that is at an address of the web.

    Raises:
        InvalidRequestError: it is neither.
    """
    if isinstance(url, str) and (found := _DATA.match(url)):
        return picture_of(url[found.end() :], where)
    if not isinstance(url, str) or not _WEB.match(url):
        raise invalid(where, "expected data:image/…;base64,… or an address with https://")
    return SentPicture(where=where, address=url)


class SeeingGenerations:
    """Runs requests once the pictures in them are read.

    Args:
        inner: runs them.
        catalogue: knows which models there are.
        pictures: decodes them.
        fetch: gets those at addresses.
    """

    def __init__(
        self, inner: Generations, catalogue: ModelCatalogue, pictures: Pictures, fetch: Fetch
    ) -> None:
        self._inner = inner
        self._catalogue = catalogue
        self._pictures = pictures
        self._fetch = fetch

    async def open(self, request: ModelRequest, caller: Caller) -> Generation:
        """Read the pictures of a request and begin it.

        Raises:
            ClawError: the model sees none, one is not taken, or the request cannot be answered.
        """
        return await self._inner.open(await self._read(request), caller)

    async def count(self, request: ModelRequest, caller: Caller) -> int:
        """Return how many tokens the prompt of a request has.

        Raises:
            ClawError: as `open`.
        """
        return await self._inner.count(await self._read(request), caller)

    async def _read(self, request: ModelRequest) -> ModelRequest:
        sent = [picture for message in request.messages for picture in message.pictures]
        if not sent:
            return request
        if len(sent) > MAX_SENT:
            raise InvalidRequestError(f"{len(sent)} pictures; a request takes {MAX_SENT}")
        choice = await self._catalogue.find(request.model)
        check_seen(choice.provider, choice.model)
        messages = tuple([await self._shown(message) for message in request.messages])
        return msgspec.structs.replace(request, messages=messages)

    async def _shown(self, message: Message) -> Message:
        pictures = tuple([await self._picture(each) for each in message.pictures])
        return msgspec.structs.replace(message, pictures=pictures)

    async def _picture(self, sent: Picture) -> Picture:
        if not isinstance(sent, SentPicture):
            return sent
        data = await self._fetch(sent.address) if sent.address else sent.data
        return await self._pictures.read(data, sent.where)
