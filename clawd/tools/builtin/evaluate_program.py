"""Runs the Python code that stands on its standard input, fenced in; shows its last value.

    python3 -I -S -E -c "$(cat evaluate_program.py)" FILTER MEMORY_BYTES CPU_S < code

FILTER is a seccomp program in hex; it and the limits are in force before the code is looked at.
Standard library only, of any Python since 3.8; the text of this file goes into the sandbox.
"""

import ast
import ctypes
import errno
import linecache
import os
import resource
import struct
import sys
import traceback
from collections.abc import Callable

NAME = "<evaluate>"
_NOT_FENCED = 125
_PR_SET_SECCOMP, _MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_INSTRUCTION_BYTES = 8
# linux/landlock.h; these numbers are the same on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH, _WRITE_FILE = 1, 2
_FILE_BYTES = 64 << 20
_OPEN_FILES = 64


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def fence(program: bytes, memory_bytes: int, cpu_s: int) -> None:
    """Put limits and filter in force, for good.

    Raises:
        OSError: the kernel refused.
    """
    wanted = (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, value in wanted:
        hard = resource.getrlimit(kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))
    filled = _Program(len(program) // _INSTRUCTION_BYTES, ctypes.addressof(buffer))
    _checked(libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # A pipe with a name can be written where the file system is read-only.
    only_write(libc, (_own_folder(), "/dev"))
    _checked(libc.prctl, _PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(filled), 0, 0)


def _own_folder() -> str:
    """Return where files may be written: all of /tmp, unless the workspace lies in there."""
    folder = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - the sandbox's own
    if os.getcwd().startswith(folder + "/"):  # noqa: PTH109 - pathlib takes long to import
        folder = f"{folder}/{os.urandom(8).hex()}"
        os.mkdir(folder, 0o700)  # noqa: PTH102 - likewise
        os.environ["TMPDIR"] = folder
    return folder


def only_write(libc: ctypes.CDLL, folders: tuple[str, ...]) -> None:
    """Let nothing be opened for writing but what lies in these folders, where Landlock is there.

    Raises:
        OSError: the kernel refused.
    """
    handled = ctypes.create_string_buffer(struct.pack("=Q", _WRITE_FILE), 8)
    try:
        rules = _checked(libc.syscall, _CREATE_RULESET, ctypes.addressof(handled), 8, 0)
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EOPNOTSUPP}:
            return
        raise
    for folder in folders:
        opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", _WRITE_FILE, opened), 12)
        _checked(libc.syscall, _ADD_RULE, rules, _PATH_BENEATH, ctypes.addressof(rule), 0)
        os.close(opened)
    _checked(libc.syscall, _RESTRICT_SELF, rules, 0)
    os.close(rules)


def _checked(call: Callable[..., int], *words: int) -> int:
    result = call(*map(ctypes.c_ulong, words))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def run(source: str) -> int:
    """Run the code, show the value of an expression at its end, return the exit code."""
    linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
    names = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        tree = ast.parse(source, NAME)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, NAME, "exec"), names)  # noqa: S102 - what this program is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), NAME, "eval"), names)  # noqa: S307 - likewise
            if value is not None:
                sys.stdout.write(repr(value) + "\n")
        sys.stdout.flush()
    except SystemExit as error:
        sys.stdout.flush()
        raise error from None
    except BaseException as error:  # noqa: BLE001 - whatever the code raises is told
        sys.stdout.flush()
        frame = error.__traceback__
        while frame is not None and frame.tb_frame.f_code.co_filename != NAME:
            frame = frame.tb_next
        traceback.print_exception(type(error), error, frame)
        return 1
    return 0


def main(words: list[str]) -> int:
    """Take the code and run it; return the exit code."""
    source = sys.stdin.buffer.read().decode("utf-8", "replace")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]
    program, memory_bytes, cpu_s = words
    try:
        fence(bytes.fromhex(program), int(memory_bytes), int(cpu_s))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the code was not run, it cannot be fenced in: {error}\n")
        return _NOT_FENCED
    return run(source)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
