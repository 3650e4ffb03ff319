"""Who may talk to the daemon, as the life cycle puts it together."""

from pathlib import Path

from clawd.paths import layout
from clawd.security.sandbox_cgroup import ToolsCgroup
from clawd.service.lifecycle import _peer_policy


def test_whoever_is_in_the_cgroup_of_the_tools_is_to_be_refused(tmp_path: Path) -> None:
    where = layout({"CLAWD_HOME": str(tmp_path)})
    tools = ToolsCgroup(tmp_path, "/system.slice/clawd.service/tools", frozenset())
    assert _peer_policy(where, tools).tools_cgroup == "/system.slice/clawd.service/tools"
    assert _peer_policy(where, None).tools_cgroup == ""
