"""What was first seen of tools: kept, private, and worth nothing when it cannot be read."""

from pathlib import Path

import pytest

from clawd.errors import StorageError
from clawd.mcp.pins import Pins
from tests.support.rows import each_row


def saved(path: Path) -> Pins:
    pins = Pins(path)
    pins.load()
    pins.note("files", "mark", {"read": "1", "write": "2"})
    pins.save()
    return pins


def loaded(path: Path) -> Pins:
    pins = Pins(path)
    pins.load()
    return pins


def test_what_was_seen_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    assert not saved(path).is_unsaved
    assert path.stat().st_mode & 0o777 == 0o600
    pins = loaded(path)
    assert pins.changed("files", "mark", {"read": "1", "write": "3", "new": "4"}) == {"write"}
    assert pins.changed("other", "mark", {"read": "9"}) == frozenset()
    assert pins.changed("files", "other mark", {"read": "9"}) == frozenset()


def test_what_changed_stays_changed_until_it_is_accepted(tmp_path: Path) -> None:
    pins = saved(tmp_path / "pins.json")
    pins.note("files", "mark", {"read": "9"})
    assert pins.changed("files", "mark", {"read": "9"}) == {"read"}
    assert not pins.is_unsaved
    pins.accept("files", "mark", {"read": "9"})
    assert pins.is_unsaved
    assert pins.changed("files", "mark", {"read": "9"}) == frozenset()
    assert pins.changed("files", "mark", {"write": "9"}) == {"write"}


@each_row("wrong", ["mode", "text", "version", "link"])
def test_a_file_that_cannot_be_trusted_makes_every_tool_a_changed_one(
    tmp_path: Path, wrong: str
) -> None:
    path = tmp_path / "pins.json"
    saved(path)
    match wrong:
        case "mode":
            path.chmod(0o644)
        case "text":
            path.write_text("{")
        case "version":
            path.write_text('{"version": 2}')
        case _:
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
    before = path.read_bytes()
    pins = loaded(path)
    assert pins.problem
    assert pins.changed("files", "mark", {"read": "1"}) == {"read"}
    pins.note("files", "mark", {"read": "1"})
    pins.save()
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    pins = loaded(folder / "pins.json")
    pins.note("files", "mark", {"read": "1"})
    with pytest.raises(StorageError, match="cannot be written"):
        pins.save()
    assert pins.is_unsaved
