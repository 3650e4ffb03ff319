"""Skills in archives: what is read is bounded, and nothing leads out of the folder."""

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from clawd.plugins.files import MAX_BYTES, MAX_FILES, read_archive, read_tree
from clawd.plugins.loader import PluginPins
from clawd.skills.store import SkillStore
from tests.skills.skill_files import skill, skill_text
from tests.support.rows import each_row

TEXT = skill_text("notes").encode()


def tar(path: Path, *members: tuple[str, bytes], kind: bytes = b"", mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]  # a mode as text
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        if kind:
            info = tarfile.TarInfo("notes/extra")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    return path


def zipped(path: Path, *members: tuple[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return path


@each_row("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_a_folder_in_an_archive_is_read_as_the_folder_is(tmp_path: Path, mode: str) -> None:
    folder, path = skill(tmp_path / "notes"), tmp_path / "notes.archive"
    if mode == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for each in sorted(folder.rglob("*")):
                archive.write(each, each.relative_to(tmp_path))
    else:
        with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]  # a mode as text
            archive.add(folder, "notes")
    name, tree = read_archive(path)
    assert name == "notes"
    assert tree == read_tree(folder, is_installed=False)


def test_an_archive_without_a_folder_is_named_by_its_skill(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", ("SKILL.md", TEXT), ("docs/a.md", b"x"), ("docs/b.md", b"y"))
    pins = PluginPins(tmp_path / "pins.json")
    store = SkillStore(tmp_path / "home", tmp_path / "none", pins, lambda: ())
    look = store.inspect(path)
    assert look.skill.name == "notes"
    place = store.add(path, digest=look.skill.digest)
    assert (place / "docs" / "b.md").read_bytes() == b"y"


@each_row("name", ["/etc/notes/SKILL.md", "../SKILL.md", "notes/../../SKILL.md", "a\\..\\b"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    inside = (("notes/SKILL.md", TEXT),)
    for made in (tar, zipped):
        with pytest.raises(InvalidRequestError, match="leads out"):
            read_archive(made(tmp_path / "bad", *inside, (name, b"x")))
        assert read_archive(made(tmp_path / "good", *inside))[0] == "notes"


@each_row("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_of_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = tar(tmp_path / "a.tar", ("notes/SKILL.md", TEXT), kind=kind)
    with pytest.raises(InvalidRequestError, match="a link or no plain"):
        read_archive(path)


def test_a_link_of_a_zip_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", ("notes/SKILL.md", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777)
    with pytest.raises(InvalidRequestError, match="link"):
        read_archive(path)


def test_one_path_twice_and_a_file_that_is_a_folder_are_refused(tmp_path: Path) -> None:
    twice = (("notes/SKILL.md", TEXT), ("notes//SKILL.md", b"other"))
    both = (("notes/a", b"x"), ("notes/a/b", b"y"))
    with pytest.raises(InvalidRequestError, match="twice"):
        read_archive(tar(tmp_path / "a.tar", *twice))
    with pytest.raises(InvalidRequestError, match="file and folder"):
        read_archive(tar(tmp_path / "b.tar", *both))


def test_what_unpacks_to_more_than_a_skill_may_have_is_refused(tmp_path: Path) -> None:
    large = ("notes/large", bytes(MAX_BYTES + 1))
    many = [(f"notes/{number}", b"") for number in range(MAX_FILES + 1)]
    for path in (
        tar(tmp_path / "a.tar.gz", large, mode="w:gz"),
        tar(tmp_path / "b.tar.gz", ("notes/a", bytes(2 * MAX_BYTES)), mode="w:gz"),
        zipped(tmp_path / "c.zip", large),
        tar(tmp_path / "d.tar", *many),
    ):
        with pytest.raises(InvalidRequestError, match="more than"):
            read_archive(path)


@each_row("data", [b"", b"PK\x03\x04", b"\x1f\x8bno", b"no archive", b"\xfd7zXZ\x00"])
def test_what_is_no_archive_is_told(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(InvalidRequestError):
        read_archive(path)
