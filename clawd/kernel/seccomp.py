"""Seccomp filters: their program, packed by hand, and how one is put in force.

Layout: linux/filter.h `struct sock_filter` (code, jt, jf, k) over linux/seccomp.h
`struct seccomp_data` (nr, arch, instruction pointer, args). Filters add up: of all that are in
force the strictest answer counts.
"""

import ctypes
import errno
import struct
from collections.abc import Iterable

from clawd.kernel.syscalls import NUMBERS, set_no_new_privileges, system_call

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, ASK, ERRNO, KILL = 0x7FFF0000, 0x7FC00000, 0x00050000, 0x80000000
AT_NUMBER, AT_ARCHITECTURE, AT_FIRST_ARGUMENT = 0, 4, 16
X32_BIT = 0x40000000

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_SET_MODE_FILTER, _FLAG_TSYNC, _FLAG_NEW_LISTENER = 1, 1, 8
_INSTRUCTION_BYTES = 8


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def load(program: bytes, machine: str) -> None:
    """Put a filter in force for every thread of this process, and for what they start.

    Raises:
        OSError: the kernel refused.
    """
    _set(program, machine, _FLAG_TSYNC)


def load_asking(program: bytes, machine: str) -> int:
    """Put a filter in force for this thread and what it starts; return where its questions come.

    A call that the program answers with `ASK` waits for what the reader of that descriptor says
    (seccomp_unotify(2)).

    Raises:
        OSError: the kernel refused.
    """
    return _set(program, machine, _FLAG_NEW_LISTENER)


def beginning(machine: str) -> list[bytes]:
    """Return what ends a process that calls by another machine's numbers, and loads the number."""
    lines = [
        statement(LOAD, AT_ARCHITECTURE),
        jump(JUMP_EQUAL, ARCHITECTURES[machine], then=1, otherwise=0),
        statement(RETURN, KILL),
        statement(LOAD, AT_NUMBER),
    ]
    if machine == "x86_64":
        lines += denied_if(JUMP_AT_LEAST, X32_BIT)
    return lines


def argument(place: int) -> int:
    """Return where the low half of an argument lies (all machines here are little-endian)."""
    return AT_FIRST_ARGUMENT + 8 * place


def statement(code: int, value: int) -> bytes:
    """Return one instruction."""
    return struct.pack("=HBBI", code, 0, 0, value)


def jump(code: int, value: int, *, then: int, otherwise: int) -> bytes:
    """Return a comparison; it skips so many instructions when it holds, or when not."""
    return struct.pack("=HBBI", code, then, otherwise, value)


def denied_if(code: int, value: int, number: int = errno.EPERM) -> list[bytes]:
    """Return a comparison that fails the call when it holds."""
    return [jump(code, value, then=0, otherwise=1), statement(RETURN, ERRNO | number)]


def denied(machine: str, names: Iterable[str], error: int = errno.EPERM) -> list[bytes]:
    """Return what fails the calls of these names; a call that the machine lacks is left out."""
    known = NUMBERS[machine]
    numbers = sorted(known[name] for name in names if name in known)
    return [line for number in numbers for line in denied_if(JUMP_EQUAL, number, error)]


def allowed_if_zero(*places: int) -> list[bytes]:
    """Return what allows a call whose words at these places are zero, and fails any other."""
    lines: list[bytes] = []
    for place in places:
        lines.append(statement(LOAD, place))
        lines.append(jump(JUMP_EQUAL, 0, then=1, otherwise=0))
        lines.append(statement(RETURN, ERRNO | errno.EPERM))
    return [*lines, statement(RETURN, ALLOW)]


def allowed_if_one_of(place: int, values: Iterable[int], *, mask: int = 0) -> list[bytes]:
    """Return what allows a call whose word at this place, masked, is one of these."""
    lines = [statement(LOAD, place), *([statement(AND, mask)] if mask else [])]
    for value in values:
        lines.append(jump(JUMP_EQUAL, value, then=0, otherwise=1))
        lines.append(statement(RETURN, ALLOW))
    return [*lines, statement(RETURN, ERRNO | errno.EPERM)]


def only_for(number: int, lines: list[bytes]) -> list[bytes]:
    """Return lines that run for one system call only; they must end in a return."""
    return [jump(JUMP_EQUAL, number, then=0, otherwise=len(lines)), *lines]


def _set(program: bytes, machine: str, flags: int) -> int:
    buffer = ctypes.create_string_buffer(program, len(program))
    filled = _Program(len(program) // _INSTRUCTION_BYTES, ctypes.addressof(buffer))
    set_no_new_privileges()
    number = NUMBERS[machine]["seccomp"]
    return system_call(number, _SET_MODE_FILTER, flags, ctypes.byref(filled))
