"""Who may talk to the daemon, and what ends it, as the life cycle puts it together."""

import os
import subprocess
import sys
from pathlib import Path

from clawd.paths import layout
from clawd.security.sandbox.limits import ToolsCgroup
from clawd.service.state import peer_policy_of

ROOT = Path(__file__).parents[2]
# Somebody whom the gateway answered sends a signal before the control socket is open.
SIGNALLED = """
import os, signal, sys
from clawd.service import lifecycle
from clawd.service.main import main

async def gateway(*_):
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)

lifecycle._gateway = gateway
sys.exit(main([]))
"""


def test_signals_are_heard_from_when_the_first_client_may_come(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAWD_HOME": str(tmp_path / "h")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "clawd ended" in done.stderr


def test_whoever_is_in_the_cgroup_of_the_tools_is_to_be_refused(tmp_path: Path) -> None:
    where = layout({"CLAWD_HOME": str(tmp_path)})
    tools = ToolsCgroup(tmp_path, "/system.slice/clawd.service/tools", frozenset())
    assert peer_policy_of(where, tools).tools_cgroup == "/system.slice/clawd.service/tools"
    assert peer_policy_of(where, None).tools_cgroup == ""
