"""What was first seen of tools: kept, private, and worth nothing when it cannot be read."""

from pathlib import Path

import pytest

from clawd.errors import StorageError
from clawd.mcp.pins import MAX_TEXT, MAX_TOOLS, Judged, PinFile, offer_of
from tests.support.rows import each_row


def saved(path: Path) -> PinFile:
    pins = PinFile(path)
    pins.load()
    pins.note("files", "mark", {"read": "1", "write": "2"})
    pins.save()
    return pins


def loaded(path: Path) -> PinFile:
    pins = PinFile(path)
    pins.load()
    return pins


def test_what_was_seen_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    assert not saved(path).is_unsaved
    assert path.stat().st_mode & 0o777 == 0o600
    pins = loaded(path)
    now = pins.judged("files", "mark", {"read": "1", "write": "3", "new": "4"})
    assert now == Judged(changed=frozenset({"write"}), new=frozenset({"new"}))
    assert pins.judged("other", "mark", {"read": "9"}) == Judged()
    assert pins.judged("files", "other mark", {"read": "9"}) == Judged()


def test_what_changed_stays_changed_until_it_is_accepted(tmp_path: Path) -> None:
    pins = saved(tmp_path / "pins.json")
    pins.note("files", "mark", {"read": "9"})
    assert pins.judged("files", "mark", {"read": "9"}).changed == {"read"}
    assert not pins.is_unsaved
    pins.accept("files", "mark", {"read": "9"})
    assert pins.is_unsaved
    assert pins.judged("files", "mark", {"read": "9"}).changed == frozenset()
    assert pins.judged("files", "mark", {"write": "9"}).changed == {"write"}


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
    assert pins.judged("files", "mark", {"read": "1"}).changed == {"read"}
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


def test_s7_churn_of_names_neither_drops_a_pin_nor_lets_a_further_name_in(tmp_path: Path) -> None:
    pins = saved(tmp_path / "pins.json")
    for start in range(0, 4 * MAX_TOOLS, 500):
        pins.note("files", "mark", {f"t{start + i}": "x" for i in range(500)})
    pins.save()
    pins = loaded(tmp_path / "pins.json")
    now = pins.judged("files", "mark", {"read": "other", "write": "2", "late": "harmless"})
    assert now == Judged(changed=frozenset({"read"}), refused=frozenset({"late"}))
    # Neither do the names of one server take the room of another.
    assert pins.judged("web", "mark", {"get": "1"}) == Judged()
    # A person who accepts what is there now lets it in, and forgets what is not.
    pins.accept("files", "mark", {"read": "other", "late": "harmless"})
    assert pins.judged("files", "mark", {"read": "other", "late": "harmless"}) == Judged()
    assert pins.judged("files", "mark", {"late": "harmful"}).changed == {"late"}
    assert pins.judged("files", "mark", {"write": "2"}).new == {"write"}


def test_s7_the_first_sight_of_a_server_that_shows_too_many_is_bounded_too(tmp_path: Path) -> None:
    pins = loaded(tmp_path / "pins.json")
    seen = {f"t{i}": "x" for i in range(MAX_TOOLS + 3)}
    before = pins.judged("files", "mark", seen)
    pins.note("files", "mark", seen)
    assert before.refused == pins.judged("files", "mark", seen).refused
    assert before.refused == {f"t{MAX_TOOLS + i}" for i in range(3)}


def test_s7_what_comes_later_is_new_until_it_is_accepted_also_after_a_restart(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pins.json"
    pins = saved(path)
    pins.note("files", "mark", {"read": "1", "late": "3"})
    pins.save()
    pins = loaded(path)
    assert pins.judged("files", "mark", {"read": "1", "late": "3"}).new == {"late"}
    pins.accept("files", "mark", {"read": "1", "late": "3"})
    pins.save()
    assert loaded(path).judged("files", "mark", {"read": "1", "late": "3"}) == Judged()


def test_a_server_is_first_seen_when_it_first_has_tools(tmp_path: Path) -> None:
    pins = loaded(tmp_path / "pins.json")
    pins.note("files", "mark", {})
    assert not pins.is_unsaved
    pins.note("files", "mark", {"read": "1"})
    assert pins.judged("files", "mark", {"read": "1"}) == Judged()


def test_what_a_tool_was_is_kept_where_there_is_room(tmp_path: Path) -> None:
    pins = saved(tmp_path / "pins.json")
    pins.note("files", "mark", {"read": "other", "long": "x" * (MAX_TEXT + 1)})
    pins.save()
    pins = loaded(tmp_path / "pins.json")
    assert pins.text("files", "mark", "read") == "1"
    assert pins.text("files", "mark", "long") is None
    assert pins.judged("files", "mark", {"long": "x"}).changed == {"long"}


def test_an_offer_has_another_hash_when_anything_of_it_is_another() -> None:
    offer = {"read": "1", "write": "2"}
    assert offer_of(offer) == offer_of({"write": "2", "read": "1"})
    others = [{"read": "1"}, {"read": "2", "write": "2"}, {"read": "1", "rite": "2"}, {}]
    assert offer_of(offer) not in {offer_of(each) for each in others}
