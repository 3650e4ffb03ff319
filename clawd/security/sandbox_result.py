"""What came of a command that ran in the sandbox."""

from typing import Literal

import msgspec

from clawd.security.run_later_guard import PutAside
from clawd.security.sandbox_process import EndedBy

Level = Literal["bwrap", "landlock", "none"]


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command.

    Attributes:
        exit_code: its exit code; 128 and the number of the signal that ended it.
        signal: that number, or 0.
        output: standard output and error as they came, invalid UTF-8 replaced; without the error
            where that was kept apart.
        output_bytes: how much there was.
        truncated: whether `output` is only its beginning.
        ended_by: itself, the time limit, a flood of output, or another limit.
        duration_ms: from the start to the death of its last process.
        level: the isolation that was in force.
        overuse: which limit it met, where `ended_by` is `limit`.
        put_aside: what it made that would have run later outside.
        errors: the beginning of its standard error, where that was kept apart.
    """

    exit_code: int
    signal: int
    output: str
    output_bytes: int
    truncated: bool
    ended_by: EndedBy
    duration_ms: int
    level: Level
    overuse: str = ""
    put_aside: PutAside = PutAside()
    errors: str = ""

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended it."""
        return self.ended_by == "timeout"
