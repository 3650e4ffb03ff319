"""Makes the text of a message: what was typed, what was pasted, and the files named with `@`."""

import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from clawctl.render import note
from clawctl.repl.host import Host
from clawd.errors import InvalidRequestError
from clawd.wire.conversations import OpenConversation, WriteSessionFile
from clawd.wire.pictures import (
    MAX_DOCUMENT_BYTES,
    MAX_PICTURE_BYTES,
    PDF_MARK,
    Document,
    looks_like_picture,
)
from clawd.wire.policy import ExplainPolicy
from clawd.wire.references import mentions, reference
from clawd.wire.safe_text import fenced, visible_line

_INLINE_BYTES = 16 * 1024
_INLINE_BYTES_IN_ALL = 64 * 1024
_MAX_FILE_BYTES = 8 * 1024 * 1024
_MAX_FILES = 20
_SNIFFED_BYTES = 8_192

# What the daemon takes as one message.
MAX_TEXT_BYTES = 4 * 1024 * 1024


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file that goes with a message; `path` is relative to the workspace."""

    path: str
    content: bytes

    @property
    def is_picture(self) -> bool:
        """Whether the model is to see it, and not to read it."""
        return looks_like_picture(self.content)

    @property
    def is_document(self) -> bool:
        """Whether the daemon is to read it."""
        return self.content.startswith(PDF_MARK)


class _Mentions(msgspec.Struct, frozen=True, kw_only=True):
    """What a message names with `@`; `remarks` are for the person."""

    files: tuple[Attachment, ...]
    remarks: tuple[str, ...] = ()


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent: the text, the files of the workspace that are in it, pictures and PDFs."""

    text: str
    files: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()
    documents: tuple[Document, ...] = ()


def message_of(host: Host, line: str, whole: str, folder: Path) -> OutgoingMessage:
    """Return the message that a line stands for; long files are stored in the conversation first.

    Args:
        host: the REPL.
        line: what was typed of it, without pastes: only that names files.
        whole: the same, pastes unfolded.
        folder: the workspace.

    Raises:
        InvalidRequestError: it is too long, or a file cannot go with it.
    """
    if "@" not in line:
        return OutgoingMessage(text=_checked(whole))

    def may_read(path: str) -> str:
        arguments = msgspec.json.encode({"path": path}).decode()
        found = host.call(
            ExplainPolicy(tool="file_read", arguments=arguments, workspace=str(folder))
        )
        return found.reason if found.verdict == "deny" else ""

    found = mentioned(line, folder, may_read)
    for remark in found.remarks:
        note(f"● {visible_line(remark)}")
    parts = [whole]
    pictures = tuple(file.content for file in found.files if file.is_picture)
    documents = tuple(
        Document(name=file.path, data=file.content) for file in found.files if file.is_document
    )
    texts = tuple(file for file in found.files if not (file.is_picture or file.is_document))
    for file in found.files:
        if file in texts:
            parts.append(block(file) if _is_inline(texts, file) else _stored(host, file))
        note(f"● with {visible_line(file.path)}, {len(file.content)} bytes")
    text = _checked("\n\n".join(parts))
    files = tuple(file.path for file in found.files)
    return OutgoingMessage(text=text, files=files, pictures=pictures, documents=documents)


def _stored(host: Host, file: Attachment) -> str:
    if not host.conversation_id:
        request = OpenConversation(workspace=host.workspace, agent=host.choice.agent)
        host.conversation_id = host.call(request).id
    name = session_name(file.path)
    host.call(
        WriteSessionFile(conversation_id=host.conversation_id, name=name, content=file.content)
    )
    return f"[file {file.path}, {len(file.content)} bytes, is {reference(name)}: read it there]"


def _checked(text: str) -> str:
    size = len(text.encode(errors="replace"))
    if size > MAX_TEXT_BYTES:
        raise InvalidRequestError(
            f"the message has {size} bytes; at most {MAX_TEXT_BYTES} can be sent",
            hint="Save it to a file of the workspace and name it with @file.",
        )
    return text


# `@file` in a message: what the file holds goes with the message.
#
# A short text is written below the message, a long one becomes a session file that the model reads
# with its tools, a picture or a PDF goes as it is. The daemon's own policy says whether a file may
# be read; one outside of the workspace and other data that is no text are refused before anything
# is sent.


def mentioned(text: str, workspace: Path, may_read: Callable[[str], str]) -> _Mentions:
    """Return the files that a message names.

    Args:
        text: the message.
        workspace: its folder; paths are relative to it.
        may_read: returns why a file may not be read, "" when it may.

    Raises:
        InvalidRequestError: one of them cannot go with a message.
    """
    files: dict[str, Attachment] = {}
    remarks: list[str] = []
    for word, *others in mentions(text):
        path = _meant((word, *others), workspace)
        if path is None:
            if "/" in word or re.search(r"\w\.\w{1,5}$", word):
                remarks.append(f"@{word}: there is no such file in {workspace}; sent as it is")
            continue
        if path.is_dir():
            _inside(word, path, workspace)
            remarks.append(f"@{word} is a folder: the model looks into it with its tools")
            continue
        name = str(_inside(word, path, workspace))
        if name not in files:
            refused = may_read(name)
            if refused:
                raise InvalidRequestError(
                    f"@{word} may not be read: {refused}", hint="Leave it out; @ names files."
                )
            files[name] = Attachment(path=name, content=_content(word, workspace.resolve() / name))
    if len(files) > _MAX_FILES:
        raise InvalidRequestError(
            f"{len(files)} files are too many for one message; at most {_MAX_FILES}",
            hint="Name a folder instead: the model looks into it with its tools.",
        )
    return _Mentions(files=tuple(files.values()), remarks=tuple(remarks))


def _is_inline(files: tuple[Attachment, ...], file: Attachment) -> bool:
    """Return whether a file is short enough to be written below the message."""
    short = [each for each in files if len(each.content) <= _INLINE_BYTES]
    return file in short and sum(len(each.content) for each in short) <= _INLINE_BYTES_IN_ALL


def block(file: Attachment) -> str:
    """Return a file as it is written below a message; no text in it can end the block."""
    text = file.content.decode(errors="replace").rstrip("\n")
    return f"[file {file.path}]\n{fenced(text)}"


def session_name(path: str) -> str:
    """Return the name of the session file for a path."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path).strip(".-_")[-100:]
    return name.lstrip(".-_") or "file"


def _meant(words: Sequence[str], workspace: Path) -> Path | None:
    """Return the file or folder that one of the readings of a word names."""
    for name in words:
        try:
            path = workspace / Path(name).expanduser() if name[0] == "~" else workspace / name
            if stat.S_IFMT(path.stat().st_mode) in {stat.S_IFREG, stat.S_IFDIR}:
                return path
        except PermissionError as error:
            raise InvalidRequestError(
                f"@{words[0]} may not be read: permission denied",
                hint="Name it without the @ and let the model read it with its tools.",
            ) from error
        except (OSError, ValueError, RuntimeError):  # the last one: ~name of nobody
            continue
    return None


def _inside(word: str, path: Path, workspace: Path) -> Path:
    try:
        return path.resolve().relative_to(workspace.resolve())
    except ValueError as error:
        raise InvalidRequestError(
            f"@{word} lies outside of the workspace {workspace}",
            hint="Copy it into the workspace, or start in its folder: clawctl agent -C DIR",
        ) from error


def _content(word: str, path: Path) -> bytes:
    try:
        # The file that the policy was asked about: meanwhile it may have become a link, or a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a descriptor
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidRequestError(
                    f"@{word} is not a file any more", hint="Look at it again."
                )
            content = file.read(_SNIFFED_BYTES)
            is_picture, is_document = looks_like_picture(content), content.startswith(PDF_MARK)
            most = MAX_DOCUMENT_BYTES if is_document else _MAX_FILE_BYTES
            most = MAX_PICTURE_BYTES if is_picture else most
            content += file.read(most + 1 - len(content))
    except OSError as error:
        raise InvalidRequestError(
            f"@{word} cannot be read: {error.strerror}",
            hint="Name it without the @ and let the model read it with its tools.",
        ) from error
    if len(content) > most:
        raise InvalidRequestError(
            f"@{word} is larger than {most // 1024**2} MiB",
            hint="Name it without the @: the model reads parts of it with its tools.",
        )
    if b"\0" in content[:_SNIFFED_BYTES] and not (is_picture or is_document):
        raise InvalidRequestError(
            f"@{word} is neither text nor a PDF, PNG, JPEG, GIF or WebP",
            hint="Name it without the @ and say what the model should do with it.",
        )
    return content
