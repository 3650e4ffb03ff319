"""What an export of receipts is handed over in: pieces that fit a frame."""

import msgspec


class ReceiptLogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the receipt log as they are, and where to go on; `is_end`: nothing follows now."""

    data: bytes
    file: int
    offset: int
    is_end: bool


class ContentPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that were kept by their hash, or a part; `size` is of the whole, None: not kept."""

    hash: str
    size: int | None
    data: bytes = b""


class ContentPieces(msgspec.Struct, frozen=True, kw_only=True):
    """Contents, in the order asked for; those of the end may be missing, ask for them again."""

    items: tuple[ContentPiece, ...]
