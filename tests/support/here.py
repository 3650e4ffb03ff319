"""clawctl inside the test process, and what it starts of `clawd` for offline work as well.

A child of Python costs half a second before its first line; most tests are about what is said
then. That clawctl starts a real `clawd` for it, and how, `tests/clawctl/test_start.py` shows.
"""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from clawctl.commands import doctor
from clawctl.main import main
from clawd.service.main import main as clawd


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    out: str
    err: str


def run_here(words: list[str], *, stdin: str = "") -> Ended:
    """Run the command line in this process, with streams of its own."""
    out, err = _text(), _text()
    sys_in = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    finally:
        sys.stdin = sys_in
    return Ended(code=code, out=_value(out), err=_value(err))


def run_clawd_here(
    arguments: list[str], *, capture: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Run `clawd` to its end as `clawctl.daemon.run_clawd` does, without a process for it."""
    assert capture, "what is not captured would be this process's"
    out, err = io.StringIO(), io.StringIO()
    before = dict(os.environ)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = clawd(arguments)
    finally:
        _put(before)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def clawd_here() -> Iterator[None]:
    """Let clawctl, run in this process, find its offline `clawd` in this process as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clawctl.daemon.run_clawd", run_clawd_here)
        patch.setattr(doctor, "run_clawd", run_clawd_here)
        yield


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Let this process see these variables and no other."""
    before = dict(os.environ)
    _put(values)
    try:
        yield
    finally:
        _put(before)


def _put(values: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(values)


class _Bytes(io.TextIOWrapper):
    """A stream of text whose bytes can be read back."""


def _text() -> _Bytes:
    return _Bytes(io.BytesIO(), encoding="utf-8", write_through=True)


def _value(stream: _Bytes) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
