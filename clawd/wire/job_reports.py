"""The jobs of a daemon, commands that go on after their call, as `list_jobs` gives them."""

from typing import Literal

import msgspec

JobState = Literal["running", "ended", "failed", "stopped"]


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """One job.

    Attributes:
        command: on one line, without secrets.
        owner: uid of whose it is.
        state: running; ended by itself with exit code 0, or failed; stopped by somebody.
        started_at: when its call began, UTC; it runs, or ran, since for `duration_s`.
        limit_s: so long it may take in all.
        exit_code: None while it runs, and where it was ended.
        receipt_id: of the call that began it.
        end_receipt_id: of its end; empty while it runs.
    """

    id: str
    command: str
    conversation_id: str
    workspace: str
    owner: int
    state: JobState
    started_at: str
    duration_s: float
    limit_s: float
    output_bytes: int
    exit_code: int | None = None
    receipt_id: str = ""
    end_receipt_id: str = ""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs: those that run first, then the newest."""

    items: tuple[JobLine, ...]


class JobOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A job and the end of what it printed, without secrets; `is_cut` where that is not all."""

    job: JobLine
    output: str
    is_cut: bool = False
