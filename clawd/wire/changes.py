"""What the control socket tells of changes of files, those made and those that would be."""

from typing import Literal

import msgspec


class ChangeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one file that can be taken back.

    Attributes:
        receipt_id: of the call; what one call changed is undone as a whole.
        path: relative to the workspace, or absolute when it lies outside.
        action: what the call did.
        size_before: bytes that the file had; 0 when there was none. `size_after` likewise.
    """

    receipt_id: str
    at: str
    tool: str
    path: str
    action: Literal["created", "changed", "removed"]
    size_before: int
    size_after: int
    conversation_id: str
    workspace: str


class ChangeList(msgspec.Struct, frozen=True, kw_only=True):
    """Changes, newest first."""

    items: tuple[ChangeLine, ...]


Mark = Literal["+", "-", " ", "@"]


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    r"""One line of a diff.

    Attributes:
        mark: `+` comes, `-` goes, a blank stays; `@` stands where lines that stay were left out.
        text: without its `\n`; bytes that are no UTF-8 are written out, `\xff`.
        number: from 1: in the old file for a line that goes, else in the new one; 0 is unknown.
        has_end: whether a `\n` ends it.
        raw: its bytes, where they are no UTF-8.
    """

    mark: Mark
    text: str = ""
    number: int = 0
    has_end: bool = True
    raw: bytes = b""


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What a call makes of one file.

    Unless it is cut, the old content and the lines give the new content, to the byte.

    Attributes:
        path: relative to the workspace, or absolute when it lies outside.
        is_new: there is no file before.
        is_removed: there is none afterwards.
        is_binary: the old or the new content is no text.
        is_cut: lines were left out that come or go; `added` and `removed` count them all.
        old_size: bytes; `new_size` likewise.
        note: what becomes of it beside its lines: that it is a link or folder, its permissions.
        old_sha256: of the content that the call was shown for, in hex; "" for none. The call is
            refused when the file holds another. `new_sha256` likewise: nothing else is written.
    """

    path: str
    lines: tuple[DiffLine, ...] = ()
    is_new: bool = False
    is_removed: bool = False
    is_binary: bool = False
    is_cut: bool = False
    added: int = 0
    removed: int = 0
    old_size: int = 0
    new_size: int = 0
    old_sha256: str = ""
    new_sha256: str = ""
    note: str = ""
