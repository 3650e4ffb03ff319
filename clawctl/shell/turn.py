"""Asks the model from the shell: one turn in the conversation of the folder, drawn in between.

What the shell ran is handed in; what comes back is the text for the shell's edit line, "" for none.
"""

import contextlib
import hashlib
import os
import re
import select
import signal
import stat
import sys
import termios
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from clawctl.agent_options import Choice, Mode
from clawctl.app import App
from clawctl.approve import Terminal
from clawctl.client import LOST, reason_of
from clawctl.render import Palette, note, show_error
from clawctl.repl.host import BaseHost, wait_long
from clawctl.repl.plain_view import new_view
from clawctl.repl.slash import is_command, run_command
from clawctl.request_follower import View, follow, run_tool, show_outcome
from clawctl.shell.command_log import Records
from clawctl.shell.question import AskedLine, Question, line_of, question
from clawctl.turn import ViewOptions
from clawctl.workspace_trust import is_own, placed
from clawd.errors import ClawError
from clawd.kernel.files import changed_at, replace_file
from clawd.paths import layout
from clawd.wire.conversations import ConversationLine, SetMode
from clawd.wire.daemon import Status
from clawd.wire.events import Event, TurnFinished, TurnStarted
from clawd.wire.method import Method
from clawd.wire.policy import ShowPolicy
from clawd.wire.safe_text import has_invisible, visible, visible_line
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import SendMessage

OLD_NAME = ".clawd_session"
FOLDERS = "folders"
MAX_BYTES = 256
MAX_FOLDERS = 2_000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

MAX_ANSWER_BYTES = 4_096

MAX_PROPOSALS = 9
MAX_COMMAND_CHARS = 4_096
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([A-Za-z0-9_+-]*)")
_LINE = re.compile(r"CMD:[ \t]+(\S.*)")
_SHELLS = {"sh", "bash", "shell", "zsh", "fish", "console", "shell-session", "shellsession"}
_SESSIONS = {"console", "shell-session", "shellsession"}

_ABSENT: Mapping[str, str] = {
    "/editor": "your shell's own key opens the editor: Ctrl-X Ctrl-E in bash.",
    "/refine": "it is in `clawctl agent`: here a line after the first would be a command of yours.",
    "/paste": "it is in `clawctl agent`.",
    "/resume": "`> /memory` lists conversations, `> /continue ID` goes on with one.",
    "/exit": "it is your own shell: leave it with exit or Ctrl-D.",
    "/quit": "it is your own shell: leave it with exit or Ctrl-D.",
}
_KEYS = """\
> text asks; ? explains the last failure. @last and @-2 stand for the output of a command.
Tools work in the folder you are in, and each folder has a conversation of its own.
A proposed command goes into your prompt, where you change it and press Enter.
Ctrl-C stops the answer. Ctrl-\\ during an answer is the emergency stop."""
_NOT_THERE = {"not_found", "forbidden"}

R = TypeVar("R")


class AskedFolder(msgspec.Struct, kw_only=True):
    """What is known of a folder that was asked from.

    Attributes:
        conversation_id: empty for a new one.
        workspace: the folder, or empty where it is not allowed as one.
        from_file: whether the conversation is only what a file names.
        last: the last turn of the conversation here, None before the first.
        last_text: what was asked last, "" before the first.
        is_reported: whether the person was told where and in which mode tools act here.
        is_placed: whether it was found out, and asked, if the model may work here.
        mode: what the conversation that begins here next is to have, as the person said here, or
            readonly since nobody trusts the folder; else "".
    """

    conversation_id: str
    workspace: str
    from_file: bool = False
    last: TurnFinished | None = None
    last_text: str = ""
    is_reported: bool = False
    is_placed: bool = False
    mode: Mode = ""

    def forget_mode(self) -> None:
        """Take back what was said, but for readonly: nothing goes further than was wanted."""
        self.mode = "readonly" if self.mode == "readonly" else ""


class Asking(BaseHost):
    """The asking half of the shell; its commands see it as a `host.Host`.

    Args:
        app: the way to the daemon.
        choice: agent, provider and model; `resume` goes on with what a folder's file names.
        records: what the shell ran.
        known: returns values that are secret.
        keeps_file: whether the conversation of a folder is remembered.
    """

    keys = _KEYS
    absent = _ABSENT
    program = "clawctl shell"
    prompt = "> "

    def __init__(
        self,
        app: App,
        choice: Choice,
        records: Records,
        *,
        known: Callable[[], tuple[str, ...]],
        keeps_file: bool = True,
    ) -> None:
        super().__init__(app, choice)
        self._records = records
        self._known = known
        self._keeps_file = keeps_file
        self._terminal: Terminal | None = None
        self._folders: dict[str, AskedFolder] = {}
        self._here = AskedFolder(conversation_id="", workspace="")
        self._context_size = 0
        self._warned = False
        self._edit_line = ""

    @property
    def directory(self) -> Path:
        """The shell's folder: names of files begin there."""
        return Path(self._records.cwd or ".")

    @property
    def workspace(self) -> str:
        """The shell's folder, empty where the configured workspace is used."""
        return self._here.workspace

    @property
    def conversation_id(self) -> str:
        """The conversation of the shell's folder, empty for a new one."""
        return self._here.conversation_id

    @conversation_id.setter
    def conversation_id(self, conversation_id: str) -> None:
        self._here.conversation_id = conversation_id

    @property
    def last(self) -> TurnFinished | None:
        """The last turn in the shell's folder."""
        return self._here.last

    @property
    def last_text(self) -> str:
        """What was asked last in the shell's folder."""
        return self._here.last_text

    def ask(self, entered: str) -> str:
        """Answer a line; return what goes into the shell's edit line."""
        before = signal.signal(signal.SIGQUIT, lambda *_: self.stop_everything())
        self._terminal = Terminal.open()
        self._edit_line = ""
        try:
            self._here = self._folder(self._records.cwd)
            self._answer(line_of(entered))
        except ClawError as error:
            if error.code == "cancelled":
                note("● stopped")
            else:
                show_error(error)
            if error.code == "unreachable":
                self._link.drop()
            if reason_of(error) == LOST:
                self._reconnect()
        except KeyboardInterrupt:
            # The daemon did not stop at the first press: leave it alone, take a new connection.
            self._link.drop()
            note("● stopped")
        finally:
            sys.stdout.flush()
            if self._terminal is not None:
                self._terminal.close()
                self._terminal = None
            signal.signal(signal.SIGQUIT, before)
        return self._edit_line

    def close(self) -> None:
        """Close the connection."""
        self._link.drop()

    def wait_for(self, params: Method[R], what: str) -> R:
        """Call a method that may take long, and show that it goes on."""
        return wait_long(self.client().stream(params), what, lambda: None)

    def run_tool(self, request: RunTool) -> ToolOutcome:
        """Run a tool in the conversation, if there is one, show and return what came of it."""
        self._place()
        call = msgspec.structs.replace(
            request, workspace=self.workspace, conversation_id=self.conversation_id
        )
        outcome = run_tool(self.client(), call, self._terminal)
        show_outcome(outcome, is_quiet=request.name == "undo")
        return outcome

    def send(self, text: str) -> None:
        """Ask as if it had been typed."""
        self._converse(AskedLine(text=text))

    def offer(self, text: str, *, is_typed: bool = False) -> None:  # noqa: ARG002 no file is named here
        """Put a question into the shell's edit line."""
        self._edit_line = f"> {text}"

    def leave(self) -> None:
        """Do nothing: the shell is the person's, and ends as it always does."""

    def go_on_in(self, conversation: ConversationLine | None) -> None:
        """Let the next question here go to this conversation; None opens a new one."""
        here = self._here
        here.conversation_id = conversation.id if conversation is not None else ""
        here.from_file = False
        here.last = None
        if conversation is not None:
            here.forget_mode()  # it was said for a conversation to begin; this one has its own

    @property
    def mode(self) -> Mode:
        """The mode that the next question here asks for."""
        return self._here.mode

    def set_mode(self, mode: Mode) -> None:
        """Let the model go that far in this folder's conversation, or in the one to begin."""
        if self._here.conversation_id:
            self.call(SetMode(conversation_id=self._here.conversation_id, mode=mode))
        else:
            self._here.mode = mode

    def _answer(self, line: AskedLine) -> None:
        if not line.explains and is_command(line.text):
            run_command(self, line.text)
        elif line.explains and self._records.last_failure is None:
            note("No command has failed in this shell yet: there is nothing to explain.")
        else:
            self._converse(line)

    def _converse(self, line: AskedLine) -> None:
        """Ask, show the answer, and offer the commands in it."""
        asked = question(
            line, self._records, self._known(), is_first=not self._here.conversation_id
        )
        if asked.missing:
            note(f"● not kept, so not sent: {', '.join(asked.missing)}")
        if not line.explains:
            self._here.last_text = line.text
        started = time.monotonic()
        finished = self._turn(asked)
        self._here.last = finished
        self.spent = self.spent.after(finished.usage, time.monotonic() - started)
        proposals = proposals_in(finished.text)
        if not proposals or self._terminal is None:
            return
        if not self._warned:
            self._warned = True
            note("● It would run in your own shell, outside the sandbox.")
        self._edit_line = choose(proposals)

    def _turn(self, asked: Question) -> TurnFinished:
        """Send the question, and once more where the folder or its file asks for too much.

        From a folder that is not allowed tools work in the configured workspace; a conversation
        that a file names and the daemon does not know gives way to a new one.
        """
        here = self._here
        try:
            return self._send(asked)
        except ClawError as error:
            if here.from_file and error.code in _NOT_THERE:
                note("● This folder's conversation is gone: a new one begins.")
                here.conversation_id, here.from_file = "", False
            elif here.workspace and not here.conversation_id and "workspace" in (error.data or {}):
                here.workspace = ""
                here.forget_mode()  # it was said for this folder
                show_error(error)
                note("● Tools work in the configured workspace instead, not in this folder.")
            else:
                raise
        return self._send(asked)

    def _send(self, asked: Question) -> TurnFinished:
        view = new_view(
            sys.stdout, sys.stdout, ViewOptions(spaced=True, reasoning=self.shows_reasoning)
        )
        view.context_size = self._context_size
        finished: TurnFinished | None = None
        self._place()
        configured = "" if self._here.is_reported else self.call(Status()).autonomy
        try:
            stream = self.client().stream(self._request(asked))
            finished = follow(
                stream, view, self._terminal, heard=partial(self._report_where, configured)
            )
        finally:
            self._remember(view)
            view.finish(finished.text if finished is not None else None, finished)
        return finished

    def _report_where(self, configured: str, event: Event) -> None:
        """Say once in each folder where tools act and how far the model may go there."""
        if isinstance(event, TurnStarted) and not self._here.is_reported:
            self._here.is_reported = True
            note(f"● tools act in {visible_line(event.workspace)} · {event.mode or configured}")

    def _request(self, asked: Question) -> SendMessage:
        here = self._here
        choice = msgspec.structs.replace(self.choice, workspace=here.workspace, mode=self.mode)
        request = choice.message(
            asked.text, self._here.conversation_id, interactive=self._terminal is not None
        )
        return msgspec.structs.replace(request, untrusted=asked.untrusted, system=self.system)

    def _place(self) -> None:
        """Find out once in each folder whether the model may work here, as the REPL does."""
        here = self._here
        if here.is_placed or not here.workspace:
            return
        client = self.client()
        if is_own(client):
            start = msgspec.structs.replace(self.choice, workspace="", here=True, mode="")
            found = placed(self.app, start, client, self._terminal, Path(here.workspace))
            if found.workspace or here.workspace != client.call(ShowPolicy()).workspace:
                here.workspace = found.workspace
            here.mode = found.mode or here.mode  # who does not trust a folder wants no more there
        here.is_placed = True

    def _remember(self, view: View) -> None:
        """Keep the conversation that a turn began in, for this folder."""
        self._context_size = view.context_size
        conversation_id = view.conversation_id
        if conversation_id:
            self._here.mode = ""  # it is the conversation's now
        self._here.from_file = self._here.from_file and not conversation_id
        if not conversation_id or conversation_id == self._here.conversation_id:
            return
        self._here.conversation_id = conversation_id
        if self._keeps_file and self._records.cwd:
            try:
                write_session(Path(self._records.cwd), layout().home, conversation_id)
            except OSError as error:
                note(f"● this folder does not remember its conversation: {error.strerror or error}")

    def _folder(self, cwd: str) -> AskedFolder:
        known = self._folders.get(cwd)
        if known is None:
            resumed = self._resumed(cwd)
            known = AskedFolder(
                conversation_id=resumed, workspace=_real(cwd), from_file=bool(resumed)
            )
            self._folders[cwd] = known
        return known

    def _resumed(self, cwd: str) -> str:
        if not (cwd and self._keeps_file and self.choice.resume):
            return ""
        try:
            return read_session(Path(cwd), layout().home)
        except ClawError as error:
            show_error(error)
            return ""

    def _reconnect(self) -> None:
        try:
            self.client()
        except ClawError as error:
            show_error(error)


def _real(cwd: str) -> str:
    return os.path.realpath(cwd) if cwd.startswith("/") else ""


# Commands that an answer proposes, and whether one may stand in a person's prompt. Pure.


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


# Offers proposed commands: shown whole, one of them goes into the shell's edit line, or none.
#
# Nothing runs here. What is chosen stands at the person's prompt, where it can be changed, and runs
# when they press Enter there.


def choose(proposals: tuple[Proposal, ...], descriptor: int = 0) -> str:
    """Show the proposals and return the one that was chosen, "" for none.

    Enter takes the first, a number that one, anything else none. What was typed before is dropped.
    """
    palette = Palette.of(sys.stdout)
    for number, proposal in enumerate(proposals, 1):
        first, *more = proposal.shown.split("\n")
        print(f"{palette.cyan(f'  {number}')}  {palette.bold(first)}")
        for line in more:
            print(f"     {palette.bold(line)}")
        if proposal.problem:
            print(palette.red(f"     cannot be put into your prompt: {proposal.problem}"))
    usable = [each for each in proposals if not each.problem]
    if not usable:
        return ""
    answer = _asked(palette, len(proposals), descriptor)
    if answer is None:
        return ""
    if not answer:
        return usable[0].command
    number = int(answer) if answer.isascii() and answer.isdigit() and len(answer) < 3 else 0
    if not 1 <= number <= len(proposals):
        return ""
    chosen = proposals[number - 1]
    if chosen.problem:
        note(f"{number} cannot be put into your prompt: {chosen.problem}")
        return ""
    return chosen.command


def _asked(palette: Palette, count: int, descriptor: int) -> str | None:
    """Return what was answered; None at Ctrl-C, Ctrl-D, or when it is no single line."""
    which = "Enter" if count == 1 else f"Enter or 1-{count}"
    hint = palette.dim("(n leaves it)")
    try:
        termios.tcflush(descriptor, termios.TCIFLUSH)
        print(f"{which} puts it into your prompt {hint} ", end="", flush=True)
        data = os.read(descriptor, MAX_ANSWER_BYTES)
    except (KeyboardInterrupt, OSError, termios.error):
        print()
        return None
    # Several lines at once are a paste and no answer.
    if not data.endswith(b"\n") or select.select([descriptor], [], [], 0)[0]:
        print()
        return None
    return data.decode(errors="replace").strip()


# Which conversation belongs to a folder: a file in the home of clawd, named for the folder.
#
#     <home>/folders/<hash of the folder's real path>:   conv-7f3a…
#
# Earlier ones lay in the folder itself, as `.clawd_session`, where every `git status` showed them:
# one that is found is moved. A folder may have been made by anybody, so nothing in it is believed:
# the file is followed nowhere (no link, no pipe), has to be the person's own and of nobody else's
# writing, and what it holds has to look like an id. The daemon then tells whose conversation it is.


def read_session(folder: Path, home: Path) -> str:
    """Return the conversation of a folder, "" where there is none; an old file is moved.

    Raises:
        ClawError: there is a file that is not to be trusted; the message says why.
    """
    kept = _read(_place(folder, home))
    if kept:
        return kept
    old = _read(folder / OLD_NAME)
    if old:
        # It stays what it was where it cannot be moved: the next question tries it again.
        with contextlib.suppress(OSError):
            write_session(folder, home, old)
    return old


def write_session(folder: Path, home: Path, conversation_id: str) -> None:
    """Let a conversation belong to a folder.

    Raises:
        OSError: the home takes no files.
    """
    place = _place(folder, home)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(place, f"{conversation_id}\n".encode("ascii"))
    _forget_oldest(place.parent)
    _remove_old(folder / OLD_NAME)


def _place(folder: Path, home: Path) -> Path:
    real = os.path.realpath(folder)
    return home / FOLDERS / hashlib.sha256(os.fsencode(real)).hexdigest()[:32]


def _forget_oldest(folders: Path) -> None:
    """Keep the newest; what a folder is not asked from any more need not be known."""
    for path in sorted(folders.iterdir(), key=changed_at)[:-MAX_FOLDERS]:
        with contextlib.suppress(OSError):
            path.unlink()


def _remove_old(path: Path) -> None:
    """Remove the file of earlier versions, if it is one that would be believed."""
    with contextlib.suppress(ClawError, OSError):
        if _read(path):
            path.unlink()


def _read(path: Path) -> str:
    """Return the id in a file, "" where there is no file.

    Raises:
        ClawError: there is one that is not to be trusted; the message says why.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        why = "it is a symbolic link" if path.is_symlink() else error.strerror
        raise _refused(path, str(why)) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise _refused(path, "it is not a file")
        if facts.st_uid != os.geteuid():
            raise _refused(path, f"it belongs to uid {facts.st_uid}")
        if facts.st_mode & 0o077:
            raise _refused(path, f"its mode is {stat.S_IMODE(facts.st_mode):04o}, not 0600")
        data = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    text = data.decode("ascii", errors="replace").removesuffix("\n")
    if not _ID.fullmatch(text):
        raise _refused(path, "it holds no id of a conversation")
    return text


def _refused(path: Path, why: str) -> ClawError:
    return ClawError(
        f"{path} is not used: {why}",
        hint="Remove it, or leave it out with --no-local-session.",
    )
