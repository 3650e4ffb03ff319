"""Runs the Python code that stands on its standard input, fenced in; shows its last value.

    python3 -I -S -E -c "$(cat evaluate_program.py)" FILTER MEMORY_BYTES CPU_S < code

FILTER is a seccomp program in hex; it and the limits are in force before the code is looked at.
Standard library only, of any Python since 3.8; the text of this file goes into the sandbox.
"""

import ast
import ctypes
import linecache
import os
import resource
import sys
import traceback

NAME = "<evaluate>"
_NOT_FENCED = 125
_PR_SET_SECCOMP, _MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_INSTRUCTION_BYTES = 8
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
    for words in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(filled), 0, 0),
    ):
        if libc.prctl(*map(ctypes.c_ulong, words)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


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
