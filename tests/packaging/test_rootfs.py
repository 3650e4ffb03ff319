"""The Debian root for booted tests: made where it is wanted, once, and never taken half-made."""

from pathlib import Path

import pytest
from bootstrap import rootfs
from bootstrap.steps import SetupError

MAKES = """#!/bin/sh
echo "$@" >> "$CALLS"
eval root=\\${$(($# - 1))}
mkdir -p "$root/var/cache/apt/archives" "$root/var/lib/apt/lists" "$root/usr"
touch "$root/var/cache/apt/archives/some.deb"
[ -z "$FAILS" ] || exit 1
"""
UNSHARE = """#!/bin/sh
shift 3
place=$6
"$@"
status=$?
rm "$place" && mkdir "$place"
exit $status
"""
# There is no namespace here: the place becomes a link instead, and `unshare` takes it away.
MOUNT = """#!/bin/sh
rmdir "$3" && ln -s "$2" "$3"
"""
APT = """#!/bin/sh
echo "http://mirror.example/security bookworm-security"
echo "http://mirror.example/debian bookworm"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with programs that only note how they were called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    fakes = {"debootstrap": MAKES, "unshare": UNSHARE, "mount": MOUNT, "apt-get": APT}
    for name, text in fakes.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    noted = tmp_path / "calls"
    noted.touch()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(noted))
    monkeypatch.setenv("FAILS", "")
    monkeypatch.setattr(rootfs, "ROOTFS", tmp_path / "with blanks" / "rootfs")
    monkeypatch.setattr(rootfs, "LOG", tmp_path / "rootfs.log")
    return noted


def test_a_root_is_made_once_from_the_mirror_of_this_machine(calls: Path) -> None:
    rootfs.make_rootfs()
    rootfs.make_rootfs()

    (call,) = calls.read_text(encoding="utf-8").splitlines()
    root, mirror = call.split(" bookworm ")[1].split(" ", 1)
    assert root.endswith("/root")
    assert mirror == "http://mirror.example/debian"
    assert "systemd" in call
    assert (rootfs.ROOTFS / "root" / "usr").is_dir()
    assert not (rootfs.ROOTFS / "root" / "var/lib/apt/lists").exists()


def test_a_root_cut_short_is_made_again(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(SetupError):
        rootfs.make_rootfs()
    monkeypatch.setenv("FAILS", "")

    rootfs.make_rootfs()

    assert len(calls.read_text(encoding="utf-8").splitlines()) == 2


def test_without_being_asked_none_is_made(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv(rootfs.ASKED_FOR, raising=False)

    rootfs.prepare_rootfs()

    assert calls.read_text(encoding="utf-8") == ""
