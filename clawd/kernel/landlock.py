"""Landlock (linux/landlock.h): a thread gives up all access to files but what rules name.

    rules = [("/usr", READ | EXECUTE), ("/home/ada/w", READ | WRITE)]
    restrict(rules, abi())

A rule holds for a file, or for a folder and all that is under it; rules only add. What no rule
names is refused, by whatever path or descriptor it is opened later; what is open already stays.
Threads that exist already are not restricted: call it before there are any.
"""

import ctypes
import os
import stat
from collections.abc import Iterable

from clawd.kernel.syscalls import set_no_new_privileges, system_call

# The same on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH, _RULE_PORT = 1, 2

EXECUTE = 1 << 0
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE, _MAKE = 0b11 << 4, 0b1111111 << 6
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15

LIST = _READ_DIR
READ = _READ_FILE | _READ_DIR
CHANGE = _WRITE_FILE | _TRUNCATE
"""Write into files that are there."""
WRITE = CHANGE | _REMOVE | (_MAKE & ~_MAKE_CHAR & ~_MAKE_BLOCK) | _REFER
"""Write files, make, move and remove all but devices."""

FILE_RIGHTS = EXECUTE | _READ_FILE | CHANGE | IOCTL_DEVICE
"""What can be granted at a file; the rest is for folders."""
_ALL_FILES = (1 << 16) - 1
_ALL_TCP, _CONNECT_TCP = 0b11, 0b10  # the other bit is to bind
_SCOPES = 0b11  # abstract Unix sockets, signals

# What each version of the interface added, as a mask of rights to files.
_FILES_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ABI_TCP, _ABI_SCOPES = 4, 6


Rule = tuple[str, int]
"""A path, and the rights to it: to a file, or to a folder and all under it."""


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Port(ctypes.Structure):
    _fields_ = (("rights", ctypes.c_uint64), ("number", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def abi() -> int:
    """Return the version of Landlock in this kernel; 0 where there is none or it is off."""
    try:
        return system_call(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def handled_rights(version: int) -> int:
    """Return the rights to files that a version knows, as a mask."""
    return _FILES_BY_ABI.get(version, _ALL_FILES)


def scopes(version: int) -> int:
    """Return what a version can keep within: abstract Unix sockets and signals, or nothing."""
    return _SCOPES if version >= _ABI_SCOPES else 0


def restrict(rules: Iterable[Rule], version: int, *, ports: Iterable[int] | None = ()) -> None:
    """Leave this thread, and what it starts from now on, the access that the rules name.

    From version 4 on TCP is refused too but for connections to `ports` (None: TCP is left alone);
    from 6 on abstract Unix sockets and signals to processes outside. Rules whose path is not there
    are left out.

    Raises:
        OSError: the kernel refused; nothing is restricted, or a rule is missing and all ends here.
    """
    handled = handled_rights(version)
    has_ports = version >= _ABI_TCP and ports is not None
    wanted = _Ruleset(files=handled, network=_ALL_TCP if has_ports else 0, scoped=scopes(version))
    # A kernel that knows fewer fields refuses longer structures, unless the rest is zero.
    ruleset = system_call(_CREATE_RULESET, ctypes.byref(wanted), ctypes.sizeof(wanted), 0)
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        for number in ports or () if has_ports else ():
            port = _Port(rights=_CONNECT_TCP, number=number)
            system_call(_ADD_RULE, ruleset, _RULE_PORT, ctypes.byref(port), 0)
        set_no_new_privileges()
        system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _add(ruleset: int, rule: Rule, handled: int) -> None:
    path, wanted = rule
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        rights = wanted & handled
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= FILE_RIGHTS
        if rights:
            beneath = _PathBeneath(rights=rights, folder=descriptor)
            system_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(beneath), 0)
    finally:
        os.close(descriptor)
