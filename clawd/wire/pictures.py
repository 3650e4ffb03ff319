"""Pictures and PDFs as they go with messages.

A `Picture` was decoded and encoded anew in the sandbox, so it is well formed.
"""

import base64

import msgspec

MAX_PICTURES = 20  # of one message, or one result
MAX_PICTURE_BYTES = 20 * 1024 * 1024
MAX_DOCUMENTS = 5  # of one message
MAX_DOCUMENT_BYTES = 20_000_000
PDF_MARK = b"%PDF-"
_HEAD_BYTES = 1_024
_BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")


def looks_like_picture(head: bytes) -> bool:
    """Return whether a file begins as PNG, JPEG, GIF or WebP does."""
    is_webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return is_webp or head.startswith(_BEGINNINGS)


def looks_like_pdf(head: bytes) -> bool:
    """Return whether a file begins as a PDF does; other bytes may stand before it."""
    return PDF_MARK in head[:_HEAD_BYTES]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One PDF; `name` is for people and the model alone, `data` is the file."""

    name: str
    data: bytes


class PictureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a picture.

    Attributes:
        media_type: `image/png` or `image/jpeg`.
        sha256: of the file, in hexadecimal digits.
        width: in pixels.
        height: in pixels.
    """

    media_type: str
    sha256: str
    width: int
    height: int

    @property
    def label(self) -> str:
        """What stands for it in text: `picture 640x480, sha256 2c26b46b68ff`."""
        return f"picture {self.width}x{self.height}, sha256 {self.sha256[:12]}"

    @property
    def mark(self) -> str:
        """What a receipt's result says of it, its whole hash included."""
        kind = f"{self.media_type}, {self.width}x{self.height}"
        return f"[picture: {kind}, sha256 {self.sha256}]"


class PixelGrid(msgspec.Struct, frozen=True, kw_only=True):
    """A picture as plain colours: `pixels` has a byte each of red, green and blue, row by row."""

    width: int
    height: int
    pixels: bytes


class Picture(PictureFacts, frozen=True, kw_only=True):
    """One picture, without metadata; `data` is the file."""

    data: bytes

    @property
    def facts(self) -> PictureFacts:
        """What it is, without the file."""
        return PictureFacts(
            media_type=self.media_type, sha256=self.sha256, width=self.width, height=self.height
        )

    @property
    def base64(self) -> str:
        """The file as base64."""
        return base64.b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """The file as a `data:` address."""
        return f"data:{self.media_type};base64,{self.base64}"
