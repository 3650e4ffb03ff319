"""The REPL: reads a message, shows its turn, and again. The conversation lives in the daemon."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from clawctl.agent_options import Choice, Mode
from clawctl.app import App, Exit, current_folder
from clawctl.approve import Terminal
from clawctl.render import note, show_error
from clawctl.repl.acts.talk import messages, show_end
from clawctl.repl.bar_state import Pulse, SessionStanding
from clawctl.repl.host import BaseHost, Host, Opening, wait_long
from clawctl.repl.lines import AttentiveView, Lines, PipedLines, PlainLines, Steering, TypeAhead
from clawctl.repl.message_text import OutgoingMessage, message_of
from clawctl.repl.slash import is_command, own_command, run_command
from clawctl.repl.suggestions import known_to
from clawctl.request_follower import View, follow, listening, show_outcome
from clawctl.safe_stream import plain
from clawctl.settings import is_plain, read_settings
from clawctl.turn import TurnView, ViewOptions
from clawctl.workspace_trust import placed, real_folder
from clawd.errors import ClawError, InvalidRequestError
from clawd.paths import layout
from clawd.wire.conversations import ConversationLine, SetMode
from clawd.wire.daemon import StatusReport
from clawd.wire.events import Event, TurnFinished, TurnStarted
from clawd.wire.method import Method
from clawd.wire.safe_text import visible_line
from clawd.wire.skills import FillCommand
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import PreviewPicture

_TO_LEAVE = 3
_WINDOW_S = 1.0

HISTORY_FILE = "history"
KEYS = """\
Enter sends; Alt-Enter, Ctrl-J or a backslash at the end begin a new line.
Tab completes commands, paths and @file; a file that is named with @ goes with the message.
Shift-Tab goes through the modes supervised, edits and readonly; /mode names them all.
Up and Down find lines that begin as yours; Ctrl-R searches. Ctrl-X Ctrl-E or Ctrl-G opens $EDITOR.
Ctrl-C stops the answer, or clears the line; three in a second leave. Ctrl-D leaves.
Ctrl-\\ is the emergency stop. Ctrl-Z suspends."""

R = TypeVar("R")


class _Presses(list[float]):
    """The times of the presses, oldest first; a signal handler may add to them."""

    def add(self, count: int = 1) -> None:
        """Take note of presses that were just heard."""
        self.extend([time.monotonic()] * count)

    def are_many(self) -> bool:
        """Return whether there were enough lately to leave; older ones are forgotten."""
        now = time.monotonic()
        while self and now - self[0] > _WINDOW_S:
            del self[0]
        return len(self) >= _TO_LEAVE


def converse(app: App, choice: Choice) -> int:
    """Hold a conversation until the person leaves; return the exit code."""
    session = ReplSession(app, choice)
    try:
        return session.run()
    finally:
        session.close()


class ReplSession(BaseHost):
    """One REPL; its commands see it as a `host.Host`, which says what the attributes are."""

    keys = KEYS

    def __init__(self, app: App, choice: Choice) -> None:
        super().__init__(app, choice)
        self.conversation_id = ""
        self.mode: Mode = choice.mode
        self._resumed: ConversationLine | None = None
        self.last: TurnFinished | None = None
        self.last_text = ""
        self._last_supplied = OutgoingMessage(text="")
        self._presses = _Presses()
        self._is_leaving = False
        self._is_reading = False
        self._is_deaf = True  # a press is counted, and raises nothing
        self._has_begun = False
        self._is_interrupted = False
        self._offered = ""
        self._draws: str | None = None
        self._on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._terminal = Terminal.open() if choice.interactive else None
        self._typed = TypeAhead(sys.stdin.fileno() if self._on_terminal else None)
        self._pulse = Pulse(app.running_client, lambda: self.conversation_id)
        self._standing = SessionStanding(self, self._pulse)
        self._lines: Lines = PipedLines()

    @property
    def workspace(self) -> str:
        """The conversation's workspace, empty for the configured one."""
        return self._resumed.workspace if self._resumed is not None else self.choice.workspace

    @property
    def directory(self) -> Path:
        """The folder in which this runs."""
        return current_folder()

    def run(self) -> int:
        """Read and answer until the end."""
        # The daemon greets while the editor is imported: that takes longer than anything else.
        opening = Opening(self._link)
        self._lines = self._new_lines()
        report = opening.result()
        self._standing.hear(report)
        if self.choice.picks and not self._pick(report):
            return Exit.DONE
        self.choice = placed(self.app, self.choice, self.client(), self._terminal)
        self.mode = self.choice.mode
        resumed = self.choice.resumed(self.client())
        if resumed is not None:
            self.go_on_in(resumed, mode=self.choice.mode)
        if self._on_terminal:
            self._greet(report)
            if resumed is not None and resumed.messages:
                show_end(self, resumed)
            elif resumed is not None:
                note("● no conversation of this folder yet: a new one begins")
        failed = False
        with self._signals():
            while not self._is_leaving:
                try:
                    failed = not self._next()
                except EOFError:
                    break
                except KeyboardInterrupt:
                    self._leave_if_pressed_often()
        if self._is_interrupted:
            return Exit.INTERRUPTED
        # A pipe has nobody who saw the error go by.
        return Exit.FAILED if failed and not self._on_terminal else Exit.DONE

    def _pick(self, report: StatusReport) -> bool:
        """Let the person choose a conversation; False where they chose none."""
        from clawctl.repl import conversation_picker

        folder = self.choice.workspace or real_folder(
            str(current_folder()) if self.choice.here else report.workspace
        )
        offered = conversation_picker.talks(self.client(), folder)
        if not offered:
            note("● there is no conversation yet: a new one begins")
            return True
        chosen = conversation_picker.choose(offered)
        self.choose(conversation_id=chosen, here=False)
        return bool(chosen)

    def close(self) -> None:
        """Close the connections and the terminal."""
        self._pulse.close()
        self._link.drop()
        self._typed.close()
        if self._terminal is not None:
            self._terminal.close()

    # --- what commands may do

    def wait_for(self, params: Method[R], what: str) -> R:
        """Call a method that may take long, and show that it goes on."""
        return wait_long(self.client().stream(params), what, self._typed.take_in)

    def run_tool(self, request: RunTool) -> ToolOutcome:
        """Run a tool in the conversation, if there is one, show and return what came of it."""
        call = msgspec.structs.replace(
            request,
            workspace=self.workspace,
            conversation_id=self.conversation_id,
            interactive=self._terminal is not None,
        )
        outcome = self._follow_calls(call)
        show_outcome(outcome, is_quiet=request.name == "undo")
        return outcome

    def _follow_calls(self, request: Method[R]) -> R:
        """Make a request that calls tools, ask what is to be asked, and return its result."""
        options = ViewOptions(text=False, calls=False, metrics=False)
        view = AttentiveView(TurnView(sys.stdout, sys.stderr, options), self._typed)
        try:
            return follow(self.client().stream(request), view, self._terminal, self._presses)
        finally:
            view.finish(None)

    def offer(self, text: str, *, is_typed: bool = False) -> None:
        """Put a text into the next prompt."""
        self._offered = self._lines.written(text) if is_typed else text

    def leave(self) -> None:
        """End after this line."""
        self._is_leaving = True

    def go_on_in(self, conversation: ConversationLine | None, *, mode: Mode = "") -> None:
        """Let the next message go to this conversation, in its mode; None opens a new one.

        `mode` is another one that was asked for as this began. What a new conversation was to have
        is not for one that is there.
        """
        self._resumed = conversation
        self.conversation_id = conversation.id if conversation is not None else ""
        if conversation is not None:
            self.mode = mode or _mode_of(conversation)
        self.choose(mode=self.mode if conversation is None else mode)
        self.last = None

    def set_mode(self, mode: Mode) -> None:
        """Let the model go that far in this conversation, or in the one that begins next."""
        if self.conversation_id:
            request = SetMode(conversation_id=self.conversation_id, mode=mode)
            self.mode = _mode_of(self.call(request))
            self.choose(mode="")
        else:
            self.mode = mode
            self.choose(mode=mode)

    # --- one line

    def _next(self) -> bool:
        """Answer the next line; only in here does Ctrl-C raise, and once."""
        try:
            self._is_deaf = False
            if self._presses.are_many():  # the last one came while nobody listened
                raise KeyboardInterrupt
            return self._one(self._read())
        finally:
            self._is_deaf = True

    def _read(self) -> str:
        offered, self._offered = self._offered, ""
        before = len(self._presses)
        if self._on_terminal:
            self._pulse.watch(self._lines.redraw)
        # An editor takes the terminal as it is: what is typed just now is not lost or shown twice.
        self._typed.open()
        if not self._lines.edits:
            self._typed.close()
        self._is_reading = True
        try:
            return self._lines.read(self._typed.taken(), offered)
        except KeyboardInterrupt:
            if len(self._presses) == before:
                self._presses.add()
            # A busy machine takes long from one prompt to the next.
            self._presses.add(self._lines.presses())
            raise
        finally:
            self._is_reading = False
            self._pulse.rest()

    def _one(self, line: str) -> bool:
        if not line.strip():
            return True
        try:
            self._typed.open()
            self._has_begun = False
            own = own_command(self, line)
            if own is not None:
                self._send_own(own.name, line)
            elif is_command(line):
                run_command(self, self._lines.whole(line.rstrip()))
            else:
                text = self._lines.whole(line).strip()
                message = message_of(self, self._lines.typed(line), text, self._standing.folder())
                self.send(message.text, message)
        except KeyboardInterrupt:
            self._is_deaf = True
            note("● stopped")
            self._link.drop()
            self._keep_unsent()
            raise
        except ClawError as error:
            return self._failed(error, line)
        return True

    def _send_own(self, name: str, line: str) -> None:
        """Send the message that a command of the person's or the workspace's stands for."""
        request = FillCommand(
            name=name,
            arguments=line.partition(name)[2].strip(),
            conversation_id=self.conversation_id,
            workspace=self.workspace,
            agent=self.choice.agent,
            interactive=self._terminal is not None,
        )
        filled = self._follow_calls(request)
        self.conversation_id = filled.conversation_id or self.conversation_id
        for outcome in filled.ran:
            show_outcome(outcome)
        if not filled.text:
            raise InvalidRequestError(f"nothing was sent: a command of /{name} failed")
        typed, whole = self._lines.typed(filled.typed), self._lines.whole(filled.text)
        message = message_of(self, typed, whole, self._standing.folder())
        message = msgspec.structs.replace(message, files=(*filled.files, *message.files))
        self.choose(allowed_tools=filled.allowed_tools)
        try:
            self.send(message.text, message)
        finally:
            self.choose(allowed_tools=())

    def _failed(self, error: ClawError, line: str) -> bool:
        if error.code == "cancelled":
            note("● stopped")
            self._keep_unsent()
            if not self._on_terminal or self.choice.quiet:
                self._leave_interrupted()
            return True
        show_error(error)
        if error.code != "unreachable":
            is_unsent = not is_command(line) and not self._has_begun
            if is_unsent or error.code == "estop":
                self._keep_unsent(line if is_unsent else "")
            return False
        self._link.drop()
        is_unsent = True
        if not self._link.gave_up:  # else it was just looked for
            try:
                self.client()
                is_unsent = not is_command(line) and not self._is_kept()
            except ClawError as second:
                show_error(second)
        if is_unsent:
            self._keep_unsent(line)
        return False

    def _is_kept(self) -> bool:
        """Say what of a lost turn is stored, and whether its message is; none of it goes twice."""
        first, *joined = _report_what_is_kept(self) or [""]
        said = {each for text in joined for each in text.split("\n\n")}
        while self._typed.take_line(said.__contains__):
            pass
        return bool(first)

    def send(self, text: str, supplied: OutgoingMessage | None = None) -> None:
        """Send a message as if it had been typed; the last one goes with what it supplied."""
        if supplied is None:
            is_last = text == self.last_text
            supplied = self._last_supplied if is_last else OutgoingMessage(text=text)
        pasted = (*self.choice.pictures, *supplied.pictures)
        supplied = msgspec.structs.replace(supplied, pictures=pasted)
        self._preview(pasted)
        client = self.client()
        steering = Steering(self._typed, client.stream, _may_steer)
        shown = self._new_view()
        view = AttentiveView(shown, self._typed, steering)
        self.conversation_id = self.choice.ruled(client, self.conversation_id)
        self.choose(allow=(), deny=())  # they hold in the conversation now
        request = self.choice.message(
            text, self.conversation_id, interactive=self._terminal is not None
        )
        request = msgspec.structs.replace(
            request, system=self.system, **msgspec.structs.asdict(supplied)
        )
        self.last_text, self._last_supplied = text, supplied
        finished: TurnFinished | None = None
        started = time.monotonic()
        try:
            stream = client.stream(request)
            with listening(self.choice.log_file) as heard:
                heard = partial(self._hear, heard)
                title = self._resumed.title if self._resumed is not None else ""
                finished = follow(
                    stream, view, self._terminal, self._presses, heard=heard, title=title
                )
        finally:
            self._has_begun = bool(shown.conversation_id)
            self.conversation_id = shown.conversation_id or self.conversation_id
            if self._has_begun:
                # The mode is the conversation's now, and others may change it.
                self.choose(mode="", pictures=())
            if finished is None:
                view.finish(None)
            else:
                view.finish(finished.text, finished)
        self._account(finished, time.monotonic() - started)
        if self._on_terminal and not self.choice.quiet:
            print()  # between this turn and the next

    def _preview(self, files: Sequence[bytes]) -> None:
        """Draw the pictures that go with a message, where the terminal can."""
        if not files or not self._on_terminal or self.choice.quiet or is_plain():
            return
        from clawctl.repl.pictures import LONGEST_SIDE, drawn, way_of

        if self._draws is None:
            wanted = os.environ.get("CLAWD_PICTURES") or read_settings().get("pictures")
            self._draws = way_of(os.environ, wanted, self._typed, plain(sys.stdout))
        for data in files if self._draws else ():
            try:
                grid = self.call(PreviewPicture(data=data, longest=LONGEST_SIDE))
            except ClawError:
                return  # the message says what is wrong with it
            plain(sys.stdout).write(drawn(grid, self._draws))
            sys.stdout.flush()

    def _hear(self, heard: Callable[[Event], None], event: Event) -> None:
        """Take note of the mode that a turn begins in: another client may have set it."""
        if isinstance(event, TurnStarted):
            self.mode = _mode_named(event.mode)
        heard(event)

    def _account(self, finished: TurnFinished, seconds: float) -> None:
        self.last = finished
        self._standing.answered()
        self.spent = self.spent.after(finished.usage, seconds)

    def _new_view(self) -> View:
        from clawctl.repl.plain_view import new_view

        quiet = self.choice.quiet
        options = ViewOptions(
            rows=not quiet,
            metrics=self.choice.progress and not quiet,
            details=self.choice.verbose and self._on_terminal and not quiet,
            reasoning=self.shows_reasoning,
            spaced=not quiet,
        )
        view = new_view(sys.stdout, sys.stdout if self._on_terminal else sys.stderr, options)
        if self.last is not None:
            view.context_size = self.last.usage.context_size
        return view

    def _keep_unsent(self, line: str = "") -> None:
        """Put a line that was not sent into the prompt, and below it what was typed ahead.

        A user who stops an answer, or whose message comes back, sends on what is in the prompt.
        """
        typed = self._typed.taken().replace("\r", "\n")
        ahead = "".join(char for char in typed if char == "\n" or char.isprintable()).strip("\n")
        if text := "\n".join(each for each in (line, ahead) if each):
            self.offer(text)

    # --- leaving

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def on_interrupt(_number: int, _frame: object) -> None:
            self._presses.add()
            if not self._is_leaving and not self._is_deaf:
                self._is_deaf = True
                raise KeyboardInterrupt

        def on_end(number: int, _frame: object) -> None:
            raise SystemExit(128 + number)

        def on_continue(_number: int, _frame: object) -> None:
            if not self._is_reading:
                self._typed.open_again()

        handlers = {
            signal.SIGINT: on_interrupt,
            signal.SIGQUIT: lambda *_: self.stop_everything(),
            signal.SIGCONT: on_continue,
            signal.SIGTERM: on_end,
            signal.SIGHUP: on_end,
        }
        before = {number: signal.signal(number, action) for number, action in handlers.items()}
        try:
            yield
        finally:
            if self._is_leaving:
                # Another press while we leave asks for the same.
                before[signal.SIGINT] = signal.SIG_IGN
            for number, action in before.items():
                signal.signal(number, action)

    def _leave_if_pressed_often(self) -> None:
        if not self._on_terminal:
            self._leave_interrupted()
        elif self._presses.are_many():
            self.leave()

    def _leave_interrupted(self) -> None:
        self._is_interrupted = True
        self.leave()

    # --- what is shown

    def _greet(self, report: StatusReport) -> None:
        workspace = real_folder(self.workspace or report.workspace)
        about = (f"clawd {report.version}", self._standing.model(), self._standing.mode())
        print(visible_line(" · ".join(about)))
        print(visible_line(f"workspace {workspace} · /help lists the commands, Ctrl-D leaves"))
        if report.model_note and not (self.choice.model or self.choice.provider):
            print(visible_line(report.model_note))
        if report.estop:
            print(
                visible_line(f"EMERGENCY STOP is set: {report.estop_reason or 'no reason given'}")
            )

    def _new_lines(self) -> Lines:
        if not self._on_terminal:
            return PipedLines()
        history = layout().home / HISTORY_FILE
        if is_plain():
            known = partial(known_to, self, self._standing, self._pulse)
            return PlainLines(history, self._standing.in_words, known)
        # What takes long to import, and only an editor needs.
        from clawctl.repl.editor import edited_lines

        return edited_lines(self, self._standing, self._pulse, history, self.stop_everything)


def _may_steer(line: str) -> bool:
    """Return whether a line that is typed during a turn can be said to it as it stands."""
    return not (is_command(line) or "@" in line or line.endswith("\\"))


def _mode_of(conversation: ConversationLine) -> Mode:
    return _mode_named(conversation.mode)


def _mode_named(name: str) -> Mode:
    """Return a mode by its name; one that this client does not know shows as configured."""
    try:
        mode: Mode = msgspec.convert(name, Mode)
    except msgspec.ValidationError:
        return ""
    return mode


# What is reported after the daemon was lost in the middle of an answer.


def _report_what_is_kept(host: Host) -> list[str]:
    """Say what of the turn that was cut is stored; return what the person said of it, in order.

    Empty when its message is not stored, either.
    """
    asked, answered = _last_turn(host) if host.conversation_id else ([], "")
    # The daemon may store a block of facts before the words of the person, and PDFs behind them.
    typed = (text.partition("\n\n[document ")[0] for text in asked)
    if not host.last_text or not any(text.endswith(host.last_text) for text in typed):
        note("● nothing of that turn was kept; your message is in the prompt again")
        return []
    kept = f"{len(answered)} characters of the answer" if answered else "nothing of the answer"
    note(f"● your message and {kept} were kept; /retry asks again")
    return asked


def _last_turn(host: Host) -> tuple[list[str], str]:
    """Return what the person said in the last turn that is stored, and what was answered last."""
    asked, answered, turn_id = list[str](), "", ""
    for message in messages(host, host.conversation_id):
        if message.role == "user":
            if not message.turn_id or message.turn_id != turn_id:
                asked.clear()
            asked.append(message.content)
            answered, turn_id = "", message.turn_id
        elif message.role == "assistant":
            answered = message.content or answered
    return asked, answered
