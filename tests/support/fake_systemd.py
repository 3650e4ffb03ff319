"""Stand-ins for systemctl and its like that note their calls; nothing of the machine is touched."""

from pathlib import Path

SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >> "{fake}/calls"
[ "$1" = --user ] && shift
case "$1" in
    is-system-running) cat "{fake}/state"; cat "{fake}/problem" >&2 ;;
    show) cat "{fake}/show.$2" ;;
esac
[ -e "{fake}/fail.$1" ] && {{ cat "{fake}/fail.$1" >&2; exit 1; }}
exit 0
"""
OTHER = """#!/bin/sh
echo "{name} $*" >> "{fake}/calls"
cat "{fake}/{name}.says"
[ -e "{fake}/fail.{name}" ] && exit 1
exit 0
"""


class FakeSystemd:
    """A systemd that does what it is told and nothing else; its programs lie in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._program("systemctl", SYSTEMCTL)
        for name in ("journalctl", "loginctl", "systemd-sysusers", "systemd-tmpfiles"):
            self._program(name, OTHER)
            self.says(f"{name}.says", "")
        self.says("loginctl.says", "Linger=yes\n")
        self.says("state", "running\n")
        self.says("problem", "")
        self.unit("LoadState=loaded\nActiveState=active\nMainPID=1\n")
        self.says("show.clawd.socket", "LoadState=loaded\nActiveState=active\n")

    def says(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8", errors="replace", newline="")

    def unit(self, text: str) -> None:
        self.says("show.clawd.service", text)

    def calls(self) -> list[str]:
        """Return what was run since the last time, without questions."""
        path = self.path / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.write_text("", encoding="utf-8")
        return [line for line in lines if " show clawd" not in line and "is-system" not in line]

    def _program(self, name: str, text: str) -> None:
        path = self.path / name
        path.write_text(text.format(fake=self.path, name=name), encoding="utf-8")
        path.chmod(0o755)
