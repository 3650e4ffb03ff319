"""Calls into the kernel that Python has no names for. Thin: numbers, structures, errors.

Nothing here decides anything. Standard library only, so that a program can use it that is started
with nothing else, and quick to import.
"""

import ctypes
import os

from clawd.kernel.numbers import NUMBERS

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers and pointers are passed as they are.

    Raises:
        OSError: it failed.
    """
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise _error(f"system call {number}")
    return result


def set_not_dumpable() -> None:
    """Close this process to others of its user: no ptrace, no /proc/PID/mem, no core file.

    An exec undoes it. Raises OSError.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def set_death_signal(number: int) -> None:
    """Have this signal sent here when the parent's starting thread ends; no child inherits it.

    Raises OSError.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def set_child_subreaper() -> None:
    """Become the parent of every descendant that loses its own. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_no_new_privileges() -> None:
    """Let no exec give this thread, or what it starts, more rights. Raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def set_default_action(number: int) -> None:
    """Let a signal do what it does by default, as programs expect that are started from here."""
    _libc.signal(number, None)


def drop_capabilities() -> None:
    """Give up every capability for good; root's files stay root's, but nothing else is left.

    Raises:
        OSError: the kernel refused.
        KeyError: the machine's numbers are not known.
    """
    number = NUMBERS[os.uname().machine]["capset"]
    for capability in range(64):
        # EINVAL beyond the last one; EPERM for a user who never had any.
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    system_call(number, header, none)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), 0, 0) != 0:
        raise _error(f"prctl {option}")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
