"""What the overseer makes of a command that ends while it is looked at."""

import os
import subprocess

import pytest

from clawd.security import sandbox_oversight
from clawd.security.sandbox_oversight import Oversight
from clawd.security.sandbox_plan import ResourceLimits


def refused(_path: str, _flags: int) -> int:
    raise PermissionError("as the kernel says of a process that is reaped just then")


def test_a_namespace_of_one_that_was_reaped_just_now_is_gone_and_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    monkeypatch.setattr(sandbox_oversight, "can_bind_numbers", lambda: True)
    monkeypatch.setattr(os, "open", refused)
    oversight = Oversight((), ResourceLimits(), None)
    with pytest.raises(ProcessLookupError):
        oversight.begin(gone.pid)
    with pytest.raises(PermissionError):
        oversight.begin(os.getpid())
    assert oversight.end() == ""
