"""Reading untrusted content in a process of its own, in the sandbox; see `tools.readers`.

It has no network, sees none of the owner's files, may use so much memory and time, and is killed by
an emergency stop. Where there is no sandbox and one is required, nothing is read.
"""

import asyncio
import functools
import importlib.util
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from clawd.security.sandbox.landlock import make_folder, remove_folder
from clawd.security.sandbox.plan import SYSTEM_TREES, ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox
from clawd.tools import readers

MAX_CHARS = 200_000
_MAX_OUTPUT_BYTES = 8 << 20
_PACKAGE = Path(__file__).resolve().parents[2]
_PROGRAM = Path(readers.__file__).resolve().parent / "program.py"
_LIBRARIES = (
    "trafilatura", "pypdf", "pypdfium2", "PIL", "ddgs", "lxml", "lxml_html_clean", "cryptography",
    "typing_extensions", "justext", "htmldate", "courlan", "charset_normalizer", "certifi",
    "urllib3", "dateparser",
)  # fmt: skip


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What was read.

    Attributes:
        answers: as the reader gave them, in order; untrusted, so of any content.
        problem: why it ended before it was done; empty when it did not.
    """

    answers: list[dict[str, Any]]
    problem: str = ""

    def first(self, key: str) -> Any:
        """Return the value of the first answer that has the key, or None."""
        return next((answer[key] for answer in self.answers if key in answer), None)


class Reader:
    """Reads pages, PDFs, pictures and results of searches.

    Args:
        sandbox: where.
        timeout_s: how long one reading may take.
        memory_bytes: how much memory it may use.
    """

    def __init__(self, sandbox: Sandbox, *, timeout_s: float, memory_bytes: int) -> None:
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes

    async def read(self, job: dict[str, Any], data: bytes) -> Reading:
        """Read; what the limits ended is a reading too, with what was read by then.

        Raises:
            SandboxUnavailableError: there is no sandbox of the required level here.
        """
        limits = {
            "memory_bytes": self._memory_bytes,
            "cpu_s": math.ceil(self._timeout_s) + 1,
            "max_chars": MAX_CHARS,
        }
        folder = make_folder()  # in a thread it would be left where the call is cancelled meanwhile
        try:
            result = await self._sandbox.run(self._command(folder, job | limits, data))
        finally:
            await asyncio.to_thread(remove_folder, folder)
        return Reading(answers=_answers(result.output), problem=self._problem(result))

    def _command(self, folder: Path, job: dict[str, Any], data: bytes) -> ChildCommand:
        # The interpreter itself, not a virtual environment's link to it, which is not seen.
        interpreter, paths = Path(sys.executable).resolve(), _library_paths()
        shown = [*paths, _PACKAGE, Path(sys.base_prefix).resolve(), interpreter]
        search = os.pathsep.join(map(str, paths))
        return ChildCommand(
            argv=(str(interpreter), "-I", "-S", "-B", str(_PROGRAM), search),
            workspace=folder,
            workspace_writable=False,
            readonly_paths=tuple(dict.fromkeys(path for path in shown if not _is_seen(path))),
            stdin=json.dumps(job).encode() + b"\n" + data,
            timeout_s=self._timeout_s,
            max_output_bytes=_MAX_OUTPUT_BYTES,
        )

    def _problem(self, result: ChildResult) -> str:
        if result.timed_out or result.signal == _CPU_SIGNAL:
            return f"reading took over {self._timeout_s:g} s and was ended"
        if result.ended_by == "limit":
            return f"reading was ended: {result.overuse}"
        if result.ended_by == "output" or result.truncated:
            return "reading gave too much and was ended"
        if result.exit_code:
            mib = self._memory_bytes >> 20
            return f"reading failed: it is broken, or needs more than {mib} MiB of memory"
        return ""


_CPU_SIGNAL = 24


@functools.cache
def _library_paths() -> tuple[Path, ...]:
    """Return the folders that hold the libraries, without loading any."""
    found = []
    for name in _LIBRARIES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            file = Path(spec.origin)
            found.append(file.parents[1] if file.name == "__init__.py" else file.parent)
    return tuple(dict.fromkeys(found))


def _is_seen(path: Path) -> bool:
    return any(Path(tree) in (path, *path.parents) for tree in SYSTEM_TREES)


def _answers(output: str) -> list[dict[str, Any]]:
    """Return the answers, without a line that a limit cut."""
    answers = []
    for line in output.splitlines():
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict):
            answers.append(answer)
    return answers
