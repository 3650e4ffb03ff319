"""Commands that an answer proposes, and whether one may stand in a person's prompt. Pure."""

import re

import msgspec

from clawd.wire.safe_text import has_invisible, visible

MAX_PROPOSALS = 9
MAX_COMMAND_CHARS = 4_096

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([A-Za-z0-9_+-]*)")
_LINE = re.compile(r"CMD:[ \t]+(\S.*)")
_SHELLS = {"sh", "bash", "shell", "zsh", "fish", "console", "shell-session", "shellsession"}
_SESSIONS = {"console", "shell-session", "shellsession"}


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One proposed command.

    Attributes:
        command: exactly as proposed; may have several lines.
        problem: why it may not be put into a prompt, empty where it may.
    """

    command: str
    problem: str = ""

    @property
    def shown(self) -> str:
        """The command for a terminal, every hidden character written out."""
        return visible(self.command)


def proposals_in(text: str) -> tuple[Proposal, ...]:
    """Return the commands of an answer, in order, each once: fenced shell blocks, `CMD:` lines."""
    found: list[str] = []
    fence, block, is_command, is_session = "", list[str](), False, False
    for line in text.replace("\r\n", "\n").split("\n"):
        mark = _FENCE.match(line)
        if not fence:
            if mark:
                fence, block = mark[1], []
                is_command, is_session = mark[2].lower() in _SHELLS, mark[2].lower() in _SESSIONS
            elif command := _LINE.fullmatch(line):
                found.append(command[1].strip())
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            if is_command:
                found.append(_block(block, is_session=is_session))
            fence = ""
        else:
            block.append(line)
    return tuple(_judged(each) for each in dict.fromkeys(found) if each)[:MAX_PROPOSALS]


def _block(lines: list[str], *, is_session: bool) -> str:
    """Return the command of a block; a session's are its lines after a prompt."""
    if is_session and any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    elif all(line.startswith("$ ") for line in lines if line.strip()):
        lines = [line.removeprefix("$ ") for line in lines]
    kept = [line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    # A block of comments alone proposes nothing; one with commands keeps them where they stand.
    return "\n".join(line.rstrip() for line in lines).strip("\n ") if kept else ""


def _judged(command: str) -> Proposal:
    if len(command) > MAX_COMMAND_CHARS:
        return Proposal(command=command, problem=f"it is over {MAX_COMMAND_CHARS} characters long")
    if has_invisible(command):
        return Proposal(command=command, problem="it holds characters that cannot be seen")
    return Proposal(command=command)
