"""The shell on its pseudo-terminal, and the pump between that and the person's terminal.

Every byte that is typed goes to the shell and every byte it prints goes to the terminal, but for
the marks that its hooks make (`shell.marks`). The terminal is raw while the pump runs; it has its
own modes back in `aside`, when the pump ends, and when the process is told to end or to stop.

The hybrid shell: the person's own shell on a pseudo-terminal, and the model beside it.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import select
import shutil
import signal
import sys
import tempfile
import termios
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from clawctl.agent_options import Choice
from clawctl.app import App
from clawctl.render import note
from clawctl.repl.host import prepare_drawing
from clawctl.shell.command_log import Records, known_secrets
from clawctl.shell.hooks import (
    INSIDE,
    Launch,
    MarkReader,
    ShellMark,
    chosen_shell,
    launch,
    reply_text,
)
from clawctl.shell.turn import Asking
from clawd.errors import ClawError, InvalidRequestError

# A second process that puts the terminal right when the first one is killed.
#
# A process that is killed with SIGKILL restores nothing: the terminal would stay raw, and the
# private folder with the hooks would stay on disk. The guard waits for the end of a pipe. It holds
# nothing of the pseudo-terminal, so that the shell gets its SIGHUP from the kernel all the same.

# Bracketed paste and reports of the mouse off, the cursor seen, back from a full screen.
RESET = (
    b"\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?1047l\x1b[?25h"
    b"\x1b[0m\r\n"
)

_IGNORED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGTTOU,
    signal.SIGTTIN,
    signal.SIGTSTP,
    signal.SIGPIPE,
)


class TerminalGuard:
    """The guard of one terminal; made before there are threads.

    Args:
        terminal: its descriptor.
        modes: what `termios.tcgetattr` said of it.
        folder: removed when this process dies.
    """

    def __init__(self, terminal: int, modes: list[Any], folder: Path) -> None:
        waits, self._alive = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(waits)
            return
        try:
            os.close(self._alive)
            for number in _IGNORED:
                signal.signal(number, signal.SIG_IGN)
            if not os.read(waits, 1):
                put_right(terminal, modes)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os._exit(0)

    def dismiss(self) -> None:
        """End it: the terminal is right already."""
        with contextlib.suppress(OSError):
            os.write(self._alive, b".")
        os.close(self._alive)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def put_right(terminal: int, modes: list[Any]) -> None:
    """Give a terminal its modes back, and undo what programs ask of terminals."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
        os.write(terminal, RESET)


READ_BYTES = 64 * 1024
PENDING_BYTES = 64 * 1024
CANNOT_RUN = 127

_PASTE_ON, _PASTE_OFF, _PASTE = b"\x1b[?2004h", b"\x1b[?2004l", b"\x1b[?2004"


class SignalledToEnd(BaseException):
    """SIGTERM or SIGHUP came; `number` says which. No Exception: nothing on the way may keep it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Pump:
    """One shell and one terminal.

    Args:
        plan: what starts the shell.
        terminal: descriptor to read keys from.
        out: descriptor to show on.
        reader: finds the marks.
        on_output: gets all that is shown, before it is.
        on_mark: gets each mark, at its place in the output.
    """

    def __init__(
        self,
        plan: Launch,
        reader: MarkReader,
        *,
        on_output: Callable[[bytes], None],
        on_mark: Callable[[ShellMark], None],
        terminal: int = 0,
        out: int = 1,
    ) -> None:
        self._terminal, self._out = terminal, out
        self._reader = reader
        self._on_output = on_output
        self._on_mark = on_mark
        self._modes = termios.tcgetattr(terminal)
        self._is_raw = False
        self._pastes = False
        self._pending = bytearray()
        self._keys_ended = False
        self._status: int | None = None
        self._pid, self._master = _spawn(plan, terminal, self._modes)
        os.set_blocking(self._master, False)

    def run(self) -> int:
        """Pump until the shell ends; return its status, 128 and the signal where one ended it."""
        with self._signals() as wakes:
            try:
                self._resize()  # it may have changed before the first signal was heard
                self._raw()
                while self._status is None:
                    self._once(wakes)
                self._drain()
            except SignalledToEnd as signalled:
                return 128 + signalled.number
            finally:
                self._close()
        return self._status

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the terminal to others, in its own modes, while the shell waits."""
        if self._pastes:
            _write(self._out, _PASTE_OFF)
        self._cooked()
        try:
            yield
        finally:
            self._resize()
            self._raw()
            if self._pastes:
                _write(self._out, _PASTE_ON)

    def _once(self, wakes: int) -> None:
        readers = [self._master, wakes]
        if not self._keys_ended and len(self._pending) < PENDING_BYTES:
            readers.append(self._terminal)
        writers = [self._master] if self._pending else []
        readable, writable, _ = select.select(readers, writers, [])
        if self._terminal in readable:
            self._take_keys()
        if writable or self._pending:
            self._send()
        if self._master in readable:
            self._show(self._read())
        if wakes in readable:
            os.read(wakes, 4096)
            self._look_after_shell()

    def _take_keys(self) -> None:
        try:
            keys = os.read(self._terminal, READ_BYTES)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            keys = b""
        if not keys:  # the terminal is gone
            raise SignalledToEnd(signal.SIGHUP)
        self._pending += keys

    def _send(self) -> None:
        try:
            del self._pending[: os.write(self._master, self._pending)]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads there any more
            self._pending.clear()

    def _read(self) -> bytes:
        """Return what the shell printed; empty when there is nothing now."""
        parts, size = list[bytes](), 0
        while size < READ_BYTES:
            try:
                data = os.read(self._master, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:  # the last one that had it open is gone: the shell ends
                if not parts:
                    self._wait_for_shell()
                break
            if not data:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def _show(self, data: bytes) -> None:
        for part in self._reader.feed(data):
            if isinstance(part, ShellMark):
                self._on_mark(part)
            else:
                if _PASTE in part:
                    self._pastes = part.rfind(_PASTE_ON) > part.rfind(_PASTE_OFF)
                self._on_output(part)
                _write(self._out, part)

    def _drain(self) -> None:
        """Show what the shell printed last; a job that it left there may print for ever."""
        while select.select([self._master], [], [], 0)[0] and (data := self._read()):
            self._show(data)
            if len(data) < READ_BYTES:
                break
        _write(self._out, self._reader.rest())

    def _look_after_shell(self) -> None:
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            self._status = self._status or 0
            return
        if pid and os.WIFSTOPPED(status):  # `suspend`: this process stops as well
            self._stop()
            os.kill(self._pid, signal.SIGCONT)
        elif pid:
            self._ended(status)

    def _wait_for_shell(self) -> None:
        if self._status is None:
            self._ended(os.waitpid(self._pid, 0)[1])

    def _ended(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._status = code if code >= 0 else 128 - code

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Handle signals; yield a descriptor that can be read when one came."""
        wakes, wake = os.pipe()
        os.set_blocking(wake, False)
        handlers: dict[signal.Signals, Any] = {
            signal.SIGCHLD: lambda *_: None,
            signal.SIGWINCH: lambda *_: self._resize(),
            signal.SIGTERM: self._signal_to_end,
            signal.SIGHUP: self._signal_to_end,
            signal.SIGTSTP: lambda *_: self._stop(),
        }
        before = {number: signal.signal(number, does) for number, does in handlers.items()}
        wake_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            self._look_after_shell()  # it may have ended before the first signal was heard
            yield wakes
        finally:
            signal.set_wakeup_fd(wake_before)
            for number, does in before.items():
                # Who was told to end is told again when the terminal goes: it must get to its end.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, does)
            os.close(wakes)
            os.close(wake)

    def _signal_to_end(self, number: int, _frame: object) -> None:
        for other in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)
        raise SignalledToEnd(number)

    def _stop(self) -> None:
        was_raw = self._is_raw
        self._cooked()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._resize()
        if was_raw:
            self._raw()

    def _resize(self) -> None:
        """Give the shell's terminal the size of the person's."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self._terminal, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _raw(self) -> None:
        with contextlib.suppress(termios.error):
            tty.setraw(self._terminal, termios.TCSADRAIN)
            self._is_raw = True

    def _cooked(self) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._modes)
        self._is_raw = False

    def _close(self) -> None:
        """End the shell if it runs, and give the terminal back."""
        is_alive = self._status is None
        if is_alive:
            for number in (signal.SIGHUP, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, number)
        os.close(self._master)  # the kernel tells all of its session
        if is_alive:
            put_right(self._terminal, self._modes)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)
        else:
            self._cooked()


def _spawn(plan: Launch, terminal: int, modes: list[Any]) -> tuple[int, int]:
    """Start the shell on a new pseudo-terminal with the modes and size of this one.

    Returns:
        Its pid and the other end of its terminal.
    """
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise ClawError(f"there is no pseudo-terminal to be had: {error}") from error
    try:
        # Not by the child: it would undo a change of size that came meanwhile.
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(slave, termios.TCSANOW, modes)
            size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        pid = os.fork()
        if pid == 0:
            _become(plan, slave)
    except OSError as error:
        os.close(master)
        raise ClawError(f"no process can be started: {error}") from error
    finally:
        os.close(slave)
    return pid, master


def _become(plan: Launch, slave: int) -> NoReturn:
    try:
        os.login_tty(slave)
        # Python ignores these; a shell would hand that on to all it runs.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(plan.argv[0], plan.argv, plan.environ)  # noqa: S606 - the person's own shell
    except OSError as error:
        os.write(2, f"{plan.argv[0]}: {error.strerror}\r\n".encode(errors="replace"))
    finally:
        os._exit(CANNOT_RUN)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it; a terminal that is gone is found out by reading."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError as error:
            if error.errno in {errno.EIO, errno.EPIPE}:
                return
            raise


ANSWER = "answer"


def run_shell(app: App, choice: Choice, *, shell: str = "", keeps_file: bool = True) -> int:
    """Run a shell until it ends; return its status.

    Raises:
        ClawError: it cannot be started here.
    """
    _check_place()
    program = _program(shell)
    folder = Path(tempfile.mkdtemp(prefix="clawctl-shell-", dir=_private_place()))
    try:
        session = ShellSession(app, choice, program=program, folder=folder, keeps_file=keeps_file)
        return session.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ShellSession:
    """One shell with its hooks, its records and its conversations.

    Args:
        app: the way to the daemon.
        choice: what the options chose.
        program: the shell.
        folder: private (0700), empty, removed by the caller.
        keeps_file: whether folders remember their conversations.
    """

    def __init__(
        self, app: App, choice: Choice, *, program: str, folder: Path, keeps_file: bool
    ) -> None:
        self._nonce = secrets.token_hex(16)
        self._folder = folder
        self._plan = launch(program, folder, self._nonce, os.environ)
        self._records = Records(marks_starts=self._plan.catches_lines)
        # The hooks' own variables are shown by `set`: what opens them is a secret as well.
        known = (*known_secrets(os.environ), self._nonce)
        self._asking = Asking(
            app, choice, self._records, known=lambda: known, keeps_file=keeps_file
        )
        self._pump: Pump | None = None
        self._is_up = False

    def run(self) -> int:
        """Run it; the terminal is as it was when this returns, and when this process is killed."""
        guard = TerminalGuard(0, termios.tcgetattr(0), self._folder)
        try:
            _write_files(self._folder, self._plan)
            os.mkfifo(self._folder / ANSWER, 0o600)
            # Open at both ends, so that neither side waits for the other to open it.
            self._answers = os.open(self._folder / ANSWER, os.O_RDWR | os.O_CLOEXEC)
            self._greet()
            self._pump = Pump(
                self._plan,
                MarkReader(self._nonce),
                on_output=self._records.output,
                on_mark=self._take,
            )
            return self._pump.run()
        finally:
            self._asking.close()
            # Before the guard goes: what ends this process from here on leaves nothing behind.
            shutil.rmtree(self._folder, ignore_errors=True)
            guard.dismiss()

    def _take(self, mark: ShellMark) -> None:
        match mark.kind:
            case "done":
                self._prompt(mark.value)
            case "line":
                self._records.line(mark.value)
            case "start":
                self._records.started()
            case "ask":
                self._ask(mark.value)
            case _:
                pass

    def _prompt(self, value: str) -> None:
        status, _, cwd = value.partition(";")
        self._records.finished(int(status) if status.isdigit() else 0, cwd)
        if not self._is_up:
            self._is_up = True
            # The shell has been forked: a thread can harm it no more.
            prepare_drawing()
            for name in self._plan.files:
                (self._folder / name).unlink(missing_ok=True)

    def _ask(self, entered: str) -> None:
        assert self._pump is not None
        text = ""
        try:
            with self._pump.aside():
                text = self._asking.ask(entered)
        finally:
            os.write(self._answers, f"{reply_text(text)}\n".encode())

    def _greet(self) -> None:
        name = Path(self._plan.argv[0]).name
        ask, explain = ("> text", "?") if self._plan.catches_lines else ("ask text", "ask ?")
        note(f"{name} with clawd: {ask} asks, {explain} explains a failure.")


def _check_place() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequestError(
            "the shell needs a terminal on standard input and output",
            hint="For one message from a script use: clawctl agent -m TEXT",
        )
    if os.environ.get(INSIDE):
        raise InvalidRequestError(
            "this is a shell of clawctl already",
            hint=f"Leave it with exit, or start another one with: env -u {INSIDE} clawctl shell",
        )


def _program(wanted: str) -> str:
    program = chosen_shell(wanted, os.environ)
    found = shutil.which(program)
    if found is None:
        raise InvalidRequestError(
            f"there is no shell {program}", hint="Name one that is installed: --shell /bin/bash"
        )
    return str(Path(found).absolute())


def _private_place() -> str | None:
    """Return the folder of this login for such things, None for the common one."""
    place = os.environ.get("XDG_RUNTIME_DIR", "")
    return place if place.startswith("/") and os.access(place, os.W_OK | os.X_OK) else None


def _write_files(folder: Path, plan: Launch) -> None:
    for name, text in plan.files.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
