"""Methods about jobs, commands that go on after their call, and what they report."""

from typing import Annotated, Literal

import msgspec

from clawd.wire.method import Method

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


class ListJobs(Method[JobList], frozen=True, kw_only=True):
    """List jobs; with `conversation_id` (or a unique beginning of it) those of a conversation."""

    conversation_id: str = ""


class ShowJob(Method[JobOutput], frozen=True, kw_only=True):
    """Show a job and at most so much of the end of its output."""

    job_id: str
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=1_048_576)] = 65_536


class StopJob(Method[JobLine], frozen=True, kw_only=True):
    """End a job; when this is answered nothing of it is alive, and its end has a receipt."""

    job_id: str
