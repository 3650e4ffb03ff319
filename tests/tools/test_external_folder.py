"""The folder of manifests: what is read, what is left out and why; the rest always loads."""

import os
from pathlib import Path

import pytest

from clawd.tools.external import (
    MAX_FILE_BYTES,
    Found,
    ManifestProblem,
    Places,
    read_folder,
    without_collisions,
)
from tests.tools.external_files import entry, manifest


class Folder:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.path = self.home / "tools"
        self.path.mkdir(parents=True)
        self.places = Places(home=self.home, writable=(base / "ws",))

    def put(self, name: str, text: str) -> Path:
        file = self.path / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
        return file

    def read(self) -> Found:
        return read_folder(self.path, self.places)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def names(found: Found) -> list[str]:
    return [spec.name for spec in found.specs]


def test_a_folder_that_is_not_there_holds_no_tools(tmp_path: Path) -> None:
    assert read_folder(tmp_path / "none", Places(home=tmp_path)) == Found()


def test_one_broken_file_leaves_the_others_loaded(folder: Folder) -> None:
    folder.put("CLAWD-a.tools", manifest(entry(name="a1"), entry(name="a2")))
    broken = folder.put("CLAWD-b.tools", '{"version": 1,\n "tools": [}')
    folder.put("CLAWD-c.tools", manifest(entry(name="c1")))
    found = folder.read()
    assert names(found) == ["a1", "a2", "c1"]
    assert found.problems == (
        ManifestProblem(file=str(broken), line=2, reason=found.problems[0].reason),
    )
    assert "no JSON" in found.problems[0].reason


def test_one_broken_tool_refuses_its_whole_file(folder: Folder) -> None:
    folder.put("CLAWD-a.tools", manifest(entry(name="a1"), entry(name="a2", timeout_ms=1)))
    found = folder.read()
    assert names(found) == []
    assert found.problems[0].line == 13


def test_only_files_named_as_manifests_are_read(folder: Folder) -> None:
    for name in ("README", "clawd-a.tools", "CLAWD-.tools", "CLAWD-a.tools.bak", "x.tools"):
        folder.put(name, manifest(entry(name="x")))
    found = folder.read()
    assert names(found) == []
    warned = {Path(each.file).name: each.severity for each in found.problems}
    expected = ("clawd-a.tools", "CLAWD-.tools", "x.tools")
    assert warned == dict.fromkeys(expected, "warning")


def test_a_file_may_have_one_mebibyte_and_no_more(folder: Folder) -> None:
    text = manifest(entry(name="a"))
    folder.put("CLAWD-a.tools", text + " " * (MAX_FILE_BYTES - len(text)))
    assert names(folder.read()) == ["a"]
    folder.put("CLAWD-a.tools", text + " " * (MAX_FILE_BYTES + 1 - len(text)))
    found = folder.read()
    assert names(found) == []
    assert found.problems[0].reason == "it is longer than 1048576 bytes"


def test_all_files_together_hold_128_tools(folder: Folder) -> None:
    folder.put("CLAWD-a.tools", manifest(*(entry(name=f"a{n}") for n in range(100))))
    folder.put("CLAWD-b.tools", manifest(*(entry(name=f"b{n}") for n in range(29))))
    folder.put("CLAWD-c.tools", manifest(*(entry(name=f"c{n}") for n in range(28))))
    found = folder.read()
    assert len(found.specs) == 128
    assert {name[0] for name in names(found)} == {"a", "c"}
    assert "more than 128" in found.problems[0].reason


def test_what_is_no_plain_utf8_file_is_left_out(folder: Folder) -> None:
    os.mkfifo(folder.path / "CLAWD-pipe.tools")
    (folder.path / "CLAWD-dir.tools").mkdir()
    (folder.path / "CLAWD-gone.tools").symlink_to("nowhere")
    (folder.path / "CLAWD-latin.tools").write_bytes(b'{"version": 1,\n"\xff": 2}')
    folder.put("CLAWD-ok.tools", manifest(entry(name="ok")))
    found = folder.read()
    assert names(found) == ["ok"]
    why = {Path(each.file).name: (each.line, each.reason) for each in found.problems}
    assert why["CLAWD-pipe.tools"] == (1, "it is no plain file")
    assert why["CLAWD-latin.tools"] == (2, "it is no UTF-8")
    assert "cannot be read" in why["CLAWD-dir.tools"][1] or "plain" in why["CLAWD-dir.tools"][1]
    assert "cannot be read" in why["CLAWD-gone.tools"][1]


def test_what_everybody_may_write_is_warned_about(folder: Folder) -> None:
    file = folder.put("CLAWD-a.tools", manifest(entry(name="a")))
    file.chmod(0o666)
    folder.path.chmod(0o777)
    found = folder.read()
    assert names(found) == ["a"]
    warned = [each.file for each in found.problems if each.severity == "warning"]
    assert warned == [str(folder.path), str(file)]


def test_a_manifest_of_another_user_is_refused(folder: Folder) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    file = folder.put("CLAWD-a.tools", manifest(entry(name="a")))
    os.chown(file, 70_001, 70_001)
    found = folder.read()
    assert names(found) == []
    assert "belongs to uid 70001" in found.problems[0].reason


def test_manifests_where_the_model_could_write_are_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    theirs = tmp_path / "ws" / "tools"
    theirs.mkdir(parents=True)
    (theirs / "CLAWD-a.tools").write_text(manifest(entry(name="a")), encoding="utf-8")
    found = read_folder(theirs, folder.places)
    assert names(found) == []
    assert "where a workspace may be" in found.problems[0].reason
    folder.put("CLAWD-b.tools", manifest(entry(name="b")))
    (folder.path / "CLAWD-c.tools").symlink_to(theirs / "CLAWD-a.tools")
    found = folder.read()
    assert names(found) == ["b"]
    assert "where a workspace may be" in found.problems[0].reason


def test_a_home_within_a_workspace_root_is_the_homes_own(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.put("CLAWD-b.tools", manifest(entry(name="b")))
    assert names(read_folder(folder.path, Places(home=folder.home, writable=(tmp_path,)))) == ["b"]


def test_a_name_that_is_taken_is_refused_and_the_rest_stays(folder: Folder) -> None:
    folder.put("CLAWD-a.tools", manifest(entry(name="shell"), entry(name="twice")))
    folder.put("CLAWD-b.tools", manifest(entry(name="twice"), entry(name="b")))
    found = without_collisions(folder.read(), {"shell", "time"})
    assert names(found) == ["twice", "b"]
    assert [(each.tool, Path(each.file).name, each.reason) for each in found.problems] == [
        ("shell", "CLAWD-a.tools", "a tool of clawd is called `shell` already"),
        ("twice", "CLAWD-b.tools", "another external tool is called `twice` already"),
    ]
