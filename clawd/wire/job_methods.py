"""The methods of the control socket that are about jobs: commands that go on after their call."""

from typing import Annotated

import msgspec

from clawd.wire.job_reports import JobLine, JobList, JobOutput
from clawd.wire.method import Method


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
