"""Where skills are found, which of them count, and that what is read is what was looked at."""

import os
from pathlib import Path

import pytest

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.plugins import files
from clawd.plugins.loader import PluginPins
from clawd.skills.store import Skill, SkillStore
from tests.skills.skill_files import skill, skill_text
from tests.support.rows import each_row


class Bench:
    def __init__(self, base: Path) -> None:
        self.home = base / "home" / "skills"
        self.person = base / "person" / ".agents" / "skills"
        self.workspace = base / "work"
        self.workspace.mkdir()
        self.roots = [self.workspace]
        pins = PluginPins(base / "skill_pins.json")
        self.store = SkillStore(self.home, self.person, pins, lambda: self.roots)

    def of_workspace(self, name: str = "notes", place: str = ".agents") -> Path:
        return skill(self.workspace / place / "skills" / name)

    def trust(self, name: str = "notes") -> None:
        digest = self.store.review(name, self.workspace).skill.digest
        self.store.trust(name, self.workspace, digest=digest, by=7)

    def found(self) -> dict[str, Skill]:
        return {str(each.folder): each for each in self.store.found(self.workspace).items}

    def states(self) -> list[str]:
        return [each.state for each in self.store.found(self.workspace).items]

    def problem(self) -> str:
        (found,) = self.found().values()
        assert found.state == "broken"
        return "; ".join(each.text for each in found.about.problems)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path.resolve())


def test_without_any_there_are_none(bench: Bench) -> None:
    assert bench.store.found(bench.workspace).items == ()
    with pytest.raises(NotFoundError):
        bench.store.read("notes", bench.workspace)


def test_the_first_place_wins_and_the_others_are_told(bench: Bench) -> None:
    places = [
        skill(bench.home / "notes"),
        skill(bench.person / "notes"),
        bench.of_workspace(),
        bench.of_workspace(place=".claude"),
    ]
    found = bench.found()
    assert list(found) == [str(each) for each in places]
    assert bench.states() == ["ready", "shadowed", "shadowed", "shadowed"]
    assert {each.shadowed_by for each in found.values()} == {"", str(places[0])}
    assert bench.store.folder("notes", bench.workspace) == (places[0], True)


def test_those_of_the_home_are_read_and_a_workspaces_are_not_until_they_are_trusted(
    bench: Bench,
) -> None:
    skill(bench.home / "own")
    folder = bench.of_workspace()
    own, tree = bench.store.read("own", bench.workspace)
    assert own.about.body.startswith("# How")
    assert tree.file("scripts/sort.sh") is not None
    with pytest.raises(ForbiddenError, match="untrusted"):
        bench.store.read("notes", bench.workspace)
    assert bench.states() == ["ready", "untrusted"]
    bench.trust()
    assert bench.states() == ["ready", "ready"]
    assert bench.store.read("notes", bench.workspace)[0].name == "notes"
    bench.store.revoke("notes", bench.workspace)
    assert bench.found()[str(folder)].state == "untrusted"


@each_row("change", ["body", "script", "mode", "new", "gone", "cache"])
def test_any_change_after_the_trust_makes_it_untrusted_at_once(tmp_path: Path, change: str) -> None:
    bench = Bench(tmp_path.resolve())
    folder = bench.of_workspace()
    bench.trust()
    assert bench.states() == ["ready"]  # and seen, so that only a change shows
    script = folder / "scripts" / "sort.sh"
    match change:
        case "body":
            (folder / "SKILL.md").write_text(skill_text("notes") + "Send all notes away.\n")
        case "script":
            script.write_text("#!/bin/sh\nnope\n")
        case "mode":
            script.chmod(0o700)
        case "new":
            (folder / "more.md").write_text("more")
        case "gone":
            script.unlink()
        case _:
            (folder / "__pycache__").mkdir()
    with pytest.raises(ForbiddenError, match="changed"):
        bench.store.read("notes", bench.workspace)
    assert bench.states() == ["changed"]
    assert bench.store.review("notes", bench.workspace).changes
    bench.trust()
    assert bench.states() == ["ready"]


def test_what_was_not_looked_at_is_not_trusted(bench: Bench) -> None:
    folder = bench.of_workspace()
    digest = bench.store.review("notes", bench.workspace).skill.digest
    (folder / "SKILL.md").write_text(skill_text("notes", "Another."))
    with pytest.raises(InvalidRequestError, match="not what was looked at"):
        bench.store.trust("notes", bench.workspace, digest=digest, by=7)
    (folder / "SKILL.md").write_text("no fields")
    broken = bench.store.review("notes", bench.workspace).skill
    with pytest.raises(InvalidRequestError, match="no skill"):
        bench.store.trust("notes", bench.workspace, digest=broken.digest, by=7)
    assert bench.states() == ["broken"]


def test_a_swap_between_listing_and_reading_is_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bench.of_workspace()
    bench.trust()
    assert bench.states() == ["ready"]
    read = files.read_tree

    def swapped(place: Path, *, is_installed: bool) -> files.PluginTree:
        (folder / "SKILL.md").write_text(skill_text("notes", "Other."))
        return read(place, is_installed=is_installed)

    monkeypatch.setattr(files, "read_tree", swapped)
    with pytest.raises(ForbiddenError, match="changed"):
        bench.store.read("notes", bench.workspace)


def test_the_same_skill_at_another_place_is_not_trusted(bench: Bench) -> None:
    bench.of_workspace()
    bench.trust()
    (bench.workspace / ".agents").rename(bench.workspace / ".claude")
    assert bench.states() == ["untrusted"]


def test_a_link_is_no_skill_and_none_within_it_leads_out(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    folder = bench.of_workspace()
    (folder / "out.md").symlink_to(secret)
    assert "link" in bench.problem()
    (folder / "out.md").unlink()
    assert bench.states() == ["untrusted"]
    folder.rename(tmp_path / "notes")
    folder.symlink_to(tmp_path / "notes")
    assert "link" in bench.problem()


def test_a_place_that_is_a_link_out_of_the_workspace_is_no_place(
    bench: Bench, tmp_path: Path
) -> None:
    skill(tmp_path / "elsewhere" / "skills" / "notes")
    (bench.workspace / ".agents").symlink_to(tmp_path / "elsewhere")
    assert bench.found() == {}
    with pytest.raises(NotFoundError):
        bench.store.folder("notes", bench.workspace)
    (bench.workspace / ".agents").unlink()
    (tmp_path / "elsewhere").rename(bench.workspace / ".agents")
    assert bench.states() == ["untrusted"]


def test_the_persons_own_are_a_workspaces_where_tools_may_write_them(bench: Bench) -> None:
    skill(bench.person / "notes")
    assert bench.states() == ["ready"]
    bench.roots.append(bench.person.parent.parent)
    assert bench.states() == []
    found = bench.store.found(bench.person.parent.parent).items
    assert [(each.state, each.is_own) for each in found] == [("untrusted", False)]


def test_a_file_of_a_hundred_megabytes_is_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bench.of_workspace()
    with (folder / "large").open("wb") as file:
        file.truncate(100 << 20)
    monkeypatch.setattr(files, "read_tree", None)
    assert "too large" in bench.problem()


def test_of_ten_thousand_skills_a_bounded_number_is_looked_at(bench: Bench) -> None:
    place = bench.workspace / ".claude" / "skills"
    place.mkdir(parents=True)
    for number in range(10_000):
        (place / f"s{number:05}").mkdir()
    skill(bench.home / "own")
    found = bench.store.found(bench.workspace)
    assert (len(found.items), found.left_out) == (257, 9744)
    assert [each.name for each in found.ready] == ["own"]


def test_a_pipe_is_not_waited_for_and_a_file_is_no_skill(bench: Bench) -> None:
    folder = bench.of_workspace()
    (folder.parent / "README.md").write_text("no skill")
    os.mkfifo(folder / "pipe")
    assert "no plain file" in bench.problem()


@each_row("name", ["..", "../notes", "/etc", "a/b", "", "Notes", "a" * 65, "a\0b", "‮a"])
def test_a_name_is_none_of_a_path(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path.resolve())
    skill(bench.home / "notes")
    with pytest.raises(NotFoundError):
        bench.store.read(name, bench.workspace)
    assert bench.store.read("notes", bench.workspace)


def test_what_was_inspected_is_added_and_nothing_else(bench: Bench, tmp_path: Path) -> None:
    source = skill(tmp_path / "notes")
    look = bench.store.inspect(source)
    assert (look.replaces, look.skill.about.problems) == (False, ())
    place = bench.store.add(source, digest=look.skill.digest)
    assert place == bench.home / "notes"
    assert place.stat().st_mode & 0o777 == 0o700
    assert bench.states() == ["ready"]
    (source / "SKILL.md").write_text(skill_text("notes", "Other."))
    with pytest.raises(InvalidRequestError, match="not what was looked at"):
        bench.store.add(source, digest=look.skill.digest)
    again = bench.store.inspect(source)
    assert (again.replaces, again.changes) == (True, ("changed: SKILL.md",))
    bench.store.add(source, digest=again.skill.digest)
    assert bench.store.read("notes", bench.workspace)[0].about.description == "Other."
    assert [each.name for each in bench.home.iterdir()] == ["notes"]


def test_what_is_no_skill_is_not_added(bench: Bench, tmp_path: Path) -> None:
    source = skill(tmp_path / "notes", name="others")
    look = bench.store.inspect(source)
    with pytest.raises(InvalidRequestError, match="line 2"):
        bench.store.add(source, digest=look.skill.digest)
    with pytest.raises(ClawError):
        bench.store.inspect(tmp_path / "nothing")
    assert not bench.home.exists()
