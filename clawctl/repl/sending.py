"""Makes the text of a message: what was typed, what was pasted, and the files named with `@`."""

from pathlib import Path

import msgspec

from clawctl.render import note
from clawctl.repl.attaching import Attachment, block, is_inline, mentioned, session_name
from clawctl.repl.host import Host
from clawd.errors import InvalidRequestError
from clawd.wire.methods import OpenConversation
from clawd.wire.policy_methods import ExplainPolicy
from clawd.wire.references import reference
from clawd.wire.safe_text import visible_line
from clawd.wire.session_methods import WriteSessionFile

# What the daemon takes as one message.
MAX_TEXT_BYTES = 4 * 1024 * 1024


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent: the text, and the files of the workspace that are in it."""

    text: str
    files: tuple[str, ...] = ()


def message_of(host: Host, line: str, whole: str, folder: Path) -> Message:
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
        return Message(text=_checked(whole))

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
    for file in found.files:
        if is_inline(found.files, file):
            parts.append(block(file))
        else:
            parts.append(_stored(host, file))
        note(f"● with {visible_line(file.path)}, {len(file.content)} bytes")
    text = _checked("\n\n".join(parts))
    return Message(text=text, files=tuple(file.path for file in found.files))


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
